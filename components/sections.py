"""The sections of a stack's config, each one frozen model that refuses keys it does not know.

A model holds what one section means by itself; what must hold between fields or sections stands in `rules/`. Values
are plain: secrets and outputs of resources never enter these models.
"""

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

from jobs.releases import Release


class Section(BaseModel):
    """Base of all sections: frozen, and a misspelt key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", protected_namespaces=())


class ProjectSection(Section):
    """Where everything lies.

    Attributes:
        project_id: the Google Cloud project.
        region: its region, for the cluster and the subnet.
        zone: the zone of GPUs and Lustre.
        labels: labels on what Google bills; changing them touches no RayCluster, no pod and no job.
    """

    project_id: str = Field(pattern=r"^[a-z][-a-z0-9]{4,28}[a-z0-9]$")
    region: str
    zone: str
    labels: dict[str, str] = Field(default_factory=dict)


class CreateNetwork(Section):
    """A network of the stack's own.

    Attributes:
        subnet_cidr: addresses of the nodes.
        pods_cidr: addresses of the pods.
        services_cidr: addresses of the services.
        mtu: largest packet, bytes; 8896 gives Lustre about a tenth more throughput than 1460.
    """

    source: Literal["create"]
    subnet_cidr: IPv4Network = IPv4Network("192.168.0.0/18")
    pods_cidr: IPv4Network = IPv4Network("10.4.0.0/14")
    services_cidr: IPv4Network = IPv4Network("10.0.32.0/20")
    mtu: int = Field(default=8896, ge=1300, le=8896)


class ExistingNetwork(Section):
    """A network that somebody else made: read, never changed or deleted.

    Attributes:
        network_name: its name.
        subnet_name: a subnet of it in the stack's region.
        pods_range_name: the subnet's secondary range for pods.
        services_range_name: the subnet's secondary range for services.
    """

    source: Literal["existing"]
    network_name: str
    subnet_name: str
    pods_range_name: str
    services_range_name: str


NetworkSection = Annotated[CreateNetwork | ExistingNetwork, Field(discriminator="source")]

DeletionPolicy = Literal["DELETE", "REMOVE_PEERING", "ABANDON"]


class ServiceRange(Section):
    """The addresses of Google's services (Lustre) as the network sees them; Lustre's firewall opens for these.

    Attributes:
        range_start: first address of the range; it is rounded down to the prefix.
        prefix_length: size of the range; Managed Lustre needs a /24 or larger.
    """

    range_start: IPv4Address
    prefix_length: int = Field(ge=8, le=29)

    @property
    def cidr(self) -> IPv4Network:
        """The range as a network."""
        return IPv4Network((self.range_start, self.prefix_length), strict=False)


class CreatePrivateServiceAccess(ServiceRange):
    """A range and a connection of the stack's own.

    Attributes:
        deletion_policy: what becomes of the connection at destroy; left out, it is REMOVE_PEERING on a network of the
            stack's own and ABANDON on an existing one. ABANDON leaves the range behind too: the next stack on that
            network then takes `source: existing`.
    """

    source: Literal["create"]
    range_start: IPv4Address = IPv4Address("10.64.0.0")
    prefix_length: int = Field(default=22, ge=8, le=29)
    deletion_policy: DeletionPolicy | None = None


class ExistingPrivateServiceAccess(ServiceRange):
    """A connection that the existing network has already; a network can have but one. Nothing is read or made.

    Its range is the user's to say: with a wrong one the firewall keeps Lustre's servers out, and no pod mounts.
    """

    source: Literal["existing"]


PrivateServiceAccessSection = Annotated[
    CreatePrivateServiceAccess | ExistingPrivateServiceAccess, Field(discriminator="source")
]


def lustre_port(*, legacy: bool) -> int:
    """Return the TCP port of Lustre's network."""
    return 6988 if legacy else 988


class LustrePort(Section):
    """The one setting behind three others: instance, CSI driver and firewall must agree, or no pod can mount.

    Attributes:
        legacy_port: port 6988, for GKE before 1.33.2-gke.4780000 and for instances made with GKE support; else 988.
    """

    legacy_port: bool = False

    @property
    def port(self) -> int:
        """The TCP port of Lustre's network."""
        return lustre_port(legacy=self.legacy_port)


class CreateLustre(LustrePort):
    """An instance of the stack's own.

    Attributes:
        capacity_gib: size; it can grow later, never shrink.
        throughput_mbps_per_tib: the tier; fixed for the life of the instance.
        filesystem: name in the mount point; fixed for the life of the instance.
    """

    source: Literal["create"]
    capacity_gib: PositiveInt
    throughput_mbps_per_tib: Literal[125, 250, 500, 1000]
    filesystem: str = "lustrefs"


class ExistingLustre(LustrePort):
    """An instance that somebody else made: read, never changed or deleted; its firewall and peering are theirs too.

    Attributes:
        instance_id: its id, in the stack's zone.
    """

    source: Literal["existing"]
    instance_id: str


LustreSection = Annotated[CreateLustre | ExistingLustre, Field(discriminator="source")]


class AuthorizedNetwork(Section):
    """Addresses that may reach the control plane's IP endpoint.

    Attributes:
        name: shown in the console.
        cidr: the addresses.
    """

    name: str
    cidr: IPv4Network


class SystemPool(Section):
    """The nodes of the Ray head and of the cluster's own pods; never spot.

    Attributes:
        machine_type: a machine type without GPUs.
        node_count: nodes, all in the stack's zone.
        disk_gib: boot disk; it holds the trainer's image, tens of GB, unpacked.
    """

    machine_type: str = "n2d-highmem-16"
    node_count: PositiveInt = 1
    disk_gib: int = Field(default=200, ge=50)


