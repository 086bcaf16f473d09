"""The genuine engine and the genuine SDK on the simulated cloud: preview, up, refresh, destroy."""

import gc
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pulumi
import pulumi_gcp as gcp
import pytest
from pulumi import automation

from twin.cloud import faults
from twin.cloud.durations import SPEED_VARIABLE
from twin.cloud.launchers import write_launchers
from twin.cloud.store import ResourceType, Store
from twin.state import TwinState
from twin.toolchain import find_tool

pytestmark = [pytest.mark.engine, pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")]


@dataclass
class Stack:
    """One stack of an own program; `deletion_policy` is that of its connection."""

    state: TwinState
    deletion_policy: str = "REMOVE_PEERING"
    description: str = "first"

    def program(self) -> None:
        provider = gcp.Provider("google", project="p", region="us-east1", zone="us-east1-b", access_token="x")
        options = pulumi.ResourceOptions(provider=provider)
        apis = [
            gcp.projects.Service(api, service=f"{api}.googleapis.com", disable_on_destroy=False, opts=options)
            for api in ("compute", "lustre", "servicenetworking")
        ]
        network = gcp.compute.Network(
            "net",
            auto_create_subnetworks=False,
            description=self.description,
            opts=pulumi.ResourceOptions(provider=provider, depends_on=apis),
        )
        gcp.compute.Subnetwork(
            "nodes",
            network=network.id,
            ip_cidr_range="192.168.0.0/18",
            secondary_ip_ranges=[{"range_name": "pods", "ip_cidr_range": "10.4.0.0/14"}],
            opts=options,
        )
        lent = gcp.compute.GlobalAddress(
            "lent", purpose="VPC_PEERING", address_type="INTERNAL", prefix_length=22, network=network.id, opts=options
        )
        connection = gcp.servicenetworking.Connection(
            "services",
            network=network.id,
            service="servicenetworking.googleapis.com",
            reserved_peering_ranges=[lent.name],
            deletion_policy=self.deletion_policy,
            opts=options,
        )
        instance = gcp.lustre.Instance(
            "lustre",
            instance_id="fs",
            location="us-east1-b",
            filesystem="lustrefs",
            capacity_gib="36000",
            per_unit_storage_throughput="500",
            network=network.id,
            labels={"stack": "dev"},
            opts=pulumi.ResourceOptions(provider=provider, depends_on=[connection]),
        )
        # Fails where a preview hands out None for what only a create tells.
        pulumi.export("address", instance.mount_point.apply(lambda mount_point: mount_point.split("@")[0]))


@pytest.fixture
def stack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Stack, automation.Stack]]:
    program = shutil.which("pulumi") or find_tool("pulumi")
    if program is None:
        pytest.fail("the engine is not built. Type: python -m twin.toolchain")
    stack = Stack(TwinState(tmp_path / ".twin"))
    write_launchers(stack.state)
    (tmp_path / "backend").mkdir()
    monkeypatch.setenv("PATH", f"{stack.state.bin_dir}:{Path(program).parent}:/usr/bin:/bin")
    monkeypatch.setenv("PULUMI_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{tmp_path / 'backend'}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "passphrase")
    monkeypatch.setenv("PULUMI_SKIP_UPDATE_CHECK", "true")
    monkeypatch.setenv("PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION", "true")
    monkeypatch.setenv(SPEED_VARIABLE, "0")
    engine = automation.create_or_select_stack(
        stack_name="dev",
        project_name="cloud",
        program=stack.program,
        opts=automation.LocalWorkspaceOptions(work_dir=str(tmp_path)),
    )
    yield stack, engine
    # The SDK never closes the event loop of an inline program; it must be collected while that is let pass.
    gc.collect()


def _counts(changes: object) -> dict[str, int]:
    assert isinstance(changes, dict)
    return {str(getattr(operation, "value", operation)): count for operation, count in changes.items()}


def test_a_stack_goes_up_stays_unchanged_and_comes_down(stack: tuple[Stack, automation.Stack]) -> None:
    given, engine = stack
    store = Store.open(given.state)
    assert _counts(engine.preview().change_summary) == {"create": 10}
    assert store.list() == []
    assert engine.up().outputs["address"].value.startswith("10.")
    assert len(store.list()) == 8
    assert _counts(engine.refresh().summary.resource_changes) == {"same": 10}
    assert _counts(engine.preview().change_summary) == {"same": 10}
    engine.destroy()
    assert store.list() == []
    assert [event.kind for event in store.events_since()] == ["Google refused", "REMOVE_PEERING"]


def test_the_policy_delete_meets_googles_refusal_once_and_ends_the_next_time(
    stack: tuple[Stack, automation.Stack],
) -> None:
    given, engine = stack
    store = Store.open(given.state)
    given.deletion_policy = "DELETE"
    engine.up()
    with pytest.raises(automation.CommandError) as refused:
        engine.destroy()
    text = str(refused.value)
    assert "Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this connection" in text
    assert "REMOVE_PEERING" in text
    assert "Traceback" not in text
    assert ".py" not in text
    assert {each.type for each in store.list()} >= {ResourceType.CONNECTION, ResourceType.NETWORK}
    engine.destroy()
    assert store.list() == []


def test_a_failed_up_goes_on_where_it_stopped(stack: tuple[Stack, automation.Stack]) -> None:
    given, engine = stack
    store = Store.open(given.state)
    store.set_fault(faults.API_ERROR)
    with pytest.raises(automation.CommandError, match="Error 500"):
        engine.up()
    engine.up()
    given.description = "second"
    replaced = _counts(engine.preview().change_summary)
    assert replaced["replace"] >= 1
    engine.destroy()
    assert store.list() == []
