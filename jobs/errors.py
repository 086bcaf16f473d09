"""The one tree of errors that this project raises on purpose.

RlstackError            exit code 1: something failed
├── UsageError          exit code 2: the caller's input is wrong
│   └── ConfigError     the stack's config or a recipe, with every problem in it
├── DashboardError      the Ray dashboard
│   ├── DashboardUnreachable
│   ├── DashboardRefused
│   ├── JobNotFound
│   └── PackageTooLarge
├── PortForwardError    the way to the dashboard
├── HeadExecError       a command in the head pod
│   └── HeadUnreachable whether there is a head is not known
├── RayJobError         the job itself: it failed or did not start
├── UnsavedWorkError    a destroy would lose work that is protected
├── PodsMayRun          a destroy would take Lustre from under pods
├── ProtectedCluster    a destroy of a cluster that is protected
├── WaitTimeout         a wait met its deadline
├── GoogleApiError      a request to a Google API (`preflight`)
│   ├── GoogleApiOff
│   ├── GoogleRefused
│   ├── GoogleNotFound
│   ├── GoogleUnavailable
│   └── GoogleCredentialsError
└── TwinError           the twin (twin/)

Every message says what happened to which object, what follows, and what to type next. No message carries a secret.
"""

from collections.abc import Sequence

from jobs.problems import Problem


class RlstackError(Exception):
    """Base of all errors raised on purpose; `exit_code` is the command line's."""

    exit_code = 1


class UsageError(RlstackError):
    """The caller's input cannot be used as it stands."""

    exit_code = 2


class ConfigError(UsageError):
    """A config or recipe with at least one error; the message lists all of them."""

    def __init__(self, source: str, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        lines = "\n".join(f"  {problem}" for problem in problems)
        super().__init__(f"{source} cannot be used; nothing was created or changed:\n{lines}")


class DashboardError(RlstackError):
    """The Ray dashboard did not do what was asked."""


class DashboardUnreachable(DashboardError):
    """No answer from the Ray dashboard within its deadline."""


class DashboardRefused(DashboardError):
    """The Ray dashboard answered with an error."""


class JobNotFound(DashboardError):
    """The Ray dashboard does not know the submission id."""


class PackageTooLarge(DashboardError):
    """The payload exceeds what the Ray dashboard accepts (100 MiB)."""


class PortForwardError(RlstackError):
    """No connection through the Kubernetes API server to the head service."""


class HeadExecError(RlstackError):
    """A command in the head pod could not be run, or failed."""


class HeadUnreachable(HeadExecError):
    """The API server did not say whether there is a head pod."""


class RayJobError(RlstackError):
    """The Ray job failed or did not start in time."""


class UnsavedWorkError(RlstackError):
    """A destroy would take work that is protected and lies nowhere else."""


class PodsMayRun(RlstackError):
    """A destroy would take Lustre from under pods of a cluster that stays and does not answer."""


class ProtectedCluster(RlstackError):
    """A destroy would reach a cluster that Google is to refuse to delete, when all else is gone."""


class WaitTimeout(RlstackError):
    """A condition did not come true before its deadline."""


class GoogleApiError(RlstackError):
    """A Google API gave no answer that serves."""


class GoogleApiOff(GoogleApiError):
    """The API is not enabled in the project; `api` is its name."""

    def __init__(self, message: str, *, api: str) -> None:
        super().__init__(message)
        self.api = api


class GoogleRefused(GoogleApiError):
    """The caller may not ask this."""


class GoogleNotFound(GoogleApiError):
    """What was asked for does not exist, or may not be seen."""


class GoogleUnavailable(GoogleApiError):
    """No answer in time, an error of the service, or an answer that cannot be read."""


class GoogleCredentialsError(GoogleApiError):
    """No Application Default Credentials, or such as Google does not take."""

    remedy = "Log in with: gcloud auth application-default login"


class TwinError(RlstackError):
    """The twin could not do its part."""
