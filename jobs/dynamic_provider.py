"""What the stack's dynamic providers have in common."""

import logging

from pulumi.dynamic import ConfigureRequest, ResourceProvider


class DynamicProvider(ResourceProvider):
    """A provider whose errors reach the user as their text and nothing else."""

    # Nothing is captured in the pickle, so there is nothing to hide; `[secret]` in every diff helps nobody.
    serialize_as_secret_always = False

    def configure(self, req: ConfigureRequest) -> None:
        """Keep grpc, which carries an error to the engine, from printing where in the code it was raised."""
        logging.getLogger("grpc._server").setLevel(logging.CRITICAL)
