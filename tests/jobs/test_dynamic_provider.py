"""What the engine shows of a dynamic provider's errors, as the SDK makes a text of them."""

import sys
import traceback
from collections.abc import Callable, Iterator

import pytest
from pulumi.dynamic import CreateResult

from jobs.dynamic_provider import DynamicProvider
from jobs.errors import RayJobError


class Provider(DynamicProvider):
    def create(self, props: dict[str, str]) -> CreateResult:
        try:
            return CreateResult(props["absent"])
        except KeyError as error:
            raise RayJobError("the job failed. Mend it") from error

    def delete(self, id_: str, _props: dict[str, str]) -> None:
        raise ZeroDivisionError(id_)


@pytest.fixture(autouse=True)
def tracebacks_stay_whole() -> Iterator[None]:
    yield
    sys.tracebacklimit = 1000


def shown(call: Callable[[], object]) -> str:
    try:
        call()
    except Exception:  # noqa: BLE001 - as the SDK does
        return traceback.format_exc()
    return ""


def test_an_error_raised_on_purpose_is_its_text_alone() -> None:
    assert shown(lambda: Provider().create({})) == "jobs.errors.RayJobError: the job failed. Mend it\n"


def test_a_fault_keeps_its_traceback_also_after_an_error() -> None:
    shown(lambda: Provider().create({}))

    assert "in delete" in shown(lambda: Provider().delete("x", {}))
