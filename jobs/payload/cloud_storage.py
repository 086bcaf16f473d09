"""One bucket of Cloud Storage as a pod reaches it: the JSON API, with the identity that the metadata server gives.

Standard library only, as the trainer's image may lack Google's. Names of methods, parameters and fields are those of
the API's discovery document (storage v1). GCE_METADATA_HOST and STORAGE_EMULATOR_HOST say where the two services are
when they are elsewhere, as they do for Google's own libraries.

What is sent again after a failure: everything, as listing changes nothing and an upload of the same bytes under the
same name makes the same object. A resumable upload goes on from the byte that the service has kept.
"""

import base64
import hashlib
import http.client
import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import Message
from typing import IO, Any, TypeVar

from jobs.payload.clock import Clock

CHUNK_BYTES = 16 * 1024**2
"""What one thread holds in memory; the API wants a multiple of 256 KiB in every chunk but the last."""

_REQUEST_TIMEOUT_S = 120.0
_BACKOFF_S = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
_RENEW_BEFORE_END_S = 300.0
_LONGEST_REASON_BYTES = 65536
_RESUME_INCOMPLETE = 308
_TRANSIENT = frozenset({408, 429, 500, 502, 503, 504})  # as Google's retry strategy for Cloud Storage has them

Reply = TypeVar("Reply")


class StorageError(Exception):
    """The bucket cannot be used, or not as it should; the text says what to do."""


class _Transient(Exception):
    """A request that may succeed when it is sent again."""


class _Refused(Exception):
    """A request that will not: `status` is HTTP's."""

    def __init__(self, status: int, reason: str) -> None:
        self.status = status
        super().__init__(reason)


@dataclass(frozen=True, kw_only=True)
class StoredObject:
    """An object as the service describes it; an md5 is base64, and composite objects have none."""

    bytes: int
    md5: str | None


@dataclass(frozen=True, kw_only=True)
class _Answer:
    status: int
    headers: Message
    body: bytes


def md5_text(digest: bytes) -> str:
    """Write an md5 digest as the API does."""
    return base64.b64encode(digest).decode()


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    """308 is no redirect in a resumable upload, and the API redirects nobody otherwise."""

    def redirect_request(self, *_: Any) -> None:
        """Follow none."""


def _ask(opener: urllib.request.OpenerDirector, request: urllib.request.Request) -> _Answer:
    try:
        with opener.open(request, timeout=_REQUEST_TIMEOUT_S) as answer:
            return _Answer(status=answer.status, headers=answer.headers, body=answer.read())
    except urllib.error.HTTPError as error:
        with error:
            if error.code == _RESUME_INCOMPLETE:
                return _Answer(status=error.code, headers=error.headers, body=b"")
            reason = f"{error.code} {_message(error.read(_LONGEST_REASON_BYTES)) or error.reason}"
        if error.code in _TRANSIENT:
            raise _Transient(reason) from error
        raise _Refused(error.code, reason) from error
    except (OSError, http.client.HTTPException) as error:
        raise _Transient(f"no answer ({error!r})") from error


def _message(body: bytes) -> str:
    """Return the message of an error of a Google API; empty if there is none."""
    try:
        return str(json.loads(body)["error"]["message"]).rstrip(".")
    except (ValueError, LookupError, TypeError):
        return ""


class Metadata:
    """The metadata server of the pod's node, which on GKE speaks for the pod's Kubernetes service account."""

    def __init__(self, environment: Mapping[str, str], *, clock: Clock = time) -> None:
        self._host = environment.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self._clock = clock
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirects())
        self._lock = threading.Lock()
        self._token = ""
        self._ends_at = -float("inf")

    def token(self) -> str:
        """Return an access token that is good for some minutes more.

        Raises:
            StorageError: there is no metadata server, or it gives this pod none.
        """
        with self._lock:
            if self._clock.monotonic() > self._ends_at - _RENEW_BEFORE_END_S:
                answer = json.loads(self.read("instance/service-accounts/default/token"))
                self._token = answer["access_token"]
                self._ends_at = self._clock.monotonic() + float(answer["expires_in"])
            return self._token

    def forget_token(self) -> None:
        """Ask for a new one next time."""
        with self._lock:
            self._ends_at = -float("inf")

    def read(self, path: str) -> str:
        """Return a value; raises as `token` does."""
        request = urllib.request.Request(
            f"http://{self._host}/computeMetadata/v1/{path}", headers={"Metadata-Flavor": "Google"}
        )
        try:
            return _retrying(lambda: _ask(self._opener, request), self._clock).body.decode()
        except (_Refused, _Transient) as error:
            raise StorageError(
                f"The metadata server {self._host} gives this pod no {path}: {error}. Without it the head has no "
                "identity for Cloud Storage. The node pool needs workload_metadata_config GKE_METADATA, the cluster a "
                "workload pool: see `gcloud container clusters describe`"
            ) from error


