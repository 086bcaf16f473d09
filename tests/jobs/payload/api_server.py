"""A Kubernetes API server on loopback, over TLS, that knows one RayCluster and JSON patches of it."""

import json
import ssl
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from jobs.payload.workers import ApiServer

PATH = "/apis/ray.io/v1/namespaces/ray/rayclusters/grpo"
TOKEN = "a token"


class RayClusterServer(HTTPServer):
    """Serves the RayCluster `ray/grpo`.

    Attributes:
        replicas: every number that its workers were set to.
        refusals: answers to give instead of the next ones, status and message.
        group: name of its first worker group.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replicas: list[int] = []
        self.refusals: list[tuple[int, str]] = []
        self.group = "gpu"

    def apply(self, path: str, token: str, operations: list[dict[str, Any]]) -> tuple[int, str]:
        if self.refusals:
            return self.refusals.pop(0)
        if token != f"Bearer {TOKEN}":
            return 401, "Unauthorized"
        if path != PATH:
            return 404, f"{path} not found"
        test, replace = operations
        if test != {"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": self.group}:
            return 422, "the test of groupName failed"
        assert (replace["op"], replace["path"]) == ("replace", "/spec/workerGroupSpecs/0/replicas")
        self.replicas.append(replace["value"])
        return 200, "patched"


class _Handler(BaseHTTPRequestHandler):
    def do_PATCH(self) -> None:
        assert isinstance(self.server, RayClusterServer)
        assert self.headers["Content-Type"] == "application/json-patch+json"
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        status, message = self.server.apply(self.path, self.headers["Authorization"], body)
        answer = json.dumps({"kind": "Status", "message": message}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        pass


def make_certificate(directory: Path) -> None:
    """Write `ca.crt` and `tls.key` for 127.0.0.1."""
    files = f"-keyout {directory / 'tls.key'} -out {directory / 'ca.crt'}"
    subprocess.run(
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 1 -subj /CN=127.0.0.1 "
        f"-addext subjectAltName=IP:127.0.0.1 {files}".split(),
        check=True,
        capture_output=True,
    )


@contextmanager
def serving(directory: Path) -> Iterator[tuple[RayClusterServer, ApiServer]]:
    """Serve with the certificate of a directory; yields the server and a pod's way to it."""
    (directory / "token").write_text(f"{TOKEN}\n")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(directory / "ca.crt", directory / "tls.key")
    with RayClusterServer() as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        environment = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(server.server_port)}
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server, ApiServer.of_this_pod(environment, directory)
        finally:
            server.shutdown()
            thread.join()
