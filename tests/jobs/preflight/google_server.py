"""Google's APIs on loopback: what a test says, if Google's documents allow it, to whoever asks as they allow."""

import json
import threading
from collections.abc import Mapping
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote

from tests.jobs.preflight.google_documents import methods

APIS = ("cloudquotas", "cloudresourcemanager", "compute", "container", "iam", "lustre", "serviceusage")
TEST_PERMISSIONS = "cloudresourcemanager.projects.testIamPermissions"
Answer = tuple[int, bytes]


class GoogleServer:
    """A server with one answer for each request; what it has no answer for does not exist.

    Attributes:
        seen: id of the method and path of each request.
        strangers: requests that Google's documents do not know.
        denied: permissions that the caller has not; it has all others.
    """

    def __init__(self) -> None:
        self.seen: list[tuple[str, str]] = []
        self.strangers: list[str] = []
        self.denied: set[str] = set()
        self._answers: dict[tuple[str, str], Answer] = {}
        self._refusals: dict[str, Answer] = {}
        self._silent: set[str] = set()
        self._end = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    @property
    def endpoints(self) -> dict[str, str]:
        """Where each API is found; Compute Engine's address holds a path."""
        return {api: f"{self.url}/compute/v1/" if api == "compute" else self.url for api in APIS}

    def close(self) -> None:
        self._end.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def answer(self, method_id: str, body: Mapping[str, Any], **parameters: str) -> None:
        """Set the answer to one request; the body may hold only what the API's document knows."""
        method = methods()[method_id]
        method.check(body)
        self._answers[method_id, method.path(**parameters)] = (HTTPStatus.OK, json.dumps(body).encode())

    def answer_pages(self, method_id: str, *pages: Mapping[str, Any], **parameters: str) -> None:
        """Set the answer to a list that comes in pages."""
        path = methods()[method_id].path(**parameters)
        for number, page in enumerate(pages):
            body = {**page, **({"nextPageToken": str(number + 1)} if number + 1 < len(pages) else {})}
            methods()[method_id].check(body)
            self._answers[method_id, f"{path}#{number}" if number else path] = (
                HTTPStatus.OK,
                json.dumps(body).encode(),
            )

    def forget(self, method_id: str, **parameters: str) -> None:
        """Take one answer away: it does not exist any more."""
        del self._answers[method_id, methods()[method_id].path(**parameters)]

    def refuse(self, method_id: str, code: int, message: str = "no", *, reason: str = "") -> None:
        """Answer all requests of a method with an error, in Google's form of errors."""
        assert method_id in methods()
        self._refusals[method_id] = _error(code, message, reason)

    def garble(self, method_id: str) -> None:
        """Answer all requests of a method with something that is no JSON."""
        self._refusals[method_id] = (HTTPStatus.OK, b"<html>")

    def be_silent(self, method_id: str) -> None:
        """Answer no request of a method before the end."""
        self._silent.add(method_id)

    def respond(self, verb: str, target: str, body: bytes = b"") -> Answer | None:
        """Find the answer to a request."""
        path, _, query = target.partition("?")
        path = unquote(path)
        found = [
            method
            for method in methods().values()
            if method.verb == verb and method.pattern.fullmatch(path) is not None
        ]
        if len(found) != 1 or not set(parse_qs(query)) <= found[0].query:
            self.strangers.append(f"{verb} {target}")
            return _error(HTTPStatus.INTERNAL_SERVER_ERROR, "the documents do not know this", "")
        method_id = found[0].id
        self.seen.append((method_id, path))
        if method_id in self._silent:
            self._end.wait()
            return None
        if method_id == TEST_PERMISSIONS and method_id not in self._refusals:
            asked = json.loads(body)["permissions"]
            return HTTPStatus.OK, json.dumps(
                {"permissions": [each for each in asked if each not in self.denied]}
            ).encode()
        token = parse_qs(query).get("pageToken")
        page = f"{path}#{token[0]}" if token else path
        gone = _error(HTTPStatus.NOT_FOUND, f"The resource '{path}' was not found", "notFound")
        return self._refusals.get(method_id) or self._answers.get((method_id, page), gone)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        google = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._reply(b"")

            def do_POST(self) -> None:
                self._reply(self.rfile.read(int(self.headers["Content-Length"])))

            def _reply(self, asked: bytes) -> None:
                answer = google.respond(self.command, self.path, asked)
                if answer is None:
                    return
                code, body = answer
                self.send_response(code)
                self.send_header("Content-Type", "application/json; charset=UTF-8")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler


def _error(code: int, message: str, reason: str) -> Answer:
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": reason, "domain": "googleapis.com"}]
    error = {
        "code": code,
        "message": message,
        "status": HTTPStatus(code).name,
        **({"details": details} if reason else {}),
    }
    return code, json.dumps({"error": error}).encode()
