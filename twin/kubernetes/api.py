"""A small client of a cluster's API server, for the agent: list, get, create, patch, delete.

Plain httpx, with the twin's access token: the agent reads whole lists twice a second from a server on the same
machine, so it needs neither watches nor caches, and its one thread must own every child process (see processes.py),
which rules out clients that keep threads or an event loop of their own, as kr8s does.
"""

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from jobs.errors import TwinError

Manifest = dict[str, Any]

REQUEST_TIMEOUT_S = 10.0


class ApiError(TwinError):
    """The API server refused a request, or did not answer it."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, kw_only=True)
class Resource:
    """A kind of objects: its group and version as in `apiVersion`, and its plural name.

    Attributes:
        api_version: for example `v1` or `ray.io/v1`.
        plural: for example `pods`.
    """

    api_version: str
    plural: str

    def path(self, namespace: str | None = None, name: str | None = None) -> str:
        """Path of one object, of a namespace's objects, or of all."""
        root = "api" if "/" not in self.api_version else "apis"
        parts = [f"/{root}/{self.api_version}"]
        parts += [f"namespaces/{namespace}"] if namespace else []
        parts += [self.plural]
        parts += [name] if name else []
        return "/".join(parts)


PODS = Resource(api_version="v1", plural="pods")
NODES = Resource(api_version="v1", plural="nodes")
EVENTS = Resource(api_version="v1", plural="events")
SECRETS = Resource(api_version="v1", plural="secrets")
CONFIG_MAPS = Resource(api_version="v1", plural="configmaps")
CLAIMS = Resource(api_version="v1", plural="persistentvolumeclaims")
VOLUMES = Resource(api_version="v1", plural="persistentvolumes")
SERVICE_ACCOUNTS = Resource(api_version="v1", plural="serviceaccounts")
DEFINITIONS = Resource(api_version="apiextensions.k8s.io/v1", plural="customresourcedefinitions")
# KWOK's own kind: where its kubelet finds the ports of one pod.
KWOK_PORT_FORWARDS = Resource(api_version="kwok.x-k8s.io/v1alpha1", plural="portforwards")


class ApiClient:
    """One connection pool to one API server; not shared between threads."""

    def __init__(self, *, server: str, ca_file: Path, token: str) -> None:
        """Connect to `server` (host:port), trusting the authority in `ca_file`."""
        self.server = server
        self._http = httpx.Client(
            base_url=f"https://{server}",
            verify=ssl.create_default_context(cafile=str(ca_file)),
            headers={"Authorization": f"Bearer {token}"},
            timeout=REQUEST_TIMEOUT_S,
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def ready(self) -> bool:
        """Whether pods can be created: the server serves, and the controllers have made the default service account."""
        try:
            return self.get(SERVICE_ACCOUNTS, "default", "default") is not None
        except ApiError:
            return False

    def get(self, resource: Resource, name: str, namespace: str | None = None) -> Manifest | None:
        """Read one object; None when there is none."""
        try:
            return self._call("GET", resource.path(namespace, name))
        except ApiError as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise

    def list(self, resource: Resource) -> "list[Manifest]":
        """Read all objects of a kind, in all namespaces."""
        items: list[Manifest] = self._call("GET", resource.path())["items"]
        return items

    def create(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Create an object; its namespace is the one in its metadata."""
        return self._call("POST", resource.path(manifest["metadata"].get("namespace")), json=manifest)

    def request_token(self, account: str, namespace: str, spec: Manifest) -> Manifest:
        """Ask for a token of a service account; returns `token` and `expirationTimestamp`."""
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        answer: Manifest = self._call("POST", f"{SERVICE_ACCOUNTS.path(namespace, account)}/token", json=request)
        status: Manifest = answer["status"]
        return status

    def apply(self, resource: Resource, manifest: Manifest) -> Manifest:
        """Create an object, or make the existing one say what `manifest` says (server-side apply)."""
        metadata = manifest["metadata"]
        return self._call(
            "PATCH",
            resource.path(metadata.get("namespace"), metadata["name"]),
            json=manifest,
            params={"fieldManager": "rlstack-twin", "force": "true"},
            headers={"Content-Type": "application/apply-patch+yaml"},
        )

    def patch(self, resource: Resource, name: str, changes: Manifest, namespace: str | None = None) -> None:
        """Merge changes into an object; one that is gone is no error."""
        headers = {"Content-Type": "application/merge-patch+json"}
        self._tolerant("PATCH", resource.path(namespace, name), json=changes, headers=headers)

    def patch_status(self, resource: Resource, name: str, status: Manifest, namespace: str | None = None) -> None:
        """Replace the given parts of an object's status; an object that is gone is no error."""
        self._tolerant(
            "PATCH",
            resource.path(namespace, name) + "/status",
            json={"status": status},
            headers={"Content-Type": "application/merge-patch+json"},
        )

    def delete(self, resource: Resource, name: str, namespace: str | None = None, *, uid: str | None = None) -> None:
        """Delete an object at once; one that is gone, or has another uid by now, is no error."""
        options: Manifest = {"kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0}
        if uid:
            options["preconditions"] = {"uid": uid}
        self._tolerant("DELETE", resource.path(namespace, name), json=options)

    def _tolerant(self, method: str, path: str, **options: Any) -> None:
        try:
            self._call(method, path, **options)
        except ApiError as error:
            if error.status not in {httpx.codes.NOT_FOUND, httpx.codes.CONFLICT}:
                raise

    def _call(self, method: str, path: str, **options: Any) -> Manifest:
        try:
            response = self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise ApiError(f"the API server at {self.server} did not answer {method} {path}: {error}") from error
        if response.is_error:
            raise ApiError(
                f"the API server at {self.server} refused {method} {path}: {response.text[:500]}", response.status_code
            )
        answer: Manifest = response.json()
        return answer
