"""The gRPC server under the provider: the SDK's own, but a refusal reaches the user as its sentence alone."""

import asyncio
import functools
import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.provider.experimental.provider import Provider
from pulumi.provider.experimental.server import ProviderServicer
from pulumi.runtime._grpc_settings import _GRPC_CHANNEL_OPTIONS
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from jobs.errors import RlstackError
from twin.cloud.values import wrap_map

PARENT_EVERY_S = 1.0
_METHODS = ("CheckConfig", "Configure", "Check", "Diff", "Create", "Read", "Update", "Delete", "Invoke")


class HalfMade(RlstackError):
    """A resource was made and does not work: the engine keeps it, says why, and mends it at the next update.

    Attributes:
        id: its id.
        properties: its properties as they are.
        inputs: the inputs that it was made with.
    """

    def __init__(self, text: str, *, id_: str, properties: dict[str, Any], inputs: dict[str, Any]) -> None:
        super().__init__(text)
        self.id = id_
        self.properties = properties
        self.inputs = inputs


def _half_made_status(error: HalfMade) -> Any:
    text = str(error)
    detail = provider_pb2.ErrorResourceInitFailed(
        id=error.id,
        properties=PropertyValue.marshal_map(wrap_map(error.properties)),
        reasons=[text],
        inputs=PropertyValue.marshal_map(wrap_map(error.inputs)),
    )
    packed = status_pb2.Status(code=grpc.StatusCode.UNKNOWN.value[0], message=text)
    packed.details.add().Pack(detail)
    status = grpc.Status()
    status.code, status.details = grpc.StatusCode.UNKNOWN, text
    status.trailing_metadata = (("grpc-status-details-bin", packed.SerializeToString()),)
    return status


class TwinServicer(ProviderServicer):
    """Tells our own errors apart from faults of the program."""


def _telling(method: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
    @functools.wraps(method)
    async def wrapped(self: TwinServicer, request: Any, context: Any) -> Any:
        try:
            return await method(self, request, context)
        except Exception as error:
            # The SDK wraps what a provider raises into an exception that carries the traceback.
            cause = error.__context__
            if isinstance(cause, HalfMade):
                await context.abort_with_status(_half_made_status(cause))
            if isinstance(cause, RlstackError):
                await context.abort(grpc.StatusCode.UNKNOWN, str(cause))
            raise

    return wrapped


for _name in _METHODS:
    setattr(TwinServicer, _name, _telling(getattr(ProviderServicer, _name)))


async def _orphaned() -> None:
    """Wait until the engine that started this process is gone: one that is killed ends no provider."""
    engine = os.getppid()
    while os.getppid() == engine:  # noqa: ASYNC110 - the system tells nobody when a parent dies
        await asyncio.sleep(PARENT_EVERY_S)


def serve(version: str, provider: Provider) -> None:
    """Serve a provider to the engine that started this process, until it is gone."""

    async def run() -> None:
        server = grpc.aio.server(options=_GRPC_CHANNEL_OPTIONS)
        servicer = TwinServicer(sys.argv[1:], version, provider, engine_address=sys.argv[1] if sys.argv[1:] else "")
        provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(port, flush=True)
        await _orphaned()
        await provider.cancel()
        await server.stop(grace=None)

    try:
        asyncio.run(run())
    except KeyboardInterrupt:
        return
