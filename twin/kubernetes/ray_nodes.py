"""Which Ray nodes of a RayCluster are alive, as its own dashboard says."""

import httpx

ANSWER_TIMEOUT_S = 2.0


def alive_addresses(port: int) -> frozenset[str]:
    """Addresses of the living Ray nodes; empty while no dashboard answers behind `port` of 127.0.0.1."""
    try:
        answer = httpx.get(
            f"http://127.0.0.1:{port}/nodes", params={"view": "summary"}, timeout=ANSWER_TIMEOUT_S, trust_env=False
        )
        nodes = answer.raise_for_status().json()["data"]["summary"]
    except (httpx.HTTPError, ValueError, KeyError):
        return frozenset()
    raylets = [node.get("raylet", {}) for node in nodes]
    return frozenset(raylet["nodeManagerAddress"] for raylet in raylets if raylet.get("state") == "ALIVE")
