"""What the simulated project remembers: resources, processes, events, faults, and what each cluster agent has seen.

One SQLite file that several processes write at once: the engine's provider, the cluster agents and `python -m twin`.
Every call opens its own connection and holds a transaction only while it reads or writes, so a Store may be used from
any thread and a killed process leaves nothing locked. It keeps facts and knows no rule: those are in rules.py.
"""

import json
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

from twin.state import TwinState

BUSY_TIMEOUT_S = 30.0
"""How long a call waits for another process's transaction; each takes milliseconds."""

_TABLES = """
CREATE TABLE IF NOT EXISTS generation (only INTEGER PRIMARY KEY CHECK (only = 1), value INTEGER NOT NULL);
INSERT OR IGNORE INTO generation VALUES (1, 0);
CREATE TABLE IF NOT EXISTS resources (
    type TEXT NOT NULL, id TEXT NOT NULL, name TEXT NOT NULL, project TEXT NOT NULL, state TEXT NOT NULL,
    properties TEXT NOT NULL, hidden TEXT NOT NULL, owner_pid INTEGER, owner_started INTEGER,
    created_at REAL NOT NULL, updated_at REAL NOT NULL, generation INTEGER NOT NULL, PRIMARY KEY (type, id));
CREATE TABLE IF NOT EXISTS processes (name TEXT PRIMARY KEY, pid INTEGER NOT NULL, started INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS events (
    id INTEGER PRIMARY KEY AUTOINCREMENT, at REAL NOT NULL,
    kind TEXT NOT NULL, object TEXT NOT NULL, text TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS faults (name TEXT PRIMARY KEY, argument TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS held_back (pool TEXT NOT NULL, of INTEGER NOT NULL, until REAL NOT NULL);
CREATE TABLE IF NOT EXISTS observed (cluster TEXT PRIMARY KEY, generation INTEGER NOT NULL);
"""


class ResourceType(StrEnum):
    """The resource types that the twin knows, by Pulumi's type tokens."""

    ADDRESS = "gcp:compute/address:Address"
    FIREWALL = "gcp:compute/firewall:Firewall"
    GLOBAL_ADDRESS = "gcp:compute/globalAddress:GlobalAddress"
    NETWORK = "gcp:compute/network:Network"
    RESOURCE_POLICY = "gcp:compute/resourcePolicy:ResourcePolicy"
    ROUTER = "gcp:compute/router:Router"
    ROUTER_NAT = "gcp:compute/routerNat:RouterNat"
    SUBNETWORK = "gcp:compute/subnetwork:Subnetwork"
    CLUSTER = "gcp:container/cluster:Cluster"
    NODE_POOL = "gcp:container/nodePool:NodePool"
    LUSTRE_INSTANCE = "gcp:lustre/instance:Instance"
    ALERT_POLICY = "gcp:monitoring/alertPolicy:AlertPolicy"
    DASHBOARD = "gcp:monitoring/dashboard:Dashboard"
    NOTIFICATION_CHANNEL = "gcp:monitoring/notificationChannel:NotificationChannel"
    PROJECT_IAM_MEMBER = "gcp:projects/iAMMember:IAMMember"
    SERVICE = "gcp:projects/service:Service"
    SERVICE_ACCOUNT = "gcp:serviceaccount/account:Account"
    SERVICE_ACCOUNT_IAM_MEMBER = "gcp:serviceaccount/iAMMember:IAMMember"
    CONNECTION = "gcp:servicenetworking/connection:Connection"


class ResourceState(StrEnum):
    """Where a resource stands in its life; ERROR is one that Google made and could not finish."""

    CREATING = "CREATING"
    ACTIVE = "ACTIVE"
    UPDATING = "UPDATING"
    DELETING = "DELETING"
    ERROR = "ERROR"


@dataclass(frozen=True, kw_only=True)
class ProcessIdentity:
    """A process that cannot be mistaken for a later one with the same pid.

    Attributes:
        pid: process id.
        started: field 22 of /proc/<pid>/stat: start time in clock ticks since boot.
    """

    pid: int
    started: int

    @classmethod
    def of(cls, pid: int) -> "ProcessIdentity | None":
        """Read the identity of a living process; None when there is none (a zombie counts as none)."""
        try:
            stat = Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            return None
        # The command name, in brackets, may itself hold spaces and brackets: fields are counted from the last one.
        fields = stat.rpartition(")")[2].split()
        return None if fields[0] in {"Z", "X"} else cls(pid=pid, started=int(fields[19]))

    @property
    def alive(self) -> bool:
        """Whether this very process still runs."""
        return ProcessIdentity.of(self.pid) == self


