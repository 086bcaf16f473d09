"""Checkpoints against the file system that takes them and the nodes that make them.

Sizes are estimates: the model's name says how many parameters there are, `jobs/checkpoint_maths.py` how many bytes each
takes. A model whose name states no size, and an instance that the stack did not make, are passed over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from components.job_section import JobSection
from components.machines import GPU_MACHINES
from components.rules.ray import known_release
from components.sections import (
    CreateLustre,
    FlexStartCapacity,
    GpuPoolSection,
    LustreSection,
    RaySection,
)
from jobs.checkpoint_maths import checkpoint_bytes, peak_bytes, save_seconds
from jobs.model_size import named_parameters
from jobs.problems import Problem, Severity
from jobs.recipe import effective_config
from jobs.releases import Scalar

BYTES_PER_GIB = 2**30
WEIGHT_BYTES_PER_PARAMETER = 2
"""bf16: once in the Hugging Face cache, once in Megatron's import of it (NeMo-RL v0.4.0)."""
LONGEST_SAVE_S = 60
"""A save that holds all GPUs up for longer is worth a word before it is paid for."""
FREE_CHECKPOINTS = 2
"""The alert on free space (components/monitoring.py) goes off under so many checkpoints."""
START_S = 3600
"""From a node's start to training: drivers, the image's tens of GB, loading the model. An estimate."""


@dataclass(frozen=True, kw_only=True)
class _Saves:
    parameters: float
    config: Mapping[str, Scalar]
    block_gpus: bool

    def number(self, key: str, default: int) -> int:
        value = self.config.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else default

    @property
    def kept(self) -> int:
        """Checkpoints that stay: the best by the metric, and then the newest as well (NeMo-RL's CheckpointManager)."""
        newest = self.config.get("checkpointing.metric_name") is not None
        return self.number("checkpointing.keep_top_k", 1) + newest


def _saves(gpu_pool: GpuPoolSection, ray: RaySection, job: JobSection) -> _Saves | None:
    release, machine = known_release(ray), GPU_MACHINES.get(gpu_pool.machine_type)
    parameters = named_parameters(job.grpo.model_name)
    if release is None or machine is None or machine.accelerators is None or parameters is None:
        return None
    config = effective_config(
        job.grpo, release=release, nodes=gpu_pool.node_count, gpus_per_node=machine.accelerators.count
    )
    return _Saves(parameters=parameters, config=config, block_gpus=not release.save_is_async)


def checkpoints_fit_lustre(
    lustre: LustreSection, gpu_pool: GpuPoolSection, ray: RaySection, job: JobSection
) -> list[Problem]:
    """Kept checkpoints, the one being written, the model's cache and its import lie on Lustre at once.

    Source: NeMo-RL v0.4.0 keeps `keep_top_k` and removes the oldest after a save, not before.
    """
    saves = _saves(gpu_pool, ray, job)
    if saves is None or not isinstance(lustre, CreateLustre):
        return []
    needed = peak_bytes(saves.parameters, keep_top_k=saves.kept)
    needed += round(2 * WEIGHT_BYTES_PER_PARAMETER * saves.parameters)
    one, capacity = checkpoint_bytes(saves.parameters), lustre.capacity_gib * BYTES_PER_GIB
    what = (
        f"{saves.kept} kept checkpoints of {_size(one)}, one being written and the model twice take {_size(needed)} "
        f"of {_size(capacity)}"
    )
    if needed > capacity:
        return [
            Problem(
                key="lustre.capacity_gib",
                value=str(lustre.capacity_gib),
                reason=f"{what}: a save would find the file system full",
                remedy="Take more capacity, or keep fewer checkpoints with job.grpo.keep_top_k",
            )
        ]
    if capacity - needed < FREE_CHECKPOINTS * one:
        return [
            Problem(
                key="lustre.capacity_gib",
                value=str(lustre.capacity_gib),
                reason=f"{what}, which leaves less than {FREE_CHECKPOINTS} checkpoints: the alert on free space would "
                "stay on, and a second run would not fit",
                remedy="Take more capacity, or keep fewer checkpoints with job.grpo.keep_top_k",
                severity=Severity.WARNING,
            )
        ]
    return []


def saves_are_short(lustre: LustreSection, gpu_pool: GpuPoolSection, ray: RaySection, job: JobSection) -> list[Problem]:
    """A save that blocks all GPUs costs all of them, and the instance's throughput says how long at least.

    How long a step takes is not known before a run, so the save itself is measured, not its share.
    """
    saves = _saves(gpu_pool, ray, job)
    if saves is None or not saves.block_gpus or not isinstance(lustre, CreateLustre):
        return []
    one = checkpoint_bytes(saves.parameters)
    seconds = save_seconds(
        one, capacity_gib=lustre.capacity_gib, throughput_mbps_per_tib=lustre.throughput_mbps_per_tib
    )
    if seconds <= LONGEST_SAVE_S:
        return []
    count = job.grpo.max_num_steps // job.grpo.save_period
    return [
        Problem(
            key="job.grpo.save_period",
            value=str(job.grpo.save_period),
            reason=f"a checkpoint of {_size(one)} takes {seconds:.0f} s at best on {lustre.capacity_gib} GiB of the "
            f"{lustre.throughput_mbps_per_tib} MB/s per TiB tier, longer than {LONGEST_SAVE_S} s, and all GPUs wait: "
            f"{count} saves, {count * seconds / 60:.0f} minutes of this run",
            remedy="Save less often, or take more capacity or a faster tier",
            severity=Severity.WARNING,
        )
    ]


def last_save_precedes_node_end(gpu_pool: GpuPoolSection, job: JobSection) -> list[Problem]:
    """A last save helps only while the nodes are there (NeMo-RL: `checkpoint_must_save_by`; GKE: max_run_duration)."""
    written = job.grpo.checkpoint_must_save_by
    if written is None or not isinstance(gpu_pool.capacity, FlexStartCapacity):
        return []
    days, hours, minutes, seconds = map(int, written.split(":"))
    save_by_s = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return list(_node_end_problems(written, save_by_s, gpu_pool.capacity.max_run_duration_s))


def _node_end_problems(written: str, save_by_s: int, node_end_s: int) -> Iterator[Problem]:
    key = "job.grpo.checkpoint_must_save_by"
    if save_by_s >= node_end_s:
        yield Problem(
            key=key,
            value=written,
            reason=f"nodes of gpu_pool.capacity go {node_end_s} s after their start, {save_by_s - node_end_s} s "
            "before the last save is due, which would then never be made",
            remedy=f"Write less than {node_end_s} s, by {START_S} s and a save's time",
        )
    elif node_end_s - save_by_s < START_S:
        yield Problem(
            key=key,
            value=written,
            reason=f"it counts from the start of training and leaves {node_end_s - save_by_s} s of the nodes' "
            f"{node_end_s} s to start them, pull the image, load the model and save, which may take {START_S} s",
            remedy=f"Leave {START_S} s or more",
            severity=Severity.WARNING,
        )


def _size(size_bytes: float) -> str:
    """Write a number of bytes for reading, in decimal units."""
    rounded = float(f"{size_bytes:.3g}")  # first, as 999.9 GB is 1 TB
    power = min(4, max(0, (len(str(int(rounded))) - 1) // 3))
    return f"{rounded / 1000**power:.3g} {('B', 'kB', 'MB', 'GB', 'TB')[power]}"
