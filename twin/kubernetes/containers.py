"""What a container runs and with which environment, from the pod's spec alone: nothing of this machine leaks in."""

import base64
import re
from collections.abc import Mapping
from typing import Any

from jobs.errors import TwinError
from twin.kubernetes.images import Image
from twin.kubernetes.mounts import Sources, keyed
from twin.kubernetes.relay import API_SERVER_PORT, GOOGLE_PORT, LOOPBACK

# KubeRay puts the generated start command here for containers that bring their own command around it.
GENERATED_COMMAND = "KUBERAY_GEN_RAY_START_CMD"

# How every container finds the API server; the kubelet's words for the service `kubernetes`.
API_SERVER = {"KUBERNETES_SERVICE_HOST": LOOPBACK, "KUBERNETES_SERVICE_PORT": str(API_SERVER_PORT)}

# Where Google's libraries look for services that are not where the cloud has them.
GOOGLE = {
    "GCE_METADATA_HOST": f"{LOOPBACK}:{GOOGLE_PORT}",
    "STORAGE_EMULATOR_HOST": f"http://{LOOPBACK}:{GOOGLE_PORT}",
}

_REFERENCE = re.compile(r"\$\(([A-Za-z_][A-Za-z0-9_.-]*)\)")
_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']+)'\]")


def pod_field(pod: Mapping[str, Any], path: str, address: str) -> str:
    """Read a field of the downward API.

    Raises:
        TwinError: a field that the twin does not fill.
    """
    metadata, spec = pod["metadata"], pod["spec"]
    if subscript := _SUBSCRIPT.fullmatch(path):
        return str(metadata.get(subscript[1], {}).get(subscript[2], ""))
    fields = {
        "metadata.name": metadata["name"],
        "metadata.namespace": metadata["namespace"],
        "metadata.uid": metadata["uid"],
        "spec.nodeName": spec.get("nodeName", ""),
        "spec.serviceAccountName": spec.get("serviceAccountName", "default"),
        "status.podIP": address,
        "status.hostIP": address,
    }
    if path not in fields:
        raise TwinError(f"the twin fills no field {path} for a container's environment; it knows {', '.join(fields)}")
    return str(fields[path])


def environment(
    pod: Mapping[str, Any], container: Mapping[str, Any], image: Image, sources: Sources, address: str
) -> dict[str, str]:
    """Build a container's environment: image, services, `envFrom`, `env`, each over the ones before."""
    variables = {**image.environment, **API_SERVER, **GOOGLE}
    for source in container.get("envFrom", []):
        prefix = source.get("prefix", "")
        if secret := source.get("secretRef"):
            data = sources.secrets[secret["name"]]
            variables |= {prefix + key: base64.b64decode(value).decode() for key, value in data.items()}
        if config_map := source.get("configMapRef"):
            variables |= {prefix + key: value for key, value in sources.config_maps[config_map["name"]].items()}
    for entry in container.get("env", []):
        variables[entry["name"]] = _value(entry, pod, container, sources, address, variables)
    return variables


def command(container: Mapping[str, Any], variables: Mapping[str, str]) -> list[str]:
    """Build the words to run, with $(NAME) replaced as the kubelet does.

    Raises:
        TwinError: neither `command` nor `args`: the twin's images have no entry point of their own.
    """
    words = [*container.get("command", []), *container.get("args", [])]
    if not words:
        raise TwinError(f"container {container['name']} has neither command nor args, and the image has no entry point")
    return [expand(word, variables) for word in words]


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Replace $(NAME); an unknown name stays as it is."""
    return _REFERENCE.sub(lambda found: variables.get(found[1], found[0]), text)


def _value(
    entry: Mapping[str, Any],
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    sources: Sources,
    address: str,
    variables: Mapping[str, str],
) -> str:
    origin = entry.get("valueFrom")
    if not origin:
        return expand(entry.get("value", ""), variables)
    if field := origin.get("fieldRef"):
        return pod_field(pod, field["fieldPath"], address)
    if secret := origin.get("secretKeyRef"):
        return base64.b64decode(
            keyed(sources.secrets[secret["name"]], secret["key"], f"Secret {secret['name']}")
        ).decode()
    if config_map := origin.get("configMapKeyRef"):
        name = config_map["name"]
        return keyed(sources.config_maps[name], config_map["key"], f"ConfigMap {name}")
    kind, _, name = origin["resourceFieldRef"]["resource"].partition(".")
    return str(container.get("resources", {}).get(kind, {}).get(name, ""))