@dataclass(frozen=True, kw_only=True)
class Resource:
    """One resource of the simulated project.

    Attributes:
        type: Pulumi's type token.
        id: the id that the genuine provider gives, for example `projects/p/global/networks/n`.
        name: the name in the cloud (`instanceId` for Lustre, `service` for an API).
        project: project id.
        properties: inputs, defaults and computed outputs, by Pulumi's names.
        hidden: what the simulation remembers and no API shows.
        owner: the process that works on it, while state is CREATING, UPDATING or DELETING.
        created_at: unix time in seconds; set by the store.
        updated_at: unix time in seconds; set by the store.
        generation: the store's generation at its last write; set by the store.
    """

    type: str
    id: str
    name: str
    project: str
    properties: dict[str, Any]
    state: ResourceState = ResourceState.ACTIVE
    hidden: dict[str, Any] = field(default_factory=dict)
    owner: ProcessIdentity | None = None
    created_at: float = 0.0
    updated_at: float = 0.0
    generation: int = 0

    @property
    def abandoned(self) -> bool:
        """Whether the process that was working on it is gone."""
        return self.owner is not None and not self.owner.alive


@dataclass(frozen=True, kw_only=True)
class Process:
    """One recorded process; signal it only while `identity.alive`."""

    name: str
    identity: ProcessIdentity


@dataclass(frozen=True, kw_only=True)
class Event:
    """Something worth telling the user: `kind` is one word, `object` a cloud name, `text` the sentence."""

    id: int
    at: float
    kind: str
    object: str
    text: str


