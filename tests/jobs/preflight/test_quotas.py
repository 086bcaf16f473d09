"""A quota is ok only if Google names this place and a figure that suffices; everything else is said to be open."""

import pytest

from jobs.preflight.findings import Status
from jobs.preflight.quotas import check_gpu_quota, check_lustre_quota
from tests.jobs.preflight.google_server import GoogleServer
from tests.jobs.preflight.project import ALL_QUOTA, PROJECT, QUOTAS, REGION, SPOT_QUOTA, ZONE, look, quota, stack

SPOT_ID = SPOT_QUOTA.rpartition("/")[2]
PAGE = f"https://console.cloud.google.com/iam-admin/quotas?project={PROJECT}"


@pytest.mark.parametrize(
    ("value", "status"),
    [(64, Status.OK), (63, Status.FAIL), (0, Status.FAIL), (-1, Status.OK)],
)
def test_spot_needs_eight_preemptible_gpus_a_node_in_the_region(
    google: GoogleServer, value: int, status: Status
) -> None:
    google.answer("cloudquotas.getQuotaInfo", quota(SPOT_ID, value, region=REGION), name=SPOT_QUOTA)

    found = look(check_gpu_quota, google, stack())[0]

    assert found.status is status
    assert "the stack needs 64 GPUs" in found.detail
    if status is Status.FAIL:
        assert found.detail.startswith(f"{SPOT_ID} is {value} for {REGION};")
        assert found.remedy == f"Ask for 64: {PAGE}"


def test_flex_start_counts_as_preemptible_and_the_limit_over_all_regions_counts_too(google: GoogleServer) -> None:
    google.answer("cloudquotas.getQuotaInfo", quota("GPUS-ALL-REGIONS-per-project", 63), name=ALL_QUOTA)
    config = stack(gpu_pool__capacity={"kind": "flex_start", "max_run_duration_s": 86400}, gpu_pool__scaling="elastic")

    spot, everywhere = look(check_gpu_quota, google, config)

    assert spot.status is Status.OK
    assert everywhere.status is Status.FAIL
    assert everywhere.detail == "GPUS-ALL-REGIONS-per-project is 63; the stack needs 64 GPUs"


def test_a_quota_that_is_not_listed_is_a_warning_and_never_ok(google: GoogleServer) -> None:
    google.forget("cloudquotas.getQuotaInfo", name=SPOT_QUOTA)

    found = look(check_gpu_quota, google, stack())[0]

    assert found.status is Status.WARN
    assert found.detail == f"{SPOT_ID} is unknown: Cloud Quotas does not list it; the stack needs 64 GPUs"


def test_a_figure_for_other_regions_only_is_a_warning(google: GoogleServer) -> None:
    google.answer("cloudquotas.getQuotaInfo", quota(SPOT_ID, 640, region="us-west1"), name=SPOT_QUOTA)

    found = look(check_gpu_quota, google, stack())[0]

    assert found.status is Status.WARN
    assert "no figure of it is for this place" in found.detail


@pytest.mark.parametrize(("value", "status"), [(64, Status.WARN), (63, Status.FAIL)])
def test_a_default_for_all_regions_can_refuse_and_not_assure(google: GoogleServer, value: int, status: Status) -> None:
    google.answer("cloudquotas.getQuotaInfo", quota(SPOT_ID, value, region=""), name=SPOT_QUOTA)

    assert look(check_gpu_quota, google, stack())[0].status is status


def test_the_more_specific_figure_counts(google: GoogleServer) -> None:
    body = quota(SPOT_ID, 8, region=REGION)
    body["dimensionsInfos"].append({"details": {"value": "64"}})
    google.answer("cloudquotas.getQuotaInfo", body, name=SPOT_QUOTA)

    assert look(check_gpu_quota, google, stack())[0].status is Status.FAIL


@pytest.mark.parametrize(
    ("family", "said"), [("NVIDIA_B200", "is 8 for NVIDIA_B200, us-east1"), ("NVIDIA_H100", "is unknown")]
)
def test_a_small_quota_is_only_a_warning_for_a_reservation(google: GoogleServer, family: str, said: str) -> None:
    id_ = "GPUS-PER-GPU-FAMILY-per-project-region"
    name = f"{QUOTAS}/compute.googleapis.com/quotaInfos/{id_}"
    config = stack(gpu_pool__capacity={"kind": "reservation", "reservation": "mine"})
    google.answer("cloudquotas.getQuotaInfo", quota(id_, 8, region=REGION, gpu_family=family), name=name)

    found = look(check_gpu_quota, google, config)[0]

    assert found.status is Status.WARN
    assert said in found.detail
    assert "A reservation that is yours already may not need it" in found.remedy


def test_cloud_quotas_being_off_is_a_warning_with_what_turns_it_on(google: GoogleServer) -> None:
    google.refuse("cloudquotas.getQuotaInfo", 403, "Cloud Quotas API is off", reason="SERVICE_DISABLED")
    google.refuse("cloudquotas.listQuotaInfos", 403, "Cloud Quotas API is off", reason="SERVICE_DISABLED")

    for check in (check_gpu_quota, check_lustre_quota):
        [found] = look(check, google, stack())
        assert found.status is Status.WARN
        assert f"gcloud services enable cloudquotas.googleapis.com --project {PROJECT}" in found.remedy


@pytest.mark.parametrize(
    ("quota_id", "value", "status"),
    [
        ("StorageFor500MBpsThroughputPerTiB-per-project-zone", 36000, Status.OK),
        ("StorageFor500MBpsThroughputPerTiB-per-project-zone", 35999, Status.FAIL),
        ("storage_for_500MBps_throughput_per_TiB", 35999, Status.FAIL),
        ("StorageFor1000MBpsThroughputPerTiB-per-project-zone", 35999, Status.WARN),
        ("StorageFor1500MBpsThroughputPerTiB-per-project-zone", 35999, Status.WARN),
        ("capacity", 1, Status.WARN),
    ],
)
def test_lustre_needs_storage_of_its_own_tier(google: GoogleServer, quota_id: str, value: int, status: Status) -> None:
    body = {"quotaInfos": [quota(quota_id, value, zone=ZONE)]}
    google.answer("cloudquotas.listQuotaInfos", body, parent=f"{QUOTAS}/lustre.googleapis.com")

    [found] = look(check_lustre_quota, google, stack())

    assert found.status is status
    assert "the stack needs 36000 GiB" in found.detail


def test_lustre_s_quotas_are_read_to_the_last_page(google: GoogleServer) -> None:
    google.answer_pages(
        "cloudquotas.listQuotaInfos",
        {"quotaInfos": [quota("capacity", 1, zone=ZONE)]},
        {"quotaInfos": [quota("StorageFor500MBpsThroughputPerTiB", 18000, zone=ZONE)]},
        parent=f"{QUOTAS}/lustre.googleapis.com",
    )

    [found] = look(check_lustre_quota, google, stack())

    assert found.status is Status.FAIL
