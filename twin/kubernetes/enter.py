"""Runs a command in a container of the twin, as the kubelet does for `kubectl exec`: inside all of its namespaces.

Runs as `python -I -S enter.py PODS NAMESPACE POD CONTAINER COMMAND...`, started by kubelet-exec in the user namespace
of the agent. The container's first process gives the environment, the working directory and the root. Standard library
only; nothing of this machine's environment goes along.
"""

import os
import shutil
import sys
from pathlib import Path

CANNOT_ENTER = 126
"""Exit code when there is no container to enter, as container runtimes use it."""
INIT_FILE = "init"
"""In a container's directory: pid of the process whose child the container is, and its start time in clock ticks."""

_NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid", "--root", "--wd")


def first_process(directory: Path) -> int:
    """Find the first process of the container that keeps its files in `directory`.

    Raises:
        OSError: it does not run.
    """
    pid, started = (directory / INIT_FILE).read_text().split()
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    if fields[19] != started or not children:
        raise ProcessLookupError
    return int(children[0])


def main() -> None:
    """Become the command."""
    pods, namespace, pod, container, *command = sys.argv[1:]
    try:
        pid = first_process(Path(pods, namespace, pod, container))
        environment = Path(f"/proc/{pid}/environ").read_bytes()
        entered = Path(f"/proc/{pid}/root").readlink() != Path("/")
    except OSError:
        entered = False
    if not entered:
        sys.stderr.write(f"container {container} of pod {namespace}/{pod} runs no process on the twin now\n")
        sys.exit(CANNOT_ENTER)
    variables = dict(line.partition(b"=")[::2] for line in environment.split(b"\0") if line)
    nsenter = shutil.which("nsenter") or "/usr/bin/nsenter"
    os.execve(nsenter, ["nsenter", f"--target={pid}", *_NAMESPACES, "--", *command], variables)  # noqa: S606


if __name__ == "__main__":
    main()
