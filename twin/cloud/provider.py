"""The simulated Google Cloud as the engine sees it: a provider with the genuine one's names, ids and refusals.

What a resource may hold comes from schema.py, what Google refuses from rules.py, how long it takes from durations.py,
and what lives is in store.py. A real control plane is the one effect: it starts with a cluster and ends with it.
"""

import asyncio
import dataclasses
import secrets
import shutil
import time
from collections.abc import Mapping
from typing import Any, Protocol

from pulumi.provider.experimental.provider import (
    CheckFailure,
    CheckRequest,
    CheckResponse,
    ConfigureRequest,
    ConfigureResponse,
    CreateRequest,
    CreateResponse,
    DeleteRequest,
    DiffRequest,
    DiffResponse,
    PropertyDiff,
    PropertyDiffKind,
    Provider,
    ReadRequest,
    ReadResponse,
    UpdateRequest,
    UpdateResponse,
)

from twin.cloud import outputs, references, rules, schema
from twin.cloud.durations import PRODUCER_RELEASE, Clock, Operation, duration_of
from twin.cloud.faults import API_ERROR
from twin.cloud.refusals import ApiRefusal, BrokenResource, CloudRefusal, ConnectionInUse, Interrupted
from twin.cloud.schema import ChangeKind, ResourceSchema
from twin.cloud.server import HalfMade, serve
from twin.cloud.store import Resource, ResourceState, ResourceType, Store, own_identity
from twin.cloud.values import plain_map, secret_keys, wrap_map
from twin.kubernetes import cluster as kubernetes
from twin.state import TwinState
from twin.toolchain.build import wait_for_tools

VERSION = "10.2.0"
"""The pulumi-gcp release whose names the schema has."""

REFUSAL = "Google refused"
TOOLS_TIMEOUT_S = 3600.0
OBSERVED_TIMEOUT_S = 180.0
OBSERVED_EVERY_S = 0.2

_KINDS = {
    (ChangeKind.ADD, False): PropertyDiffKind.ADD,
    (ChangeKind.ADD, True): PropertyDiffKind.ADD_REPLACE,
    (ChangeKind.DELETE, False): PropertyDiffKind.DELETE,
    (ChangeKind.DELETE, True): PropertyDiffKind.DELETE_REPLACE,
    (ChangeKind.UPDATE, False): PropertyDiffKind.UPDATE,
    (ChangeKind.UPDATE, True): PropertyDiffKind.UPDATE_REPLACE,
}


class ControlPlane(Protocol):
    """What makes a cluster real: `twin.kubernetes.cluster`, or a test's own."""

    def create(self, state: TwinState, name: str) -> kubernetes.Endpoint:
        """Start a control plane and its agent; return where it answers."""
        ...

    def delete(self, state: TwinState, name: str) -> None:
        """End and forget them."""
        ...


class KwokControlPlane:
    """The real one, once the programs that it consists of are built."""

    def create(self, state: TwinState, name: str) -> kubernetes.Endpoint:
        """Wait for the programs, then start."""
        wait_for_tools(TOOLS_TIMEOUT_S)
        return kubernetes.create(state, name)

    def delete(self, state: TwinState, name: str) -> None:
        """End and forget it."""
        kubernetes.delete(state, name)


