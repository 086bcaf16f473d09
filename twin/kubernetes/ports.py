"""Free ports of this machine's loopback, for programs that take a port number and no socket."""

import socket
from contextlib import ExitStack


def free_ports(count: int) -> list[int]:
    """Find different ports that nobody listens on now; somebody else may take one before it is used."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]
