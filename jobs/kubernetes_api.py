"""The way from this machine to a cluster's API server: kr8s, with what it lacks.

Added here: deadlines, no key left in /tmp, no proxy for loopback, errors with a remedy.
"""

import asyncio
import base64
import contextlib
import json
import logging
import os
import threading
import warnings
from collections.abc import Coroutine, Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from jobs.errors import UsageError

if TYPE_CHECKING:
    from kr8s.asyncio import Api

_CLOSE_TIMEOUT_S = 10.0
_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")

Answer = TypeVar("Answer")


def parse_kubeconfig(text: str) -> dict[str, Any]:
    """Read the stack's kubeconfig, JSON text.

    Raises:
        UsageError: the text is no kubeconfig.
    """
    try:
        kubeconfig = json.loads(text)
        if isinstance(kubeconfig, dict) and kubeconfig["clusters"][0]["cluster"]["server"]:
            return kubeconfig
    except (ValueError, LookupError, TypeError):
        pass
    raise UsageError("The stack's output `kubeconfig` is no kubeconfig in JSON, so no cluster can be reached. Run `up`")


def _with_files(kubeconfig: Mapping[str, Any], directory: Path) -> dict[str, Any]:
    """Replace inline keys and certificates by files: kr8s writes inline ones to /tmp and leaves them there."""
    copied: dict[str, Any] = json.loads(json.dumps(kubeconfig))
    sections = [(entry, "cluster") for entry in copied["clusters"]] + [(entry, "user") for entry in copied["users"]]
    for index, (entry, kind) in enumerate(sections):
        values = entry[kind]
        for key in [key for key in values if key.endswith("-data")]:
            path = directory / f"{index}-{key}"
            path.touch(mode=0o600)
            path.write_bytes(base64.b64decode(values.pop(key)))
            values[key.removesuffix("-data")] = str(path)
    return copied


def _exempt_loopback_from_proxies() -> None:
    """Let NO_PROXY name loopback, as Go programs take for granted; httpx, which kr8s uses, does not."""
    for variable in ("NO_PROXY", "no_proxy"):
        hosts = [host for host in os.environ.get(variable, "").split(",") if host]
        os.environ[variable] = ",".join([*hosts, *(host for host in _LOOPBACK_HOSTS if host not in hosts)])


@contextlib.contextmanager
def kubeconfig_on_disk(text: str) -> Iterator[dict[str, Any]]:
    """Yield a kubeconfig that kr8s can use, and see that a server on loopback is reached without a proxy.

    Raises:
        UsageError: the text is no kubeconfig.
    """
    kubeconfig = parse_kubeconfig(text)
    if urlsplit(server_of(kubeconfig)).hostname in _LOOPBACK_HOSTS:
        _exempt_loopback_from_proxies()
    with TemporaryDirectory(prefix="rlstack-kubeconfig-") as directory:
        yield _with_files(kubeconfig, Path(directory))


def server_of(kubeconfig: Mapping[str, Any]) -> str:
    """Return the address of the API server."""
    return str(kubeconfig["clusters"][0]["cluster"]["server"])


async def open_api(kubeconfig: dict[str, Any]) -> "Api":
    """Open a client of the API server; a credential plugin in the kubeconfig is run."""
    import kr8s.asyncio  # noqa: PLC0415 - a third of a second that a preview does not need

    with warnings.catch_warnings():
        # It warns of a Kubernetes newer than the newest it was tested with, which is of no use to whoever types `up`.
        warnings.simplefilter("ignore", UserWarning)
        return await kr8s.asyncio.api(kubeconfig=kubeconfig)


class LoopThread:
    """An event loop in a thread of its own: a forward goes on while its user blocks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A connection that fails is closed, which its user sees; asyncio would print a traceback besides.
        self._loop.set_exception_handler(lambda _, context: logging.getLogger(__name__).debug("%s", context))
        self._thread = threading.Thread(target=self._loop.run_forever, name="kubernetes", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Answer], *, timeout_s: float) -> Answer:
        """Run a coroutine to its end, or cancel it at the deadline."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), self._loop).result()

    def close(self) -> None:
        """Cancel what is left, then end the thread; one that does not end goes with the process."""

        async def cancel_all() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        with contextlib.suppress(TimeoutError):
            asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result(_CLOSE_TIMEOUT_S)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_CLOSE_TIMEOUT_S)
        if not self._thread.is_alive():
            self._loop.close()


def cause_of(error: BaseException) -> str:
    """Say in a line what went wrong on the way to the API server."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200].rstrip('.')}" if text else type(error).__name__


def remedy_for(error: BaseException) -> str:
    """Say what to do about it."""
    if isinstance(error, FileNotFoundError):
        return "The kubeconfig's credential plugin must be on PATH (gcloud components install gke-gcloud-auth-plugin)"
    return "Check that the cluster is there and that `kubectl get nodes` works with the stack's credentials"
