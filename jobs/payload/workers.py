"""How many workers the run's RayCluster has: all for training, none once the run has ended.

KubeRay makes and removes the pods, and an elastic node pool follows them. All that is asked of the API server is a
patch of one number in one RayCluster, which the pod's token allows and nothing else. A cluster that does not answer
delays training or keeps GPUs too long; it never fails a run.
"""

import http.client
import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from jobs.payload.clock import Clock
from jobs.payload.event_lines import EventWriter
from jobs.payload.interrupts import Interrupts

GROUP = "gpu"
CREDENTIALS_DIR = Path("/run/secrets/rlstack-scaler")

_REQUEST_TIMEOUT_S = 10.0
_EVERY_S = 5.0
_RELEASE_TIMEOUT_S = 60.0
_LONGEST_ANSWER_BYTES = 4096


class ApiServer:
    """The Kubernetes API server as a pod reaches it."""

    def __init__(self, url: str, *, token_file: Path, ca_file: Path) -> None:
        """Prepare requests; nothing is sent yet.

        Args:
            url: `https://HOST:PORT`.
            token_file: the pod's token; read anew for each request, as Kubernetes renews it.
            ca_file: the certificate authority of the server.
        """
        self._url = url
        self._token_file = token_file
        self._ca_file = ca_file

    @classmethod
    def of_this_pod(cls, environment: Mapping[str, str], credentials_dir: Path = CREDENTIALS_DIR) -> "ApiServer":
        """Find the server by the variables and files that a pod has."""
        host = environment.get("KUBERNETES_SERVICE_HOST", "kubernetes.default.svc")
        port = environment.get("KUBERNETES_SERVICE_PORT", "443")
        host = f"[{host}]" if ":" in host else host
        return cls(f"https://{host}:{port}", token_file=credentials_dir / "token", ca_file=credentials_dir / "ca.crt")

    def patch(self, path: str, operations: list[dict[str, object]]) -> None:
        """Apply a JSON patch to an object.

        Raises:
            OSError: no answer, or one that is not a success; the text has the server's own words.
        """
        token = self._token_file.read_text(encoding="utf-8").strip()
        request = urllib.request.Request(  # noqa: S310 - the URL is the pod's own API server
            f"{self._url}{path}",
            method="PATCH",
            data=json.dumps(operations).encode(),
            headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json-patch+json"},
        )
        try:
            context = ssl.create_default_context(cafile=self._ca_file)
            # From Python 3.13 on the default demands an extension of authorities that clusters' own often lack.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            # A proxy of the image's environment is not on the way to the pod's own cluster.
            opener = urllib.request.build_opener(
                urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
            )
            with opener.open(request, timeout=_REQUEST_TIMEOUT_S):
                pass
        except urllib.error.HTTPError as error:
            with error:
                answer = error.read(_LONGEST_ANSWER_BYTES).decode("utf-8", "replace")
            raise OSError(f"{error.code} {error.reason}: {_message(answer)}") from error
        except http.client.HTTPException as error:
            raise OSError(f"no answer that can be read: {error!r}") from error


def _message(answer: str) -> str:
    """Return the message of a Kubernetes Status, or the answer as it is."""
    try:
        return str(json.loads(answer)["message"])
    except (ValueError, LookupError, TypeError):
        return answer


class Workers:
    """The workers of one RayCluster.

    Attributes:
        problem: why the last attempt to change their number failed; none if it did not.
    """

    def __init__(
        self, raycluster: str, *, api: ApiServer, events: EventWriter, clock: Clock, interrupts: Interrupts
    ) -> None:
        """Prepare to scale.

        Args:
            raycluster: `NAMESPACE/NAME`.
            api: the cluster's API server.
            events: told of changes and failures.
            clock: what retries are timed by.
            interrupts: a signal ends a wait.
        """
        self._namespace, _, self._name = raycluster.partition("/")
        self._api = api
        self._events = events
        self._clock = clock
        self._interrupts = interrupts
        self._tried_at = -float("inf")
        self.problem: str | None = None

    def try_scale(self, workers: int) -> bool:
        """Set the number of workers; false if it failed, or if the last attempt was a moment ago."""
        now = self._clock.monotonic()
        if self.problem and now - self._tried_at < _EVERY_S:
            return False
        self._tried_at = now
        try:
            self._api.patch(
                f"/apis/ray.io/v1/namespaces/{self._namespace}/rayclusters/{self._name}",
                [
                    {"op": "test", "path": "/spec/workerGroupSpecs/0/groupName", "value": GROUP},
                    {"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": workers},
                ],
            )
        except OSError as error:
            problem = f"RayCluster {self._namespace}/{self._name} cannot be told to have {workers} workers: {error}"
            if problem != self.problem:
                self._events.say(problem)
            self.problem = problem
            return False
        self.problem = None
        self._events.emit("scaled", workers=workers)
        return True

    def release(self) -> None:
        """Give all workers back, trying for a while; says so, with the command, if they could not be."""
        deadline = self._clock.monotonic() + _RELEASE_TIMEOUT_S
        while not self.try_scale(0):
            if self._interrupts.is_signalled or self._clock.monotonic() >= deadline:
                operations = json.dumps(
                    [{"op": "replace", "path": "/spec/workerGroupSpecs/0/replicas", "value": 0}], separators=(",", ":")
                )
                self._events.say(
                    f"The workers were not given back, and their GPUs are paid for. Type: kubectl -n {self._namespace} "
                    f"patch raycluster {self._name} --type=json -p '{operations}'"
                )
                return
            self._clock.sleep(_EVERY_S)
