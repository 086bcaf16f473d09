"""The job's entrypoint from the stack's config: what Ray runs on the head."""

from components.config import StackConfig
from jobs.entrypoint import SupervisorOptions, render_entrypoint
from jobs.recipe import render_command

# NeMo-RL hands its whole environment to `ray.init`, which Ray refuses inside a job unless told otherwise.
ENVIRONMENT = {"RAY_OVERRIDE_JOB_RUNTIME_ENV": "1"}


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
        workdir=config.release.workdir,
        environment=ENVIRONMENT,
        **config.job.limits.model_dump(),
    )
    training = render_command(
        config.job.grpo,
        release=config.release,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        checkpoint_dir=config.checkpoint_dir,
        log_dir=config.log_dir,
    )
    return render_entrypoint(options, training)
