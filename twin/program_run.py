"""Runs one Pulumi program under the engine, in a process of its own, and prints the engine's events as JSON lines.

Run as a file, with PYTHONPATH naming the program's directory (twin/diff.py does): two commits of one program have
modules of the same names, so they never share an interpreter. For the same reason it imports nothing of the project.
"""

import gc
import json
import runpy
import sys
from pathlib import Path

from pulumi import automation


def main(command: str, project: str, stack_name: str, workspace: str, program: str) -> int:
    """Run `up` or `preview`: events go to standard output, the engine's own lines to standard error.

    Returns:
        0, or 1 when the engine met errors, which are among the events.
    """

    def run_program() -> None:
        runpy.run_path(str(Path(program) / "__main__.py"), run_name="__main__")

    gc.disable()  # as in twin/engine.py
    stack = automation.create_or_select_stack(
        stack_name=stack_name,
        project_name=project,
        program=run_program,
        opts=automation.LocalWorkspaceOptions(work_dir=workspace),
    )
    try:
        if command == "up":
            stack.up(on_event=_print_event, on_output=_print_line, color="never")
        else:
            stack.preview(on_event=_print_event, on_output=_print_line, color="never")
    except automation.CommandError:
        return 1
    finally:
        gc.freeze()
    return 0


def _print_event(event: automation.EngineEvent) -> None:
    print(json.dumps(event, default=vars), flush=True)


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
