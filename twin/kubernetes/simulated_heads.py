"""Ray pods of a twin without Ray: KWOK makes them Ready, and each RayCluster's head answers with a simulated dashboard.

No image, Secret or volume of such a pod is looked for, and no process of it runs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from twin.kubernetes.api import PODS, ApiClient, Manifest
from twin.kubernetes.ray_pods import forward_dashboard, is_head, is_ray, ray_cluster_of
from twin.kubernetes.simulated_dashboard import SimulatedDashboard


@dataclass
class SimulatedHeads:
    """The heads of one cluster.

    Attributes:
        dashboards: uid of a RayCluster to its dashboard; a RayCluster made anew has another, which knows no job.
        forwarded: uids of the head pods whose port leads to their dashboard.
    """

    api: ApiClient
    dashboards: dict[str, SimulatedDashboard] = field(default_factory=dict)
    forwarded: set[str] = field(default_factory=set)

    def reconcile(self, pods: Sequence[Manifest], node_names: Iterable[str]) -> None:
        """Give each head that was bound to a node its dashboard, and end what has lost its node or its RayCluster."""
        machines = set(node_names)
        rays = [pod for pod in pods if is_ray(pod)]
        for pod in [pod for pod in rays if "nodeName" in pod["spec"]]:
            uid = pod["metadata"]["uid"]
            if pod["spec"]["nodeName"] not in machines:
                self.api.delete(PODS, pod["metadata"]["name"], pod["metadata"]["namespace"], uid=uid)
            elif is_head(pod) and uid not in self.forwarded:
                dashboard = self.dashboards.get(ray_cluster_of(pod)) or SimulatedDashboard()
                self.dashboards[ray_cluster_of(pod)] = dashboard
                forward_dashboard(self.api, pod, dashboard.port)
                self.forwarded.add(uid)
        for cluster in self.dashboards.keys() - {ray_cluster_of(pod) for pod in rays}:
            self.dashboards.pop(cluster).close()

    def close(self) -> None:
        """End all dashboards."""
        for dashboard in self.dashboards.values():
            dashboard.close()
