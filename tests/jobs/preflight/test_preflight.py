"""All checks together: a ready project is all ok, one that does not answer hides nothing of the others."""

import json
import subprocess
import sys
from functools import partial
from itertools import cycle
from pathlib import Path

import pytest

from jobs.__main__ import main
from jobs.errors import GoogleCredentialsError
from jobs.preflight import command, hub
from jobs.preflight.access import GRANTS
from jobs.preflight.checks import CHECKS
from jobs.preflight.findings import Status, Subject
from jobs.preflight.report import Report, collect
from tests.jobs.preflight.google_documents import methods
from tests.jobs.preflight.google_server import TEST_PERMISSIONS, GoogleServer
from tests.jobs.preflight.hub_server import HubServer
from tests.jobs.preflight.project import PROJECT, KnownEngine, apis, stack

ROOT = Path(__file__).parents[3]
# The codelab's stack has no reservation and adopts nothing.
SHOWN = set(CHECKS) - {"reservation", "network", "cluster", "Lustre"}
ASKED = sorted(
    {*methods()}
    - {
        "compute.reservations.get",
        "compute.subnetworks.get",
        "compute.firewalls.get",
        "container.projects.locations.clusters.nodePools.get",
    }
)


def examine(google: GoogleServer, *, only: str | None = None, timeout_s: float = 20.0) -> Report:
    subject = Subject(config=stack(), google=apis(google, timeout_s), engine=KnownEngine())
    names = [only] if only else [*CHECKS]
    return collect("dev", {name: partial(CHECKS[name], subject) for name in names}, project_id=PROJECT)


def test_a_ready_project_has_nothing_but_ok(google: GoogleServer) -> None:
    report = examine(google)

    assert [finding for _, finding in report.findings if finding.status is not Status.OK] == []
    assert report.result is Status.OK
    assert {name for name, _ in report.findings} == SHOWN


def test_it_asks_all_that_it_can_and_only_reads(google: GoogleServer) -> None:
    examine(google)

    assert {method_id for method_id, _ in google.seen} == set(ASKED)
    verbs = {method_id: methods()[method_id].verb for method_id, _ in google.seen}
    assert {method_id for method_id, verb in verbs.items() if verb != "GET"} == {TEST_PERMISSIONS}


@pytest.mark.parametrize(("method_id", "code"), [*zip(ASKED, cycle([403, 500]), strict=False)])
def test_an_api_that_refuses_or_breaks_is_never_ok_and_stops_no_other_check(
    google: GoogleServer, method_id: str, code: int
) -> None:
    google.refuse(method_id, code, "Required 'some.permission' permission")

    report = examine(google)

    assert {name for name, _ in report.findings} == SHOWN
    unknown = [finding for _, finding in report.findings if finding.status is not Status.OK]
    assert unknown
    assert all(finding.status is Status.WARN for finding in unknown)
    assert all(str(code) in finding.detail and "some.permission" in finding.detail for finding in unknown)
    assert all(finding.remedy for finding in unknown)


@pytest.mark.parametrize(
    ("name", "method_id"), [("zone", "compute.zones.get"), ("Lustre zone", "lustre.listLocations")]
)
def test_silence_and_noise_are_warnings(google: GoogleServer, name: str, method_id: str) -> None:
    google.garble(method_id)
    garbled = examine(google, only=name)
    google.be_silent(method_id)
    silent = examine(google, only=name, timeout_s=0.2)

    for report in (garbled, silent):
        [(_, unknown)] = report.findings
        assert unknown.status is Status.WARN
        assert "gave no answer that can be read" in unknown.detail


def test_an_api_that_is_off_is_named_with_what_turns_it_on(google: GoogleServer) -> None:
    message = "Managed Lustre API has not been used in project 123 before or it is disabled"
    google.refuse("lustre.listLocations", 403, message, reason="SERVICE_DISABLED")
    google.refuse("lustre.getInstance", 403, message, reason="SERVICE_DISABLED")
    google.refuse("compute.zones.get", 403, "Compute Engine API is off", reason="SERVICE_DISABLED")

    unknown = [finding for _, finding in examine(google).findings if finding.status is not Status.OK]

    assert [finding.status for finding in unknown] == [Status.WARN, Status.WARN]
    assert "gcloud services enable compute.googleapis.com" in unknown[0].remedy
    assert "gcloud services enable lustre.googleapis.com" in unknown[1].remedy


