"""A project in which the codelab's stack can come up, as Google's APIs would describe it, and a stack to look at it."""

from dataclasses import dataclass
from typing import Any

from google.auth.credentials import AnonymousCredentials

from components.config import StackConfig, parse_config
from components.project_services import SERVICES
from jobs.preflight.engine import Engine
from jobs.preflight.findings import Check, Finding, Subject
from jobs.preflight.google_apis import GoogleApis
from tests.jobs.preflight.google_server import GoogleServer
from tests.program import changed, stack_settings

PROJECT, REGION, ZONE = "my-project-id", "us-east1", "us-east1-b"
ZONE_PATH = {"project": PROJECT, "zone": ZONE}
QUOTAS = f"projects/{PROJECT}/locations/global/services"
SPOT_QUOTA = f"{QUOTAS}/compute.googleapis.com/quotaInfos/PREEMPTIBLE-NVIDIA-B200-GPUS-per-project-region"
ALL_QUOTA = f"{QUOTAS}/compute.googleapis.com/quotaInfos/GPUS-ALL-REGIONS-per-project"


@dataclass(frozen=True, kw_only=True)
class KnownEngine(Engine):
    """An engine that answers without being asked.

    Attributes:
        token: the stack's Hugging Face token.
        owned: ids in the stack's state; none where it cannot be read.
    """

    stack: str = "dev"
    token: str | None = None
    owned: frozenset[str] | None = frozenset()

    def hf_token(self, environment: Any = None) -> str | None:
        return self.token

    def resource_ids(self) -> frozenset[str] | None:
        return self.owned


def stack(**changes: Any) -> StackConfig:
    """The codelab's stack with some values changed."""
    return parse_config("dev", changed(stack_settings("dev"), **changes))


def apis(server: GoogleServer, timeout_s: float = 20.0) -> GoogleApis:
    return GoogleApis(credentials=AnonymousCredentials(), endpoints=server.endpoints, timeout_s=timeout_s)


def look(
    check: Check, server: GoogleServer, config: StackConfig, owned: frozenset[str] | None = frozenset()
) -> list[Finding]:
    """Run one check."""
    return list(check(Subject(config=config, google=apis(server), engine=KnownEngine(owned=owned))))


def quota(quota_id: str, value: int, **dimensions: str) -> dict[str, Any]:
    """A quota with one figure; dimensions without a value are those that the figure leaves out."""
    named = {name: place for name, place in dimensions.items() if place}
    figure = {"dimensions": named, "details": {"value": str(value)}, "applicableLocations": [REGION]}
    return {
        "quotaId": quota_id,
        "metric": f"compute.googleapis.com/{quota_id.lower()}",
        "service": "compute.googleapis.com",
        "dimensions": list(dimensions),
        "dimensionsInfos": [figure],
    }


def make_ready(server: GoogleServer) -> None:
    """Answer as a project does in which nothing is missing and nothing is left over."""
    server.answer(
        "serviceusage.services.batchGet",
        {
            "services": [
                {"name": f"projects/123/services/{service}.googleapis.com", "state": "ENABLED"} for service in SERVICES
            ]
        },
        parent=f"projects/{PROJECT}",
    )
    region = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/regions/{REGION}"
    server.answer("compute.zones.get", {"name": ZONE, "status": "UP", "region": region}, **ZONE_PATH)
    gpus = [{"guestAcceleratorType": "nvidia-b200", "guestAcceleratorCount": 8}]
    machines: list[dict[str, Any]] = [
        {"name": "a4-highgpu-8g", "guestCpus": 224, "accelerators": gpus},
        {"name": "n2d-highmem-16", "guestCpus": 16},
    ]
    for machine in machines:
        server.answer("compute.machineTypes.get", machine, **ZONE_PATH, machineType=machine["name"])
    server.answer("compute.acceleratorTypes.get", {"name": "nvidia-b200"}, **ZONE_PATH, acceleratorType="nvidia-b200")
    profile = f"{ZONE}-vpc-roce"
    server.answer("compute.networkProfiles.get", {"name": profile}, project=PROJECT, networkProfile=profile)
    server.answer_pages(
        "lustre.listLocations",
        {"locations": [{"locationId": "us-east1-c"}, {"locationId": "us-central1-a"}]},
        {"locations": [{"locationId": ZONE}]},
        name=f"projects/{PROJECT}",
    )
    spot, everywhere = (name.rpartition("/")[2] for name in (SPOT_QUOTA, ALL_QUOTA))
    server.answer("cloudquotas.getQuotaInfo", quota(spot, 64, region=REGION), name=SPOT_QUOTA)
    server.answer("cloudquotas.getQuotaInfo", quota(everywhere, 64), name=ALL_QUOTA)
    server.answer(
        "cloudquotas.listQuotaInfos",
        {"quotaInfos": [quota("StorageFor500MBpsThroughputPerTiB-per-project-zone", 36000, zone=ZONE)]},
        parent=f"{QUOTAS}/lustre.googleapis.com",
    )
    server.answer("compute.firewalls.list", {"items": []}, project=PROJECT)
