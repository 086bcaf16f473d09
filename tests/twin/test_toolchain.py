"""Programs come from PATH where they serve, else from a cache keyed by what they are built from."""

import dataclasses
import re
import shutil
from pathlib import Path

import pytest

from jobs.errors import TwinError
from twin import toolchain
from twin.toolchain import build, go
from twin.toolchain.programs import MODULES, OnPath, module_of

ENGINE = OnPath(arguments=("version",), minimum=(3, 272))
KWOK = OnPath(arguments=("--version",), minimum=(0, 8), same_minor=True)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    toolchain.found_on_path.cache_clear()


@pytest.mark.parametrize(
    ("printed", "rule", "serves"),
    [
        ("v3.272.0", ENGINE, True),
        ("v3.271.9", ENGINE, False),
        ("v4.0.0", ENGINE, False),
        ("kwok version v0.8.3 go1.26 (linux/amd64)", KWOK, True),
        ("kwok version v0.9.0", KWOK, False),
        ("segmentation fault", ENGINE, False),
    ],
)
def test_only_a_version_in_range_serves(printed: str, rule: OnPath, serves: bool) -> None:
    assert toolchain.version_serves(printed, rule) is serves


def _program(directory: Path, name: str, prints: str) -> Path:
    directory.mkdir(parents=True, exist_ok=True)
    program = directory / name
    program.write_text(f"#!/bin/sh\necho '{prints}'\n")
    program.chmod(0o755)
    return program


def test_a_program_on_path_is_taken_and_an_old_one_is_not(tmp_path: Path) -> None:
    engine = _program(tmp_path / "bin", "pulumi", "v3.300.0")
    assert toolchain.tool_path("pulumi") == engine
    _program(tmp_path / "bin", "etcd", "etcd Version: 3.4.23")
    with pytest.raises(TwinError, match=r"etcd is not built .* python -m twin\.toolchain"):
        toolchain.tool_path("etcd")


def test_the_operator_is_never_taken_from_path(tmp_path: Path) -> None:
    _program(tmp_path / "bin", "kuberay-operator", "v1.5.0")
    assert "kuberay-operator" in toolchain.missing_programs()


def test_a_change_of_a_lock_file_or_a_version_is_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = module_of("pulumi")
    other = dataclasses.replace(module, link_variables={**module.link_variables, "x": "y"})
    assert other.key != module.key
    copy = tmp_path / "modules"
    shutil.copytree(module.directory.parent, copy)
    monkeypatch.setattr("twin.toolchain.programs.MODULES_DIR", copy)
    before = module.key
    with (copy / "pulumi" / "go.sum").open("a") as lock_file:
        lock_file.write("\n")
    assert module.key != before


def test_every_module_pins_its_programs_in_a_lock_file() -> None:
    for module in MODULES:
        lock = (module.directory / "go.sum").read_text()
        text = (module.directory / "go.mod").read_text()
        direct, _, _ = text.partition("// indirect")
        for name, version in re.findall(r"^(?:require )?\s*(\S+\.\S+/\S+) (v\S+)$", direct, re.MULTILINE):
            assert f"{name} {version} h1:" in lock
        for package in module.packages.values():
            assert package == "." or package in text


def test_a_build_that_failed_is_told_to_whoever_waits_for_it() -> None:
    failed = MODULES[0]
    toolchain.cache_dir().mkdir(parents=True)
    (toolchain.cache_dir() / f"{failed.name}-{failed.key}.failed").write_text("pulumi cannot be built: disk full")
    with pytest.raises(TwinError, match="disk full"):
        build.wait_for_tools(timeout_s=60)


def test_a_compiler_error_names_the_program_and_keeps_nothing_half_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = _program(tmp_path, "go", "main.go:3: undefined: x")
    broken.write_text(broken.read_text() + "exit 1\n")
    monkeypatch.setattr(build, "go_program", lambda: broken)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    toolchain.found_on_path.cache_clear()
    with pytest.raises(TwinError, match=r"undefined: x(.|\n)*type the command again"):
        build.build_all()
    assert not any(toolchain.build_dir(module).exists() for module in MODULES)


@pytest.mark.parametrize(
    ("printed", "serves"),
    [("go1.26.6", True), ("go1.26.8", True), ("go1.26.5", False), ("go1.27.0", False), ("", False)],
)
def test_go_serves_from_the_newest_patch_that_a_module_asks_for_to_the_end_of_its_minor(
    printed: str, serves: bool
) -> None:
    assert go.required_version() == (1, 26, 6)
    assert go.serves(printed) is serves
