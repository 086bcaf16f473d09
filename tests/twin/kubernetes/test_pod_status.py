from typing import Any

from twin.kubernetes.pod_status import ContainerState, Exit, Waiting, pod_status

CRASH = Exit(code=137, started_at=1.0, finished_at=2.0)
DONE = Exit(code=0, started_at=1.0, finished_at=2.0)


def state(**fields: Any) -> ContainerState:
    return ContainerState(name="ray", image="i", **fields)


def status(container: ContainerState, *, policy: str = "Always", initialized: bool = True, before: Any = None) -> Any:
    spec = {"restartPolicy": policy, "initContainers": [{"name": "wait-gcs-ready", "image": "i"}]}
    pod = {"spec": spec, "status": before or {}}
    return pod_status(pod, [container], address="10.4.0.2", initialized=initialized, now=100.0)


def condition(status: Any, kind: str) -> Any:
    return next(each for each in status["conditions"] if each["type"] == kind)


def test_a_pod_that_waits_is_pending_and_says_why() -> None:
    got = status(state(waiting=Waiting(reason="ImagePullBackOff", message="no such image")), initialized=False)
    assert got["phase"] == "Pending"
    assert got["containerStatuses"][0]["state"]["waiting"]["reason"] == "ImagePullBackOff"
    assert condition(got, "Initialized")["status"] == "False"
    assert got["initContainerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


def test_a_running_pod_is_ready_only_when_its_containers_are() -> None:
    assert condition(status(state(running_since=5.0)), "Ready")["status"] == "False"
    got = status(state(running_since=5.0, ready=True))
    assert (got["phase"], condition(got, "Ready")["status"], got["podIP"]) == ("Running", "True", "10.4.0.2")


def test_an_end_is_final_only_where_the_restart_policy_says_so() -> None:
    assert status(state(ended=CRASH), policy="Never")["phase"] == "Failed"
    assert status(state(ended=DONE), policy="Never")["phase"] == "Succeeded"
    waiting = state(waiting=Waiting(reason="CrashLoopBackOff"), last_exit=CRASH, restarts=1)
    assert status(waiting)["phase"] == "Running"


def test_the_last_end_and_the_restarts_are_shown_while_it_runs_again() -> None:
    shown = status(state(running_since=5.0, last_exit=CRASH, restarts=2))["containerStatuses"][0]
    assert shown["restartCount"] == 2
    assert shown["lastState"]["terminated"]["exitCode"] == 137


def test_a_condition_keeps_its_time_until_it_changes() -> None:
    first = status(state(running_since=5.0))
    first["conditions"][3]["lastTransitionTime"] = "2020-01-01T00:00:00Z"
    same = status(state(running_since=5.0), before=first)
    assert condition(same, "Ready")["lastTransitionTime"] == "2020-01-01T00:00:00Z"
    changed = status(state(running_since=5.0, ready=True), before=first)
    assert condition(changed, "Ready")["lastTransitionTime"] == "1970-01-01T00:01:40Z"
