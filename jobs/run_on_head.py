"""One run, as it can be reached from outside: through its cluster's head, which has Lustre mounted."""

import json
import os
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import PurePosixPath

from jobs.head_exec import exec_in_head
from jobs.payload.control import Action

DISCARD_VARIABLE = "RLSTACK_DISCARD_UNSAVED_WORK"

_REQUEST_TIMEOUT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class RunOnHead:
    """Where a run can be looked at and spoken to.

    Attributes:
        kubeconfig: JSON text.
        namespace: of the RayCluster.
        ray_cluster: its name.
        run_dir: the run's directory on Lustre.
        checkpoint_dir: where its checkpoints lie.
    """

    kubeconfig: str
    namespace: str
    ray_cluster: str
    run_dir: str
    checkpoint_dir: str

    @classmethod
    def of(cls, spec: object) -> "RunOnHead":
        """Take the values from whatever has them under the same names."""
        return cls(**{field.name: getattr(spec, field.name) for field in fields(cls)})

    def execute(self, command: Sequence[str], *, timeout_s: float) -> bytes:
        """Run a command in the head pod; see `jobs.head_exec.exec_in_head`.

        Raises:
            HeadExecError: it could not be run, or failed.
        """
        return exec_in_head(
            kubeconfig=self.kubeconfig,
            namespace=self.namespace,
            ray_cluster=self.ray_cluster,
            command=command,
            timeout_s=timeout_s,
        )

    def request(self, action: Action, *, submission_id: str) -> None:
        """Leave a request for the supervisor of one Ray job, which takes it within seconds.

        Raises:
            HeadExecError: the request could not be left.
        """
        file = shlex.quote(str(PurePosixPath(self.run_dir) / "supervisor" / "control.json"))
        text = shlex.quote(json.dumps({"action": action, "submission_id": submission_id}))
        # Renamed, so that a reader never sees half of it.
        script = f"printf %s {text} > {file}.draft && mv {file}.draft {file}"
        self.execute(["sh", "-c", script], timeout_s=_REQUEST_TIMEOUT_S)


def may_discard_work(job_name: str) -> bool:
    """Whether whoever types the command has said that the run's unsaved work may go; the name guards against habit."""
    return os.environ.get(DISCARD_VARIABLE) == job_name
