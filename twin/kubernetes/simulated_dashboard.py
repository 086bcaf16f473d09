"""A Ray dashboard's job API without Ray behind it: it keeps a table of the jobs that it accepted, and runs none.

It stands behind the head's port in a twin without Ray (`python -m twin up --without-ray`), so that the stack's last
resource can be created where only the plan of a change is of interest. A job is RUNNING from its submission until it is
stopped. What is no part of submitting, listing and stopping jobs is answered with 501 and a sentence.

Source of paths and answers: ray/dashboard/modules/job/job_head.py and common.py of Ray 2.60.0.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

API_VERSION = "4"
NOT_SIMULATED = (
    "This dashboard is simulated: it accepts, lists and stops jobs and runs none. For a real one: python -m twin "
    "destroy, then up without --without-ray"
)

Answer = tuple[HTTPStatus, Any]


@dataclass
class JobTable:
    """The jobs and packages that one dashboard accepted.

    Attributes:
        jobs: submission id to what Ray would tell of the job.
        packages: names of the uploaded packages; what is in them is not kept.
    """

    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)

    def version(self) -> Answer:
        """Name the API's version; there is no Ray whose version could be told."""
        return HTTPStatus.OK, {"version": API_VERSION, "ray_version": "simulated", "ray_commit": "", "session_name": ""}

    def find_package(self, name: str) -> Answer:
        """Tell whether a package was uploaded."""
        found = name in self.packages
        return (HTTPStatus.OK, {}) if found else (HTTPStatus.NOT_FOUND, f"Package {name} does not exist")

    def keep_package(self, name: str) -> Answer:
        """Take an upload for done."""
        self.packages.add(name)
        return HTTPStatus.OK, {}

    def submit(self, request: Mapping[str, Any]) -> Answer:
        """Accept a job; Ray never gives an id up again."""
        id_ = str(request.get("submission_id") or f"raysubmit_{len(self.jobs)}")
        if id_ in self.jobs:
            return (
                HTTPStatus.BAD_REQUEST,
                f"Job with submission_id {id_} already exists. Use a different submission_id.",
            )
        self.jobs[id_] = {
            "type": "SUBMISSION",
            "job_id": None,
            "submission_id": id_,
            "status": "RUNNING",
            "message": "accepted by a simulated dashboard; nothing runs",
            "entrypoint": request["entrypoint"],
            "metadata": request.get("metadata") or {},
            "runtime_env": request.get("runtime_env") or {},
            "start_time": time.time_ns() // 10**6,
            "end_time": None,
        }
        return HTTPStatus.OK, {"job_id": id_, "submission_id": id_}

    def list(self) -> Answer:
        """All jobs."""
        return HTTPStatus.OK, list(self.jobs.values())

    def get(self, id_: str) -> Answer:
        """One job."""
        job = self.jobs.get(id_)
        return (HTTPStatus.OK, job) if job else (HTTPStatus.NOT_FOUND, f"Job {id_} does not exist")

    def stop(self, id_: str) -> Answer:
        """End a job at once."""
        job = self.jobs.get(id_)
        if job is None:
            return HTTPStatus.NOT_FOUND, f"Job {id_} does not exist"
        stopped = job["status"] == "RUNNING"
        if stopped:
            job |= {"status": "STOPPED", "end_time": time.time_ns() // 10**6}
        return HTTPStatus.OK, {"stopped": stopped}


# Method and path to what the table does; what a path captures is its argument, a submission takes the request's body.
_ROUTES: tuple[tuple[str, re.Pattern[str], Callable[..., Answer]], ...] = tuple(
    (method, re.compile(rf"{path}/?"), action)
    for method, path, action in (
        ("GET", "/api/version", JobTable.version),
        ("GET", "/api/packages/[^/]+/([^/]+)", JobTable.find_package),
        ("PUT", "/api/packages/[^/]+/([^/]+)", JobTable.keep_package),
        ("POST", "/api/jobs", JobTable.submit),
        ("GET", "/api/jobs", JobTable.list),
        ("GET", "/api/jobs/([^/]+)", JobTable.get),
        ("POST", "/api/jobs/([^/]+)/stop", JobTable.stop),
    )
)


class SimulatedDashboard:
    """One dashboard, served on a free port of 127.0.0.1 from its making until it is closed."""

    def __init__(self) -> None:
        table, lock = JobTable(), threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                for method, path, action in _ROUTES:
                    if method == self.command and (match := path.fullmatch(self.path.partition("?")[0])):
                        arguments = [json.loads(body)] if action is JobTable.submit else match.groups()
                        with lock:
                            self._answer(*action(table, *arguments))
                        return
                self._answer(HTTPStatus.NOT_IMPLEMENTED, NOT_SIMULATED)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815 - the names are http.server's

            def _answer(self, status: HTTPStatus, content: Any) -> None:
                text = (content if isinstance(content, str) else json.dumps(content)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "text/plain" if isinstance(content, str) else "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                """Keep silent: what was asked is in the table."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = int(self._server.server_address[1])
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
