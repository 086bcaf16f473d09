"""`python -m jobs status`: how a stack's job stands, as a table."""

import argparse

from rich.console import Console
from rich.table import Table

from jobs.log_parser import LogParser
from jobs.run_progress import WINDOW_STEPS, RunProgress, format_kept, format_reward
from jobs.stack_dashboard import open_stack_dashboard
from jobs.stack_outputs import add_stack_argument, read_stack_outputs


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("status", help="show how the job stands")
    add_stack_argument(parser, required=True)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the table.

    Raises:
        UsageError: the stack cannot be read.
        DashboardError: the dashboard cannot be reached, or does not know the job.
        PortForwardError: there is no way to the dashboard.
    """
    outputs = read_stack_outputs(args.stack)
    with open_stack_dashboard(outputs) as dashboard:
        job = dashboard.get_job(outputs.job.submission_id)
        nodes = dashboard.nodes()
        progress = RunProgress()
        parser = LogParser()
        for record in parser.feed(dashboard.logs(job.submission_id).encode("utf-8", "replace")):
            progress.add(record)
        for record in parser.close():
            progress.add(record)
    alive = [node for node in nodes if node.state == "ALIVE"]
    rows = {
        "job": job.submission_id,
        "status": str(job.status),
        "submission": job.metadata.get("attempt", "-"),
        "trainer starts": str(progress.attempt),
        "step": f"{progress.step} of {progress.max_steps or '?'}",
        f"reward, first {WINDOW_STEPS} steps": format_reward(progress.first_reward),
        f"reward, last {WINDOW_STEPS} steps": format_reward(progress.last_reward),
        "checkpoints": format_kept(progress.kept),
        "Ray nodes alive": f"{len(alive)}, {sum(node.gpus for node in alive)} GPUs",
    }
    if progress.cause:
        rows["cause"] = progress.cause
    table = Table(show_header=False)
    for name, value in rows.items():
        table.add_row(name, value)
    Console(highlight=False, markup=False).print(table)
    return 0
