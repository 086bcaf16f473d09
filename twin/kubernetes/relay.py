"""Carries connections over the edge of a network namespace: from a listening socket on one side to a port on the other.

Runs as `python -I -S relay.py LISTEN_FD PORT [HOLD_FD]`. A socket stays in the namespace that made it, so a process may
accept on one that it was given from the other side, and connect on its own. The pods of a RayCluster have two of these:

| relay | runs | accepts | connects to |
|---|---|---|---|
| the way in | inside, and holds the namespace | on this machine's loopback | the dashboard inside |
| the way out | outside | on the loopback inside | the API server |

Standard library only.
"""

import asyncio
import functools
import signal
import socket
import subprocess
import sys

LOOPBACK = "127.0.0.1"
DASHBOARD_PORT = 8265
API_SERVER_PORT = 443
"""Where the API server answers inside the namespace; GKE's pods find theirs at this port."""
GOOGLE_PORT = 80
"""Where Google's services answer inside the namespace: the metadata server's port in the cloud."""
_CHUNK_BYTES = 1 << 16


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, and pass the end on."""
    try:
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()
    except OSError:
        writer.close()


async def carry(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, port: int, carried: set[asyncio.StreamWriter]
) -> None:
    """Carry one connection to a port of the loopback here and back; where nobody listens it is closed at once.

    Both ends are in `carried` meanwhile.
    """
    try:
        inner_reader, inner_writer = await asyncio.open_connection(LOOPBACK, port)
    except OSError:
        writer.close()
        return
    carried |= {writer, inner_writer}
    await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
    carried -= {writer, inner_writer}
    inner_writer.close()
    writer.close()


def cut(carried: set[asyncio.StreamWriter]) -> None:
    """Cut every connection as a broken network does: reset, with whatever was under way lost."""
    for writer in carried:
        writer.transport.abort()


async def serve(listen_fd: int, port: int) -> None:
    """Carry connections for ever; SIGUSR1 cuts those that are open."""
    carried: set[asyncio.StreamWriter] = set()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, cut, carried)
    accept = functools.partial(carry, port=port, carried=carried)
    server = await asyncio.start_server(accept, sock=socket.socket(fileno=listen_fd))
    await server.serve_forever()


def hold(hold_fd: int) -> None:
    """Bring up the new namespace's loopback, and hand out sockets that listen in it.

    The first is the start of the way out; on the second the agent itself answers as Google's services.
    """
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with (
        socket.socket(fileno=hold_fd) as outside,
        socket.create_server((LOOPBACK, API_SERVER_PORT)) as api_server,
        socket.create_server((LOOPBACK, GOOGLE_PORT)) as google,
    ):
        socket.send_fds(outside, [b"1"], [api_server.fileno(), google.fileno()])


if __name__ == "__main__":
    if len(sys.argv) > 3:  # noqa: PLR2004 - the relay that holds the namespace
        hold(int(sys.argv[3]))
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
