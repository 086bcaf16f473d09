"""`python -m jobs plan`: how large checkpoints are, how long a save takes, and how often to save.

From a stack's config or a recipe file; what the stack's run has measured takes the place of what is computed or
assumed. The tier's throughput is the best that can happen, and a preemption rate that nobody has measured is an
assumption: both are said so.
"""

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from jobs.checkpoint_maths import (
    BYTES_PER_PARAMETER,
    Preemption,
    checkpoint_bytes,
    lustre_bytes_per_s,
)
from jobs.errors import HeadExecError, UsageError
from jobs.log_records import SupervisorEvent
from jobs.model_size import named_parameters
from jobs.recipe import GrpoRecipe
from jobs.run_account import InterruptionKind, RunAccount, account_for
from jobs.run_progress import format_bytes, format_duration
from jobs.run_record import fetch_run_record
from jobs.stack_file import read_recipe, read_stack
from jobs.stack_outputs import read_stack_outputs

_ASSUMED_MTBF_H = 4.0
_ASSUMED_RESTART_S = 600.0
_SECONDS_PER_HOUR = 3600
# The smallest instance of each fixed tier is as fast: 9,000 GiB at 1000 MB/s per TiB, 18,000 at 500, and so on.
_SMALLEST_INSTANCE = (9000, 1000)
_FAR_FACTOR = 2
_FAR_WASTE = 0.01


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What a run's record says of saves and preemptions; none where it says nothing.

    Attributes:
        account: where the run's time went.
        checkpoint_bytes: of the newest checkpoint.
        save_s: median seconds for which a save held training up.
        step_s: median seconds of a step, saving not counted.
        mtbf_s: mean seconds between lost nodes, counted while the run had its nodes.
        restart_s: mean seconds from a lost node to the next step, lost steps not counted.
    """

    account: RunAccount
    checkpoint_bytes: int | None
    save_s: float | None
    step_s: float | None
    mtbf_s: float | None
    restart_s: float | None


def measure(events: list[SupervisorEvent]) -> Measured:
    """Take from a run's events what a plan needs."""
    account = account_for(events)
    sizes = [
        size for event in events if event.event == "checkpoint" and isinstance(size := event.fields.get("bytes"), int)
    ]
    losses = [loss for loss in account.interruptions if loss.kind is InterruptionKind.NODE_LOSS]
    return Measured(
        account=account,
        checkpoint_bytes=sizes[-1] if sizes else None,
        save_s=median(account.saves_s) if account.saves_s else None,
        step_s=median(account.steps_s) if account.steps_s else None,
        mtbf_s=account.on_nodes_s / len(losses) if losses else None,
        restart_s=fmean(loss.waited_s + loss.setup_s for loss in losses) if losses else None,
    )


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("plan", help="checkpoint size, save seconds, and the save period that wastes least")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--stack", metavar="STACK", help="Pulumi.STACK.yaml in this directory, and its run if it is up")
    source.add_argument("--file", metavar="RECIPE", type=Path, help="a recipe file")
    parser.add_argument(
        "--mtbf-h",
        metavar="H",
        type=float,
        help=f"mean hours between preemptions of any node; as measured, or {_ASSUMED_MTBF_H:g}, if left out",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the plan on standard output, what it warns of on standard error.

    Raises:
        UsageError: a file cannot be read, or says too little to plan from.
        ConfigError: the stack's config has an error.
    """
    if args.mtbf_h is not None and not args.mtbf_h > 0:
        raise UsageError(f"--mtbf-h is {args.mtbf_h:g}; write the mean hours between preemptions, more than 0")
    if args.file:
        recipe, tier, events = read_recipe(args.file).grpo, None, []
    else:
        recipe, tier = _read_stack(args.stack)
        events = _fetch(args.stack)
    mtbf_s = None if args.mtbf_h is None else args.mtbf_h * _SECONDS_PER_HOUR
    lines, warning = make_plan(recipe, tier=tier, measured=measure(events), mtbf_s=mtbf_s)
    print("\n".join(lines))
    if warning:
        print(warning, file=sys.stderr)
    return 0


def _read_stack(stack: str) -> tuple[GrpoRecipe, tuple[int, int] | None]:
    from components.sections import CreateLustre  # noqa: PLC0415 - pulumi takes a second, which a recipe need not cost

    config = read_stack(stack)
    lustre = config.lustre
    tier = (lustre.capacity_gib, lustre.throughput_mbps_per_tib) if isinstance(lustre, CreateLustre) else None
    return config.job.grpo, tier


def _fetch(stack: str) -> list[SupervisorEvent]:
    """Read the record of the stack's run; a plan can do without."""
    try:
        return fetch_run_record(read_stack_outputs(stack).on_head)
    except (UsageError, HeadExecError) as error:
        print(f"no run is measured: {error}", file=sys.stderr)
        return []


def make_plan(
    recipe: GrpoRecipe, *, tier: tuple[int, int] | None, measured: Measured, mtbf_s: float | None
) -> tuple[list[str], str | None]:
    """State a plan line by line, and what to be warned of.

    Args:
        recipe: what is trained.
        tier: the Lustre instance's capacity in GiB and throughput in MB/s per TiB; the smallest instance if none.
        measured: what a run has shown.
        mtbf_s: mean seconds between preemptions; as measured or assumed if none.

    Raises:
        UsageError: neither the model's name nor a run tells how large a checkpoint is.
    """
    size, size_source = _size(recipe, measured)
    rate = lustre_bytes_per_s(*(tier or _SMALLEST_INSTANCE))
    at_best_s = size / rate
    save_s = measured.save_s if measured.save_s is not None else at_best_s
    mtbf_s, mtbf_source = _mtbf(measured, mtbf_s)
    restart_s = measured.restart_s if measured.restart_s is not None else _ASSUMED_RESTART_S
    preemption = Preemption(save_s=save_s, mean_time_between_s=mtbf_s, restart_s=restart_s)
    where = f"{tier[0]} GiB at {tier[1]} MB/s per TiB" if tier else "the smallest instance of a tier, assumed"
    lines = [
        f"checkpoint: {format_bytes(size)} ({size_source})",
        f"writing it: {format_duration(at_best_s)} at best, {rate / 1e9:.1f} GB/s ({where})",
        f"a save holds training up: {_held(measured, at_best_s)}",
        f"a node is lost every: {format_duration(mtbf_s)} ({mtbf_source})",
        f"then training stands still: {format_duration(restart_s)}"
        f" ({'as measured' if measured.restart_s is not None else 'an assumption'})",
    ]
    if not save_s:
        return [*lines, "saving costs nothing: save after every step"], None
    best_s = preemption.best_period_s
    best = f"best period: a save every {format_duration(best_s)} (Young), {preemption.waste(best_s):.1%} of time lost"
    if measured.step_s is None:
        return [*lines, best, f"save_period: {recipe.save_period} steps, not judged: no step has been measured"], None
    return _judge(recipe.save_period, measured.step_s, preemption, [*lines, best])


def _judge(save_period: int, step_s: float, preemption: Preemption, lines: list[str]) -> tuple[list[str], str | None]:
    """Add what the config's own period costs; warn if it is far from the best.

    Far is half or twice the best number of steps, or beyond, at a cost of another hundredth of the time or more: near
    its minimum the waste is flat, and a smaller difference is none.
    """
    if not step_s > 0:
        return lines, None
    best = preemption.best_save_period(step_s)
    costs, best_costs = (preemption.waste(max(steps * step_s, 1e-9)) for steps in (save_period, best))
    lines = [
        *lines,
        f"a step: {format_duration(step_s)}, saving not counted (as measured)",
        f"save_period: {save_period} steps, {costs:.1%} of time lost; best {best} steps, {best_costs:.1%}",
    ]
    is_far = not best / _FAR_FACTOR < save_period < best * _FAR_FACTOR and costs - best_costs >= _FAR_WASTE
    if not is_far:
        return lines, None
    return lines, (
        f"warning: job.grpo.save_period={save_period}: {costs:.1%} of the time goes to saves, repeated steps and "
        f"restarts, and with {best} it would be {best_costs:.1%}. Set it to {best}; `up` stops a running job at a "
        "checkpoint and goes on from there."
    )


def _size(recipe: GrpoRecipe, measured: Measured) -> tuple[int, str]:
    if measured.checkpoint_bytes is not None:
        return measured.checkpoint_bytes, "as measured"
    parameters = named_parameters(recipe.model_name)
    if parameters is None:
        raise UsageError(
            f"The name of the model {recipe.model_name} does not say how many parameters it has, and no checkpoint of "
            "it has been measured, so nothing can be planned. Plan again with --stack when the run has saved once"
        )
    return checkpoint_bytes(
        parameters
    ), f"{parameters:,.0f} parameters by the model's name, {BYTES_PER_PARAMETER} bytes each"


def _held(measured: Measured, at_best_s: float) -> str:
    if measured.save_s is None:
        return (
            f"{format_duration(at_best_s)}, an assumption: no save is measured, and a blocking one takes at least that"
        )
    count = len(measured.account.saves_s)
    shown = f"{format_duration(measured.save_s)}, median of {count} saves (as measured)"
    if measured.save_s < at_best_s:
        shown += "; less than writing takes, so they are written in the background"
    return shown


def _mtbf(measured: Measured, given_s: float | None) -> tuple[float, str]:
    if given_s is not None:
        return given_s, "as given by --mtbf-h"
    if measured.mtbf_s is not None:
        return measured.mtbf_s, "as measured"
    had = f"; none was lost in {format_duration(measured.account.on_nodes_s)}" if measured.account.wall_s else ""
    return _ASSUMED_MTBF_H * _SECONDS_PER_HOUR, f"an assumption: no rate is published{had}. Set --mtbf-h"
