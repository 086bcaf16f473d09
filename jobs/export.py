"""`python -m jobs export`: copies one complete checkpoint from Lustre to a bucket, on the head.

The copy is a Ray job of its own beside the training job (`jobs/payload/export.py`): it goes on when this command is
interrupted, and the same command takes it up again. Its metadata has no `job_name`, so that nobody takes it for the
training job.
"""

import argparse
import shlex
import sys
from typing import TYPE_CHECKING

from jobs.checkpoints import CheckpointListing, read_checkpoints
from jobs.errors import JobNotFound, RayJobError, UsageError
from jobs.log_follower import LogFollower, follow_to_the_end
from jobs.logs import write_through
from jobs.payload.export import EXIT_USAGE, object_prefix, parse_url
from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import StackOutputs, add_stack_argument, read_stack_outputs

if TYPE_CHECKING:
    from jobs.dashboard import Dashboard

NEWEST = "newest"

_MODULE = "jobs.payload.export"
_EXIT_INTERRUPTED = 130


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("export", help="copy a complete checkpoint from Lustre to a bucket")
    add_stack_argument(parser, required=True)
    parser.add_argument("--step", type=_step, required=True, metavar="N|newest", help="which checkpoint")
    parser.add_argument("--to", required=True, metavar="gs://BUCKET/PREFIX", help="it becomes PREFIX/step_N there")
    parser.set_defaults(run=run)


def _step(text: str) -> str:
    if text != NEWEST and not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is neither a step nor {NEWEST}")
    return text


def run(args: argparse.Namespace) -> int:
    """Copy, showing progress; returns 0 when the copy is whole, 1 when it failed, 2 when it cannot be meant.

    Raises:
        UsageError: the stack or the URL cannot be read, or there is no such complete checkpoint.
        HeadExecError: there is no way to the head.
        DashboardError: the dashboard cannot be reached, or refuses.
        PortForwardError: there is no way to the dashboard.
        RayJobError: the head that copied was lost.
    """
    try:
        bucket, prefix = parse_url(args.to)
    except ValueError as error:
        raise UsageError(f"--to: {error}, so nothing was copied. An example: gs://my-bucket/runs/grpo") from error
    outputs = read_stack_outputs(args.stack)
    with open_stack_dashboard(outputs) as dashboard:
        submission_id = _running(dashboard, outputs, args)
        if submission_id is None:
            step = choose_step(args.step, read_checkpoints(outputs.on_head), outputs.job.checkpoint_dir)
            submission_id = _submit(dashboard, outputs, args, step)
            print(f"{submission_id} copies step_{step} to gs://{bucket}/{object_prefix(prefix, step)}")
        else:
            print(f"{submission_id} is copying already; its log from the beginning:")
    try:
        job = follow_to_the_end(args.stack, LogFollower(write_through), submission_id=submission_id)
    except KeyboardInterrupt:
        head = f"kubectl -n {outputs.ray.namespace} exec svc/{outputs.ray.head_service}"
        print(
            f"\n{submission_id} goes on. Follow it: the same command. Stop it: "
            f"{head} -- ray job stop --address http://127.0.0.1:8265 {submission_id}",
            file=sys.stderr,
        )
        return _EXIT_INTERRUPTED
    except JobNotFound as error:
        raise RayJobError(
            f"{submission_id} is lost with the head that copied. Type the same command again: files that are in "
            f"gs://{bucket} already are not sent again"
        ) from error
    print(f"{submission_id}: {job.status}")
    if job.status == "SUCCEEDED":
        return 0
    return EXIT_USAGE if job.driver_exit_code == EXIT_USAGE else 1


def choose_step(asked: str, listing: CheckpointListing, checkpoint_dir: str) -> int:
    """Return the step of the checkpoint that is meant.

    Raises:
        UsageError: there is none, or it is not complete.
    """
    complete = [entry.step for entry in listing.complete]
    if asked == NEWEST and complete:
        return complete[-1]
    if asked != NEWEST and int(asked) in complete:
        return int(asked)
    states = ", ".join(f"{entry.name} is {entry.state}" for entry in listing.checkpoints if str(entry.step) == asked)
    problem = "there is no complete checkpoint" if asked == NEWEST else states or f"step_{asked} does not exist"
    there_is = ", ".join(f"step_{step}" for step in complete) or "none"
    raise UsageError(
        f"Nothing was copied: {problem} in {checkpoint_dir}. Complete checkpoints: {there_is}. "
        "See all of them: python -m jobs checkpoints"
    )


def _running(dashboard: "Dashboard", outputs: StackOutputs, args: argparse.Namespace) -> str | None:
    """Find the copy that the same command began and that goes on."""
    for job in dashboard.list_jobs():
        about = job.metadata
        is_same = about.get("export_of") == outputs.job.name and about.get("export_to") == args.to
        if is_same and args.step in {about.get("export_step"), about.get("export_asked")} and not job.status.is_final:
            return job.submission_id
    return None


def _submit(dashboard: "Dashboard", outputs: StackOutputs, args: argparse.Namespace, step: int) -> str:
    from jobs.ray_job import stage_payload  # noqa: PLC0415 - with pulumi, which no other command needs

    earlier = [job for job in dashboard.list_jobs() if job.metadata.get("export_of") == outputs.job.name]
    submission_id = f"export-{outputs.job.name}-step-{step}-n{len(earlier) + 1}"
    # Nice, for the head also serves Ray and the run's supervisor.
    words = ["nice", "python", "-m", _MODULE, "--checkpoint-dir", outputs.job.checkpoint_dir]
    words += [
        "--run-dir",
        outputs.job.run_dir,
        "--step",
        str(step),
        "--to",
        args.to,
        "--namespace",
        outputs.ray.namespace,
    ]
    with stage_payload() as working_dir:
        dashboard.submit(
            submission_id=submission_id,
            entrypoint=shlex.join(words),
            working_dir=working_dir,
            metadata={
                "export_of": outputs.job.name,
                "export_step": str(step),
                "export_asked": args.step,
                "export_to": args.to,
            },
        )
    return submission_id
