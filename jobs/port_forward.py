"""The way from this machine to the Ray dashboard: through the Kubernetes API server to the head service's pod.

kr8s does it in this process. kubectl would be one more program to install in the right version, a child to reap, and
a port to read out of its words; and it ends for good when the pod does, where kr8s looks for the service's pod anew on
each connection. What kr8s lacks is added here (a fixed local port) and in `kubernetes_api.py`.
"""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import AsyncExitStack, contextmanager, suppress
from typing import Any

from jobs.errors import PortForwardError
from jobs.kubernetes_api import LoopThread, cause_of, kubeconfig_on_disk, open_api, remedy_for, server_of

DASHBOARD_PORT = 8265

_EVERY_S = 2.0
_CLOSE_TIMEOUT_S = 2.0


def free_port() -> int:
    """Return a loopback port that was free a moment ago."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


async def _start_forward(
    kubeconfig: dict[str, Any], namespace: str, head_service: str, local_port: int
) -> AsyncExitStack:
    """Wait for a ready pod, then listen; returns what ends it."""
    from kr8s.asyncio.objects import Service  # noqa: PLC0415 - a third of a second that a preview does not need

    api = await open_api(kubeconfig)
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
    port = local_port or free_port()
    loop = LoopThread()
    try:
        with kubeconfig_on_disk(kubeconfig) as config:
            where = f"svc/{head_service} in namespace {namespace} of {server_of(config)}"
            try:
                started = loop.run(_start_forward(config, namespace, head_service, port), timeout_s=timeout_s)
            except TimeoutError as error:
                raise PortForwardError(
                    f"No ready Ray head behind {where} within {timeout_s:.0f} s. "
                    f"Check: kubectl -n {namespace} get pods -l ray.io/node-type=head"
                ) from error
            except Exception as error:
                raise PortForwardError(f"No way to {where}: {cause_of(error)}. {remedy_for(error)}") from error
            try:
                yield f"http://127.0.0.1:{port}"
            finally:
                # From Python 3.12 on, a listener waits for its connections, which `close` cancels.
                with suppress(TimeoutError):
                    loop.run(started.aclose(), timeout_s=_CLOSE_TIMEOUT_S)
    finally:
        loop.close()