class CreateCluster(Section):
    """A GKE cluster of the stack's own.

    Attributes:
        min_version: GKE version to start with, for example 1.35; the release channel takes it from there.
        authorized_networks: who may reach the control plane by address; with none there is no IP endpoint, and IAM
            guards the DNS endpoint.
        ray_operator: the RayOperator add-on.
        deletion_protection: whether Google refuses to delete the cluster.
        system_pool: the nodes of the Ray head.
    """

    source: Literal["create"]
    min_version: str = Field(default="1.35", pattern=r"^1\.\d+(\.\d+(-gke\.\d+)?)?$")
    authorized_networks: tuple[AuthorizedNetwork, ...] = ()
    ray_operator: bool = True
    deletion_protection: bool = False
    system_pool: SystemPool = SystemPool()


class ExistingCluster(Section):
    """A cluster that somebody else made: read, never changed or deleted, but for the GPU pool that the stack adds.

    Attributes:
        cluster_name: its name, in the stack's region.
        system_pool_name: the node pool for the Ray head.
        node_service_account: e-mail of the service account that the GPU nodes run as.
    """

    source: Literal["existing"]
    cluster_name: str
    system_pool_name: str
    node_service_account: str


ClusterSection = Annotated[CreateCluster | ExistingCluster, Field(discriminator="source")]


class SpotCapacity(Section):
    """Nodes that Google may take back at any time."""

    kind: Literal["spot"]


class ReservationCapacity(Section):
    """Nodes out of a reservation.

    Attributes:
        reservation: its name, or `projects/P/reservations/N` for one that another project shares.
    """

    kind: Literal["reservation"]
    reservation: str


class FlexStartCapacity(Section):
    """Nodes that come when Google has them, for a limited time.

    Attributes:
        max_run_duration_s: seconds after which a node goes; Google's limit is seven days.
    """

    kind: Literal["flex_start"]
    max_run_duration_s: int = Field(ge=600, le=7 * 24 * 3600)


Capacity = Annotated[SpotCapacity | ReservationCapacity | FlexStartCapacity, Field(discriminator="kind")]


class GpuPoolSection(Section):
    """The GPU nodes.

    Attributes:
        machine_type: a machine type with GPUs.
        node_count: nodes of a run; the most that the pool ever has.
        scaling: elastic has none until a job asks and gives them back; fixed keeps them all.
        boot_disk_gib: boot disk; images and pods live on the local SSDs.
        capacity: how the nodes are bought.
        fast_network: RDMA between the nodes: networks, NICs in the pods, NCCL through gIB; all of it or nothing. Left
            out, it is on where the machine type has RDMA NICs. An existing cluster must have Dataplane V2 and
            multi-networking on, which no preview can see, and no such objects of somebody else's.
        gvnic_cidr: addresses of the second gVNICs, in a network of their own.
        rdma_cidr: addresses of the RDMA NICs, cut into a subnet for each NIC of a node.
    """

    machine_type: str
    node_count: PositiveInt
    scaling: Literal["elastic", "fixed"] = "elastic"
    boot_disk_gib: int = Field(default=100, ge=50)
    capacity: Capacity
    fast_network: bool | None = None
    gvnic_cidr: IPv4Network = IPv4Network("192.168.64.0/18")
    rdma_cidr: IPv4Network = IPv4Network("192.168.128.0/18")


class PodResources(Section):
    """What one Ray pod requests and may use.

    Attributes:
        cpu: CPUs; Ray offers as many to its tasks.
        memory_gib: memory, GiB.
        shm_gib: of that, shared memory at /dev/shm, GiB; Ray's object store and NCCL live there. Half if left out.
    """

    cpu: PositiveInt
    memory_gib: PositiveInt
    shm_gib: PositiveInt | None = None

    @property
    def shared_memory_gib(self) -> int:
        """Size of /dev/shm, GiB."""
        return self.shm_gib or max(1, self.memory_gib // 2)


class RaySection(Section):
    """The Ray cluster.

    Attributes:
        image: the trainer's image, of head and workers.
        image_streaming: GKE's image streaming on all nodes: pods start while their image still comes. Only images in
            Artifact Registry are streamed.
        release: what the image holds, for an image that the table of releases does not know.
        ray_version: only to state what is expected: it follows from the image, and a contradiction is an error.
        namespace: Kubernetes namespace; it must be there.
        head: the head pod. Its `cpu` is at least 1: NeMo-RL places one CPU on every living node and waits for it.
        worker: one worker pod; left out, it takes what the machine type leaves to a pod.
        workers_after_run: release gives the workers back when a run ends, and an elastic pool its nodes with them; the
            next run takes them again. keep has them from `up` to `destroy`.
        head_start_timeout_s: seconds for the head to become ready; most of it is the image's pull.
    """

    image: str
    image_streaming: bool = False
    release: Release | None = None
    ray_version: str | None = None
    namespace: str = "default"
    head: PodResources = PodResources(cpu=8, memory_gib=64)
    worker: PodResources | None = None
    workers_after_run: Literal["release", "keep"] = "release"
    head_start_timeout_s: PositiveInt = 2400

    @property
    def releases_workers(self) -> bool:
        """Whether a run takes and releases its workers."""
        return self.workers_after_run == "release"


class MonitoringSection(Section):
    """The dashboard and the alerts. The section may be left out.

    Attributes:
        enabled: whether there are any.
        notification_channels: who is told, `projects/P/notificationChannels/N`; with none, alerts are seen in the
            console only.
        expected_step_s: seconds of a step, an estimate until a run has measured it; three save periods of it without
            a checkpoint's worth of writes are an alert.
    """

    enabled: bool = True
    notification_channels: tuple[str, ...] = ()
    expected_step_s: PositiveFloat = 600