class Bucket:
    """One bucket; may be used by several threads at once."""

    def __init__(
        self,
        name: str,
        *,
        metadata: Metadata,
        environment: Mapping[str, str],
        kubernetes_account: str,
        clock: Clock = time,
    ) -> None:
        """Prepare requests; nothing is sent yet.

        Args:
            name: the bucket's.
            metadata: who this pod is.
            environment: STORAGE_EMULATOR_HOST, and proxies.
            kubernetes_account: NAMESPACE/NAME of the pod's service account, for whoever has to give it a role.
            clock: what retries are timed by.
        """
        emulator = environment.get("STORAGE_EMULATOR_HOST", "")
        self.name = name
        self._metadata = metadata
        self._kubernetes_account = kubernetes_account
        self._clock = clock
        self._url = (
            (emulator if "://" in emulator else f"http://{emulator}") if emulator else "https://storage.googleapis.com"
        )
        proxies = [urllib.request.ProxyHandler({})] if emulator else []
        self._opener = urllib.request.build_opener(*proxies, _NoRedirects())

    def objects(self, prefix: str) -> dict[str, StoredObject]:
        """Return the objects whose names begin so, by name.

        Raises:
            StorageError: the bucket does not exist, or may not be read.
        """
        found: dict[str, StoredObject] = {}
        query = {"prefix": prefix, "fields": "items(name,size,md5Hash),nextPageToken"}
        while True:
            url = f"{self._url}/storage/v1/b/{_quoted(self.name)}/o?{urllib.parse.urlencode(query)}"
            page = json.loads(self._send("GET", url, doing=f"list gs://{self.name}/{prefix}").body)
            for item in page.get("items", []):
                found[item["name"]] = StoredObject(bytes=int(item["size"]), md5=item.get("md5Hash"))
            if not page.get("nextPageToken"):
                return found
            query["pageToken"] = page["nextPageToken"]

    def upload(self, name: str, source: IO[bytes], size: int, *, on_sent: Callable[[int], None]) -> str:
        """Upload an object of known size and return the md5 of what was read.

        Args:
            name: the object's.
            source: where its bytes come from, read once.
            size: how many there are.
            on_sent: told of every stretch of bytes that the service has; may raise to end the upload.

        Raises:
            StorageError: the service refuses, does not answer for a minute, or stored other bytes.
            EOFError: the source has fewer bytes.
        """
        digest = hashlib.md5(usedforsecurity=False)
        doing = f"write gs://{self.name}/{name}"
        url = f"{self._url}/upload/storage/v1/b/{_quoted(self.name)}/o"
        if size <= CHUNK_BYTES:
            data = _read(source, size)
            digest.update(data)
            query = urllib.parse.urlencode({"uploadType": "media", "name": name})
            answer = self._send("POST", f"{url}?{query}", data=data, doing=doing)
            on_sent(size)
        else:
            query = urllib.parse.urlencode({"uploadType": "resumable", "name": name})
            headers = {"X-Upload-Content-Length": str(size)}
            begun = self._send("POST", f"{url}?{query}", data=b"", headers=headers, doing=doing)
            session, position = begun.headers["Location"], 0
            while position < size:
                data = _read(source, min(CHUNK_BYTES, size - position))
                digest.update(data)
                answer = self._send_chunk(session, data, position, size, doing=doing, on_sent=on_sent)
                position += len(data)
                del data  # before the next one is read: a chunk is all that a thread holds
        stored = json.loads(answer.body)
        md5 = md5_text(digest.digest())
        if stored.get("md5Hash") != md5:
            raise StorageError(
                f"gs://{self.name}/{name} is not what was sent: its md5 is {stored.get('md5Hash')}, and {md5} was "
                "read. The same command again uploads it anew"
            )
        return md5

    def _send_chunk(
        self, session: str, data: bytes, begin: int, size: int, *, doing: str, on_sent: Callable[[int], None]
    ) -> _Answer:
        """Send a chunk until the service has all of it; after a failure from where the service is."""
        end, position = begin + len(data), begin
        delays = iter(_BACKOFF_S)
        while True:
            trouble = "nothing of what was sent is kept"
            try:
                headers = {"Content-Range": f"bytes {position}-{end - 1}/{size}"}
                answer = self._try("PUT", session, data=memoryview(data)[position - begin :], headers=headers)
            except _Transient as error:
                trouble = str(error)
                answer = self._send("PUT", session, data=b"", headers={"Content-Range": f"bytes */{size}"}, doing=doing)
            except _Refused as refusal:
                raise self._explain(refusal, doing) from refusal
            kept = _kept(answer) if answer.status == _RESUME_INCOMPLETE else size
            if not position <= kept <= end:
                raise StorageError(
                    f"Cloud Storage says that it has {kept} bytes when {position} to {end} of {size} were sent, so it "
                    f"is not known how to {doing}. The same command again uploads it anew"
                )
            if kept > position:
                on_sent(kept - position)
                delays = iter(_BACKOFF_S)
            elif (delay_s := next(delays, None)) is None:
                raise StorageError(_no_answer(doing, trouble))
            else:
                self._clock.sleep(delay_s)
            position = kept
            if position == end:
                return answer

    def _send(
        self, method: str, url: str, *, doing: str, data: bytes | None = None, headers: Mapping[str, str] | None = None
    ) -> _Answer:
        try:
            return _retrying(lambda: self._try(method, url, data=data, headers=headers or {}), self._clock)
        except _Refused as refusal:
            raise self._explain(refusal, doing) from refusal
        except _Transient as trouble:
            raise StorageError(_no_answer(doing, trouble)) from trouble

    def _try(self, method: str, url: str, *, data: "bytes | memoryview | None", headers: Mapping[str, str]) -> _Answer:
        for is_last in (False, True):
            request = urllib.request.Request(  # noqa: S310 - Cloud Storage, or where the environment says that it is
                url,
                method=method,
                data=data,
                headers={
                    "Content-Type": "application/octet-stream",
                    **headers,
                    "Authorization": f"Bearer {self._metadata.token()}",
                },
            )
            try:
                return _ask(self._opener, request)
            except _Refused as refusal:
                if refusal.status != http.client.UNAUTHORIZED or is_last:
                    raise
                self._metadata.forget_token()
        raise AssertionError  # the second pass returns or raises

    def _explain(self, refusal: _Refused, doing: str) -> StorageError:
        if refusal.status == http.client.FORBIDDEN:
            namespace, _, account = self._kubernetes_account.partition("/")
            project = self._metadata.read("project/project-id")
            number = self._metadata.read("project/numeric-project-id")
            member = (
                f"principal://iam.googleapis.com/projects/{number}/locations/global/workloadIdentityPools/"
                f"{project}.svc.id.goog/subject/ns/{namespace}/sa/{account}"
            )
            return StorageError(
                f"The head (Kubernetes service account {self._kubernetes_account}) may not {doing}: {refusal}. Type: "
                f"gcloud storage buckets add-iam-policy-binding gs://{self.name} --member={member} "
                "--role=roles/storage.objectUser"
            )
        if refusal.status == http.client.NOT_FOUND:
            return StorageError(
                f"Cloud Storage knows nothing there to {doing}: {refusal}. Check the bucket's name, or make it: gcloud "
                f"storage buckets create gs://{self.name}. An upload that the service has forgotten begins anew with "
                "the same command"
            )
        return StorageError(f"Cloud Storage refused to {doing}: {refusal}")


def _retrying(request: Callable[[], Reply], clock: Clock) -> Reply:
    for delay_s in _BACKOFF_S:
        try:
            return request()
        except _Transient:
            clock.sleep(delay_s)
    return request()


def _no_answer(doing: str, trouble: object) -> str:
    return (
        f"Cloud Storage did not {doing}, in {len(_BACKOFF_S) + 1} attempts over {sum(_BACKOFF_S):.0f} s: {trouble}. "
        "Type the same command again later: what is there already is not sent again"
    )


def _quoted(name: str) -> str:
    return urllib.parse.quote(name, safe="")


def _read(source: IO[bytes], size: int) -> bytes:
    data = source.read(size)
    if len(data) != size:
        raise EOFError
    return data


def _kept(answer: _Answer) -> int:
    """Return how many bytes a session has: `Range: bytes=0-41` means 42, and no such header none."""
    value = answer.headers.get("Range")
    return int(value.rpartition("-")[2]) + 1 if value else 0
