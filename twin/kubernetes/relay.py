"""Holds the network namespace of one RayCluster, and carries connections from this machine's loopback to its dashboard.

Runs as `python -I -S relay.py LISTEN_FD READY_FD` inside the new namespace, which has nothing but a loopback device of
its own. The listening socket was opened outside: a socket stays in the namespace that made it, so this process may
accept what comes from outside and connect inside. Standard library only.
"""

import asyncio
import os
import socket
import subprocess
import sys

DASHBOARD_PORT = 8265
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


async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Carry one connection to the dashboard and back; without a dashboard it is closed at once."""
    try:
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", DASHBOARD_PORT)
    except OSError:
        writer.close()
        return
    await asyncio.gather(pump(reader, inner_writer), pump(inner_reader, writer))
    inner_writer.close()
    writer.close()


async def serve(listen_fd: int, ready_fd: int) -> None:
    """Carry connections for ever; say when the first may come."""
    server = await asyncio.start_server(carry, sock=socket.socket(fileno=listen_fd))
    os.write(ready_fd, b"1")
    os.close(ready_fd)
    await server.serve_forever()


if __name__ == "__main__":
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    asyncio.run(serve(int(sys.argv[1]), int(sys.argv[2])))
