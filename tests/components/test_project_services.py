"""APIs are enabled before anything else and outlive the stack."""

from tests.program import Run


def test_every_api_stays_enabled_at_destroy(run: Run) -> None:
    services = run.of_type("gcp:projects/service:Service")
    assert {service.inputs["service"] for service in services} >= {
        "compute.googleapis.com",
        "container.googleapis.com",
        "lustre.googleapis.com",
        "servicenetworking.googleapis.com",
    }
    assert not any(service.inputs["disableOnDestroy"] for service in services)


def test_no_component_on_google_starts_before_the_apis(run: Run) -> None:
    services = {service.name for service in run.of_type("gcp:projects/service:Service")}
    for component in ("network", "access", "lustre", "gke", "gpus"):
        assert services <= run[component].dependencies
