"""Volume and claim are pinned to each other and to the one instance."""

from tests.program import Run


def test_volume_and_claim_name_each_other_and_no_storage_class(run: Run) -> None:
    volume, claim = run["volume-volume"].inputs, run["volume-claim"].inputs
    assert volume["spec"]["claimRef"] == {"namespace": "default", "name": claim["metadata"]["name"]}
    assert claim["spec"]["volumeName"] == volume["metadata"]["name"]
    assert volume["spec"]["storageClassName"] == claim["spec"]["storageClassName"] == ""


def test_the_volume_is_as_large_as_the_instance_and_found_at_its_address(dev_run: Run) -> None:
    spec = dev_run["volume-volume"].inputs["spec"]
    assert spec["capacity"] == {"storage": "36000Gi"}
    assert spec["csi"]["volumeHandle"] == "my-project-id/us-east1-b/rlstack-dev"
    assert spec["csi"]["volumeAttributes"] == {"ip": "10.64.0.2", "filesystem": "lustrefs"}


def test_deleting_the_claim_deletes_no_data(run: Run) -> None:
    assert run["volume-volume"].inputs["spec"]["persistentVolumeReclaimPolicy"] == "Retain"


def test_a_larger_instance_does_not_touch_the_claim_that_pods_hold(run: Run) -> None:
    assert run["volume-claim"].options["ignoreChanges"] == ["spec.resources"]
