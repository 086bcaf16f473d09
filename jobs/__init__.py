"""The job side: what trains, how it is submitted, watched and stopped."""
