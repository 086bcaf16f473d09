"""`python -m jobs checkpoints`: what lies on Lustre of a run, seen from the head pod.

| state | what it is |
|---|---|
| complete | `step_N`, renamed by NeMo-RL when all of it was written |
| incomplete | `tmp_step_N`, under way or interrupted; or a `step_N` without training_info.json, which nobody can load |
| only copy | `old_step_N` without `step_N`: a save was interrupted between two renames; the supervisor names it back |
| replaced | `old_step_N` beside its `step_N` |
| set aside | a leftover that the supervisor has moved away; of no use to training |
"""

import argparse
import json
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from jobs.columns import aligned
from jobs.errors import HeadExecError
from jobs.run_on_head import RunOnHead
from jobs.run_progress import format_bytes, format_duration
from jobs.stack_outputs import add_stack_argument, read_stack_outputs

_TIMEOUT_S = 120.0
_SCAN = Path(__file__).with_name("checkpoint_scan.py")


class CheckpointEntry(BaseModel):
    """One directory.

    Attributes:
        name: the directory's.
        step: the run's step.
        state: see the module's table.
        age_s: seconds since it was last changed, by the head's clock.
        bytes: of all files in it.
        files: how many.
        model: the model that was trained, by the config saved with it.
        metrics: what NeMo-RL saved of it, by name.
    """

    model_config = ConfigDict(frozen=True)

    name: str
    step: int
    state: str
    age_s: float
    bytes: int
    files: int
    model: str | None
    metrics: dict[str, float]


class CheckpointListing(BaseModel):
    """All of a run's, and how NeMo-RL prunes them: by the config saved with the newest.

    Attributes:
        checkpoints: by step.
        keep_top_k: how many are kept; none for all.
        metric_name: what ranks them; none for the newest.
        higher_is_better: whether more of the metric is.
        exported_step: the step that was copied off Lustre last, if it is still what was copied.
        is_supervised: whether a supervisor is on the run, and may save more.
    """

    model_config = ConfigDict(frozen=True)

    checkpoints: tuple[CheckpointEntry, ...]
    keep_top_k: int | None = None
    metric_name: str | None = None
    higher_is_better: bool | None = None
    exported_step: int | None = None
    is_supervised: bool = False

    @property
    def complete(self) -> list[CheckpointEntry]:
        """Those that training can resume from, oldest first."""
        return sorted((entry for entry in self.checkpoints if entry.state == "complete"), key=lambda entry: entry.step)

    @property
    def pruned_next(self) -> set[int]:
        """Steps that go when the next checkpoint is there, if that one is among the best.

        NeMo-RL (`nemo_rl/utils/checkpoint.py`) ranks by the metric and then by step, or by step alone where there is
        no metric, and keeps the first `keep_top_k`; the newest stays whatever its rank.
        """
        if self.keep_top_k is None:
            return set()
        ranked = sorted(self.complete, key=self._rank, reverse=True)
        return {entry.step for entry in ranked[max(0, self.keep_top_k - 1) :]}

    def _rank(self, entry: CheckpointEntry) -> tuple[float, int]:
        if self.metric_name is None:
            return 0.0, entry.step
        sign = -1.0 if self.higher_is_better is False else 1.0
        return sign * entry.metrics.get(self.metric_name, -sign * float("inf")), entry.step


def read_checkpoints(run: RunOnHead) -> CheckpointListing:
    """Have the head pod look at the checkpoints of a run.

    Raises:
        HeadExecError: no way to the head, or an answer that is none.
    """
    command = ["python3", "-c", _SCAN.read_text(encoding="utf-8"), run.checkpoint_dir, run.run_dir]
    answer = run.execute(command, timeout_s=_TIMEOUT_S)
    try:
        return CheckpointListing.model_validate_json(answer)
    except ValidationError as error:
        raise HeadExecError(
            f"The head of RayCluster {run.ray_cluster} listed {run.checkpoint_dir} in a form that cannot "
            f"be read ({error.error_count()} problems). Look by hand: kubectl -n {run.namespace} exec "
            f"svc/{run.ray_cluster}-head-svc -c ray-head -- ls -l {run.checkpoint_dir}"
        ) from error


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("checkpoints", help="list the run's checkpoints, complete or not")
    add_stack_argument(parser, required=True)
    parser.add_argument("--json", action="store_true", help="one JSON record a line")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the list.

    Raises:
        UsageError: the stack cannot be read.
        HeadExecError: no way to the head.
    """
    outputs = read_stack_outputs(args.stack)
    listing = read_checkpoints(outputs.on_head)
    if args.json:
        for entry, notes in _rows(listing):
            print(json.dumps({**entry.model_dump(), "notes": notes}))
        return 0
    if not listing.checkpoints:
        print(f"no checkpoint yet in {outputs.job.checkpoint_dir}")
        return 0
    rows = [("checkpoint", "age", "size", "files", "state", "model", "")]
    for entry, notes in _rows(listing):
        age, size = format_duration(entry.age_s), format_bytes(entry.bytes)
        rows.append((entry.name, age, size, str(entry.files), entry.state, entry.model or "-", ", ".join(notes)))
    print("\n".join(aligned(rows)))
    return 0


def _rows(listing: CheckpointListing) -> list[tuple[CheckpointEntry, list[str]]]:
    newest = max((entry.step for entry in listing.complete), default=None)
    rows = []
    for entry in sorted(listing.checkpoints, key=lambda entry: (entry.step, entry.name)):
        is_complete = entry.state == "complete"
        notes = [
            *(["training resumes here"] if is_complete and entry.step == newest else []),
            *(["pruned next"] if is_complete and entry.step in listing.pruned_next else []),
            *(["exported"] if is_complete and entry.step == listing.exported_step else []),
        ]
        rows.append((entry, notes))
    return rows
