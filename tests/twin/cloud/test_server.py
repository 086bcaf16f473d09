"""What reaches the engine over the wire when an operation fails."""

import asyncio

import grpc
import pytest
from pulumi.provider.experimental.property_value import PropertyValue
from pulumi.runtime.proto import provider_pb2, provider_pb2_grpc, status_pb2

from tests.twin.cloud.project import CLUSTER_ID, NETWORK, SPOT_POOL, Project
from twin.cloud import faults
from twin.cloud.server import TwinServicer
from twin.cloud.store import ResourceType
from twin.cloud.values import wrap_map


async def _failure(project: Project, type_: str, given: dict[str, object]) -> grpc.aio.AioRpcError:
    """Create a resource over the wire and return the failure."""
    server = grpc.aio.server()
    servicer = TwinServicer([], "1.0.0", project.provider, engine_address="")
    provider_pb2_grpc.add_ResourceProviderServicer_to_server(servicer, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    request = provider_pb2.CreateRequest(
        urn=f"urn:pulumi:dev::p::{type_}::x", properties=PropertyValue.marshal_map(wrap_map(given))
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            with pytest.raises(grpc.aio.AioRpcError) as failure:
                await provider_pb2_grpc.ResourceProviderStub(channel).Create(request)
    finally:
        await server.stop(grace=None)
    error: grpc.aio.AioRpcError = failure.value
    return error


def test_a_refusal_is_one_line_without_a_traceback(project: Project) -> None:
    error = asyncio.run(_failure(project, ResourceType.NETWORK, NETWORK))
    assert error.details().startswith("googleapi: Error 403: Compute Engine API")
    assert "\n" not in error.details()


def test_what_was_made_and_does_not_work_comes_with_its_id_and_reason(project: Project) -> None:
    project.with_network()
    project.with_cluster()
    project.store.set_fault(faults.STOCKOUT)
    error = asyncio.run(_failure(project, ResourceType.NODE_POOL, SPOT_POOL))
    trailers = dict(error.trailing_metadata())
    status = status_pb2.Status.FromString(trailers["grpc-status-details-bin"])
    made = provider_pb2.ErrorResourceInitFailed()
    assert status.details[0].Unpack(made)
    assert made.id == f"{CLUSTER_ID}/nodePools/a4"
    assert made.properties["nodeCount"] == 2
    assert "GCE_STOCKOUT" in made.reasons[0]


def test_a_fault_of_the_program_shows_where_it_is(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(project.provider, "create", None)
    error = asyncio.run(_failure(project, ResourceType.NETWORK, NETWORK))
    assert "server.py" in error.details()
