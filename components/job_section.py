"""The `job` section of a stack's config: what to train, how patiently, and how much it may cost."""

from pydantic import Field, PositiveFloat, PositiveInt

from components.sections import Section
from jobs.recipe import GrpoRecipe


class SupervisorLimits(Section):
    """How patient the supervisor is; what is left out keeps its default (`jobs/payload/options.py`).

    Attributes:
        settle_s: seconds without a change of the nodes before training starts.
        max_crashes: crashes in a row without a step gained.
        max_capacity_wait_s: seconds to wait for the first GPUs.
        max_recovery_wait_s: seconds to wait for GPUs after a lost node.
        prefetch_limit_s: seconds in which the cache must have grown while the model is fetched.
        setup_limit_s: seconds until the first step begins.
        step_limit_s: seconds for a step.
        node_loss_settle_s: seconds in which Ray notices a dead node: a crash counts as one after these, and a trainer
            that stands still without a node is ended. With Ray's own health checks less than 25 takes lost nodes for
            crashes.
        save_limit_s: seconds for a save; also what a run waits for its next checkpoint when it is to end.
        max_run_s: seconds that the run may take over all its Ray jobs, waiting for GPUs included and the time between
            jobs not; it is then stopped after its next checkpoint.
    """

    settle_s: PositiveFloat | None = None
    max_crashes: PositiveInt | None = None
    max_capacity_wait_s: PositiveFloat | None = None
    max_recovery_wait_s: PositiveFloat | None = None
    prefetch_limit_s: PositiveFloat | None = None
    setup_limit_s: PositiveFloat | None = None
    step_limit_s: PositiveFloat | None = None
    save_limit_s: PositiveFloat | None = None
    node_loss_settle_s: PositiveFloat | None = None
    max_run_s: PositiveFloat | None = None


class JobSection(Section):
    """The training job.

    Attributes:
        name: names the run and its directory on Lustre.
        start_timeout_s: seconds for the submitted job to leave Ray's queue.
        stop_timeout_s: seconds in which a run that is replaced or destroyed should reach its next checkpoint.
        protect_unsaved_work: whether it goes on, and the command fails, when it does not; and whether a destroy is
            refused while checkpoints lie on the stack's own Lustre only.
        prefetch: whether the model is fetched before GPUs are asked for, where the release says how; else training
            fetches it by itself, with all its GPUs waiting.
        budget_gpu_hours: GPU-hours that the run may use over all its Ray jobs, from the moment a GPU is there; it is
            then stopped after its next checkpoint. None for no limit.
        limits: how patient its supervisor is.
        grpo: what to train.
    """

    name: str = Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")
    start_timeout_s: PositiveInt = 600
    stop_timeout_s: PositiveInt = 1800
    protect_unsaved_work: bool = False
    prefetch: bool = True
    budget_gpu_hours: PositiveFloat | None = None
    limits: SupervisorLimits = SupervisorLimits()
    grpo: GrpoRecipe
