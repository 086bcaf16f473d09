"""Whether the model and the data sets can be fetched from the Hugging Face hub, with the token that the pods will have.

The hub's `auth-check` answers for one repository and one token, and moves no data. The token travels in that request's
header and nowhere else.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Literal

import requests

from components.config import StackConfig
from jobs.preflight.engine import Engine
from jobs.preflight.findings import Finding, fail, ok, warn

HUB = "https://huggingface.co"
_TIMEOUT_S = 20.0
# NeMo-RL's names for data sets, and the repositories behind them (training, validation), as read in its v0.4.0.
DATA_SETS: Mapping[str, tuple[str, ...]] = {
    "DeepScaler": ("agentica-org/DeepScaleR-Preview-Dataset", "HuggingFaceH4/aime_2024"),
    "OpenMathInstruct-2": ("nvidia/OpenMathInstruct-2",),
}


@dataclass(frozen=True, kw_only=True)
class Repository:
    """One repository of the hub.

    Attributes:
        kind: what it holds.
        id: `owner/name`.
    """

    kind: Literal["model", "dataset"]
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.id}"

    @property
    def page(self) -> str:
        """Where a person reads about it and asks for access."""
        return f"{HUB}/{'datasets/' if self.kind == 'dataset' else ''}{self.id}"


def check_model_access(config: StackConfig, engine: Engine) -> Iterator[Finding]:
    """Ask the hub for every repository that the recipe names."""
    grpo = config.job.grpo
    token = engine.hf_token()
    ask = partial(_ask, token=token, set_token=f"pulumi config set --secret hf_token --stack {engine.stack}")
    if grpo.model_name.startswith("/"):
        yield warn(
            f"{grpo.model_name} is a path in the pods, which cannot be seen from here", "See that it is on Lustre"
        )
    else:
        yield ask(Repository(kind="model", id=grpo.model_name))
    if grpo.dataset_name is None:
        return
    known = (grpo.dataset_name,) if "/" in grpo.dataset_name else DATA_SETS.get(grpo.dataset_name, ())
    for repository_id in known:
        yield ask(Repository(kind="dataset", id=repository_id))
    if not known:
        yield warn(
            f"Which repository {grpo.dataset_name} comes from is not known here, so access to it was not tried",
            f"Look for it in the trainer's documentation and on {HUB}/datasets",
        )


def _ask(repository: Repository, *, token: str | None, set_token: str) -> Finding:
    url = f"{HUB}/api/{repository.kind}s/{repository.id}/auth-check"
    try:
        answer = requests.get(url, auth=partial(_authorize, token), timeout=_TIMEOUT_S)
    except requests.RequestException as error:
        return warn(
            f"{repository}: the hub did not answer ({type(error).__name__})", "Check the network and run this again"
        )
    return _judge(repository, answer, has_token=token is not None, set_token=set_token)


def _authorize(token: str | None, request: requests.PreparedRequest) -> requests.PreparedRequest:
    # A plain header would give way to what ~/.netrc holds for the hub.
    if token:
        request.headers["Authorization"] = f"Bearer {token}"
    return request


def _judge(repository: Repository, answer: requests.Response, *, has_token: bool, set_token: str) -> Finding:
    """Read the hub's answer; without a token it says 401 for what does not exist, too."""
    with_token = "with the token" if has_token else "without a token"
    code = answer.headers.get("X-Error-Code", "")
    if answer.ok:
        return ok(f"{repository} can be fetched {with_token}")
    if code == "GatedRepo":
        remedy = f"Ask for access at {repository.page}" + ("" if has_token else f", then: {set_token}")
        return fail(f"{repository} is gated ({answer.status_code}) and closed {with_token}", remedy)
    match answer.status_code:
        case HTTPStatus.UNAUTHORIZED if has_token and code != "RepoNotFound":
            return fail(
                f"The hub does not take the token for {repository} (401)", f"Set one that is valid: {set_token}"
            )
        case HTTPStatus.UNAUTHORIZED:
            return fail(
                f"{repository} is private or does not exist (401 {with_token})",
                f"Correct the name, or set a token that may read it: {set_token}",
            )
        case HTTPStatus.FORBIDDEN:
            return fail(f"The token may not read {repository} (403)", f"Give it the right to read, or: {set_token}")
        case HTTPStatus.NOT_FOUND:
            return fail(
                f"{repository} does not exist, or may not be seen {with_token} (404)",
                f"Correct the name; {repository.page} should show it",
            )
        case status:
            return warn(f"{repository}: the hub answered {status}", "Run the preflight again")
