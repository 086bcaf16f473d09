"""Google's own description of its APIs: which requests there are, and what an answer may hold.

Two sources, both shipped with Google's libraries: discovery documents, and, for the APIs that have none among them, the
routes and messages of their client libraries. A made-up field, path or parameter in a test fails here.
"""

import functools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import uritemplate
from google.api_core import path_template
from google.cloud import cloudquotas_v1, lustre_v1
from google.cloud.cloudquotas_v1.services.cloud_quotas.transports import rest_base as cloudquotas_routes
from google.cloud.location import locations_pb2
from google.cloud.lustre_v1.services.lustre.transports import rest_base as lustre_routes
from google.protobuf import json_format  # type: ignore[import-untyped]
from googleapiclient.discovery_cache import get_static_doc

_PYTHON_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "array": list,
    "object": dict,
}
_DISCOVERED = {
    "cloudresourcemanager": ("v3", ("projects.testIamPermissions",)),
    "compute": (
        "v1",
        (
            "zones.get",
            "machineTypes.get",
            "acceleratorTypes.get",
            "networkProfiles.get",
            "reservations.get",
            "networks.get",
            "subnetworks.get",
            "globalAddresses.get",
            "firewalls.get",
            "firewalls.list",
        ),
    ),
    "container": ("v1", ("projects.locations.clusters.get", "projects.locations.clusters.nodePools.get")),
    "iam": ("v1", ("projects.serviceAccounts.get",)),
    "serviceusage": ("v1", ("services.batchGet",)),
}
_QUOTAS, _LUSTRE = cloudquotas_routes._BaseCloudQuotasRestTransport, lustre_routes._BaseLustreRestTransport
_ROUTED: Mapping[str, tuple[Any, Callable[[], Any], frozenset[str]]] = {
    "cloudquotas.getQuotaInfo": (
        _QUOTAS._BaseGetQuotaInfo,
        lambda: cloudquotas_v1.QuotaInfo.pb(cloudquotas_v1.QuotaInfo()),
        frozenset(),
    ),
    "cloudquotas.listQuotaInfos": (
        _QUOTAS._BaseListQuotaInfos,
        lambda: cloudquotas_v1.ListQuotaInfosResponse.pb(cloudquotas_v1.ListQuotaInfosResponse()),
        frozenset({"pageSize", "pageToken"}),
    ),
    "lustre.listLocations": (
        _LUSTRE._BaseListLocations,
        locations_pb2.ListLocationsResponse,
        frozenset({"pageSize", "pageToken", "filter"}),
    ),
    "lustre.getInstance": (_LUSTRE._BaseGetInstance, lambda: lustre_v1.Instance.pb(lustre_v1.Instance()), frozenset()),
}


@dataclass(frozen=True, kw_only=True)
class Method:
    """One request that an API takes.

    Attributes:
        id: API and method, as in the documents.
        verb: the HTTP verb.
        pattern: matches the paths of such requests.
        query: names of the parameters that may follow the path.
        path: builds the path from its parameters.
        check: raises if an answer holds what the document does not know.
    """

    id: str
    verb: str
    pattern: re.Pattern[str]
    query: frozenset[str]
    path: Callable[..., str]
    check: Callable[[Any], None]


@functools.cache
def methods() -> Mapping[str, Method]:
    """Index the methods by their ids."""
    return {method.id: method for method in (*_discovered(), *_routed())}


def _discovered() -> Iterator[Method]:
    for api, (version, names) in _DISCOVERED.items():
        text = get_static_doc(api, version)
        assert text, f"the library ships no document of {api} {version}"
        document = json.loads(text)
        for name in names:
            *resources, verb = name.split(".")
            node = document
            for resource in resources:
                node = node["resources"][resource]
            method = node["methods"][verb]
            base = "/" + document["servicePath"]
            yield Method(
                id=f"{api}.{name}",
                verb=method["httpMethod"],
                pattern=re.compile(base + re.sub(r"\{\w+\}", "[^/:]+", method["flatPath"])),
                query=frozenset(method["parameters"]) | frozenset(document["parameters"]),
                path=functools.partial(_expand, base + method["path"]),
                check=functools.partial(_check, document["schemas"], {"$ref": method["response"]["$ref"]}, name),
            )


def _expand(template: str, **parameters: Any) -> str:
    return str(uritemplate.expand(template, **parameters))


def _routed() -> Iterator[Method]:
    for id_, (route, message, query) in _ROUTED.items():
        option = route._get_http_options()[0]
        template = option["uri"]
        yield Method(
            id=id_,
            verb=option["method"].upper(),
            pattern=re.compile(re.sub(r"\{\w+=([^}]+)\}", lambda found: found[1].replace("*", "[^/]+"), template)),
            query=query | {"$alt"},
            path=functools.partial(path_template.expand, template),
            check=functools.partial(_parse, message),
        )


def _parse(message: Callable[[], Any], body: Any) -> None:
    json_format.ParseDict(body, message())


def _check(schemas: Mapping[str, Any], schema: Mapping[str, Any], where: str, value: Any) -> None:
    """Hold a value against a schema of a discovery document."""
    if "$ref" in schema:
        _check(schemas, schemas[schema["$ref"]], where, value)
        return
    kind = schema.get("type", "any")
    if kind == "any":
        return
    fits = isinstance(value, _PYTHON_TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    assert fits, f"{where} is no {kind}: {value!r}"
    if "enum" in schema:
        assert value in schema["enum"], f"{where} is none of {schema['enum']}: {value!r}"
    if kind == "array":
        for item in value:
            _check(schemas, schema["items"], f"{where}[]", item)
    if kind == "object":
        known = schema.get("properties", {})
        for key, item in value.items():
            below = known.get(key) or schema.get("additionalProperties")
            assert below is not None, f"{where} has no field {key}"
            _check(schemas, below, f"{where}.{key}", item)
