"""The hub's answers are told apart, and the token is in the request and nowhere else."""

import pytest

from jobs.preflight import hub
from jobs.preflight.findings import Finding, Status
from jobs.preflight.hub import check_model_access
from tests.jobs.preflight.hub_server import HubServer
from tests.jobs.preflight.project import KnownEngine, stack

MODEL = "Qwen/Qwen2.5-72B-Instruct"
TOKEN = "hf_canary"


@pytest.fixture
def served(hub_server: HubServer, monkeypatch: pytest.MonkeyPatch) -> HubServer:
    monkeypatch.setattr(hub, "HUB", hub_server.url)
    return hub_server


def look(token: str | None = TOKEN, **changes: str | None) -> list[Finding]:
    recipe = {f"job__grpo__{name}": value for name, value in changes.items()}
    return list(check_model_access(stack(**recipe), KnownEngine(token=token)))


def test_model_and_data_sets_are_asked_for_with_the_token(served: HubServer) -> None:
    assert {found.status for found in look()} == {Status.OK}

    assert [path for path, _ in served.seen] == [
        f"/api/models/{MODEL}/auth-check",
        "/api/datasets/agentica-org/DeepScaleR-Preview-Dataset/auth-check",
        "/api/datasets/HuggingFaceH4/aime_2024/auth-check",
    ]
    assert {token for _, token in served.seen} == {f"Bearer {TOKEN}"}


def test_without_a_token_none_is_sent_not_even_the_user_s_netrc(
    served: HubServer, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password canary\n")
    monkeypatch.setenv("NETRC", str(netrc))

    found = look(token=None)

    assert {token for _, token in served.seen} == {None}
    assert all("without a token" in finding.detail for finding in found)


@pytest.mark.parametrize(
    ("status", "code", "token", "outcome", "detail", "remedy"),
    [
        (403, "GatedRepo", TOKEN, Status.FAIL, "is gated (403)", f"/{MODEL}"),
        (401, "GatedRepo", None, Status.FAIL, "is gated (401)", "pulumi config set --secret hf_token"),
        (401, "", TOKEN, Status.FAIL, "does not take the token", "pulumi config set --secret hf_token"),
        (401, "RepoNotFound", None, Status.FAIL, "is private or does not exist", "Correct the name"),
        (401, "RepoNotFound", TOKEN, Status.FAIL, "is private or does not exist", "Correct the name"),
        (403, "", TOKEN, Status.FAIL, "may not read", "right to read"),
        (404, "RepoNotFound", TOKEN, Status.FAIL, "does not exist, or may not be seen", "Correct the name"),
        (503, "", TOKEN, Status.WARN, "answered 503", "again"),
        (429, "", TOKEN, Status.WARN, "answered 429", "again"),
    ],
)
def test_refusals_are_told_apart(
    served: HubServer, status: int, code: str, token: str | None, outcome: Status, detail: str, remedy: str
) -> None:
    served.answers[MODEL] = (status, code)

    model, *others = look(token)

    assert model.status is outcome
    assert detail in model.detail
    assert remedy in model.remedy
    assert {found.status for found in others} == {Status.OK}
    assert TOKEN not in f"{model}"


def test_a_hub_that_does_not_answer_is_a_warning(served: HubServer) -> None:
    served.close_connections = True

    found = look()

    assert {finding.status for finding in found} == {Status.WARN}
    assert all("the hub did not answer (ConnectionError)" in finding.detail for finding in found)
    assert TOKEN not in f"{found}"


def test_what_is_not_on_the_hub_or_not_known_to_be_is_not_called_ok(served: HubServer) -> None:
    model, dataset = look(model_name="/lustre/models/mine", dataset_name="addition")

    assert (model.status, dataset.status) == (Status.WARN, Status.WARN)
    assert served.seen == []


def test_a_data_set_by_its_repository_is_asked_for_as_it_stands(served: HubServer) -> None:
    look(dataset_name="me/mine")

    assert served.seen[1][0] == "/api/datasets/me/mine/auth-check"
