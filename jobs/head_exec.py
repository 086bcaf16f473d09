"""Commands inside the head pod, by Kubernetes exec: what lies on Lustre is seen from there without a mount here."""

import io
from collections.abc import Sequence
from typing import Any

from jobs.errors import HeadExecError, HeadUnreachable
from jobs.kubernetes_api import LoopThread, cause_of, kubeconfig_on_disk, open_api, remedy_for, server_of

_CONTAINER = "ray-head"


def exec_in_head(
    *, kubeconfig: str, namespace: str, ray_cluster: str, command: Sequence[str], timeout_s: float
) -> bytes:
    """Run a command in the head pod's Ray container and return what it wrote to standard output.

    Args:
        kubeconfig: JSON text, as the stack's output has it.
        namespace: of the RayCluster.
        ray_cluster: its name.
        command: program and arguments; no shell is between.
        timeout_s: seconds for all of it, connection included.

    Raises:
        UsageError: the kubeconfig is none.
        HeadExecError: there is no head pod, or the command's exit code was not 0.
        HeadUnreachable: there was no way to it, or the deadline passed.
    """
    loop = LoopThread()
    try:
        with kubeconfig_on_disk(kubeconfig) as config:
            where = f"the head of RayCluster {ray_cluster} in namespace {namespace} of {server_of(config)}"
            try:
                code, output, errors = loop.run(_exec(config, namespace, ray_cluster, command), timeout_s=timeout_s)
            except TimeoutError as error:
                raise HeadUnreachable(
                    f"{command[0]} in {where} did not end within {timeout_s:.0f} s. "
                    f"Check: kubectl -n {namespace} get pods -l ray.io/cluster={ray_cluster}"
                ) from error
            except HeadExecError:
                raise
            except Exception as error:
                raise HeadUnreachable(f"No way to {where}: {cause_of(error)}. {remedy_for(error)}") from error
    finally:
        loop.close()
    if code:
        last = errors.decode(errors="replace").strip().splitlines()[-1:] or ["no word on standard error"]
        raise HeadExecError(f"{command[0]} in {where} ended with exit code {code}: {last[0][:300]}")
    return output


async def _exec(
    kubeconfig: dict[str, Any], namespace: str, ray_cluster: str, command: Sequence[str]
) -> tuple[int, bytes, bytes]:
    from kr8s.asyncio.objects import Pod  # noqa: PLC0415 - a third of a second that a preview does not need

    api = await open_api(kubeconfig)
    selector = {"ray.io/cluster": ray_cluster, "ray.io/node-type": "head"}
    pods = [pod async for pod in Pod.list(namespace=namespace, label_selector=selector, api=api) if _is_running(pod)]
    if not pods:
        raise HeadExecError(
            f"RayCluster {ray_cluster} in namespace {namespace} has no running head pod, so nothing on Lustre can be "
            f"looked at. Check: kubectl -n {namespace} get pods -l ray.io/cluster={ray_cluster}; a lost head comes "
            "back by itself, the job with `up`"
        )
    output, errors = io.BytesIO(), io.BytesIO()
    done = await pods[0].exec(
        list(command), container=_CONTAINER, stdout=output, stderr=errors, check=False, capture_output=False
    )
    return done.returncode, output.getvalue(), errors.getvalue()


def _is_running(pod: Any) -> bool:
    return pod.status.get("phase") == "Running" and "deletionTimestamp" not in pod.metadata