@pytest.fixture
def at_hand(google: GoogleServer, hub_server: HubServer, monkeypatch: pytest.MonkeyPatch) -> GoogleServer:
    """The command line, with Google and the hub on loopback and no engine on PATH."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.setattr(command, "connect", lambda _: apis(google))
    monkeypatch.setattr(hub, "HUB", hub_server.url)
    return google


def test_the_exit_code_follows_the_worst_finding(at_hand: GoogleServer, capsys: pytest.CaptureFixture[str]) -> None:
    at_hand.denied = {GRANTS[0].permissions[0]}

    assert main(["preflight", "--stack", "dev", "--json"]) == 1

    report = json.loads(capsys.readouterr().out)
    assert (report["stack"], report["result"]) == ("dev", "fail")
    failed = [finding for finding in report["findings"] if finding["status"] == "fail" and finding["check"] == "roles"]
    assert len(failed) == 1
    assert failed[0]["remedy"] == (
        f"gcloud projects add-iam-policy-binding {PROJECT} --member=user:YOUR_EMAIL --role={GRANTS[0].role}"
    )


def test_each_remedy_stands_whole_under_its_line(google: GoogleServer) -> None:
    google.denied = {GRANTS[0].permissions[0]}

    lines = examine(google).to_text().splitlines()

    at = next(number for number, line in enumerate(lines) if line.startswith("fail"))
    assert lines[at].split()[1] == "roles"
    assert lines[at + 1].strip().startswith("> gcloud projects add-iam-policy-binding")
    assert lines[-1].endswith("0 warn, 1 fail")


def test_a_stack_or_config_that_cannot_be_used_is_exit_code_2(
    at_hand: GoogleServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", "--stack", "nope"]) == 2
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "Pulumi.dev.yaml").read_text(encoding="utf-8")
    (tmp_path / "Pulumi.dev.yaml").write_text(text.replace("36000", "36001"), encoding="utf-8")
    assert main(["preflight", "--stack", "dev"]) == 2

    assert at_hand.seen == []
    assert "lustre.capacity_gib=36001" in capsys.readouterr().err


def test_without_credentials_the_remedy_is_to_log_in_and_the_hub_is_asked_all_the_same(
    at_hand: GoogleServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def connect(project_id: str) -> None:
        from jobs.preflight.google_apis import default_credentials

        default_credentials(project_id)

    monkeypatch.setattr(command, "connect", connect)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)

    assert main(["preflight", "--stack", "dev", "--json"]) == 1

    findings = json.loads(capsys.readouterr().out)["findings"]
    assert {finding["check"] for finding in findings} == {"credentials", "model access"}
    assert findings[0]["status"] == "fail"
    assert findings[0]["remedy"] == "Log in with: gcloud auth application-default login"
    assert at_hand.seen == []


def test_refused_credentials_name_the_same_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    from jobs.preflight.google_apis import default_credentials

    secret = "refresh-canary"
    saved = tmp_path / "credentials.json"
    saved.write_text(
        json.dumps(
            {
                "type": "authorized_user",
                "client_id": "id",
                "client_secret": secret,
                "refresh_token": secret,
                "token_uri": "http://127.0.0.1:1/token",
            }
        )
    )
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(saved))

    with pytest.raises(GoogleCredentialsError, match="nothing was asked") as caught:
        default_credentials(PROJECT)

    assert secret not in str(caught.value)


def test_google_s_libraries_are_imported_only_by_the_preflight() -> None:
    script = "import sys, jobs.__main__, components.config, jobs.ray_job; print(*sys.modules, sep='\\n')"
    asked = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)

    loaded = set(asked.stdout.split())
    assert "jobs.preflight.command" in loaded
    assert not loaded & {
        "google.auth",
        "google.cloud.lustre_v1",
        "googleapiclient",
        "httplib2",
        "jobs.preflight.checks",
    }
