"""One bucket over HTTP: what is lost on the way is sent again, and nothing is taken for stored that is not."""

import io
import re
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from jobs.payload import cloud_storage
from jobs.payload.cloud_storage import Bucket, Metadata, StorageError
from tests.jobs.payload.google import BUCKET, FailingStorage, StillClock, serving
from twin.cloud.storage import StorageRefusal

KIB = 1024
DATA = bytes(range(256)) * 4 * 1024  # 1 MiB
BUSY = StorageRefusal(HTTPStatus.SERVICE_UNAVAILABLE, "backendError", "Backend Error")


class Client:
    """A bucket's client, the service, and what it was told of progress."""

    def __init__(self, service: FailingStorage, environment: dict[str, str], files: Path) -> None:
        self.service = service
        self.files = files / BUCKET
        self.clock = StillClock()
        self.metadata = Metadata(environment, clock=self.clock)
        self.environment = environment
        self.sent: list[int] = []
        self.bucket = self.of(BUCKET)

    def of(self, name: str) -> Bucket:
        return Bucket(
            name,
            metadata=self.metadata,
            environment=self.environment,
            kubernetes_account="ray/dev-scaler",
            clock=self.clock,
        )

    def upload(self, name: str, data: bytes) -> str:
        return self.bucket.upload(name, io.BytesIO(data), len(data), on_sent=self.sent.append)


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Client]:
    monkeypatch.setattr(cloud_storage, "CHUNK_BYTES", 512 * KIB)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")  # must not be asked about services on loopback
    with serving(tmp_path) as (service, environment):
        yield Client(service, environment, tmp_path)


@pytest.mark.parametrize("size", [0, 1, 512 * KIB, 512 * KIB + 1, 1024 * KIB])
def test_an_object_is_stored_and_listed_byte_for_byte(client: Client, size: int) -> None:
    md5 = client.upload("a b/ü+&?.bin", DATA[:size])

    assert (client.files / "a b/ü+&?.bin").read_bytes() == DATA[:size]
    assert sum(client.sent) == size
    stored = client.bucket.objects("a b/")["a b/ü+&?.bin"]
    assert (stored.bytes, stored.md5) == (size, md5)


@pytest.mark.parametrize("kept", [0, 1, 256 * KIB, 512 * KIB])
def test_an_upload_that_was_cut_goes_on_from_what_the_service_has_kept(client: Client, kept: int) -> None:
    client.service.lost_after = kept

    client.upload("shard", DATA)

    assert (client.files / "shard").read_bytes() == DATA
    assert sum(client.sent) == len(DATA)
    assert client.service.stored == ["shard"]


def test_a_busy_service_is_asked_again_and_given_up_after_a_minute(client: Client) -> None:
    client.service.failures = [BUSY, BUSY]
    client.upload("small", b"x")
    assert client.clock.slept == [1, 2]

    client.service.failures = [BUSY] * 7
    with pytest.raises(StorageError, match=r"in 7 attempts over 63 s: 503 Backend Error.*same command again"):
        client.bucket.objects("")


def test_a_service_that_keeps_nothing_is_given_up(client: Client) -> None:
    client.service.continue_upload = lambda *_: 0  # type: ignore[method-assign]

    with pytest.raises(StorageError, match="nothing of what was sent is kept"):
        client.upload("shard", DATA)


def test_a_token_is_kept_until_it_ends_and_renewed_when_it_is_refused(client: Client) -> None:
    client.bucket.objects("")
    client.service.token = "another"
    client.bucket.objects("")  # refused once, and asked again with the new one

    client.service.token = "a third"
    assert client.metadata.token() == "another"
    client.clock.now += 3400
    assert client.metadata.token() == "a third"


def test_objects_are_listed_over_all_pages(client: Client) -> None:
    client.service.page_size = 2
    for number in range(5):
        client.upload(f"run/{number}", b"x")

    assert list(client.bucket.objects("run/")) == [f"run/{number}" for number in range(5)]
    assert client.bucket.objects("other/") == {}


def test_an_object_that_is_not_what_was_sent_is_an_error(client: Client) -> None:
    client.service.spoiled = "small"
    with pytest.raises(StorageError, match="gs://weights/small is not what was sent"):
        client.upload("small", b"abc")


def test_a_refusal_names_the_principal_and_the_command_that_gives_it_the_role(client: Client) -> None:
    client.service.denied = True

    with pytest.raises(StorageError) as caught:
        client.upload("small", b"abc")

    text = str(caught.value)
    assert "storage.objects.list" in text
    number = client.metadata.read("project/numeric-project-id")
    assert re.search(
        r"add-iam-policy-binding gs://weights --member=principal://iam\.googleapis\.com/projects/" + number + "/"
        r"locations/global/workloadIdentityPools/acme\.svc\.id\.goog/subject/ns/ray/sa/dev-scaler "
        r"--role=roles/storage\.objectUser$",
        text,
    )
    assert client.service.token not in text


def test_a_bucket_that_does_not_exist_is_named(client: Client) -> None:
    with pytest.raises(StorageError, match=r"The specified bucket does not exist.*buckets create gs://elsewhere"):
        client.of("elsewhere").objects("")


def test_a_head_without_a_metadata_server_is_told_so() -> None:
    metadata = Metadata({"GCE_METADATA_HOST": "127.0.0.1:1"}, clock=StillClock())
    with pytest.raises(StorageError, match=r"127\.0\.0\.1:1 gives this pod no instance/service-accounts/default/token"):
        metadata.token()


def test_a_source_that_ends_early_is_no_object(client: Client) -> None:
    with pytest.raises(EOFError):
        client.bucket.upload("shard", io.BytesIO(DATA), len(DATA) + 1, on_sent=client.sent.append)
    assert client.bucket.objects("") == {}
