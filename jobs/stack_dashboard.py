"""The Ray dashboard of a stack, for the commands that a person types."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from jobs.stack_outputs import StackOutputs

if TYPE_CHECKING:
    from jobs.dashboard import Dashboard

CONNECT_TIMEOUT_S = 60.0


@contextmanager
def open_stack_dashboard(outputs: StackOutputs, *, local_port: int | None = None) -> Iterator["Dashboard"]:
    """Open the way to a stack's dashboard, on a free loopback port or the one given.

    Raises:
        PortForwardError: no ready head pod within CONNECT_TIMEOUT_S.
    """
    from jobs.dashboard import Dashboard  # noqa: PLC0415 - ray takes a second, which a wrong stack need not cost
    from jobs.port_forward import open_dashboard  # noqa: PLC0415

    with open_dashboard(
        kubeconfig=outputs.kubeconfig,
        namespace=outputs.ray.namespace,
        head_service=outputs.ray.head_service,
        timeout_s=CONNECT_TIMEOUT_S,
        local_port=local_port,
    ) as url:
        yield Dashboard(url)
