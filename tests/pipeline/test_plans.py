"""Twelve edits of the config, each previewed against the stack that is up: what is changed, replaced, or refused.

The table is the contract with whoever edits a stack: what a run does not depend on never touches it, and no edit takes
the data on Lustre.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.pipeline.twin_session import TwinSession
from twin.cloud.store import Store
from twin.plan import Operation, Plan

pytestmark = pytest.mark.engine

PREVIEWS_AT_ONCE = 2


@dataclass(frozen=True, kw_only=True)
class Edit:
    """An edit, and what the engine is to make of it; without `refused`, all else stays as it is.

    Attributes:
        sections: section to keys with their new values.
        secrets: secrets with their new values.
        changed: resources changed in place.
        replaced: resources made anew.
        refused: what the refusal says, by which nothing is done at all.
    """

    sections: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    changed: frozenset[str] = frozenset()
    replaced: frozenset[str] = frozenset()
    refused: str = ""


JOB = frozenset({"grpo"})
RAY = JOB | {"ray-cluster"}
# The installer of gIB and the pods name the pool: they go before it and come after it.
GPUS = RAY | {"gpus-pool", "gib-installer"}
BILLED = frozenset({"lustre-instance", "gke-cluster", "gke-system", "gpus-pool"})
ALERTS = frozenset({"monitoring-free-space", "monitoring-idle-gpus", "monitoring-no-saves"})

EDITS: Mapping[str, Edit] = {
    "nothing": Edit(),
    "tier": Edit(
        sections={"lustre": {"throughput_mbps_per_tib": 1000}},
        refused="throughput_mbps_per_tib would change from 500 to 1000",
    ),
    "capacity up": Edit(
        sections={"lustre": {"capacity_gib": 54000}},
        changed=frozenset({"lustre-guard", "lustre-instance", "volume-volume"}),
    ),
    "capacity down": Edit(
        sections={"lustre": {"capacity_gib": 18000}}, refused="capacity_gib would go from 36000 to 18000 GiB"
    ),
    "zone": Edit(
        sections={"project": {"zone": "us-east1-c"}}, refused="location would change from us-east1-b to us-east1-c"
    ),
    "node count": Edit(sections={"gpu_pool": {"node_count": 16}}, changed=frozenset({"gpus-pool"}), replaced=JOB),
    "machine": Edit(sections={"gpu_pool": {"machine_type": "a3-ultragpu-8g"}}, replaced=GPUS),
    "capacity type": Edit(
        sections={"gpu_pool": {"capacity": {"kind": "reservation", "reservation": "mine"}}}, replaced=GPUS
    ),
    "image tag": Edit(sections={"ray": {"image": "nvcr.io/nvidia/nemo-rl:v0.5.0"}}, replaced=RAY),
    "save period": Edit(
        sections={"job": {"grpo": {"save_period": 10}}}, changed=frozenset({"monitoring-no-saves"}), replaced=JOB
    ),
    "W&B name": Edit(sections={"job": {"grpo": {"wandb_name": "another"}}}, changed=frozenset({"grpo"})),
    "token": Edit(secrets={"hf_token": "second"}, changed=frozenset({"ray-secrets"})),
    "labels": Edit(sections={"project": {"labels": {"purpose": "another"}}}, changed=BILLED | ALERTS),
}


@pytest.fixture(scope="module")
def plans(dev_twin: TwinSession) -> dict[str, Plan]:
    """The plan of each edit; afterwards the stack is as it was."""
    dev_twin.bring_up()
    store = Store.open(dev_twin.state)
    before = store.generation(), dev_twin.deployment()
    with ThreadPoolExecutor(PREVIEWS_AT_ONCE) as pool:
        found = pool.map(lambda edit: dev_twin.plan(edit.sections, secrets=edit.secrets), EDITS.values())
        made = dict(zip(EDITS, found, strict=True))
    assert (store.generation(), dev_twin.deployment()) == before
    return made


@pytest.mark.parametrize("name", EDITS)
def test_an_edit_does_what_the_table_says_and_no_more(plans: Mapping[str, Plan], name: str) -> None:
    edit, plan = EDITS[name], plans[name]
    if edit.refused:
        assert any(edit.refused in error for error in plan.errors), plan.errors
        assert any("all that lies on Lustre is lost" in e or "never shrink" in e for e in plan.errors), plan.errors
        return
    assert plan.errors == ()
    assert {(change.operation, change.name) for change in plan.changes} == {
        *((Operation.UPDATE, name) for name in edit.changed),
        *((Operation.REPLACE, name) for name in edit.replaced),
    }
