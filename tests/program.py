"""Runs the real `__main__.py` against recorded providers: every resource, inputs and options, without an engine."""

import asyncio
import copy
import json
import runpy
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulumi
import yaml
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
from pulumi.runtime import mocks
from pulumi.runtime.mocks import MockMonitor, MockResourceArgs

REPOSITORY = Path(__file__).resolve().parent.parent
PROJECT = "rlstack"
Inputs = dict[str, Any]
_SECRET_SIGNATURE = "4dabf18193072939515e22adb298388d"


@dataclass(frozen=True, kw_only=True)
class Registered:
    """One resource as the program registered it.

    Attributes:
        parent: name of its parent; empty at the root.
        dependencies: names of the resources that it waits for.
        options: the engine's request without the inputs.
        read: whether it was read and not made.
    """

    type: str
    name: str
    inputs: Inputs
    parent: str = ""
    provider: str = ""
    dependencies: frozenset[str] = frozenset()
    options: Inputs = field(default_factory=dict)
    read: bool = False


@dataclass(frozen=True, kw_only=True)
class Run:
    """What one run of the program registered and exported."""

    resources: tuple[Registered, ...]
    outputs: Inputs

    def __getitem__(self, name: str) -> Registered:
        return next(resource for resource in self.resources if resource.name == name)

    def of_type(self, type_: str) -> list[Registered]:
        return [resource for resource in self.resources if resource.type == type_]


# What Google and Kubernetes would add to the inputs.
COMPUTED: Mapping[str, Callable[[MockResourceArgs], Inputs]] = {
    "gcp:lustre/instance:Instance": lambda args: {
        "instanceId": args.resource_id.rpartition("/")[2] if args.resource_id else args.inputs["instanceId"],
        "capacityGib": args.inputs.get("capacityGib", "18000"),
        "mountPoint": "10.64.0.2@tcp:/lustrefs",
    },
    "gcp:container/cluster:Cluster": lambda args: {
        "name": args.resource_id.rpartition("/")[2] if args.resource_id else args.inputs["name"],
        "controlPlaneEndpointsConfig": {
            "dnsEndpointConfig": {"endpoint": "gke-0a1b.us-east1.gke.goog", "allowExternalTraffic": True}
        },
    },
    "gcp:serviceaccount/account:Account": lambda args: {
        "email": f"{args.inputs['accountId']}@{args.inputs['project']}.iam.gserviceaccount.com",
        "member": f"serviceAccount:{args.inputs['accountId']}@{args.inputs['project']}.iam.gserviceaccount.com",
    },
    "kubernetes:ray.io/v1:RayCluster": lambda args: {
        "metadata": {**args.inputs["metadata"], "uid": "11111111-2222-3333-4444-555555555555"},
    },
    "pulumi-python:dynamic/rlstack:RayJob": lambda _: {
        "submission_id": "grpo-0123abcd-a1",
        "attempt": 1,
        "identity": "0123abcd",
        "status": "RUNNING",
    },
}


class RecordedProviders(mocks.Mocks):
    """Answer as the providers would: inputs, and what `COMPUTED` adds."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str | None, Inputs]:
        computed = COMPUTED[args.typ](args) if args.typ in COMPUTED else {}
        return args.resource_id or _id(args), {**args.inputs, **computed}

    def call(self, args: mocks.MockCallArgs) -> tuple[Inputs, None]:
        message = f"the program calls {args.token}, which would need the cloud in a preview"
        raise AssertionError(message)


def _id(args: MockResourceArgs) -> str:
    if args.typ == "gcp:compute/network:Network":
        return f"projects/{args.inputs['project']}/global/networks/{args.inputs['name']}"
    return f"{args.name}-id"


@contextmanager
def _event_loop() -> Iterator[None]:
    """Give this thread a loop and close it again: the SDK makes one on every thread and leaves it open."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    try:
        yield
    finally:
        loop.close()
        asyncio.set_event_loop(None)


class RecordingMonitor(MockMonitor):
    """A monitor that keeps what the engine would be told."""

    def __init__(self) -> None:
        super().__init__(RecordedProviders())
        self.registered: list[Registered] = []

    def RegisterResource(self, request: Any) -> Any:  # noqa: N802 - the engine's name
        with _event_loop():
            response = super().RegisterResource(request)  # type: ignore[no-untyped-call]
        if request.type != "pulumi:pulumi:Stack":
            self._record(request, request.object, read=False)
        return response

    def ReadResource(self, request: Any) -> Any:  # noqa: N802
        with _event_loop():
            response = super().ReadResource(request)  # type: ignore[no-untyped-call]
        self._record(request, request.properties, read=True)
        return response

    def _record(self, request: Any, inputs: Any, *, read: bool) -> None:
        options = MessageToDict(request)
        options.pop("object", None)
        self.registered.append(
            Registered(
                type=request.type,
                name=request.name,
                inputs=_plain(MessageToDict(inputs)),
                parent=name_of(request.parent),
                provider=request.provider.rpartition("::")[0].rpartition("::")[2],
                dependencies=frozenset(name_of(urn) for urn in request.dependencies),
                options=options,
                read=read,
            )
        )


def name_of(urn: str) -> str:
    return "" if urn.endswith("::pulumi:pulumi:Stack") or "pulumi:pulumi:Stack::" in urn else urn.rpartition("::")[2]


def _plain(value: Any) -> Any:
    """Undo what the wire does: whole numbers travel as floats, secrets as `{signature: …, value: …}`."""
    if isinstance(value, dict):
        if _SECRET_SIGNATURE in value:
            return _plain(value["value"])
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [_plain(item) for item in value] if isinstance(value, list) else value


def stack_settings(stack: str) -> Inputs:
    """Read the sections of a stack's file, without the project's prefix."""
    config = yaml.safe_load((REPOSITORY / f"Pulumi.{stack}.yaml").read_text())["config"]
    prefix = f"{PROJECT}:"
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def changed(settings: Inputs, **changes: Any) -> Inputs:
    """Copy settings with some values changed; keys are paths with `__` between their parts, None removes."""
    settings = copy.deepcopy(settings)
    for path, value in changes.items():
        *sections, key = path.split("__")
        target = settings
        for section in sections:
            target = target.setdefault(section, {})
        if value is None:
            del target[key]
        else:
            target[key] = value
    return settings


def run_program(stack: str, settings: Inputs, secrets: Mapping[str, str] | None = None) -> Run:
    """Run `__main__.py` for a stack and collect what it registers and exports."""
    monitor = RecordingMonitor()
    values = {**{key: json.dumps(value) for key, value in settings.items()}, **(secrets or {})}
    outputs: Inputs = {}

    def program() -> pulumi.Output[Any]:
        runpy.run_path(str(REPOSITORY / "__main__.py"), run_name="__main__")
        exported = pulumi.runtime.get_root_resource().outputs  # type: ignore[union-attr]
        return pulumi.Output.all(**exported).apply(outputs.update)

    with _event_loop():
        mocks.set_mocks(monitor.mocks, project=PROJECT, stack=stack, preview=False, monitor=monitor)
        pulumi.runtime.set_all_config({f"{PROJECT}:{key}": value for key, value in values.items()})
        mocks.test(program)()  # type: ignore[no-untyped-call]
    return Run(resources=tuple(monitor.registered), outputs=outputs)
