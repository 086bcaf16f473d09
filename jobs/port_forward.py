"""The way from this machine to the Ray dashboard: through the Kubernetes API server to the head service's pod.

kr8s does it in this process. kubectl would be one more program to install in the right version, a child to reap, and
a port to read out of its words; and it ends for good when the pod does, where kr8s looks for the service's pod anew on
each connection. What kr8s lacks is added here: deadlines, a fixed local port, errors with a remedy, no key left
in /tmp, and no proxy for loopback.
"""

import asyncio
import base64
import json
import logging
import os
import socket
import threading
import warnings
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar
from urllib.parse import urlsplit

from jobs.errors import PortForwardError, UsageError

DASHBOARD_PORT = 8265

_LOOPBACK_HOSTS = ("127.0.0.1", "localhost", "::1")
_EVERY_S = 2.0
_CLOSE_TIMEOUT_S = 2.0

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


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class _Loop:
    """An event loop in a thread of its own: the forward must go on while its user blocks."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        # A connection that fails is closed, which its user sees; asyncio would print a traceback besides.
        self._loop.set_exception_handler(lambda _, context: logging.getLogger(__name__).debug("%s", context))
        self._thread = threading.Thread(target=self._loop.run_forever, name="port-forward", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Answer], *, timeout_s: float) -> Answer:
        """Run a coroutine to its end, or cancel it at the deadline."""
        return asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, timeout_s), self._loop).result()

    def close(self) -> None:
        """Cancel what is left, then end the thread."""

        async def cancel_all() -> None:
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(cancel_all(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _start_forward(
    kubeconfig: dict[str, Any], namespace: str, head_service: str, local_port: int
) -> AsyncExitStack:
    """Wait for a ready pod, then listen; returns what ends it."""
    import kr8s.asyncio  # noqa: PLC0415 - a third of a second that a preview does not need
    from kr8s.asyncio.objects import Service  # noqa: PLC0415

    with warnings.catch_warnings():
        # It warns of a Kubernetes newer than the newest it was tested with, which is of no use to whoever types `up`.
        warnings.simplefilter("ignore", UserWarning)
        api = await kr8s.asyncio.api(kubeconfig=kubeconfig)
    while True:
        service = await Service.get(head_service, namespace=namespace, api=api)
        if await service.ready_pods():
            break
        await asyncio.sleep(_EVERY_S)
    forward = service.portforward(remote_port=DASHBOARD_PORT, local_port=local_port, address="127.0.0.1")
    started = AsyncExitStack()
    # Not `forward.start()`: with a port given, it returns before anything listens.
    await started.enter_async_context(forward)
    return started


@contextmanager
def open_dashboard(
    *, kubeconfig: str, namespace: str, head_service: str, timeout_s: float, local_port: int | None = None
) -> Iterator[str]:
    """Forward a free loopback port to the Ray dashboard; yields its address, `http://127.0.0.1:PORT`.

    The port goes on listening when the head pod is replaced, and leads to the new pod. It does not survive the
    Kubernetes credential (an hour on GKE): who stays longer opens it again, on the same `local_port`.

    Args:
        kubeconfig: JSON text; an exec plugin in it is run, and SSL_CERT_FILE counts where it names no authority.
        namespace: of the head service.
        head_service: name of the service.
        timeout_s: seconds until there must be a ready head pod.
        local_port: the port to listen on; a free one if left out.

    Raises:
        UsageError: the kubeconfig is none.
        PortForwardError: no connection within the deadline.
    """
    config = parse_kubeconfig(kubeconfig)
    server = config["clusters"][0]["cluster"]["server"]
    if urlsplit(server).hostname in _LOOPBACK_HOSTS:
        _exempt_loopback_from_proxies()
    port = local_port or free_port()
    where = f"svc/{head_service} in namespace {namespace} of {server}"
    loop = _Loop()
    try:
        with TemporaryDirectory(prefix="rlstack-kubeconfig-") as directory:
            try:
                started = loop.run(
                    _start_forward(_with_files(config, Path(directory)), namespace, head_service, port),
                    timeout_s=timeout_s,
                )
            except TimeoutError as error:
                raise PortForwardError(
                    f"No ready Ray head behind {where} within {timeout_s:.0f} s. "
                    f"Check: kubectl -n {namespace} get pods -l ray.io/node-type=head"
                ) from error
            except Exception as error:
                raise PortForwardError(f"No way to {where}: {_cause(error)}. {_remedy(error)}") from error
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                # From Python 3.12 on, a listener waits for its connections, which `close` cancels.
                with suppress(TimeoutError):
                    loop.run(started.aclose(), timeout_s=_CLOSE_TIMEOUT_S)
    finally:
        loop.close()


def _cause(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0][:200].rstrip('.')}" if text else type(error).__name__


def _remedy(error: BaseException) -> str:
    if isinstance(error, FileNotFoundError):
        return "The kubeconfig's credential plugin must be on PATH (gcloud components install gke-gcloud-auth-plugin)"
    return "Check that the cluster is there and that `kubectl get nodes` works with the stack's credentials"
