"""A Cloud Monitoring dashboard of the run, and three alerts: Lustre full, a run that saves nothing, GPUs that idle.

Everything is asked in PromQL, so that Google's metrics of Lustre and the cluster's own (DCGM, Ray, both collected by
managed Prometheus) stand side by side. Names of metrics: Google's page on Managed Lustre's metrics (a beta), NVIDIA's
dcgm-exporter, Ray's dashboards. No query has been tried on Google Cloud yet. Thresholds follow from the recipe, as far
as the model's name states a size.
"""

import json
from dataclasses import dataclass
from typing import Any

import pulumi
import pulumi_gcp as gcp
from pulumi import Output, ResourceOptions

from components.config import StackConfig
from components.rules.checkpoints import FREE_CHECKPOINTS
from components.sections import ExistingCluster, ExistingLustre
from jobs.checkpoint_maths import checkpoint_bytes
from jobs.model_size import named_parameters

FREE_SHARE = 0.1
"""Of the capacity, for a model of unknown size."""
SAVE_PERIODS = 3
UNKNOWN_SAVE_BYTES = 2**30
"""What a save writes at least, for a model of unknown size; the supervisor's and the trainer's logs write less."""
LONGEST_WINDOW_S = 86_400
"""Cloud Monitoring's alerts look back a day (unverified)."""
BUSY_PERCENT = 5
IDLE_S = 3600
"""A node's first pull and loading a model leave GPUs idle for less."""

_TILE_WIDTH, _TILE_HEIGHT, _TILES_PER_ROW = 24, 16, 2


@dataclass(frozen=True, kw_only=True)
class Watched:
    """What is watched, in plain values: everything in a preview's diff can be read.

    Attributes:
        name: the stack's name in the cloud.
        lustre_instance: id of the Lustre instance.
        zone: its zone.
        region: the region of the GKE cluster; elsewhere there may be one of the same name.
        cluster: name of the GKE cluster. In an adopted one everybody's GPUs are watched: what tells them apart is not
            known (docs/verification.md).
        checkpoint_bytes: bytes of one checkpoint; none for a model whose name states no size.
        save_period_s: seconds from save to save, an estimate.
    """

    name: str
    lustre_instance: str
    zone: str
    region: str
    cluster: str
    checkpoint_bytes: int | None
    save_period_s: float


def watched(config: StackConfig) -> Watched:
    """Derive what is watched from a stack's config."""
    stack_name = config.placement.stack_name
    parameters = named_parameters(config.job.grpo.model_name)
    return Watched(
        name=stack_name,
        lustre_instance=config.lustre.instance_id if isinstance(config.lustre, ExistingLustre) else stack_name,
        zone=config.project.zone,
        region=config.project.region,
        cluster=config.cluster.cluster_name if isinstance(config.cluster, ExistingCluster) else stack_name,
        checkpoint_bytes=None if parameters is None else checkpoint_bytes(parameters),
        save_period_s=config.job.grpo.save_period * config.monitoring.expected_step_s,
    )


@dataclass(frozen=True, kw_only=True)
class MonitoringArgs:
    """Inputs of `Monitoring`.

    Attributes:
        config: the stack's whole config: what is watched lies in many of its sections.
    """

    config: StackConfig

    def as_inputs(self) -> dict[str, Any]:
        """Show the arguments as the component's inputs."""
        return {**vars(watched(self.config)), "config": self.config.monitoring.model_dump(mode="json")}


class Monitoring(pulumi.ComponentResource):
    """The dashboard and the alerts of one stack.

    Attributes:
        summary: what the stack shows of them: their ids.
    """

    summary: dict[str, Output[Any]]

    def __init__(self, name: str, args: MonitoringArgs, opts: ResourceOptions | None = None) -> None:
        super().__init__("rlstack:monitoring:Monitoring", name, args.as_inputs(), opts)
        place, target = args.config.placement, watched(args.config)
        dashboard = gcp.monitoring.Dashboard(
            f"{name}-dashboard",
            project=place.project_id,
            dashboard_json=json.dumps(dashboard_spec(target), sort_keys=True),
            opts=ResourceOptions(parent=self),
        )
        policies = {
            role: gcp.monitoring.AlertPolicy(
                f"{name}-{role}",
                project=place.project_id,
                notification_channels=list(args.config.monitoring.notification_channels),
                user_labels=place.labels,
                **alert,
                opts=ResourceOptions(parent=self),
            )
            for role, alert in alert_policies(target).items()
        }
        alerts = Output.all(**{role: policy.id for role, policy in policies.items()})
        self.summary = {"dashboard": dashboard.id, "alerts": alerts}
        self.register_outputs(self.summary)


def _lustre(target: Watched, metric: str) -> str:
    labels = f'instance_id="{target.lustre_instance}",location="{target.zone}"'
    return f"lustre_googleapis_com:instance_{metric}{{{labels}}}"


def _in_cluster(target: Watched, metric: str, labels: str = "") -> str:
    return f'{metric}{{cluster="{target.cluster}",location="{target.region}"{labels}}}'


