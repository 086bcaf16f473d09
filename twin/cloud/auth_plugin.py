"""The twin's gke-gcloud-auth-plugin: hands clients of a cluster the twin's access token, as Google's does one's own."""

import json

from twin.state import TwinState


def credential(token: str) -> str:
    """Return an ExecCredential with this token."""
    version = "client.authentication.k8s.io/v1beta1"
    return json.dumps({"kind": "ExecCredential", "apiVersion": version, "status": {"token": token}})


if __name__ == "__main__":
    print(credential(TwinState.from_environment().access_token.read_text().strip()))
