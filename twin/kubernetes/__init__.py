"""The twin's GKE: a real control plane, node pools as KWOK nodes, KubeRay's operator, Ray pods as real processes."""
