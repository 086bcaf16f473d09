"""`python -m twin`: the stack, on this machine."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.errors import RlstackError, UsageError
from twin import environment, status
from twin.cloud.faults import FAULTS
from twin.cloud.store import ResourceType, Store
from twin.engine import Engine
from twin.kubernetes import cluster
from twin.state import TwinState

EPILOG = """\
A session:
  python -m twin up                        bring the stack up; the job is submitted at the end
  eval "$(python -m twin env)"             let pulumi, kubectl and python -m jobs speak to the twin
  python -m jobs watch --stack local       follow the run
  python -m twin destroy && python -m twin stop
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return 0, 1 for a failure, 2 for wrong usage."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except RlstackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the next command goes on from what was done", file=sys.stderr)
        return 130
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m twin", description=__doc__, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, metavar="command")

    def command(name: str, run: Callable[[argparse.Namespace], None], text: str) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=text, description=text)
        added.set_defaults(run=run)
        return added

    for name, run, text in (
        ("preview", _preview, "show what up would do"),
        ("up", _up, "create or change what the stack declares"),
        ("refresh", _refresh, "read what is really there into the stack's state"),
        ("destroy", _destroy, "delete everything in the stack's state"),
        ("secret", _secret, "keep a secret of the stack, read from standard input"),
    ):
        added = command(name, run, text)
        added.add_argument("--stack", default="local", help="name of a Pulumi.<stack>.yaml (default: local)")
        if name == "secret":
            added.add_argument("key", choices=("hf_token", "wandb_api_key"))
    command("status", _status, "show the simulated project, its clusters and pods, and what Google refused")
    command("env", _env, 'print the environment of the twin: eval "$(python -m twin env)"')
    command("stop", _stop, "stop every process of the twin and keep its data; up starts them again")
    preempt = command("preempt", _preempt, "take Spot machines away, without grace for what runs there")
    preempt.add_argument("--nodes", type=int, default=1, metavar="N", help="how many (default: 1)")
    fault = command("fault", _fault, "make something go wrong; without a name, list what can")
    fault.add_argument("name", nargs="?", choices=sorted(FAULTS))
    fault.add_argument("--clear", action="store_true", help="end the fault")
    return parser


def _engine(options: argparse.Namespace) -> Engine:
    # As with pulumi itself, the settings are those of the directory that the command is typed in.
    return Engine(TwinState.from_environment(), options.stack, Path.cwd())


def _preview(options: argparse.Namespace) -> None:
    _tell("preview", _engine(options).preview())


def _up(options: argparse.Namespace) -> None:
    state = TwinState.from_environment()
    with status.events_told(state):
        _tell("up", _engine(options).up())


def _refresh(options: argparse.Namespace) -> None:
    with status.events_told(TwinState.from_environment()):
        _tell("refresh", _engine(options).refresh())


def _destroy(options: argparse.Namespace) -> None:
    state = TwinState.from_environment()
    with status.events_told(state):
        _tell("destroy", _engine(options).destroy())


def _secret(options: argparse.Namespace) -> None:
    value = sys.stdin.read().strip()
    if not value:
        message = f"{options.key}: standard input was empty, nothing was kept. Type: python -m twin secret "
        message += f"{options.key} < FILE"
        raise UsageError(message)
    _engine(options).set_secret(options.key, value)


def _status(_: argparse.Namespace) -> None:
    status.show(TwinState.from_environment())


def _env(_: argparse.Namespace) -> None:
    state = TwinState.from_environment()
    environment.prepare(state)
    print(environment.exports(state))


def _preempt(options: argparse.Namespace) -> None:
    state = TwinState.from_environment()
    running = [
        (each.name, node)
        for each in Store.open(state).list(ResourceType.CLUSTER)
        for node in cluster.spot_nodes(state, each.name)
    ]
    if not 0 < options.nodes <= len(running):
        message = (
            f"--nodes {options.nodes}: the twin has {len(running)} Spot machines now, so none was taken. Ask for no "
        )
        message += "more than it has, or wait until pods have asked for machines: python -m twin status"
        raise UsageError(message)
    for name, node in running[: options.nodes]:
        cluster.preempt(state, name, node)
        print(f"preempted {node} of cluster {name}")


def _stop(_: argparse.Namespace) -> None:
    cluster.stop_all(TwinState.from_environment())


def _fault(options: argparse.Namespace) -> None:
    store = Store.open(TwinState.from_environment())
    if options.name is None:
        active = store.faults()
        for name, fault in sorted(FAULTS.items()):
            print(f"{'on ' if name in active else 'off'} {name}: {fault.effect}")
    elif options.clear:
        store.clear_fault(options.name)
    else:
        store.set_fault(options.name)


def _tell(command: str, changes: dict[str, int]) -> None:
    counts = ", ".join(f"{count} {operation}" for operation, count in sorted(changes.items()))
    print(f"{command}: {counts or 'nothing to do'}")


if __name__ == "__main__":
    sys.exit(main())
