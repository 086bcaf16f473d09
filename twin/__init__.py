"""Google Cloud on one machine: real engine, real Kubernetes, real Ray; only Google's services are simulated."""
