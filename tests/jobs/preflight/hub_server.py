"""The Hugging Face hub on loopback: its `auth-check`, with the codes that huggingface_hub's own client reads."""

import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class HubServer:
    """A hub that answers as a test says, else that the repository is public.

    Attributes:
        answers: repository to status and error code.
        seen: path and authorization of each request.
        close_connections: whether it hangs up instead.
    """

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, str]] = {}
        self.seen: list[tuple[str, str | None]] = []
        self.close_connections = False
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        hub = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if hub.close_connections:
                    return
                hub.seen.append((self.path, self.headers.get("Authorization")))
                repository = self.path.removesuffix("/auth-check").split("/", 3)[3]
                status, code = hub.answers.get(repository, (HTTPStatus.OK, ""))
                self.send_response(status)
                if code:
                    self.send_header("X-Error-Code", code)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
                pass

        return Handler
