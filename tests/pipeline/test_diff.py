"""The cloud's stack of a commit, up on a twin without Ray, and what edits of the working tree would change in it."""

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from jobs.stack_file import read_stack_sections
from tests.pipeline.twin_session import TwinSession
from twin.diff import base_stack, checkpoint_note
from twin.plan import Operation, Plan
from twin.state import REPOSITORY, TwinState

PROGRAM = ("__main__.py", "Pulumi.yaml", "Pulumi.dev.yaml", "components", "jobs")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository that holds the program as it is in this tree, committed, and no twin."""
    directory = tmp_path / "repository"
    directory.mkdir()
    for name in PROGRAM:
        source = REPOSITORY / name
        if source.is_dir():
            shutil.copytree(source, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, directory / name)
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.invalid")
    for command in (("init", "-q"), ("add", "-A"), (*identity, "commit", "-qm", "base")):
        subprocess.run(["git", "-C", str(directory), *command], check=True)
    return directory


def edit(directory: Path, section: str, **values: object) -> None:
    file = directory / "Pulumi.dev.yaml"
    settings = yaml.safe_load(file.read_text())
    settings["config"][f"rlstack:{section}"] |= values
    file.write_text(yaml.safe_dump(settings))


def told(plan: Plan) -> dict[str, tuple[Operation, set[str]]]:
    return {change.name: (change.operation, {each.path for each in change.properties}) for change in plan.changes}


@pytest.mark.engine
def test_a_save_period_replaces_only_the_job_and_a_node_count_changes_the_pool_in_place(
    repository: Path, tmp_path: Path
) -> None:
    state = TwinState(tmp_path / "state")
    grpo = yaml.safe_load((repository / "Pulumi.dev.yaml").read_text())["config"]["rlstack:job"]["grpo"]
    with base_stack("HEAD", "dev", directory=repository, state=state) as base:
        assert base.plan.errors == ()
        assert {change.operation for change in base.plan.changes} == {Operation.CREATE}
        session = TwinSession(base.state, repository, speed="0")
        assert session.processes()

        edit(repository, "job", grpo=grpo | {"save_period": 5})
        saves = base.preview(repository)
        assert {name for name, (operation, _) in told(saves).items() if operation is not Operation.UPDATE} == {"grpo"}
        (entrypoint,) = next(change for change in saves.changes if change.name == "grpo").properties
        assert (entrypoint.path, entrypoint.replaces) == ("entrypoint", True)
        assert (entrypoint.old, entrypoint.new) == ("checkpointing.save_period=2", "checkpointing.save_period=5")
        assert any("save_period=5" in warning for warning in saves.warnings)

        edit(repository, "gpu_pool", node_count=4)
        nodes = told(base.preview(repository))
        assert nodes["grpo"] == (Operation.REPLACE, {"entrypoint"})
        assert nodes["gpus-pool"] == (Operation.UPDATE, {"autoscaling.maxNodeCount"})
        assert all(operation in {Operation.UPDATE, Operation.REPLACE} for operation, _ in nodes.values())

        edit(repository, "gpu_pool", node_count="many")
        assert any("node_count" in error for error in base.preview(repository).errors)
    assert session.processes() == {}
    assert list(state.root.iterdir()) == []


def test_a_checkpoint_is_estimated_from_the_models_name_and_the_tier() -> None:
    sections = read_stack_sections(REPOSITORY / "Pulumi.dev.yaml")
    (note,) = checkpoint_note("dev", sections)
    # 72e9 parameters of 14 bytes, over 36000 GiB at 500 MB/s per TiB; 20 steps, one save every 2.
    assert "1,008 GB, 57 s to save" in note
    assert "10 saves in 20 steps" in note


def test_a_config_that_is_refused_has_no_estimate() -> None:
    assert checkpoint_note("dev", {}) == []
