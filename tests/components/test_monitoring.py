"""The dashboard and the alerts watch this stack's Lustre and GPUs, with thresholds that follow from its recipe."""

import json
import re
from typing import Any

import pytest

from components.config import parse_config
from components.monitoring import (
    LONGEST_WINDOW_S,
    Watched,
    alert_policies,
    charts,
    dashboard_spec,
    free_space_query,
    no_saves_query,
    watched,
)
from jobs.checkpoint_maths import checkpoint_bytes
from tests.components.rules.verdicts import EXISTING_ACCESS, EXISTING_CLUSTER, EXISTING_NETWORK
from tests.golden import assert_golden
from tests.program import Run, changed, run_program, stack_settings

DASHBOARD = "gcp:monitoring/dashboard:Dashboard"
ALERT = "gcp:monitoring/alertPolicy:AlertPolicy"
LUSTRE_METRICS = {
    "available_bytes",
    "capacity_bytes",
    "connected_clients",
    "metadata_operations_total",
    "read_bytes_total",
    "write_bytes_total",
}


def watched_by(**changes: Any) -> Watched:
    return watched(parse_config("dev", changed(stack_settings("dev"), **changes)))


def all_queries(target: Watched) -> list[str]:
    of_charts = [query for _, queries in charts(target).values() for query in queries.values()]
    of_alerts = [
        condition["condition_prometheus_query_language"]["query"]
        for alert in alert_policies(target).values()
        for condition in alert["conditions"]
    ]
    return of_charts + of_alerts


def test_the_dashboard_is_as_known() -> None:
    assert_golden("monitoring_dashboard", dashboard_spec(watched_by()))


def test_the_alerts_are_as_known() -> None:
    assert_golden("monitoring_alerts", alert_policies(watched_by()))


def test_tiles_fill_the_columns_and_do_not_overlap() -> None:
    layout = dashboard_spec(watched_by())["mosaicLayout"]
    cells = set()
    for tile in layout["tiles"]:
        place = (tile.get("xPos", 0), tile.get("yPos", 0))
        assert place[0] + tile["width"] <= layout["columns"]
        assert place not in cells
        cells.add(place)
    assert len(cells) == len(charts(watched_by()))


def test_every_series_is_this_stack_s_and_every_lustre_metric_one_that_google_documents() -> None:
    seen = set()
    for query in all_queries(watched_by()):
        for metric, labels in re.findall(r"([A-Za-z_:]+)\{([^}]*)\}", query):
            if metric.startswith("lustre_googleapis_com:instance_"):
                assert labels == 'instance_id="rlstack-dev",location="us-east1-b"'
                seen.add(metric.removeprefix("lustre_googleapis_com:instance_"))
            else:
                assert labels.startswith('cluster="rlstack-dev"')
        assert query.count("(") == query.count(")")
    assert seen == LUSTRE_METRICS


def test_adopted_parts_are_watched_under_their_own_names() -> None:
    target = watched_by(
        network=EXISTING_NETWORK,
        private_service_access=EXISTING_ACCESS,
        cluster=EXISTING_CLUSTER,
        lustre={"source": "existing", "instance_id": "theirs"},
    )
    assert (target.cluster, target.lustre_instance) == ("shared", "theirs")


def test_free_space_is_alerted_on_under_two_checkpoints_or_a_tenth_where_their_size_is_unknown() -> None:
    assert free_space_query(watched_by()).endswith(f" < {2 * checkpoint_bytes(72e9)}")
    unknown = free_space_query(watched_by(job__grpo__model_name="own/unsized"))
    assert re.search(r"< 0\.1 \* sum\(lustre_googleapis_com:instance_capacity_bytes\{", unknown)


@pytest.mark.parametrize(
    ("save_period", "step_s", "window_s"), [(2, 600, 3600), (5, 90, 1350), (48, 600, LONGEST_WINDOW_S)]
)
def test_no_saves_looks_back_three_save_periods_and_a_day_at_most(save_period: int, step_s: int, window_s: int) -> None:
    target = watched_by(job__grpo__save_period=save_period, monitoring={"expected_step_s": step_s})
    query = no_saves_query(target)
    assert f"[{window_s}s]" in query
    assert f"offset {window_s}s" in query


def test_logs_alone_do_not_count_as_a_save() -> None:
    assert f"< {checkpoint_bytes(72e9) // 2} and" in no_saves_query(watched_by())
    assert f"< {2**30} and" in no_saves_query(watched_by(job__grpo__model_name="own/unsized"))


def test_an_alert_says_what_to_do_and_may_come_before_its_metrics() -> None:
    for alert in alert_policies(watched_by()).values():
        assert "`" in alert["documentation"]["content"] or "lustre.capacity_gib" in alert["documentation"]["content"]
        (condition,) = alert["conditions"]
        assert condition["condition_prometheus_query_language"]["disable_metric_validation"] is True


def test_the_stack_makes_one_dashboard_and_three_alerts_and_exports_their_ids(run: Run) -> None:
    (dashboard,) = run.of_type(DASHBOARD)
    alerts = run.of_type(ALERT)
    assert json.loads(dashboard.inputs["dashboardJson"])["displayName"].startswith("rlstack-")
    assert {alert.parent for alert in [dashboard, *alerts]} == {"monitoring"}
    assert run.outputs["monitoring"] == {
        "dashboard": f"{dashboard.name}-id",
        "alerts": {alert.name.removeprefix("monitoring-"): f"{alert.name}-id" for alert in alerts},
    }
    assert len(alerts) == 3
    services = {service.name for service in run.of_type("gcp:projects/service:Service")}
    assert "services-monitoring" in services
    assert services <= run["monitoring"].dependencies


def test_channels_are_told_and_a_stack_can_do_without() -> None:
    channel = "projects/my-project-id/notificationChannels/1"
    settings = changed(stack_settings("dev"), monitoring={"notification_channels": [channel]})
    assert all(
        alert.inputs["notificationChannels"] == [channel] for alert in run_program("dev", settings).of_type(ALERT)
    )

    off = run_program("dev", changed(stack_settings("dev"), monitoring={"enabled": False}))
    assert not off.of_type(DASHBOARD)
    assert not off.of_type(ALERT)
