"""`python -m jobs stop`: ends the run after its next checkpoint, or now."""

import argparse

from jobs.errors import HeadExecError, WaitTimeout
from jobs.payload.control import Action
from jobs.planned_stop import kill, wait_for_end
from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import add_stack_argument, read_stack_outputs

# The supervisor gives the trainer half a minute, and tries for a minute to give the workers back.
_NOW_TIMEOUT_S = 120.0


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("stop", help="stop the run after its next checkpoint; `up` goes on from there")
    add_stack_argument(parser, required=True)
    parser.add_argument("--now", action="store_true", help="do not wait: steps since the newest checkpoint are lost")
    parser.add_argument(
        "--timeout-s", type=float, default=3600.0, metavar="S", help="seconds to wait for the checkpoint (3600)"
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Stop the job and wait until it has ended; one that has ended already stays as it is.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
        HeadExecError: the run cannot be asked to stop after a checkpoint.
        WaitTimeout: the job goes on.
    """
    outputs = read_stack_outputs(args.stack)
    submission_id = outputs.job.submission_id
    run_on_head = outputs.on_head
    with open_stack_dashboard(outputs) as dashboard:
        job = dashboard.get_job(submission_id)
        if not job.status.is_final and args.now:
            try:
                # By the supervisor, which gives the GPUs back; Ray alone would leave them.
                run_on_head.request(Action.STOP_NOW, submission_id=submission_id)
                job = wait_for_end(dashboard, submission_id, timeout_s=_NOW_TIMEOUT_S, doing="stop")
            except (HeadExecError, WaitTimeout) as error:
                print(f"{error}. Ray is told to stop it")
                job = kill(dashboard, submission_id)
                print(
                    "Ray gives no GPUs back. See whether workers are left: "
                    f"kubectl -n {outputs.ray.namespace} get pods -l ray.io/cluster={outputs.ray.cluster}; to release "
                    'them: "GPU nodes stay after the run" in docs/runbook.md'
                )
        elif not job.status.is_final:
            run_on_head.request(Action.STOP_AFTER_CHECKPOINT, submission_id=submission_id)
            print(f"{submission_id} stops after its next checkpoint")
            try:
                job = wait_for_end(
                    dashboard, submission_id, timeout_s=args.timeout_s, doing="end after its next checkpoint"
                )
            except WaitTimeout as error:
                raise WaitTimeout(
                    f"{error}. It still stops at its next checkpoint. Wait for that: python -m jobs wait --stack "
                    f"{args.stack}. To lose the steps since the newest: python -m jobs stop --stack {args.stack} --now"
                ) from error
    resumes = "" if job.status == "SUCCEEDED" else ". `up` submits it again, from its newest checkpoint"
    print(f"{submission_id}: {job.status}{resumes}")
    return 0
