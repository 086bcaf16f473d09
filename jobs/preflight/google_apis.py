"""The way to Google's APIs: who asks, with which deadline, and what an answer that is none means.

Google's discovery client speaks to the APIs whose documents it carries; Managed Lustre and Cloud Quotas are not among
them and have client libraries of their own. Both are used over REST. Every request is made once, within a deadline,
and only reads: `projects.testIamPermissions` is a POST and changes nothing.
"""

import functools
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPException
from typing import Any

import google.auth
import google_auth_httplib2
import httplib2
from google.api_core.exceptions import GoogleAPICallError
from google.auth.credentials import Credentials
from google.auth.exceptions import DefaultCredentialsError, GoogleAuthError
from google.auth.transport.requests import Request
from google.cloud import cloudquotas_v1, lustre_v1
from google.cloud.cloudquotas_v1.services.cloud_quotas.transports import CloudQuotasRestTransport
from google.cloud.location import locations_pb2
from google.cloud.lustre_v1.services.lustre.transports import LustreRestTransport
from google.oauth2.credentials import Credentials as UserCredentials
from google.protobuf.json_format import ParseError  # type: ignore[import-untyped]
from googleapiclient import discovery
from googleapiclient.errors import HttpError

from jobs.errors import (
    GoogleApiError,
    GoogleApiOff,
    GoogleCredentialsError,
    GoogleNotFound,
    GoogleRefused,
    GoogleUnavailable,
)

REQUEST_TIMEOUT_S = 20.0
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"
_VERSIONS = {
    "cloudresourcemanager": "v3",
    "compute": "v1",
    "container": "v1",
    "iam": "v1",
    "serviceusage": "v1",
}
_UNAUTHENTICATED, _FORBIDDEN, _NOT_FOUND = 401, 403, 404
_API_OFF = ("SERVICE_DISABLED", "accessNotConfigured")
_LONGEST_REASON = 300


def default_credentials(project_id: str) -> Credentials:
    """Find Application Default Credentials and try them.

    Args:
        project_id: whose quota the requests count against where a user's credentials name no other project.

    Raises:
        GoogleCredentialsError: there are none, or Google does not take them.
    """
    try:
        with warnings.catch_warnings():
            # A user's credentials without a quota project are given one below.
            warnings.simplefilter("ignore", UserWarning)
            credentials, _ = google.auth.default(scopes=[_SCOPE])
        if isinstance(credentials, UserCredentials) and credentials.quota_project_id is None:
            credentials = credentials.with_quota_project(project_id)
        credentials.refresh(functools.partial(Request(), timeout=REQUEST_TIMEOUT_S))
    except DefaultCredentialsError as error:
        raise GoogleCredentialsError(
            "There are no Application Default Credentials, so Google Cloud was not asked"
        ) from error
    except GoogleAuthError as error:
        raise GoogleCredentialsError(
            f"Google did not take the Application Default Credentials ({_short(error)}): nothing was asked"
        ) from error
    return credentials


