"""Cloud Storage and the metadata server as the twin's pods reach them: HTTP on the loopback inside their network.

A bucket is a directory `<state>/buckets/<name>` that somebody makes (`mkdir`), an object a file in it. Served is what
the product uses: objects.list and objects.insert (media and resumable uploads) of the JSON API, shaped as in its
discovery document (storage v1), and of the metadata server a token and the project. Requests need that token.
"""

import base64
import hashlib
import json
import secrets
import shutil
import socket
import threading
import zlib
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

_METADATA = "/computeMetadata/v1/"
_OBJECTS = "/storage/v1/b/"
_UPLOADS = "/upload/storage/v1/b/"
_TOKEN_LIFE_S = 3599
_GRANULE_BYTES = 256 * 1024
"""What the service keeps of a chunk is a multiple of this."""
_PARTS = ".uploads"


class StorageRefusal(Exception):
    """An answer that is an error; `reason` is Google's word for it."""

    def __init__(self, status: HTTPStatus, reason: str, message: str) -> None:
        self.status = status
        self.reason = reason
        super().__init__(message)


class CloudStorage:
    """The buckets of one twin, and the identity that its pods have.

    Attributes:
        project: id of the project that the metadata server names.
        denied: whether every request to a bucket is refused, as for an account without a role.
        page_size: objects in one answer of a list.
        token: what requests must carry.
    """

    def __init__(self, buckets: Path) -> None:
        self.project = ""
        self.denied = False
        self.page_size = 1000
        self.token = secrets.token_urlsafe()
        self._buckets = buckets
        self._sessions: dict[str, tuple[str, str, int]] = {}

    def serve(self, listener: socket.socket) -> "Server":
        """Answer on a listening socket, which may be of another network namespace, in a thread; `close` the server."""
        return Server(self, listener)

    def metadata(self, path: str, flavor: str) -> str:
        """Answer of the metadata server; `flavor` is the header that shows that the caller means it."""
        if flavor != "Google":
            raise StorageRefusal(HTTPStatus.FORBIDDEN, "forbidden", "Missing Metadata-Flavor:Google header.")
        values = {
            "instance/service-accounts/default/token": json.dumps(
                {"access_token": self.token, "expires_in": _TOKEN_LIFE_S, "token_type": "Bearer"}
            ),
            "project/project-id": self.project,
            "project/numeric-project-id": str(zlib.crc32(self.project.encode())),
        }
        if path not in values:
            raise StorageRefusal(HTTPStatus.NOT_FOUND, "notFound", f"the twin's metadata server has no {path}")
        return values[path]

    def list_objects(self, bucket: str, prefix: str, page_token: str) -> dict[str, Any]:
        """objects.list: names in order, from the one after `page_token`."""
        root = self._bucket(bucket)
        files = sorted((path.relative_to(root).as_posix(), path) for path in root.rglob("*") if path.is_file())
        left = [(name, path) for name, path in files if name.startswith(prefix) and name > page_token]
        page = left[: self.page_size]
        answer: dict[str, Any] = {"kind": "storage#objects"}
        if page:
            answer["items"] = [_resource(bucket, name, path) for name, path in page]
        if len(left) > len(page):
            answer["nextPageToken"] = page[-1][0]
        return answer

    def insert(self, bucket: str, name: str, data: bytes) -> dict[str, Any]:
        """objects.insert with uploadType=media."""
        path = self._object(bucket, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return _resource(bucket, name, path)

    def begin_upload(self, bucket: str, name: str, size: int) -> str:
        """objects.insert with uploadType=resumable; returns the session's id."""
        self._object(bucket, name)
        session = secrets.token_urlsafe()
        self._sessions[session] = (bucket, name, size)
        self._part(session).parent.mkdir(exist_ok=True)
        self._part(session).touch()
        return session

    def continue_upload(self, session: str, content_range: str, data: bytes) -> dict[str, Any] | int:
        """Take a chunk, `bytes 0-41/100`, or a question, `bytes */100`; returns the object, or the bytes kept."""
        if session not in self._sessions:
            raise StorageRefusal(HTTPStatus.NOT_FOUND, "notFound", "No such upload session")
        bucket, name, size = self._sessions[session]
        part = self._part(session)
        given = content_range.removeprefix("bytes ").partition("/")[0]
        with part.open("ab") as file:
            if given != "*":
                begin, end = (int(number) for number in given.split("-"))
                if begin != file.tell() or end - begin + 1 < len(data):
                    raise StorageRefusal(
                        HTTPStatus.BAD_REQUEST, "invalid", f"{content_range} after {file.tell()} bytes"
                    )
                is_last = begin + len(data) == size
                file.write(data if is_last else data[: len(data) // _GRANULE_BYTES * _GRANULE_BYTES])
            kept = file.tell()
        if kept < size:
            return kept
        path = self._object(bucket, name)
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.move(part, path)
        del self._sessions[session]
        return _resource(bucket, name, path)

    def check(self, authorization: str) -> None:
        """Refuse whoever has no token, or all while `denied`."""
        if authorization != f"Bearer {self.token}":
            raise StorageRefusal(HTTPStatus.UNAUTHORIZED, "authError", "Invalid Credentials")
        if self.denied:
            raise StorageRefusal(
                HTTPStatus.FORBIDDEN,
                "forbidden",
                "Caller does not have storage.objects.list access to the Google Cloud Storage bucket. "
                "Permission 'storage.objects.list' denied on resource (or it may not exist).",
            )

    def _bucket(self, name: str) -> Path:
        path = self._buckets / name
        if "/" in name or name.startswith(".") or not path.is_dir():
            raise StorageRefusal(HTTPStatus.NOT_FOUND, "notFound", "The specified bucket does not exist.")
        return path

    def _object(self, bucket: str, name: str) -> Path:
        root = self._bucket(bucket)
        if not name or any(part in {"", ".", ".."} for part in name.split("/")):
            raise StorageRefusal(HTTPStatus.BAD_REQUEST, "invalid", f"the twin stores no object called {name!r}")
        return root / name

    def _part(self, session: str) -> Path:
        return self._buckets / _PARTS / session


def _resource(bucket: str, name: str, path: Path) -> dict[str, Any]:
    digest = hashlib.md5(path.read_bytes(), usedforsecurity=False).digest()
    return {
        "kind": "storage#object",
        "name": name,
        "bucket": bucket,
        "size": str(path.stat().st_size),
        "md5Hash": base64.b64encode(digest).decode(),
    }


class Server(ThreadingHTTPServer):
    """One listening socket with what is served there."""

    daemon_threads = True

    def __init__(self, storage: CloudStorage, listener: socket.socket) -> None:
        super().__init__(listener.getsockname(), _Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = listener
        self.storage = storage
        self._thread = threading.Thread(target=self.serve_forever, args=(0.05,), name="cloud-storage", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer no more, and close the socket."""
        self.shutdown()
        self._thread.join()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        try:
            if url.path.startswith(_METADATA):
                flavor = self.headers.get("Metadata-Flavor", "")
                self._answer(
                    HTTPStatus.OK, self.server.storage.metadata(url.path.removeprefix(_METADATA), flavor).encode()
                )
                return
            bucket = self._bucket_of(url.path, _OBJECTS)
            found = self.server.storage.list_objects(bucket, query.get("prefix", ""), query.get("pageToken", ""))
            self._answer(HTTPStatus.OK, json.dumps(found).encode())
        except StorageRefusal as error:
            self._refuse(error)

    def do_POST(self) -> None:
        data = self._body()
        url = urlsplit(self.path)
        query = {key: values[-1] for key, values in parse_qs(url.query).items()}
        try:
            bucket = self._bucket_of(url.path, _UPLOADS)
            name = query.get("name", "")
            if query.get("uploadType") == "media":
                self._answer(HTTPStatus.OK, json.dumps(self.server.storage.insert(bucket, name, data)).encode())
                return
            session = self.server.storage.begin_upload(bucket, name, int(self.headers["X-Upload-Content-Length"]))
            location = f"http://{self.headers['Host']}{url.path}?uploadType=resumable&upload_id={session}"
            self._answer(HTTPStatus.OK, b"", Location=location)
        except StorageRefusal as error:
            self._refuse(error)

    def do_PUT(self) -> None:
        data = self._body()
        url = urlsplit(self.path)
        try:
            self._bucket_of(url.path, _UPLOADS)
            (session,) = parse_qs(url.query)["upload_id"]
            done = self.server.storage.continue_upload(session, self.headers["Content-Range"], data)
            if isinstance(done, int):
                kept = {"Range": f"bytes=0-{done - 1}"} if done else {}
                self._answer(HTTPStatus.PERMANENT_REDIRECT, b"", **kept)
            else:
                self._answer(HTTPStatus.OK, json.dumps(done).encode())
        except StorageRefusal as error:
            self._refuse(error)

    def _bucket_of(self, path: str, root: str) -> str:
        if not (path.startswith(root) and path.endswith("/o")):
            raise StorageRefusal(HTTPStatus.NOT_FOUND, "notFound", f"the twin serves no {path}")
        self.server.storage.check(self.headers.get("Authorization", ""))
        return unquote(path.removeprefix(root).removesuffix("/o"))

    def _body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _refuse(self, error: StorageRefusal) -> None:
        message = str(error)
        details = [{"message": message, "domain": "global", "reason": error.reason}]
        body = {"error": {"code": error.status.value, "message": message, "errors": details}}
        self._answer(error.status, json.dumps(body).encode())

    def _answer(self, status: HTTPStatus, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Metadata-Flavor": "Google", "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """The agent's log is no access log."""
