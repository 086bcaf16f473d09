"""The Ray job's entrypoint: the supervisor's command line, as one shell command that a stack can diff.

Everything here is part of the job's identity: a change of it stops the running job and submits another. It names only
what training depends on; the supervisor's own code is not in it.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

MODULE = "jobs.payload.supervisor"


@dataclass(frozen=True, kw_only=True)
class SupervisorOptions:
    """What the supervisor is told; a limit left at its default is left out of the command.

    Attributes:
        run_dir: the run's directory on Lustre; lease, state and set-aside leftovers live there.
        checkpoint_dir: where the trainer saves; on the same file system as `run_dir`.
        nodes: GPU nodes that training needs.
        gpus_per_node: GPUs of each.
        max_steps: the step at which the run is done.
        model_name: the model that a checkpoint must hold to be resumed from.
        release: the trainer's release, which must have made that checkpoint.
        prefetch: command that brings the model into the cache before GPUs are asked for, as shell words.
        scale_raycluster: NAMESPACE/NAME whose workers are asked for and given back; none leaves them alone.
        max_run_s: seconds of the run over all its Ray jobs, waiting included, after which it is stopped.
        budget_gpu_hours: GPU-hours of the run over all its Ray jobs, after which it is stopped.
        workdir: directory of the trainer in the image.
        settle_s: seconds without a change of the nodes before training starts.
        max_crashes: crashes in a row without a step gained, after which the run has failed.
        max_capacity_wait_s: seconds to wait for the first GPUs.
        max_recovery_wait_s: seconds to wait for GPUs after a lost node.
        prefetch_limit_s: seconds in which the cache must have grown while the model is fetched.
        setup_limit_s: seconds until the first step begins.
        step_limit_s: seconds for a step.
        save_limit_s: seconds for a save.
        node_loss_settle_s: seconds in which Ray notices a dead node.
        environment: variables that the trainer gets on top of the pod's; never a secret.
    """

    run_dir: str
    checkpoint_dir: str
    nodes: int
    gpus_per_node: int
    max_steps: int
    model_name: str
    release: str | None = None
    prefetch: str | None = None
    scale_raycluster: str | None = None
    max_run_s: float | None = None
    budget_gpu_hours: float | None = None
    workdir: str = "/opt/nemo-rl"
    settle_s: float | None = None
    max_crashes: int | None = None
    max_capacity_wait_s: float | None = None
    max_recovery_wait_s: float | None = None
    prefetch_limit_s: float | None = None
    setup_limit_s: float | None = None
    step_limit_s: float | None = None
    save_limit_s: float | None = None
    node_loss_settle_s: float | None = None
    environment: Mapping[str, str] = field(default_factory=dict)


def render_entrypoint(options: SupervisorOptions, training: Sequence[str]) -> str:
    """Render the shell command that runs `training` under the supervisor.

    Args:
        options: what the supervisor is told.
        training: the training command as arguments, without a shell.
    """
    words = ["python", "-m", MODULE]
    for name, value in vars(options).items():
        if name != "environment" and value is not None:
            words += [f"--{name.replace('_', '-')}", str(value)]
    for name, value in sorted(options.environment.items()):
        words += ["--env", f"{name}={value}"]
    return shlex.join([*words, "--", *training])
