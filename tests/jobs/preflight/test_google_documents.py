"""The documents that tests are held against do refuse what Google does not know."""

import pytest
from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]

from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.project import PROJECT, ZONE, ZONE_PATH


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({"nam": ZONE}, "has no field nam"),
        ({"name": 1}, "name is no string"),
        ({"status": "BUSY"}, "status is none of"),
        ({"deprecated": {"state": "OFF"}}, "deprecated.state is none of"),
    ],
)
def test_an_answer_that_the_discovery_document_does_not_know_is_refused(
    google: GoogleServer, body: dict[str, object], message: str
) -> None:
    with pytest.raises(AssertionError, match=message):
        google.answer("compute.zones.get", body, **ZONE_PATH)


def test_an_answer_that_the_client_library_does_not_know_is_refused(google: GoogleServer) -> None:
    with pytest.raises(ParseError, match="capacity_tib"):
        google.answer(
            "lustre.getInstance", {"capacity_tib": "9"}, name=f"projects/{PROJECT}/locations/{ZONE}/instances/i"
        )


@pytest.mark.parametrize(
    ("verb", "target"),
    [
        ("GET", f"/compute/v1/projects/{PROJECT}/zone/{ZONE}"),
        ("GET", f"/compute/v1/projects/{PROJECT}/zones/{ZONE}?depth=1"),
        ("DELETE", f"/compute/v1/projects/{PROJECT}/global/networks/n"),
    ],
)
def test_a_request_that_the_documents_do_not_know_is_a_stranger(google: GoogleServer, verb: str, target: str) -> None:
    answer = google.respond(verb, target)

    assert answer is not None
    assert answer[0] == 500
    assert google.strangers == [f"{verb} {target}"]
    google.strangers.clear()
