"""The client against an HTTP server on loopback that answers as Ray 2.60 was seen to answer."""

import asyncio
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from jobs.dashboard import MAX_PACKAGE_BYTES, Dashboard, JobStatus
from jobs.errors import DashboardRefused, DashboardUnreachable, JobNotFound, PackageTooLarge

JOB = {
    "type": "SUBMISSION",
    "submission_id": "grpo-1-a1",
    "job_id": "02000000",
    "status": "RUNNING",
    "entrypoint": "python x",
    "message": "Job is currently running.",
    "start_time": 1000,
    "end_time": None,
    "metadata": {"attempt": "1"},
    "a_field_of_a_later_ray": {"x": 1},
}
TAKEN = (
    "Traceback (most recent call last):\n  File ...\n"
    "ValueError: Job with submission_id grpo-1-a1 already exists. Please use a different submission_id."
)


class Server:
    """Answers by method and path; remembers what it was asked."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, Any]] = {}
        self.asked: list[tuple[str, dict[str, str], bytes]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                key = f"{self.command} {self.path}"
                outer.asked.append((key, dict(self.headers), body))
                status, value = outer.answers.get(key, (404, "not here"))
                content = (value if isinstance(value, str) else json.dumps(value)).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_PUT = answer  # noqa: N815 - http.server's names

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}"
        self.thread = threading.Thread(target=self.http.serve_forever, args=(0.01,))
        self.thread.start()

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()


def test_jobs_are_typed_newest_first_and_drivers_that_nobody_submitted_left_out(server: Server) -> None:
    later = {**JOB, "submission_id": "grpo-1-a2", "start_time": 2000, "status": "PENDING"}
    server.answers["GET /api/jobs/"] = 200, [JOB, later, {**JOB, "type": "DRIVER", "submission_id": None}]

    jobs = Dashboard(server.url).list_jobs()

    assert [(job.submission_id, job.status, job.start_time_ms) for job in jobs] == [
        ("grpo-1-a2", JobStatus.PENDING, 2000),
        ("grpo-1-a1", JobStatus.RUNNING, 1000),
    ]


def test_the_environment_changes_neither_address_nor_headers(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of somebody else")
    server.answers["GET /api/jobs/"] = 200, []

    Dashboard(server.url, headers={"X-Mine": "1"}).list_jobs()

    [(_, headers, _)] = server.asked
    assert headers["X-Mine"] == "1"
    assert "Authorization" not in headers


def test_nothing_is_asked_before_the_first_question(server: Server) -> None:
    Dashboard(server.url)

    assert server.asked == []


def test_an_unknown_job_is_an_error_of_its_own(server: Server) -> None:
    server.answers["GET /api/jobs/gone"] = 404, "Job gone does not exist"

    with pytest.raises(JobNotFound, match="Job gone does not exist"):
        Dashboard(server.url).get_job("gone")


def test_a_refusal_tells_status_and_the_line_that_matters(server: Server, tmp_path: Path) -> None:
    server.answers = Anything({"POST /api/jobs/": (500, TAKEN)})

    with pytest.raises(DashboardRefused) as caught:
        submit(server, tmp_path)

    assert "500" in str(caught.value)
    assert "ValueError: Job with submission_id grpo-1-a1 already exists" in str(caught.value)
    assert "Traceback" not in str(caught.value)


class Anything(dict[str, tuple[int, Any]]):
    """Says yes to every package."""

    def get(self, key: str, default: Any = None) -> Any:
        return (200, "") if "/packages/" in key else super().get(key, default)


def submit(server: Server, directory: Path) -> None:
    Dashboard(server.url).submit(
        submission_id="grpo-1-a1", entrypoint="python x.py", working_dir=directory, metadata={"attempt": "1"}
    )


def test_a_package_beyond_the_dashboards_limit_is_refused_before_anything_is_sent(
    server: Server, tmp_path: Path
) -> None:
    with (tmp_path / "large").open("wb") as file:
        file.truncate(MAX_PACKAGE_BYTES + 1)

    with pytest.raises(PackageTooLarge, match="nothing was submitted"):
        submit(server, tmp_path)

    assert server.asked == []


def test_a_package_that_the_server_finds_too_large_is_named_so(server: Server, tmp_path: Path) -> None:
    server.answers = Anything({"POST /api/jobs/": (413, "Maximum request body size 104857600 exceeded")})

    with pytest.raises(PackageTooLarge):
        submit(server, tmp_path)


def test_a_submission_carries_id_entrypoint_and_metadata(server: Server, tmp_path: Path) -> None:
    server.answers = Anything({"POST /api/jobs/": (200, {"job_id": "x", "submission_id": "grpo-1-a1"})})

    submit(server, tmp_path)

    sent = json.loads(server.asked[-1][2])
    assert (sent["submission_id"], sent["entrypoint"], sent["metadata"]) == (
        "grpo-1-a1",
        "python x.py",
        {"attempt": "1"},
    )


def test_silence_is_unreachable() -> None:
    with pytest.raises(DashboardUnreachable, match="did not answer"):
        Dashboard("http://127.0.0.1:1").get_job("x")


def test_a_server_that_takes_the_connection_but_never_answers_meets_the_deadline() -> None:
    import socket

    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        pytest.raises(DashboardUnreachable, match="ReadTimeout"),
    ):
        Dashboard(f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=0.05).get_job("x")


def test_something_else_on_the_port_is_no_dashboard(server: Server) -> None:
    server.answers["GET /api/jobs/"] = 200, "<html>hello</html>"
    server.answers["GET /api/jobs/x"] = 200, {"status": "RUNNING"}

    with pytest.raises(DashboardRefused, match="no Ray dashboard"):
        Dashboard(server.url).list_jobs()
    with pytest.raises(DashboardRefused, match="no Ray dashboard"):
        Dashboard(server.url).get_job("x")


def test_only_living_nodes_have_gpus(server: Server) -> None:
    rows = [
        {"node_id": "a", "state": "ALIVE", "is_head_node": True, "resources_total": {"CPU": 8.0}},
        {"node_id": "b", "state": "ALIVE", "is_head_node": False, "resources_total": {"GPU": 8.0}, "labels": {}},
        {"node_id": "c", "state": "DEAD", "is_head_node": False, "resources_total": {"GPU": 8.0}},
        {"node_id": "d", "state": "DEAD", "is_head_node": False, "resources_total": None},
    ]
    server.answers["GET /api/v0/nodes?limit=1000&detail=1"] = 200, {"data": {"result": {"result": rows}}}

    assert [node.gpus for node in Dashboard(server.url).nodes()] == [0, 8, 0, 0]


async def read_tail(handler: Any) -> list[str]:
    app = web.Application()
    app.router.add_get("/api/jobs/x/logs/tail", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = runner.addresses[0][1]
    try:
        return [chunk async for chunk in Dashboard(f"http://127.0.0.1:{port}").tail("x")]
    finally:
        await runner.cleanup()


def test_a_log_that_the_server_closes_ends_and_one_that_breaks_off_says_so() -> None:
    async def complete(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("step 1\nste")
        await socket.send_str("p 2\n")
        await socket.close()
        return socket

    async def broken(request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_str("step 1\n")
        assert request.transport is not None
        request.transport.abort()
        return socket

    async def unknown(_: web.Request) -> web.Response:
        return web.Response(status=404)

    assert asyncio.run(read_tail(complete)) == ["step 1\nste", "p 2\n"]
    with pytest.raises(DashboardUnreachable):
        asyncio.run(read_tail(broken))
    with pytest.raises(JobNotFound):
        asyncio.run(read_tail(unknown))