class Store:
    """The simulated project in one file; see the module for who writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._connection() as connection:
            connection.execute("PRAGMA journal_mode=WAL")
            connection.executescript(_TABLES)

    @classmethod
    def open(cls, state: TwinState) -> "Store":
        """Open the store of a state directory; make it when it is not there."""
        return cls(state.cloud_db)

    # Resources

    def get(self, type_: str, id_: str) -> Resource | None:
        """Find one resource by type token and id."""
        with self._connection() as connection:
            row = connection.execute("SELECT * FROM resources WHERE type = ? AND id = ?", (type_, id_)).fetchone()
        return None if row is None else _resource(row)

    def list(self, type_: str | None = None) -> Sequence[Resource]:
        """All resources, or those of one type, oldest first."""
        with self._connection() as connection:
            rows = connection.execute(
                "SELECT * FROM resources WHERE ?1 IS NULL OR type = ?1 ORDER BY created_at, type, id", (type_,)
            ).fetchall()
        return [_resource(row) for row in rows]

    def put(self, resource: Resource) -> Resource:
        """Write a resource, new or known; returns it with its times and generation."""
        with self._transaction() as connection:
            return _write(connection, resource)

    def insert(self, resource: Resource) -> Resource | None:
        """Write a resource unless its type and id are taken; None when they are."""
        with self._transaction() as connection:
            taken = connection.execute(
                "SELECT 1 FROM resources WHERE type = ? AND id = ?", (resource.type, resource.id)
            ).fetchone()
            return None if taken else _write(connection, resource)

    def delete(self, type_: str, id_: str) -> None:
        """Forget a resource; one that is not there is no error."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM resources WHERE type = ? AND id = ?", (type_, id_))
            _bump(connection)

    def generation(self) -> int:
        """A number that grows with every write of a resource or fault."""
        with self._connection() as connection:
            return _generation(connection)

    # Agents

    def observe(self, cluster: str, generation: int) -> None:
        """An agent says that its cluster reflects the store as of this generation."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO observed VALUES (?, ?) ON CONFLICT (cluster) DO UPDATE "
                "SET generation = max(generation, excluded.generation)",
                (cluster, generation),
            )

    def observed(self, cluster: str) -> int:
        """The newest generation that the cluster's agent reflects; 0 before the first."""
        with self._connection() as connection:
            row = connection.execute("SELECT generation FROM observed WHERE cluster = ?", (cluster,)).fetchone()
        return 0 if row is None else int(row["generation"])

    # Events

    def add_event(self, kind: str, object_: str, text: str) -> None:
        """Keep a sentence for whoever watches."""
        with self._transaction() as connection:
            connection.execute(
                "INSERT INTO events (at, kind, object, text) VALUES (?, ?, ?, ?)", (time.time(), kind, object_, text)
            )

    def events_since(self, id_: int = 0) -> Sequence[Event]:
        """Events with a larger id than this, oldest first."""
        with self._connection() as connection:
            rows = connection.execute("SELECT * FROM events WHERE id > ? ORDER BY id", (id_,)).fetchall()
        return [Event(**dict(row)) for row in rows]

    # Faults

    def set_fault(self, name: str, argument: str = "") -> None:
        """Make a fault stand; the names and what they do are in faults.py."""
        with self._transaction() as connection:
            connection.execute("INSERT OR REPLACE INTO faults VALUES (?, ?)", (name, argument))
            _bump(connection)

    def clear_fault(self, name: str) -> bool:
        """Lift a fault; False when it did not stand. A fault that strikes once is taken this way."""
        with self._transaction() as connection:
            cleared = connection.execute("DELETE FROM faults WHERE name = ?", (name,)).rowcount > 0
            if cleared:
                _bump(connection)
            return cleared

    def faults(self) -> dict[str, str]:
        """The standing faults and their arguments."""
        with self._connection() as connection:
            return {row["name"]: row["argument"] for row in connection.execute("SELECT * FROM faults ORDER BY name")}

    def hold_back(self, pool: str, *, of: int, until: float) -> None:
        """Remember that one of so many machines is not to be had for a node pool (by id), until a Unix time."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM held_back WHERE until <= ?", (time.time(),))
            connection.execute("INSERT INTO held_back VALUES (?, ?, ?)", (pool, of, until))

    def held_back(self, pool: str) -> tuple[int, int]:
        """How many machines are not to be had for a node pool now, and of how many; 0 of 0 without any."""
        with self._connection() as connection:
            found = connection.execute(
                "SELECT COUNT(*), MAX(of) FROM held_back WHERE pool = ? AND until > ?", (pool, time.time())
            ).fetchone()
            return int(found[0]), int(found[1] or 0)

    # Processes

    def record_process(self, name: str, pid: int) -> ProcessIdentity | None:
        """Remember a process that outlives its maker; None, and nothing recorded, when it is already gone."""
        identity = ProcessIdentity.of(pid)
        if identity is None:
            return None
        with self._transaction() as connection:
            connection.execute(
                "INSERT OR REPLACE INTO processes VALUES (?, ?, ?)", (name, identity.pid, identity.started)
            )
        return identity

    def forget_process(self, name: str) -> None:
        """Forget a process; one that is not there is no error."""
        with self._transaction() as connection:
            connection.execute("DELETE FROM processes WHERE name = ?", (name,))

    def processes(self) -> Sequence[Process]:
        """All recorded processes, by name, whether they live or not."""
        with self._connection() as connection:
            rows = connection.execute("SELECT * FROM processes ORDER BY name").fetchall()
        return [
            Process(name=row["name"], identity=ProcessIdentity(pid=row["pid"], started=row["started"])) for row in rows
        ]

    @contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        connection = sqlite3.connect(self.path, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            connection.row_factory = sqlite3.Row
            # A crash of the machine may lose the last writes of a simulation; a crash of a process loses none.
            connection.execute("PRAGMA synchronous=NORMAL")
            yield connection
        finally:
            connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._connection() as connection:
            # IMMEDIATE takes the write lock first: a reader that upgrades later would fail instead of waiting.
            connection.execute("BEGIN IMMEDIATE")
            try:
                yield connection
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            connection.execute("COMMIT")


def own_identity() -> ProcessIdentity:
    """The identity of the calling process."""
    identity = ProcessIdentity.of(os.getpid())
    if identity is None:
        raise RuntimeError("/proc/self/stat cannot be read; the twin needs Linux with /proc")
    return identity


def _generation(connection: sqlite3.Connection) -> int:
    return int(connection.execute("SELECT value FROM generation").fetchone()["value"])


def _bump(connection: sqlite3.Connection) -> int:
    connection.execute("UPDATE generation SET value = value + 1")
    return _generation(connection)


def _write(connection: sqlite3.Connection, resource: Resource) -> Resource:
    now = time.time()
    written = replace(resource, created_at=resource.created_at or now, updated_at=now, generation=_bump(connection))
    owner = written.owner
    connection.execute(
        "INSERT OR REPLACE INTO resources VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            written.type,
            written.id,
            written.name,
            written.project,
            written.state,
            json.dumps(written.properties),
            json.dumps(written.hidden),
            owner and owner.pid,
            owner and owner.started,
            written.created_at,
            written.updated_at,
            written.generation,
        ),
    )
    return written


def _resource(row: sqlite3.Row) -> Resource:
    owner = None
    if row["owner_pid"] is not None:
        owner = ProcessIdentity(pid=row["owner_pid"], started=row["owner_started"])
    return Resource(
        type=row["type"],
        id=row["id"],
        name=row["name"],
        project=row["project"],
        properties=json.loads(row["properties"]),
        state=ResourceState(row["state"]),
        hidden=json.loads(row["hidden"]),
        owner=owner,
        created_at=row["created_at"],
        updated_at=row["updated_at"],
        generation=row["generation"],
    )
