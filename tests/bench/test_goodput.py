"""The goal of the supervisor: next to nothing is lost that Young and Daly's schedule would keep."""

import json

from bench import goodput
from jobs.checkpoint_maths import Preemption


def test_a_run_keeps_nearly_all_that_the_best_schedule_on_its_trace_keeps() -> None:
    trace = json.loads(goodput.TRACE.read_text())["lost_at_s"]
    mean_s = goodput.HOURS * goodput.HOUR_S / goodput.PREEMPTIONS
    preemption = Preemption(
        save_s=goodput.SAVE_S, mean_time_between_s=mean_s, restart_s=goodput.RETURN_S + goodput.SETUP_S
    )

    result = goodput.simulate(trace, save_period=preemption.best_save_period(goodput.STEP_S))

    assert result.starts == 1 + len(trace)
    assert result.steps >= 0.95 * goodput.ideal_steps(trace, period_s=preemption.best_period_s)


def test_the_trace_is_what_its_seed_draws() -> None:
    trace = json.loads(goodput.TRACE.read_text())

    assert (trace["seed"], trace["hours"]) == (goodput.SEED, goodput.HOURS)
    assert trace["lost_at_s"] == goodput.draw_trace()
