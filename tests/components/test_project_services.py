"""APIs are enabled before anything else and outlive the stack."""

from tests.program import Run, changed, run_program, stack_settings


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


def test_streaming_alone_needs_its_apis_and_is_set_on_every_pool(run: Run) -> None:
    apis = {"artifactregistry.googleapis.com", "containerfilesystem.googleapis.com"}

    def enabled(of: Run) -> set[str]:
        return {service.inputs["service"] for service in of.of_type("gcp:projects/service:Service")}

    def streamed(of: Run) -> list[bool]:
        pools = of.of_type("gcp:container/nodePool:NodePool")
        return [pool.inputs["nodeConfig"]["gcfsConfig"]["enabled"] for pool in pools]

    assert streamed(run) == [False, False]
    assert not apis & enabled(run)

    image = "us-east1-docker.pkg.dev/my-project-id/images/nemo-rl:v0.4.0"
    settings = changed(stack_settings("dev"), ray__image_streaming=True, ray__image=image)
    with_streaming = run_program("dev", settings)
    assert streamed(with_streaming) == [True, True]
    assert apis <= enabled(with_streaming)
    assert with_streaming["ray-cluster"].inputs["spec"]["rayVersion"] == "2.46.0"
