"""Every order that the program declares, for no value expresses it: the contract behind each explicit `depends_on`.

A row names what waits, and what it waits for. On the way down it is gone before that goes.
"""

from collections.abc import Mapping

SERVICES = frozenset(
    f"services-{api}"
    for api in (
        "cloudresourcemanager",
        "compute",
        "container",
        "iam",
        "logging",
        "lustre",
        "monitoring",
        "servicenetworking",
    )
)
ROLES = frozenset(
    f"gke-nodes-{role}"
    for role in (
        "artifactregistry.reader",
        "logging.logWriter",
        "monitoring.metricWriter",
        "monitoring.viewer",
        "stackdriver.resourceMetadata.writer",
    )
)
ALERTS = frozenset({"monitoring-free-space", "monitoring-idle-gpus", "monitoring-no-saves"})
NICS = frozenset({"networks-gvnic-1", *(f"networks-rdma-{nic}" for nic in range(8))})

DECLARED_ORDER: Mapping[str, frozenset[str]] = {
    # Google answers 403 where an API is off; all else on Google follows from these three.
    "network": SERVICES,
    "fast": SERVICES,
    "monitoring": SERVICES,
    # Google makes no instance before the connection, and deletes no connection before the last instance.
    # The guard refuses to lose data before Google is asked for anything.
    "lustre-instance": frozenset({"access-connection", "lustre-guard"}),
    # A node without its roles runs, logs nothing and pulls no image from Artifact Registry. Lustre never goes under
    # pods that may still run: where their API server cannot be asked, the end of their nodes is the only sign.
    "gke-system": ROLES | {"lustre-instance"},
    "gpus-pool": ROLES | {"lustre-instance"},
    # Pods mount Lustre, speak to each other and have NICs, to the run's last moment.
    "ray": NICS | {"lustre-port", "network-internal", "fast-gvnic-internal", "gib-installer"},
    # Pods have their files, no open port, and an account that KubeRay can start the head with.
    "ray-cluster": frozenset({"ray-secrets", "ray-fence", "ray-scaler-grant"}),
    # Never a right without the fence round it.
    "ray-scaler-grant": frozenset({"ray-scaler-enforcement"}),
    # Asked before all else when the stack is destroyed.
    "work": ALERTS | {"grpo", "monitoring-dashboard"},
}

SITES: Mapping[tuple[str, str], frozenset[str]] = {
    ("__main__.py", "[services]"): frozenset({"network", "fast", "monitoring"}),
    ("__main__.py", "needed"): frozenset({"ray"}),
    ("__main__.py", "[job, *([monitoring] if monitoring else [])]"): frozenset({"work"}),
    ("components/gke_cluster.py", "self.before_nodes"): frozenset({"gke-system"}),
    ("components/gpu_node_pool.py", "args.cluster.before_nodes"): frozenset({"gpus-pool"}),
    (
        "components/managed_lustre.py",
        "[guard] if args.access.connection is None else [guard, args.access.connection]",
    ): frozenset({"lustre-instance"}),
    ("components/ray_cluster.py", "needed"): frozenset({"ray-cluster"}),
    ("components/worker_scaler.py", "[in_force]"): frozenset({"ray-scaler-grant"}),
}
"""Each `depends_on` in the sources, by file and value, and what waits because of it."""

VALUED_ORDER: Mapping[str, str] = {
    "grpo": "ray-cluster",
    "ray-cluster": "volume-claim",
    "volume-claim": "volume-volume",
    "volume-volume": "lustre-instance",
    "access-connection": "access-range",
    "access-range": "network-vpc",
    "gke-cluster": "network-subnet",
    "gke-system": "gke-cluster",
}
"""What follows from values and matters at destroy, too: the way from the job down to the network."""


def order_at_destroy() -> set[tuple[str, str]]:
    """Pairs of which the first is gone before the second goes."""
    return {(later, each) for later, earlier in DECLARED_ORDER.items() for each in earlier} | set(VALUED_ORDER.items())
