"""What passes between the loss of a worker's node and the next training step, by part, from the run's own record."""

import json
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from jobs.waiting import wait_until
from twin.kubernetes import cluster
from twin.kubernetes.api import NODES
from twin.state import TwinState

_TIMEOUT_S = 180.0
_EVERY_S = 0.2


def measure(state: TwinState, *, name: str, run: str, preempt: Callable[[], object]) -> dict[str, float]:
    """Lose one node in mid-run and wait until training goes on.

    Args:
        state: the twin.
        name: its cluster and Lustre instance.
        run: the run's directory on Lustre.
        preempt: has one node taken away, which the pool brings back.

    Returns:
        Seconds by part; the first two run side by side.
    """
    record = state.lustre(name) / run / "supervisor" / "events.jsonl"

    def events(after: float = 0.0) -> list[dict[str, Any]]:
        lines = record.read_text(encoding="utf-8").splitlines() if record.exists() else []
        return [event for event in map(json.loads, lines) if event["at"] > after]

    def at(event: str, after: float, **fields: str) -> float:
        def seen() -> float | None:
            matching = [each for each in events(after) if each["event"] == event and fields.items() <= each.items()]
            return matching[0]["at"] if matching else None

        return wait_until(seen, timeout_s=_TIMEOUT_S, every_s=_EVERY_S, doing=f"the event {event} {fields or ''}")

    at("checkpoint", 0.0)
    before = time.time()
    preempt()
    lost = at("lost_node", before)
    there = at("waiting", lost, reason="settling")
    started = at("started", there)
    first = at("step", started)
    step = next(event for event in events(started) if event["event"] == "step")
    back = _newest_node(state, name)
    resumed = at("resumed", there)
    return {
        "notice to another node": back - before,
        "notice to loss established": lost - before,
        "the later of the two to all GPUs in Ray": there - max(back, lost),
        "all GPUs in Ray to nodes still (settle_s)": resumed - there,
        "nodes still to trainer started": started - resumed,
        "trainer started to first step begun": first - started - step["step_time_s"],
    }


def _newest_node(state: TwinState, name: str) -> float:
    """When the youngest node was made, to the second, as seconds since 1970."""
    api = cluster.client(state, name)
    try:
        stamps = [node["metadata"]["creationTimestamp"] for node in api.list(NODES)]
    finally:
        api.close()
    return datetime.fromisoformat(max(stamps)).timestamp()
