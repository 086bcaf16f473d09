"""Cloud Storage and a metadata server on loopback, which can be made to fail in the middle."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twin.cloud.storage import CloudStorage, StorageRefusal

BUCKET = "weights"


class StillClock:
    """Time that passes only where somebody waits."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


class FailingStorage(CloudStorage):
    """The twin's, with failures on request.

    Attributes:
        failures: raised by the next requests, one each, before they are looked at; none lets one pass.
        lost_after: of the next chunk, the service keeps as many bytes and then drops the connection.
        stored: names of the objects that were uploaded, in order.
        spoiled: name of an object whose last byte is stored wrong.
    """

    def __init__(self, buckets: Path) -> None:
        super().__init__(buckets)
        self.failures: list[StorageRefusal | None] = []
        self.lost_after: int | None = None
        self.stored: list[str] = []
        self.spoiled = ""

    def check(self, authorization: str) -> None:
        super().check(authorization)
        if self.failures and (failure := self.failures.pop(0)):
            raise failure

    def insert(self, bucket: str, name: str, data: bytes) -> dict[str, Any]:
        self.stored.append(name)
        return super().insert(bucket, name, data[:-1] + b"?" if name == self.spoiled else data)

    def begin_upload(self, bucket: str, name: str, size: int) -> str:
        self.stored.append(name)
        return super().begin_upload(bucket, name, size)

    def continue_upload(self, session: str, content_range: str, data: bytes) -> dict[str, Any] | int:
        if self.lost_after is not None and data:
            kept, self.lost_after = self.lost_after, None
            super().continue_upload(session, content_range, data[:kept])
            raise ConnectionAbortedError
        return super().continue_upload(session, content_range, data)


@contextmanager
def serving(directory: Path) -> Iterator[tuple[FailingStorage, dict[str, str]]]:
    """Serve one empty bucket; yields the service, and the environment of a pod that reaches it."""
    (directory / BUCKET).mkdir(parents=True)
    storage = FailingStorage(directory)
    storage.project = "acme"
    server = storage.serve(socket.create_server(("127.0.0.1", 0)))
    address = f"127.0.0.1:{server.server_address[1]}"
    # Its complaint about a connection that it drops on purpose.
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    try:
        yield storage, {"GCE_METADATA_HOST": address, "STORAGE_EMULATOR_HOST": f"http://{address}"}
    finally:
        server.close()
