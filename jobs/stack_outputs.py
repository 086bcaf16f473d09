"""What `python -m jobs` knows of a stack: its outputs, as the engine tells them, and nothing else."""

import argparse
import json
import subprocess
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from jobs.errors import UsageError
from jobs.run_on_head import RunOnHead

_TIMEOUT_S = 120.0


class _Outputs(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class RayOutputs(_Outputs):
    """The Ray cluster.

    Attributes:
        namespace: its Kubernetes namespace.
        cluster: name of the RayCluster.
        head_service: the service of its head.
        image: the trainer's image.
        ray_version: Ray in that image.
    """

    namespace: str
    cluster: str
    head_service: str
    image: str
    ray_version: str


class JobOutputs(_Outputs):
    """The job.

    Attributes:
        name: the job's name.
        submission_id: Ray's id of the latest submission.
        identity: hash of what training depends on.
        checkpoint_dir: where checkpoints lie.
        run_dir: the run's directory on Lustre.
    """

    name: str
    submission_id: str
    identity: str
    checkpoint_dir: str
    run_dir: str


class StackOutputs(_Outputs):
    """A stack's outputs; `kubeconfig` is JSON text without a token."""

    kubeconfig: str
    ray: RayOutputs
    job: JobOutputs

    @property
    def on_head(self) -> RunOnHead:
        """Where the run can be looked at and spoken to."""
        return RunOnHead(
            kubeconfig=self.kubeconfig,
            namespace=self.ray.namespace,
            ray_cluster=self.ray.cluster,
            run_dir=self.job.run_dir,
            checkpoint_dir=self.job.checkpoint_dir,
        )


def add_stack_argument(parser: argparse._ActionsContainer, *, required: bool) -> None:
    """Let a command be told which stack it is about."""
    parser.add_argument("--stack", metavar="STACK", required=required, help="the stack whose job it is")


def read_stack_outputs(stack: str) -> StackOutputs:
    """Ask the engine for a stack's outputs.

    Raises:
        UsageError: no engine, no such stack, or a stack without a job.
    """
    command = ["pulumi", "stack", "output", "--json", "--stack", stack, "--non-interactive"]
    try:
        asked = subprocess.run(
            command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
        )
    except FileNotFoundError as error:
        raise UsageError(
            f"The program `pulumi` is not on PATH, so the outputs of stack {stack} cannot be read. "
            "Install the Pulumi CLI (https://www.pulumi.com/docs/install/)"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise UsageError(
            f"`{' '.join(command)}` did not end within {_TIMEOUT_S:.0f} s. "
            "Check that the state backend can be reached: pulumi whoami -v"
        ) from error
    if asked.returncode:
        reason = next((line for line in asked.stderr.splitlines() if line.startswith("error:")), asked.stderr.strip())
        raise UsageError(f"The outputs of stack {stack} cannot be read: {reason}. Check the name with: pulumi stack ls")
    try:
        outputs: Any = json.loads(asked.stdout)
        return StackOutputs.model_validate(outputs)
    except ValidationError as error:
        missing = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        raise UsageError(f"Stack {stack} has no output {missing}: it is not up yet. Bring it up first") from error
    except ValueError as error:
        raise UsageError(
            f"`{' '.join(command)}` printed no JSON. Use a Pulumi CLI of version 3.200 or later"
        ) from error
