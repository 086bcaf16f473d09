import base64
from pathlib import Path
from typing import Any

import pytest

from jobs.errors import TwinError
from twin.kubernetes.images import IMAGES
from twin.kubernetes.mounts import DEFAULT_SHM_BYTES, SHM, Mount, MountKind, Sources, container_mounts, shm_bytes

IMAGE = IMAGES["rlstack/grpo-cpu:1.0"]
TOKEN = base64.b64encode(b"canary").decode()


def table(tmp_path: Path, volumes: list[dict[str, Any]], mounts: list[dict[str, Any]]) -> dict[str, Mount]:
    sources = Sources(
        claims={"lustre": tmp_path / "lustre"},
        secrets={"credentials": {"hf-token": TOKEN}},
        config_maps={"settings": {"a": "1"}},
        directory=tmp_path / "pod",
    )
    listed = container_mounts({"volumes": volumes}, {"name": "ray", "volumeMounts": mounts}, IMAGE, sources)
    assert len({mount.target for mount in listed}) == len(listed)
    return {mount.target: mount for mount in listed}


def test_nothing_of_this_machine_can_be_written_but_the_pods_own_directories(tmp_path: Path) -> None:
    writable = {m.target for m in table(tmp_path, [], []).values() if m.kind is MountKind.BIND and not m.read_only}
    assert writable == {"/dev", "/tmp", "/root"}


def test_a_claim_is_the_directory_of_its_file_system(tmp_path: Path) -> None:
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "lustre"}}]
    mount = table(tmp_path, volumes, [{"name": "v", "mountPath": "/lustre"}])["/lustre"]
    assert (mount.kind, mount.source, mount.read_only) == (MountKind.BIND, str(tmp_path / "lustre"), False)


def test_a_secret_is_files_that_only_their_owner_reads_and_no_disk_holds(tmp_path: Path) -> None:
    volumes = [{"name": "v", "secret": {"secretName": "credentials"}}]
    mount = table(tmp_path, volumes, [{"name": "v", "mountPath": "/run/secrets/rlstack"}])["/run/secrets/rlstack"]
    assert (mount.kind, mount.files, mount.mode) == (MountKind.FILES, {"hf-token": TOKEN}, 0o400)
    assert mount.read_only
    assert TOKEN not in repr(mount)


def test_items_choose_and_rename_keys(tmp_path: Path) -> None:
    secret = {"secretName": "credentials", "items": [{"key": "hf-token", "path": "token"}]}
    mounts = table(tmp_path, [{"name": "v", "secret": secret}], [{"name": "v", "mountPath": "/s"}])
    assert mounts["/s"].files == {"token": TOKEN}
    secret["items"] = [{"key": "absent", "path": "token"}]
    with pytest.raises(TwinError, match="Secret credentials has no key absent"):
        table(tmp_path, [{"name": "v", "secret": secret}], [{"name": "v", "mountPath": "/s"}])


def test_a_memory_volume_at_dev_shm_takes_the_place_of_the_default(tmp_path: Path) -> None:
    assert shm_bytes(list(table(tmp_path, [], []).values())) == DEFAULT_SHM_BYTES
    volumes = [{"name": "shm", "emptyDir": {"medium": "Memory", "sizeLimit": "256Mi"}}]
    mounts = table(tmp_path, volumes, [{"name": "shm", "mountPath": SHM}])
    assert shm_bytes(list(mounts.values())) == 256 * 1024**2


def test_a_path_comes_before_those_below_it(tmp_path: Path) -> None:
    volumes = [{"name": "a", "emptyDir": {}}, {"name": "b", "emptyDir": {}}]
    mounts = [{"name": "a", "mountPath": "/x/y/z"}, {"name": "b", "mountPath": "/x"}]
    order = list(table(tmp_path, volumes, mounts))
    assert order.index("/x") < order.index("/x/y/z")
