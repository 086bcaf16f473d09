"""How Google says no, in its own words where they are known."""

from jobs.errors import TwinError


class CloudRefusal(TwinError):
    """The simulated Google Cloud refuses an operation, or makes something that does not work."""


class ApiRefusal(CloudRefusal):
    """An API answers with an error: HTTP status, reason as Google's libraries print them."""

    def __init__(self, status: int, reason: str, text: str) -> None:
        super().__init__(f"googleapi: Error {status}: {text}, {reason}")


class ConnectionInUse(CloudRefusal):
    """A service producer still uses the connection of a network."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"connection {name}: Error waiting for Delete Service Networking Connection: Error code 9, message: "
            "Failed to delete connection; Producer services (e.g. CloudSQL, Cloud Memstore, etc.) are still using this "
            "connection. Delete what they made in the network first, wait some minutes and try again, or set "
            "private_service_access.deletion_policy to REMOVE_PEERING and bring the stack up before it is destroyed"
        )


class BrokenResource(CloudRefusal):
    """Google made the resource, but it does not work; it stays, in state ERROR, until it is mended or deleted."""


class Interrupted(TwinError):
    """The engine was told to stop while an operation was under way."""
