"""`python -m twin`: the stack, on this machine."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from jobs.errors import RlstackError, UsageError
from twin import breakage, diff, environment, preemption, status
from twin.cloud.faults import FAULTS
from twin.cloud.store import ResourceType, Store
from twin.engine import Engine
from twin.kubernetes import cluster
from twin.state import STATE_VARIABLE, TwinState

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
        if name == "up":
            added.add_argument(
                "--without-ray",
                action="store_true",
                help="of a new twin: Ray pods are Ready without a process, the dashboard only keeps a table of jobs",
            )
        if name == "secret":
            added.add_argument("key", choices=("hf_token", "wandb_api_key"))
    compared = command("diff", _diff, "tell as Markdown what this working tree would change in a commit's stack")
    compared.add_argument("--base", required=True, metavar="REV", help="the commit whose stack is taken for up")
    compared.add_argument("--stack", default="dev", help="name of a Pulumi.<stack>.yaml (default: dev)")
    command("status", _status, "show the simulated project, its clusters and pods, and what Google refused")
    command("env", _env, 'print the environment of the twin: eval "$(python -m twin env)"')
    command("stop", _stop, "stop every process of the twin and keep its data; up starts them again")
    preempt = command("preempt", _preempt, "take Spot machines away, with the notice that Spot gives")
    which = preempt.add_mutually_exclusive_group()
    which.add_argument("--nodes", type=int, default=1, metavar="N", help="how many (default: 1)")
    which.add_argument("--trace", type=Path, metavar="FILE", help="replay a CSV: at_s,nodes,return_after_s")
    text = "simulated seconds for which no machine takes their place (default: as soon as the pool asks for one)"
    preempt.add_argument("--return-after", type=float, metavar="S", help=text)
    command("crash-head", _crash_head, "kill Ray in the head pod")
    drop = command("drop-connections", _drop_connections, "cut the connections of port-forwards to the dashboard")
    drop.add_argument("--every", type=float, metavar="S", help="again and again, every so many seconds")
    drop.add_argument(
        "--for", type=float, metavar="S", dest="for_s", help="for so many seconds (default: until Ctrl-C)"
    )
    fill = command("fill-lustre", _fill_lustre, "leave no room on Lustre: saves fail with 'No space left on device'")
    what = fill.add_mutually_exclusive_group()
    what.add_argument("--leave-gib", type=float, default=0.0, metavar="X", help="room that is left (default: 0)")
    what.add_argument("--undo", action="store_true", help="give it its room back")
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
    _settle_ray(state, without=options.without_ray)
    with status.events_told(state):
        _tell("up", _engine(options).up())


def _diff(options: argparse.Namespace) -> None:
    diff.show(options.base, options.stack, directory=Path.cwd(), state=TwinState.from_environment())


def _settle_ray(state: TwinState, *, without: bool) -> None:
    """Decide whether a twin has Ray, for as long as it has a cluster."""
    state.root.mkdir(parents=True, exist_ok=True, mode=0o700)
    if not Store.open(state).list(ResourceType.CLUSTER):
        if without:
            state.without_ray.touch()
        else:
            state.without_ray.unlink(missing_ok=True)
    elif without and not state.without_ray.exists():
        message = (
            f"--without-ray: the twin in {state.root} has a cluster with Ray, so nothing was done. Destroy it first "
        )
        raise UsageError(f"{message}(python -m twin destroy), or give another directory in ${STATE_VARIABLE}")
    elif state.without_ray.exists():
        print("note: this twin has no Ray until it is destroyed: nothing trains, and its dashboard is simulated")


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
    if options.trace is None:
        preemption.preempt(state, nodes=options.nodes, return_after_s=options.return_after)
        return
    if options.return_after is not None:
        message = f"--return-after {options.return_after:g}: a trace says it in each line, so nothing was preempted"
        raise UsageError(f"{message}. Leave it out")
    preemption.replay(state, preemption.read_trace(options.trace))


def _crash_head(_: argparse.Namespace) -> None:
    breakage.crash_head(TwinState.from_environment())


def _drop_connections(options: argparse.Namespace) -> None:
    breakage.drop_connections(TwinState.from_environment(), every_s=options.every, for_s=options.for_s)


def _fill_lustre(options: argparse.Namespace) -> None:
    state = TwinState.from_environment()
    if options.undo:
        breakage.empty_lustre(state)
    else:
        breakage.fill_lustre(state, leave_gib=options.leave_gib)


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
