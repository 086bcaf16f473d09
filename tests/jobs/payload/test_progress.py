"""What the supervisor reads out of the trainer's lines."""

import pytest

from jobs.payload.progress import Phase, Progress, StepDone

LIMITS = {Phase.SETUP: 100.0, Phase.STEP: 50.0, Phase.SAVE: 20.0}


def read(progress: Progress, *lines: str, now: float = 0) -> list[StepDone]:
    return [done for line in lines if (done := progress.read(line, now))]


def test_steps_are_counted_from_the_checkpoint_though_the_banner_starts_over_in_each_epoch() -> None:
    progress = Progress(step=40, since=0)

    done = read(
        progress,
        "========================= Step 1/20 =========================",
        "  • Avg Reward: 0.25",
        "  • Total step time: 3.50s",
        "\x1b[32m  • Total step time: 2.50s\x1b[0m",
    )

    assert done == [
        StepDone(step=41, step_time_s=3.5, reward=0.25),
        StepDone(step=42, step_time_s=2.5, reward=None),
    ]


def test_a_save_names_the_runs_step_and_puts_the_count_right() -> None:
    progress = Progress(step=0, since=0)

    done = read(
        progress, "Saving checkpoint for step 8...", "  • Total step time: 1.00s", "  • checkpointing: 0.75s (75%)"
    )

    assert [step.step for step in done] == [8]
    assert progress.saves_s == {8: 0.75}


def test_a_garbled_number_is_no_number() -> None:
    progress = Progress(step=0, since=0)

    assert read(progress, "• Total step time: 1.2.3s", "• checkpointing: .s (1%)", "• Avg Reward: -..") == []
    assert progress.saves_s == {}


def test_workers_lines_are_no_progress_but_may_be_the_cause() -> None:
    progress = Progress(step=0, since=0)

    assert read(progress, "(Worker pid=7, ip=10.0.0.2)   • Total step time: 1.00s") == []
    read(
        progress, "(Worker pid=7, ip=10.0.0.2) torch.OutOfMemoryError: CUDA out of memory", "RuntimeError: and its echo"
    )

    assert progress.step == 0
    assert progress.cause == "torch.OutOfMemoryError: CUDA out of memory"


def test_an_error_before_a_complete_step_is_not_the_cause_of_a_later_end() -> None:
    progress = Progress(step=0, since=0)
    read(progress, "ValueError: caught and survived", "  • Total step time: 1.00s")

    assert progress.cause is None


@pytest.mark.parametrize(
    ("lines", "phase"),
    [
        ([], Phase.SETUP),
        (["==== Step 1/2 ===="], Phase.STEP),
        (["==== Step 1/2 ====", "Saving checkpoint for step 1..."], Phase.SAVE),
        (["==== Step 1/2 ====", "Saving checkpoint for step 1...", "• Total step time: 1.00s"], Phase.STEP),
    ],
)
def test_each_phase_has_its_own_limit(lines: list[str], phase: Phase) -> None:
    progress = Progress(step=0, since=0)
    read(progress, *lines)

    assert progress.stalled(LIMITS[phase], LIMITS) is None
    assert progress.stalled(LIMITS[phase] + 1, LIMITS) is phase


def test_the_same_banner_again_and_other_talk_do_not_extend_a_step() -> None:
    progress = Progress(step=0, since=0)
    read(progress, "==== Step 1/2 ====", now=0)
    read(progress, "==== Step 1/2 ====", "⏳ Waiting for replay buffer", now=45)

    assert progress.stalled(51, LIMITS) is Phase.STEP