class GoogleApis:
    """One project's view of Google's APIs.

    Attributes:
        credentials: who asks.
    """

    def __init__(
        self, *, credentials: Credentials, endpoints: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> None:
        """Keep what requests need; nothing is asked yet.

        Args:
            credentials: who asks.
            endpoints: API to the address that answers for it; Google's own where left out.
            timeout_s: deadline of one request, seconds.
        """
        self.credentials = credentials
        self._endpoints = endpoints or {}
        self._timeout_s = timeout_s or REQUEST_TIMEOUT_S
        self._resources: dict[str, Any] = {}

    @property
    def member(self) -> str:
        """The caller as IAM writes it; a user's credentials do not say whose they are."""
        email = getattr(self.credentials, "service_account_email", None)
        return f"serviceAccount:{email}" if email and "@" in email else "user:YOUR_EMAIL"

    def get(self, api: str, request: Callable[[Any], Any]) -> dict[str, Any]:
        """Make one request to an API of the discovery client.

        Args:
            api: its name, a key of the table of versions.
            request: builds the request from the API's root resource.

        Raises:
            GoogleApiError: there was no answer that serves; the subclass says why.
        """
        with self._translated(api), self._http() as http:
            return _object(request(self._root(api)).execute(http=http))

    def items(self, api: str, collection: Callable[[Any], Any], **parameters: str) -> Iterator[dict[str, Any]]:
        """List a collection of Compute Engine, all pages of it.

        Raises:
            GoogleApiError: there was no answer that serves; the subclass says why.
        """
        with self._translated(api), self._http() as http:
            resource = collection(self._root(api))
            request = resource.list(**parameters)
            while request is not None:
                page = _object(request.execute(http=http))
                yield from page.get("items", [])
                request = resource.list_next(request, page)

    def lustre_zones(self, project_id: str) -> set[str]:
        """List the zones in which Managed Lustre makes instances.

        Raises:
            GoogleApiError: there was no answer that serves; the subclass says why.
        """
        zones: set[str] = set()
        with self._translated("lustre"), self._lustre() as client:
            request = locations_pb2.ListLocationsRequest(name=f"projects/{project_id}")
            while True:
                page = client.list_locations(request, timeout=self._timeout_s, retry=None)
                zones.update(location.location_id for location in page.locations)
                if not page.next_page_token:
                    return zones
                request.page_token = page.next_page_token

    def lustre_instance(self, name: str) -> lustre_v1.Instance:
        """Read a Lustre instance by its full name.

        Raises:
            GoogleApiError: there was no answer that serves; the subclass says why.
        """
        with self._translated("lustre"), self._lustre() as client:
            return client.get_instance(name=name, timeout=self._timeout_s, retry=None)

    def quota(self, name: str) -> cloudquotas_v1.QuotaInfo:
        """Read one quota by its full name.

        Raises:
            GoogleApiError: there was no answer that serves; the subclass says why.
        """
        with self._translated("cloudquotas"), self._quotas() as client:
            return client.get_quota_info(name=name, timeout=self._timeout_s, retry=None)

    def quotas(self, parent: str) -> list[cloudquotas_v1.QuotaInfo]:
        """List the quotas of one service, `projects/P/locations/global/services/S`.

        Raises:
            GoogleApiError: there was no answer that serves; the subclass says why.
        """
        with self._translated("cloudquotas"), self._quotas() as client:
            return list(client.list_quota_infos(parent=parent, timeout=self._timeout_s, retry=None))

    def _root(self, api: str) -> Any:
        if api not in self._resources:
            options = {"api_endpoint": self._endpoints[api]} if api in self._endpoints else None
            self._resources[api] = discovery.build(
                api, _VERSIONS[api], http=httplib2.Http(), static_discovery=True, client_options=options
            )
        return self._resources[api]

    @contextmanager
    def _http(self) -> Iterator[google_auth_httplib2.AuthorizedHttp]:
        # One for each request: httplib2 must not be shared by threads.
        http = google_auth_httplib2.AuthorizedHttp(self.credentials, http=httplib2.Http(timeout=self._timeout_s))
        try:
            yield http
        finally:
            http.close()

    def _lustre(self) -> lustre_v1.LustreClient:
        host = self._endpoints.get("lustre", "lustre.googleapis.com")
        return lustre_v1.LustreClient(transport=LustreRestTransport(credentials=self.credentials, host=host))

    def _quotas(self) -> cloudquotas_v1.CloudQuotasClient:
        host = self._endpoints.get("cloudquotas", "cloudquotas.googleapis.com")
        return cloudquotas_v1.CloudQuotasClient(
            transport=CloudQuotasRestTransport(credentials=self.credentials, host=host)
        )

    @contextmanager
    def _translated(self, api: str) -> Iterator[None]:
        """Turn what the libraries raise into this project's errors."""
        try:
            yield
        except HttpError as error:
            text = error.content.decode("utf-8", "replace")
            raise _error(api, int(error.status_code), str(error.reason), text) from error
        except GoogleAPICallError as error:
            details = f"{error.reason} {error.details}"
            raise _error(api, int(error.code or 0), str(error.message), details) from error
        except GoogleAuthError as error:
            raise GoogleUnavailable(
                f"{api}.googleapis.com was not asked: Google took no credentials ({_short(error)}). "
                f"{GoogleCredentialsError.remedy}"
            ) from error
        # OSError and the two after it are the network's, the others an answer that is no JSON.
        except (OSError, HTTPException, httplib2.HttpLib2Error, ValueError, ParseError) as error:
            raise GoogleUnavailable(
                f"{api}.googleapis.com gave no answer that can be read ({type(error).__name__}: {_short(error)}). "
                "Check the network and run the preflight again"
            ) from error


def _object(answer: Any) -> dict[str, Any]:
    # The discovery client hands on as text what is no JSON.
    if not isinstance(answer, dict):
        raise ValueError("no JSON object")  # noqa: TRY004 - what json raises for such an answer
    return answer


def _error(api: str, code: int, reason: str, details: str) -> GoogleApiError:
    said = f"{api}.googleapis.com answered {code}: {_short(reason)}"
    if code == _FORBIDDEN and any(mark in f"{reason} {details}" for mark in _API_OFF):
        return GoogleApiOff(f"{said}. The API is not enabled", api=api)
    if code == _FORBIDDEN:
        return GoogleRefused(said)
    if code == _NOT_FOUND:
        return GoogleNotFound(said)
    if code == _UNAUTHENTICATED:
        return GoogleUnavailable(f"{said}. {GoogleCredentialsError.remedy}")
    return GoogleUnavailable(f"{said}. Run the preflight again")


def _short(reason: object) -> str:
    text = " ".join(str(reason).split()).rstrip(".")
    return text if len(text) <= _LONGEST_REASON else f"{text[:_LONGEST_REASON]}…"
