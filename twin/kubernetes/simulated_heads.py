"""Ray pods of a twin without Ray: KWOK makes them Ready, and each RayCluster's head answers with a simulated dashboard.

No image of such a pod is looked for, and no process of it runs; but a Secret that is missing, or a Lustre that cannot
be mounted, keeps it waiting as it would a real one.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from twin.kubernetes.api import PODS, ApiClient, Manifest
from twin.kubernetes.kwok import MOUNTED
from twin.kubernetes.pod_sources import Obstacle
from twin.kubernetes.ray_pods import forward_dashboard, is_head, is_ray, ray_cluster_of
from twin.kubernetes.simulated_dashboard import SimulatedDashboard


@dataclass
class SimulatedHeads:
    """The heads of one cluster.

    Attributes:
        dashboards: uid of a RayCluster to its dashboard; a RayCluster made anew has another, which knows no job.
        forwarded: uids of the head pods whose port leads to their dashboard.
        mounted: uids of the pods that have all that they refer to.
    """

    api: ApiClient
    dashboards: dict[str, SimulatedDashboard] = field(default_factory=dict)
    forwarded: set[str] = field(default_factory=set)
    mounted: set[str] = field(default_factory=set)

    def reconcile(
        self,
        pods: Sequence[Manifest],
        node_names: Iterable[str],
        obstacles: Callable[[Manifest], Sequence[Obstacle]],
    ) -> dict[str, str]:
        """Give each head that was bound to a node its dashboard, and end what has lost its node or its RayCluster.

        Args:
            pods: the cluster's pods.
            node_names: its nodes.
            obstacles: says what keeps a pod from starting.

        Returns:
            what pods wait for, by name.
        """
        waiting = {}
        machines = set(node_names)
        rays = [pod for pod in pods if is_ray(pod)]
        for pod in [pod for pod in rays if "nodeName" in pod["spec"]]:
            uid = pod["metadata"]["uid"]
            if pod["spec"]["nodeName"] not in machines:
                self.api.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], uid=uid)
                continue
            if uid not in self.mounted and (missing := obstacles(pod)):
                waiting[pod["metadata"]["name"]] = "; ".join(each.message for each in missing)
            elif uid not in self.mounted:
                changes = {"metadata": {"annotations": {MOUNTED: "true"}}}
                self.api.patch(PODS, pod["metadata"]["name"], changes, pod["metadata"]["namespace"])
                self.mounted.add(uid)
            if is_head(pod) and uid not in self.forwarded:
                dashboard = self.dashboards.get(ray_cluster_of(pod)) or SimulatedDashboard()
                self.dashboards[ray_cluster_of(pod)] = dashboard
                forward_dashboard(self.api, pod, dashboard.port)
                self.forwarded.add(uid)
        for cluster in self.dashboards.keys() - {ray_cluster_of(pod) for pod in rays}:
            self.dashboards.pop(cluster).close()
        return waiting

    def close(self) -> None:
        """End all dashboards."""
        for dashboard in self.dashboards.values():
            dashboard.close()
