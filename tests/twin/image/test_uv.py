import subprocess

import pytest

from tests.twin.image.runs import IMAGE

UV = IMAGE / "bin" / "uv"


@pytest.mark.parametrize("flags", [[], ["--reinstall"], ["--extra", "mcore", "--frozen"], ["--extra=mcore"]])
def test_flags_are_dropped_and_python_runs_the_rest(flags: list[str]) -> None:
    command = [str(UV), "run", *flags, "python", "-c", "import sys; print(sys.argv[1:])", "--extra", "a b"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    assert result.stdout == "['--extra', 'a b']\n"


@pytest.mark.parametrize("arguments", [[], ["pip", "install", "x"], ["run"], ["run", "--extra"], ["run", "bash"]])
def test_anything_else_is_refused(arguments: list[str]) -> None:
    result = subprocess.run([UV, *arguments], capture_output=True, text=True, check=False)
    assert result.returncode == 2
    assert result.stderr.startswith("uv: ")
