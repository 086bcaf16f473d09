"""Google Cloud on one machine: what its services accept, remember, refuse, and how long they take."""