class GoogleCloud(Provider):
    """One engine's connection to the simulated project."""

    def __init__(self, state: TwinState, clock: Clock, control_plane: ControlPlane) -> None:
        self._state = state
        self._clock = clock
        self._control_plane = control_plane
        self._store = Store.open(state)
        self._cancelled = asyncio.Event()
        self._defaults: dict[str, str] = {}
        # Resources that this engine has spoken of, so has in its state: type and id.
        self._mentioned: set[tuple[str, str]] = set()

    async def cancel(self) -> None:
        """End all waits: the engine was told to stop."""
        self._cancelled.set()

    async def check_config(self, request: CheckRequest) -> CheckResponse:
        """Take the provider's own settings as they are."""
        return CheckResponse(inputs=request.new_inputs)

    async def configure(self, request: ConfigureRequest) -> ConfigureResponse:
        """Remember project, region and zone; put right what a killed engine left half done."""
        await self._put_right()
        given = plain_map(request.args)
        self._defaults = {key: given[key] for key in ("project", "region", "zone") if key in given}
        return ConfigureResponse(
            accept_secrets=True, accept_resources=False, accept_outputs=False, supports_preview=True
        )

    async def check(self, request: CheckRequest) -> CheckResponse:
        """Refuse what the genuine provider refuses before it asks Google."""
        declared = _schema(_type(request))
        given, old = plain_map(request.new_inputs), plain_map(request.old_inputs)
        if "name" not in given and declared.properties.get("name", None) and declared.properties["name"].required:
            given["name"] = old.get("name") or f"{request.name}-{secrets.token_hex(4)[:7]}"
        failures = schema.check(declared, given)
        failures += [
            schema.Failure(path=key, reason="is neither set here nor in the provider's settings")
            for key in outputs.unplaced(_type(request), self._with_defaults(declared, given))
        ]
        return CheckResponse(
            inputs=wrap_map(given, secret_keys(request.new_inputs)),
            failures=[CheckFailure(failure.path, failure.reason) for failure in failures],
        )

    async def diff(self, request: DiffRequest) -> DiffResponse:
        """Say what an edit changes, and whether it makes the resource anew."""
        self._mention(request)
        declared = _schema(_type(request))
        old, given = plain_map(request.old_state), plain_map(request.new_inputs)
        new = schema.planned(declared.properties, old, self._with_defaults(declared, given))
        changes = [
            change
            for change in schema.differences(declared.properties, old, new)
            if change.path.partition(".")[0].partition("[")[0] not in request.ignore_changes
        ]
        replaces = sorted({change.path for change in changes if change.replaces})
        return DiffResponse(
            changes=bool(changes),
            replaces=replaces,
            # Names are given, not made up: the old one must go before the new one can come.
            delete_before_replace=bool(replaces),
            diffs=sorted({change.path for change in changes}),
            detailed_diff={
                change.path: PropertyDiff(kind=_KINDS[change.kind, change.replaces], input_diff=False)
                for change in changes
            },
            stables=[],
        )

    async def create(self, request: CreateRequest) -> CreateResponse:
        """Make a resource, in the time that it takes."""
        declared = _schema(_type(request))
        secret = secret_keys(request.properties)
        given = self._with_defaults(declared, plain_map(request.properties))
        values = schema.planned(declared.properties, {}, given)
        if request.preview:
            return CreateResponse(
                resource_id="", properties=wrap_map(schema.with_unknowns(declared.properties, values), secret)
            )
        id_, name = outputs.id_and_name(_type(request), values, request.name)
        resource = Resource(
            type=_type(request), id=id_, name=name, project=values.get("project", self._defaults.get("project", "")),
            properties=values, state=ResourceState.CREATING, hidden={"urn": request.urn}, owner=own_identity(),
        )  # fmt: skip
        self._fail_once()
        rules.refuse_create(self._store, resource)
        taken = self._store.get(resource.type, id_)
        if taken is not None and not self._lost(taken, request.urn):
            raise ApiRefusal(409, "alreadyExists", f"The resource '{id_}' already exists. Import it or choose a name")
        self._store.put(resource)
        try:
            await self._wait(_type(request), "create")
            made = await self._bring_up(resource)
        except BrokenResource as broken:
            inputs = plain_map(request.properties)
            raise HalfMade(str(broken), id_=id_, properties=values, inputs=inputs) from broken
        except BaseException:
            self._store.delete(resource.type, resource.id)
            if resource.type == ResourceType.CLUSTER:
                await asyncio.to_thread(self._control_plane.delete, self._state, resource.name)
            raise
        return CreateResponse(resource_id=id_, properties=wrap_map(made.properties, secret))

    async def read(self, request: ReadRequest) -> ReadResponse:
        """Say what is there now: for a refresh, an import, or a program that looks a resource up."""
        self._mention(request)
        found = self._find(_type(request), request.resource_id)
        if found is None:
            return ReadResponse(resource_id="", properties={}, inputs={})
        declared = _schema(_type(request))
        known = plain_map(request.inputs)
        wanted = known or {key for key, each in declared.properties.items() if each.settable}
        inputs = {key: value for key, value in found.properties.items() if key in wanted}
        secret = secret_keys(request.inputs, request.properties)
        return ReadResponse(
            resource_id=found.id, properties=wrap_map(found.properties, secret), inputs=wrap_map(inputs, secret)
        )

    async def update(self, request: UpdateRequest) -> UpdateResponse:
        """Change a resource in place."""
        declared = _schema(_type(request))
        secret = secret_keys(request.news)
        given = self._with_defaults(declared, plain_map(request.news))
        values = schema.planned(declared.properties, plain_map(request.olds), given)
        if request.preview:
            return UpdateResponse(properties=wrap_map(values, secret))
        old = self._found(_type(request), request.resource_id)
        self._fail_once()
        new = dataclasses.replace(old, properties=values, owner=own_identity(), state=ResourceState.UPDATING)
        rules.refuse_update(self._store, old, new)
        self._store.put(dataclasses.replace(old, state=ResourceState.UPDATING, owner=own_identity()))
        try:
            await self._wait(_type(request), "update")
            if old.type == ResourceType.NODE_POOL:
                rules.unprovisioned(self._store, new)
        except BaseException:
            self._store.put(dataclasses.replace(old, owner=None))
            raise
        stored = self._store.put(dataclasses.replace(new, state=ResourceState.ACTIVE, owner=None))
        await self._followed(stored)
        return UpdateResponse(properties=wrap_map(values, secret))

    async def delete(self, request: DeleteRequest) -> None:
        """Delete a resource; one that is gone is no error."""
        found = self._find(_type(request), request.resource_id)
        if found is None or plain_map(request.properties).get("deletionPolicy") == "ABANDON":
            return
        self._fail_once()
        try:
            rules.refuse_delete(self._store, found)
            if found.type == ResourceType.CONNECTION and rules.producer_holds(self._store, found):
                self._refuse_connection(found)
        except CloudRefusal as refusal:
            self._store.add_event(REFUSAL, found.name, str(refusal))
            if found.properties.get("deletionPolicy") != "REMOVE_PEERING" or not isinstance(refusal, ConnectionInUse):
                raise
            self._store.add_event(
                "REMOVE_PEERING", found.name, "the peering was removed, so that its network can go; nothing is left"
            )
        self._store.put(dataclasses.replace(found, state=ResourceState.DELETING, owner=own_identity()))
        try:
            await self._wait(_type(request), "delete")
        except BaseException:
            self._store.put(found)
            raise
        await self._take_down(found)
        if found.type == ResourceType.NODE_POOL:
            await self._followed(found)

    async def _bring_up(self, resource: Resource) -> Resource:
        """Do what a create comes to when its time has passed; return the resource as it is then."""
        properties = resource.properties | outputs.computed(self._store, resource)
        if resource.type == ResourceType.CLUSTER:
            endpoint = await asyncio.to_thread(self._control_plane.create, self._state, resource.name)
            ends = outputs.cluster_endpoint(endpoint.server, endpoint.ca_certificate)
            properties = _merged(properties, ends)
        if resource.type == ResourceType.NODE_POOL:
            try:
                rules.unprovisioned(self._store, resource)
            except BrokenResource:
                broken = dataclasses.replace(resource, properties=properties, state=ResourceState.ERROR, owner=None)
                self._store.put(broken)
                raise
        active = dataclasses.replace(resource, properties=properties, state=ResourceState.ACTIVE, owner=None)
        stored = self._store.put(active)
        await self._followed(stored)
        return stored

    async def _take_down(self, resource: Resource) -> None:
        if resource.type == ResourceType.CLUSTER:
            await asyncio.to_thread(self._control_plane.delete, self._state, resource.name)
            for pool in self._store.list(ResourceType.NODE_POOL):
                if references.names(pool.properties["cluster"], resource):
                    self._store.delete(pool.type, pool.id)
        self._store.delete(resource.type, resource.id)
        if resource.type == ResourceType.LUSTRE_INSTANCE:
            await asyncio.to_thread(shutil.rmtree, self._state.lustre(resource.name), ignore_errors=True)
            self._hold_connection(resource)

    def _hold_connection(self, instance: Resource) -> None:
        """Let the producer hold the connection for a while after its last instance is gone."""
        connection = rules.connection_of(self._store, instance.properties["network"])
        if connection is not None:
            hold = {"refused": False, "released_at": time.time() + self._clock.real_s(PRODUCER_RELEASE)}
            self._store.put(dataclasses.replace(connection, hidden=connection.hidden | {"producer": hold}))

    def _refuse_connection(self, connection: Resource) -> None:
        hold = connection.hidden.get("producer")
        if hold is not None:
            hidden = connection.hidden | {"producer": hold | {"refused": True}}
            self._store.put(dataclasses.replace(connection, hidden=hidden))
        raise ConnectionInUse(connection.name)

    async def _put_right(self) -> None:
        """End what a killed engine had not finished: what was half made goes, all else is as it was before."""
        for each in self._store.list():
            if each.abandoned and each.state is ResourceState.CREATING:
                await self._take_down(each)
            elif each.abandoned:
                self._store.put(dataclasses.replace(each, state=ResourceState.ACTIVE, owner=None))

    def _mention(self, request: DiffRequest | ReadRequest) -> None:
        self._mentioned.add((_type(request), request.resource_id))

    def _lost(self, taken: Resource, urn: str) -> bool:
        """Whether the engine cannot know of a resource: it was made for it, but it died before the answer came."""
        return taken.hidden.get("urn") == urn and (taken.type, taken.id) not in self._mentioned

    async def _followed(self, resource: Resource) -> None:
        """Wait until the cluster's agent has followed this write of a cluster or a pool."""
        if resource.type == ResourceType.NODE_POOL:
            cluster = references.find(self._store, ResourceType.CLUSTER, resource.properties["cluster"])
        else:
            cluster = resource if resource.type == ResourceType.CLUSTER else None
        if cluster is None or cluster.state is not ResourceState.ACTIVE:
            return
        generation = self._store.generation()
        deadline = time.monotonic() + OBSERVED_TIMEOUT_S
        while self._store.observed(cluster.name) < generation:
            if self._cancelled.is_set():
                raise Interrupted(f"{resource.id}: interrupted; type the command again")
            if time.monotonic() > deadline:
                raise CloudRefusal(
                    f"{resource.id}: the agent of cluster {cluster.name} did not follow in {OBSERVED_TIMEOUT_S:.0f} s. "
                    f"Read {self._state.cluster(cluster.name) / 'agent.log'}, then type: python -m twin stop"
                )
            await asyncio.sleep(OBSERVED_EVERY_S)

    async def _wait(self, type_: str, operation: Operation) -> None:
        if not await self._clock.wait(duration_of(type_, operation), self._cancelled):
            raise Interrupted(f"{operation} of a {type_} was interrupted; type the command again")

    def _fail_once(self) -> None:
        if self._store.clear_fault(API_ERROR):
            raise ApiRefusal(500, "backendError", "Internal error encountered")

    def _find(self, type_: str, id_: str) -> Resource | None:
        return self._store.get(type_, id_) or references.find(self._store, type_, id_)

    def _found(self, type_: str, id_: str) -> Resource:
        found = self._find(type_, id_)
        if found is None:
            raise ApiRefusal(404, "notFound", f"The resource '{id_}' was not found. Type: python -m twin refresh")
        return found

    def _with_defaults(self, declared: ResourceSchema, given: Mapping[str, Any]) -> dict[str, Any]:
        """Fill in what the provider's own settings say of project, region and zone."""
        fitting = {key: value for key, value in self._defaults.items() if key in declared.properties}
        return {**fitting, **given}


def _type(request: CheckRequest | CreateRequest | DeleteRequest | DiffRequest | ReadRequest | UpdateRequest) -> str:
    """Return the type token of a request's resource; the SDK's own has its parents' tokens before it."""
    return request.type.rpartition("$")[2]


def _schema(type_: str) -> ResourceSchema:
    try:
        return schema.load()[type_]
    except KeyError:
        message = f"{type_}: the twin has no such resource; it knows {', '.join(sorted(schema.load()))}"
        raise CloudRefusal(message) from None


def _merged(properties: Mapping[str, Any], added: Mapping[str, Any]) -> dict[str, Any]:
    """Return `properties` with `added` laid over them, block by block."""
    result = dict(properties)
    for key, value in added.items():
        old = result.get(key)
        result[key] = _merged(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return result


if __name__ == "__main__":
    serve(VERSION, GoogleCloud(TwinState.from_environment(), Clock.from_environment(), KwokControlPlane()))
