"""The status of a pod, as a kubelet would report it, built from the state of its containers. Pure functions."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from twin.kubernetes.api import Manifest


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Why a container does not run: one word as the kubelet uses it, and a sentence."""

    reason: str
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a container's process ended; times are unix seconds, a code above 128 is a signal plus 128."""

    code: int
    started_at: float
    finished_at: float

    @property
    def state(self) -> Manifest:
        """As a container state."""
        return {
            "terminated": {
                "exitCode": self.code,
                "reason": "Completed" if self.code == 0 else "Error",
                "startedAt": timestamp(self.started_at),
                "finishedAt": timestamp(self.finished_at),
            }
        }


@dataclass(frozen=True, kw_only=True)
class ContainerState:
    """One container now.

    Attributes:
        waiting: why it waits, or None.
        running_since: unix seconds, or None.
        ended: its end, when it will not be started again, or not yet.
        last_exit: its end before it was started again.
    """

    name: str
    image: str
    waiting: Waiting | None = None
    running_since: float | None = None
    ended: Exit | None = None
    last_exit: Exit | None = None
    restarts: int = 0
    ready: bool = False

    @property
    def status(self) -> Manifest:
        """As a container status."""
        if self.waiting:
            state: Manifest = {"waiting": {"reason": self.waiting.reason, "message": self.waiting.message}}
        elif self.running_since is not None:
            state = {"running": {"startedAt": timestamp(self.running_since)}}
        else:
            state = self.ended.state if self.ended else {}
        return {
            "name": self.name,
            "image": self.image,
            "imageID": self.image,
            "ready": self.ready,
            "started": self.running_since is not None,
            "restartCount": self.restarts,
            "state": state,
            "lastState": self.last_exit.state if self.last_exit else {},
        }


def timestamp(at: float) -> str:
    """Write a unix time as Kubernetes does."""
    return datetime.fromtimestamp(int(at), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def phase(containers: Sequence[ContainerState], *, initialized: bool, restart_policy: str) -> str:
    """A pod's phase, by the kubelet's rules."""
    if not initialized or all(c.waiting and not c.restarts and not c.last_exit for c in containers):
        return "Pending"
    if restart_policy != "Always" and all(container.ended for container in containers):
        return "Failed" if any(c.ended and c.ended.code for c in containers) else "Succeeded"
    return "Running"


def pod_status(
    pod: Manifest,
    containers: Sequence[ContainerState],
    *,
    address: str,
    initialized: bool,
    now: float,
) -> Manifest:
    """Build the status of a pod that is bound to a node.

    Args:
        pod: the pod as the API server has it; times of conditions that did not change are kept.
        containers: its containers now.
        address: its address in the pod network; empty before its network is there.
        initialized: whether its init containers are done.
        now: unix seconds.
    """
    spec = pod["spec"]
    ready = all(container.ready for container in containers)
    flags = {"PodScheduled": True, "Initialized": initialized, "ContainersReady": ready, "Ready": ready}
    before = {condition["type"]: condition for condition in pod.get("status", {}).get("conditions", [])}
    conditions = []
    for kind, holds in flags.items():
        status = str(holds)
        known = before.get(kind, {})
        at = known["lastTransitionTime"] if known.get("status") == status else timestamp(now)
        conditions.append({"type": kind, "status": status, "lastTransitionTime": at})
    placed = {"podIP": address, "podIPs": [{"ip": address}]} if address else {}
    return {
        "phase": phase(containers, initialized=initialized, restart_policy=spec.get("restartPolicy", "Always")),
        "conditions": conditions,
        "startTime": pod.get("status", {}).get("startTime") or timestamp(now),
        "initContainerStatuses": [_init_status(c, initialized=initialized) for c in spec.get("initContainers", [])],
        "containerStatuses": [container.status for container in containers],
        **placed,
    }


def shut_down(status: Manifest) -> Manifest:
    """Turn the status of a pod that was ended into what a kubelet writes on a node that shuts down."""
    message = "Pod was terminated in response to imminent node shutdown."
    return {**status, "phase": "Failed", "reason": "Terminated", "message": message}


def _init_status(container: dict[str, Any], *, initialized: bool) -> Manifest:
    # Which moment it was is of no use to anybody: the epoch says that nobody measured it.
    state: Manifest = (
        {"terminated": {"exitCode": 0, "reason": "Completed", "startedAt": timestamp(0), "finishedAt": timestamp(0)}}
        if initialized
        else {"waiting": {"reason": "PodInitializing"}}
    )
    return {
        "name": container["name"],
        "image": container["image"],
        "imageID": container["image"],
        "ready": initialized,
        "restartCount": 0,
        "state": state,
        "lastState": {},
    }
