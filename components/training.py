"""The job from the stack's config: which run it is, and what Ray runs on the head."""

import shlex
from typing import Any

from components.config import StackConfig
from components.sections import CreateCluster, CreateLustre
from jobs.entrypoint import SupervisorOptions, render_entrypoint
from jobs.recipe import display_override, render_command
from jobs.releases import MODEL_NAME_PLACEHOLDER

# NeMo-RL hands its whole environment to `ray.init`, which Ray refuses inside a job unless told otherwise.
ENVIRONMENT = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}


def training_job(config: StackConfig) -> dict[str, Any]:
    """Build the arguments of `jobs.ray_job.RayJob` that follow from the config alone."""
    return {
        **run_of(config),
        "entrypoint": training_entrypoint(config),
        "start_timeout_s": config.job.start_timeout_s,
        "stop_timeout_s": config.job.stop_timeout_s,
        "protect_unsaved_work": config.job.protect_unsaved_work,
        "display_override": shlex.join(filter(None, [display_override(config.job.grpo)])),
    }


def guarded_work(config: StackConfig) -> dict[str, Any]:
    """Build the arguments of `jobs.work_guard.WorkGuard` that follow from the config alone."""
    return {
        **run_of(config),
        "stack": config.stack,
        "lustre_is_ours": isinstance(config.lustre, CreateLustre),
        "protect_unsaved_work": config.job.protect_unsaved_work,
        "cluster_is_ours": isinstance(config.cluster, CreateCluster),
        "cluster_is_protected": isinstance(config.cluster, CreateCluster) and config.cluster.deletion_protection,
    }


def run_of(config: StackConfig) -> dict[str, str]:
    """Say which run it is, and where it lies."""
    return {
        "job_name": config.job.name,
        "run_dir": config.run_dir,
        "checkpoint_dir": config.checkpoint_dir,
        "namespace": config.ray.namespace,
    }


def training_entrypoint(config: StackConfig) -> str:
    """Render the shell command that trains the config's recipe under the supervisor."""
    nodes, gpus_per_node = config.gpu_pool.node_count, config.accelerators.count
    options = SupervisorOptions(
        run_dir=config.run_dir,
        checkpoint_dir=config.checkpoint_dir,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        max_steps=config.job.grpo.max_num_steps,
        model_name=config.job.grpo.model_name,
        release=config.release.tag,
        prefetch=_prefetch(config),
        scale_raycluster=_scaled_raycluster(config),
        budget_gpu_hours=config.job.budget_gpu_hours,
        workdir=config.release.workdir,
        environment=ENVIRONMENT,
        **config.job.limits.model_dump(),
    )
    training = render_command(
        # Its name for people is no part of the job's identity; see `training_job`.
        config.job.grpo.model_copy(update={"wandb_name": None}),
        release=config.release,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        checkpoint_dir=config.checkpoint_dir,
        log_dir=config.log_dir,
    )
    return render_entrypoint(options, training)


def _scaled_raycluster(config: StackConfig) -> str | None:
    if not config.ray.releases_workers:
        return None
    return f"{config.ray.namespace}/{config.placement.stack_name}"


def _prefetch(config: StackConfig) -> str | None:
    if not (config.job.prefetch and config.release.prefetch):
        return None
    model_name = config.job.grpo.model_name
    return shlex.join(word.replace(MODEL_NAME_PLACEHOLDER, model_name) for word in config.release.prefetch)
