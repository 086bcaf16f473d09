"""The stack as the Pulumi engine knows it: its Hugging Face token and the ids of what it has made.

The program `pulumi` is asked, so the backend and the key of the stack's secrets are whatever the user has set up. Where
it does not answer, the preflight goes on with less; nothing here raises for that.
"""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import unquote

_TIMEOUT_S = 60.0


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The engine's view of one stack.

    Attributes:
        stack: the stack's name, as the user wrote it.
    """

    stack: str

    def hf_token(self, environment: Mapping[str, str] = os.environ) -> str | None:
        """Look the token up: the stack's secret, else HF_TOKEN; none where there is neither."""
        token = self._ask("config", "get", "rlstack:hf_token")
        return (token or environment.get("HF_TOKEN", "")).strip() or None

    def resource_ids(self) -> frozenset[str] | None:
        """List the ids of the resources in the stack's state, unquoted; none where the state cannot be read.

        Secrets in an exported state stay encrypted.
        """
        exported = self._ask("stack", "export")
        if exported is None:
            return None
        try:
            deployment = json.loads(exported)["deployment"] or {}
            resources = deployment.get("resources") or []
            return frozenset(unquote(resource["id"]) for resource in resources if resource.get("id"))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def _ask(self, *words: str) -> str | None:
        command = ["pulumi", *words, "--stack", self.stack, "--non-interactive"]
        try:
            asked = subprocess.run(
                command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False, stdin=subprocess.DEVNULL
            )
        except (OSError, subprocess.TimeoutExpired, UnicodeDecodeError):
            return None
        return asked.stdout if asked.returncode == 0 else None
