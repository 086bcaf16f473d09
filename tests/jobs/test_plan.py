"""A plan computes from the config, takes what a run has measured, and warns of a save period that is far off."""

import re
from pathlib import Path
from typing import Any

import pytest

from jobs import plan
from jobs.__main__ import main
from jobs.errors import HeadExecError, UsageError
from jobs.log_records import SupervisorEvent
from jobs.recipe import GrpoRecipe
from jobs.stack_outputs import StackOutputs
from tests.jobs.test_run_account import BEGINNING, event, started, steps
from tests.jobs.test_stack_outputs import OUTPUTS

ROOT = Path(__file__).parents[2]
TIER = (36000, 500)


def recipe(**fields: Any) -> GrpoRecipe:
    return GrpoRecipe(**{"model_name": "Qwen/Qwen2.5-72B-Instruct", "max_num_steps": 20, "save_period": 2, **fields})


def planned(events: list[SupervisorEvent], *, mtbf_h: float | None = None, **fields: Any) -> tuple[str, str | None]:
    mtbf_s = None if mtbf_h is None else mtbf_h * 3600
    lines, warning = plan.make_plan(recipe(**fields), tier=TIER, measured=plan.measure(events), mtbf_s=mtbf_s)
    return "\n".join(lines), warning


def test_before_a_run_all_is_computed_or_called_an_assumption() -> None:
    text, warning = planned([])

    assert "1.01 TB (72,000,000,000 parameters by the model's name, 14 bytes each)" in text
    assert "57 s at best, 17.6 GB/s (36000 GiB at 500 MB/s per TiB)" in text
    assert text.count("assumption") == 3
    assert "a save every 21 min" in text
    assert "not judged" in text
    assert warning is None


def test_what_a_run_has_measured_takes_the_place_of_assumptions() -> None:
    events = [
        *BEGINNING,
        *steps(200, range(1, 5)),
        event(600, "lost_node", step=4),
        event(601, "waiting", reason="gpus"),
        event(701, "resumed", step=4),
        started(701, 4),
        *steps(861, range(5, 7)),
    ]

    text, _ = planned(events)

    assert "checkpoint: 1.00 TB (as measured)" in text
    assert "a save holds training up: 20 s, median of 3 saves (as measured); less than writing takes" in text
    assert "a node is lost every: 13 min" in text
    assert "then training stands still: 2 min 41 s (as measured)" in text
    assert "a step: 1 min 40 s, saving not counted (as measured)" in text
    assert "assumption" not in text


def test_measured_run_without_a_loss_says_so_and_a_given_rate_comes_first() -> None:
    events = [*BEGINNING, *steps(200, range(1, 5))]
    assert "an assumption: no rate is published; none was lost in 8 min 1 s" in planned(events)[0]
    assert "a node is lost every: 1 d 0 h (as given by --mtbf-h)" in planned(events, mtbf_h=24)[0]


@pytest.mark.parametrize(("save_period", "is_far"), [(1, True), (2, True), (7, False), (8, False), (40, True)])
def test_period_is_far_when_it_is_off_by_half_and_costs_a_hundredth(save_period: int, *, is_far: bool) -> None:
    text, warning = planned([*BEGINNING, *steps(200, range(1, 7))], save_period=save_period)  # best: 8 of 100 s

    assert "best 8 steps" in text
    assert (warning is not None) is is_far
    if warning:
        assert re.match(rf"warning: job\.grpo\.save_period={save_period}: .* Set it to 8;", warning)


def test_period_that_costs_next_to_nothing_is_not_warned_of() -> None:
    assert planned([*BEGINNING, *steps(200, range(1, 7))], mtbf_h=24 * 365, save_period=40)[1] is None


def test_model_of_unknown_size_is_refused_until_it_has_saved_once() -> None:
    with pytest.raises(UsageError, match="my-model"):
        planned([], model_name="org/my-model")
    assert "as measured" in planned([*BEGINNING, *steps(200, range(1, 3))], model_name="org/my-model")[0]


def test_stack_is_planned_by_its_file_when_it_is_not_up(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("PATH", "")

    assert main(["plan", "--stack", "dev", "--mtbf-h", "8"]) == 0

    captured = capsys.readouterr()
    assert "as given by --mtbf-h" in captured.out
    assert captured.err.startswith("no run is measured: ")


def test_head_that_cannot_be_asked_is_told_and_the_plan_made(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: StackOutputs) -> list[SupervisorEvent]:
        raise HeadExecError("no head")

    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(plan, "read_stack_outputs", lambda _: StackOutputs.model_validate(OUTPUTS))
    monkeypatch.setattr(plan, "fetch_run_record", fail)

    assert main(["plan", "--stack", "dev"]) == 0
    assert "no run is measured: no head" in capsys.readouterr().err


def test_recipe_file_names_no_lustre_so_the_smallest_is_assumed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "qwen.yaml"
    path.write_text(
        "release: v0.4.0\nnodes: 8\ngpus_per_node: 8\n"
        "grpo: {model_name: Qwen/Qwen2.5-72B-Instruct, max_num_steps: 20, save_period: 2}\n"
    )
    assert main(["plan", "--file", str(path)]) == 0
    assert "8.8 GB/s (the smallest instance of a tier, assumed)" in capsys.readouterr().out


@pytest.mark.parametrize("hours", ["0", "-1", "nan"])
def test_no_rate_is_refused(hours: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--stack", "dev", "--mtbf-h", hours]) == 2
    assert "--mtbf-h" in capsys.readouterr().err
