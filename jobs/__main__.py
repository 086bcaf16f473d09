"""`python -m jobs`: check a recipe before it costs anything; watch, read and stop a stack's job."""

import argparse
import sys
from collections.abc import Sequence

from jobs import check, checkpoints, events, export, logs, plan, report, status, stop, wait, watch
from jobs.errors import RlstackError
from jobs.preflight import command as preflight

_EXIT_INTERRUPTED = 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit code: 0, 1 for a failure, 2 for wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m jobs", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="command")
    for command in (check, preflight, plan, watch, wait, status, logs, stop, checkpoints, export, report, events):
        command.add_parser(commands)
    args = parser.parse_args(arguments)
    try:
        code: int = args.run(args)
    except RlstackError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; the job goes on", file=sys.stderr)
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # Whoever read the output has seen enough. Python would complain once more when it flushes at exit.
        sys.stdout = None
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
