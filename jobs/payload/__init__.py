"""All that is uploaded to the cluster: the supervisor of a run, on the standard library and the image's Ray."""