def charts(target: Watched) -> dict[str, tuple[str, dict[str, str]]]:
    """Build the dashboard's charts: title to the unit of its axis and its queries by legend."""
    duty, memory = _in_cluster(target, "DCGM_FI_DEV_GPU_UTIL"), _in_cluster(target, "DCGM_FI_DEV_FB_USED")
    nodes = _in_cluster(target, "ray_cluster_active_nodes")
    return {
        "Lustre throughput": (
            "bytes/s",
            {way: f"sum(rate({_lustre(target, f'{way}_bytes_total')}[5m]))" for way in ("read", "write")},
        ),
        "Lustre capacity": (
            "bytes",
            {kind: f"sum({_lustre(target, f'{kind}_bytes')})" for kind in ("available", "capacity")},
        ),
        "Lustre metadata operations": (
            "operations/s",
            {"${labels.operation}": f"sum by (operation) (rate({_lustre(target, 'metadata_operations_total')}[5m]))"},
        ),
        "Lustre clients": ("clients", {"connected": f"max({_lustre(target, 'connected_clients')})"}),
        "GPU duty": ("%", {"mean": f"avg({duty})", "least": f"min({duty})"}),
        "GPU memory": ("MiB", {"mean": f"avg({memory})", "most": f"max({memory})"}),
        "Ray nodes": ("nodes", {"${labels.node_type}": f"sum by (node_type) ({nodes})"}),
        "Ray GPUs": (
            "GPUs",
            {"${labels.State}": "sum by (State) (" + _in_cluster(target, "ray_resources", ',Name="GPU"') + ")"},
        ),
    }


def dashboard_spec(target: Watched) -> dict[str, Any]:
    """Build the dashboard as Cloud Monitoring's JSON."""
    return {
        "displayName": target.name,
        "mosaicLayout": {
            "columns": _TILE_WIDTH * _TILES_PER_ROW,
            "tiles": [
                {**_tile_place(index), "widget": _chart_widget(title, unit, queries)}
                for index, (title, (unit, queries)) in enumerate(charts(target).items())
            ],
        },
    }


def _tile_place(index: int) -> dict[str, int]:
    row, column = divmod(index, _TILES_PER_ROW)
    place = {
        "xPos": column * _TILE_WIDTH,
        "yPos": row * _TILE_HEIGHT,
        "width": _TILE_WIDTH,
        "height": _TILE_HEIGHT,
    }
    # The API leaves zeros out of its answer, which would be a difference in every preview.
    return {key: value for key, value in place.items() if value}


def _chart_widget(title: str, unit: str, queries: dict[str, str]) -> dict[str, Any]:
    return {
        "title": title,
        "xyChart": {
            "dataSets": [
                {"legendTemplate": legend, "plotType": "LINE", "timeSeriesQuery": {"prometheusQuery": query}}
                for legend, query in queries.items()
            ],
            "yAxis": {"label": unit, "scale": "LINEAR"},
        },
    }


def free_space_query(target: Watched) -> str:
    """Build the query that finds too little free space: under two checkpoints, or a tenth for an unknown size."""
    free = f"sum({_lustre(target, 'available_bytes')})"
    if target.checkpoint_bytes is None:
        return f"{free} < {FREE_SHARE} * sum({_lustre(target, 'capacity_bytes')})"
    return f"{free} < {FREE_CHECKPOINTS * target.checkpoint_bytes}"


def no_saves_query(target: Watched) -> str:
    """Build the query that finds a run without a save: GPUs busy then and now, and not half a checkpoint written.

    Logs and the supervisor's lease are written all the time, so no writes at all would never be found.
    """
    window_s = min(LONGEST_WINDOW_S, round(SAVE_PERIODS * target.save_period_s))
    fewest_bytes = UNKNOWN_SAVE_BYTES if target.checkpoint_bytes is None else target.checkpoint_bytes // 2
    written = f"(sum(increase({_lustre(target, 'write_bytes_total')}[{window_s}s])) or vector(0))"
    duty = _in_cluster(target, "DCGM_FI_DEV_GPU_UTIL")
    return (
        f"{written} < {fewest_bytes} and on() avg({duty}) > {BUSY_PERCENT} "
        f"and on() avg({duty} offset {window_s}s) > {BUSY_PERCENT}"
    )


def idle_gpus_query(target: Watched) -> str:
    """Build the query that finds idle GPUs; nodes that are gone have no samples and are no alert."""
    return f"avg({_in_cluster(target, 'DCGM_FI_DEV_GPU_UTIL')}) < {BUSY_PERCENT}"


def alert_policies(target: Watched) -> dict[str, dict[str, Any]]:
    """Build the alerts by role, as arguments of `gcp.monitoring.AlertPolicy`."""
    return {
        "free-space": _policy(
            target,
            title="Lustre runs full",
            severity="CRITICAL",
            query=free_space_query(target),
            lasting_s=300,
            remedy="A save into a full file system fails and the run with it. Raise lustre.capacity_gib (it grows in "
            "place; up to 90 minutes), or remove checkpoints of finished runs.",
        ),
        "no-saves": _policy(
            target,
            title=f"No checkpoint for {SAVE_PERIODS} save periods",
            severity="ERROR",
            query=no_saves_query(target),
            lasting_s=300,
            remedy="The run trains, or hangs, and saves nothing: a preemption now costs all of it. Look at "
            "`python -m jobs status`; if steps are merely slow, raise monitoring.expected_step_s.",
        ),
        "idle-gpus": _policy(
            target,
            title="GPUs are paid for and idle",
            severity="WARNING",
            query=idle_gpus_query(target),
            lasting_s=IDLE_S,
            remedy="No job trains on nodes that are there. Look at `python -m jobs status`; to give the nodes back, "
            "`python -m jobs stop` or `pulumi destroy`.",
        ),
    }


def _policy(target: Watched, *, title: str, severity: str, query: str, lasting_s: int, remedy: str) -> dict[str, Any]:
    return {
        "display_name": f"{target.name}: {title}",
        "combiner": "OR",
        "severity": severity,
        "documentation": {"content": remedy, "mime_type": "text/markdown"},
        "conditions": [
            {
                "display_name": title,
                "condition_prometheus_query_language": {
                    "query": query,
                    "duration": f"{lasting_s}s",
                    "evaluation_interval": "60s",
                    # The metrics come with the first node and the first write, long after this.
                    "disable_metric_validation": True,
                },
            }
        ],
    }
