"""Preemptions of the twin's Spot machines: one now, or a trace of them in the order of its times.

All times are simulated seconds on the twin's clock, as everything that stands for Google's doing is.
"""

import csv
import math
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from jobs.errors import UsageError
from twin.cloud.durations import Clock, Duration
from twin.cloud.store import ResourceType, Store
from twin.kubernetes import cluster
from twin.kubernetes.api import ApiClient, Manifest
from twin.kubernetes.nodes import POOL_LABEL, cluster_of
from twin.kubernetes.shutdown import NOTICE, ending, give_notice
from twin.state import TwinState

HEADER = ("at_s", "nodes", "return_after_s")
TRACE_EXAMPLE = f"""{",".join(HEADER)}
600,1,300
4200,2,"""


@dataclass(frozen=True, kw_only=True)
class Preemption:
    """One event of a trace.

    Attributes:
        at_s: simulated seconds from the start of the trace.
        nodes: machines taken.
        return_after_s: simulated seconds, from the notice, for which as many machines are not to be had; None: the pool
            may get new ones at once.
    """

    at_s: float
    nodes: int
    return_after_s: float | None


def read_trace(path: Path) -> list[Preemption]:
    """Read a trace: CSV with the header `at_s,nodes,return_after_s`, in the order of its times.

    Raises:
        UsageError: it cannot be read, or a line is wrong; names the line, the value and what is wanted.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            lines = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UsageError(f"--trace {path}: cannot be read ({error}), so nothing was preempted. {_WANTED}") from error
    if not lines or tuple(lines[0]) != HEADER:
        first = ",".join(lines[0]) if lines else ""
        raise UsageError(f"--trace {path}, line 1: {first!r} is not the header, so nothing was preempted. {_WANTED}")
    events: list[Preemption] = []
    for number, fields in enumerate(lines[1:], start=2):
        if not fields:
            continue
        try:
            events.append(_event(fields, events[-1].at_s if events else 0.0))
        except ValueError as error:
            raise UsageError(f"--trace {path}, line {number}: {error}, so nothing was preempted. {_WANTED}") from error
    if not events:
        raise UsageError(f"--trace {path} has no line after its header, so nothing was preempted. {_WANTED}")
    return events


_WANTED = f"Write a header and one line for each preemption, for example:\n{TRACE_EXAMPLE}"


def _event(fields: Sequence[str], earliest_s: float) -> Preemption:
    if len(fields) != len(HEADER):
        raise ValueError(f"{','.join(fields)!r} has {len(fields)} values and not {len(HEADER)}")
    at_s = _number(fields[0], "at_s", at_least=earliest_s)
    if not fields[1].isdecimal() or int(fields[1]) < 1:
        raise ValueError(f"nodes {fields[1]!r} is not a whole number of at least 1")
    return_after_s = _number(fields[2], "return_after_s", at_least=0.0) if fields[2] else None
    return Preemption(at_s=at_s, nodes=int(fields[1]), return_after_s=return_after_s)


def _number(text: str, name: str, *, at_least: float) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not at_least <= value < math.inf:
        raise ValueError(f"{name} {text!r} is not a number of seconds of at least {at_least:g}")
    return value


def preempt(state: TwinState, *, nodes: int, return_after_s: float | None) -> None:
    """Take Spot machines away now, with Spot's notice.

    Raises:
        UsageError: a number that is none, or more machines than there are.
        TwinError: no cluster is up.
    """
    if return_after_s is not None and not 0 <= return_after_s < math.inf:
        message = (
            f"--return-after {return_after_s:g}: machines cannot come back then, so none was taken. Give simulated "
        )
        raise UsageError(f"{message}seconds from 0 on")
    with _spot_machines(state) as machines:
        if not 0 < nodes <= len(machines):
            message = f"--nodes {nodes}: the twin has {len(machines)} Spot machines now, so none was taken. Ask for no "
            message += "more than it has, or wait until pods have asked for machines: python -m twin status"
            raise UsageError(message)
        _take(Store.open(state), machines, nodes, return_after_s)


def replay(state: TwinState, trace: Sequence[Preemption], *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Take Spot machines away as a trace says; where there are fewer than it says, those that there are.

    Raises:
        TwinError: no cluster is up.
    """
    clock = Clock.from_environment()
    cluster.names(state)  # Better now than at the first event.
    started = time.monotonic()
    for event in trace:
        due = started + clock.real_s(Duration(seconds=event.at_s))
        sleep(max(0.0, due - time.monotonic()))
        with _spot_machines(state) as machines:
            count = min(event.nodes, len(machines))
            print(f"at {event.at_s:g} s: {count} of {event.nodes} machines", flush=True)
            _take(Store.open(state), machines, count, event.return_after_s)


@dataclass(frozen=True, kw_only=True)
class _Machine:
    cluster: str
    api: ApiClient
    node: Manifest

    @property
    def pool(self) -> str:
        return str(self.node["metadata"]["labels"][POOL_LABEL])


@contextmanager
def _spot_machines(state: TwinState) -> Iterator[list[_Machine]]:
    """The Spot machines that are under no notice yet."""
    names = cluster.names(state)
    clients = {name: cluster.client(state, name) for name in names}
    try:
        yield [
            _Machine(cluster=name, api=api, node=node)
            for name, api in clients.items()
            for node in cluster.spot_nodes(state, name)
            if not ending([node])
        ]
    finally:
        for api in clients.values():
            api.close()


def _take(store: Store, there: Sequence[_Machine], count: int, return_after_s: float | None) -> None:
    clock = Clock.from_environment()
    notice_s = clock.real_s(NOTICE)
    sizes = Counter((machine.cluster, machine.pool) for machine in there)
    pools = {(cluster_of(row), row.name): row.id for row in store.list(ResourceType.NODE_POOL)}
    for machine in there[:count]:
        if return_after_s is not None:
            until = time.time() + clock.real_s(Duration(seconds=return_after_s))
            pool = pools[machine.cluster, machine.pool]
            held, _ = store.held_back(pool)
            store.hold_back(pool, of=sizes[machine.cluster, machine.pool] + held, until=until)
            sizes[machine.cluster, machine.pool] -= 1
        give_notice(machine.api, machine.node, ends_at=time.time() + notice_s)
        name = machine.node["metadata"]["name"]
        print(
            f"preempted {name} of cluster {machine.cluster}: it has had its notice, and is gone {NOTICE.seconds:g} s "
            f"later ({notice_s:.1f} s here); {_return_text(clock, return_after_s)}",
            flush=True,
        )


def _return_text(clock: Clock, return_after_s: float | None) -> str:
    if return_after_s is None:
        return "a new machine comes when the pool asks for one"
    real_s = clock.real_s(Duration(seconds=return_after_s))
    return f"no machine takes its place before {return_after_s:g} s are over ({real_s:.1f} s here)"
