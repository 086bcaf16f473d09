"""Stands for an agent and its pods in a test: the file system at argv[1] is shared, filled and given room again.

Prints `PASSED` at the end. Runs as root of a user namespace, or as root.
"""

import errno
import os
import subprocess
import sys
from pathlib import Path

from twin.kubernetes.launch import bind, mount
from twin.kubernetes.lustre_mounts import LustreMounts, enter_own_namespace
from twin.kubernetes.sandbox import _POD_NAMESPACES


class Container:
    """A shell with the file system at ROOT/lustre, in namespaces as a pod has them."""

    def __init__(self, source: Path, root: Path) -> None:
        root.mkdir()
        command = [*_POD_NAMESPACES, sys.executable, __file__, "--container", str(source), str(root)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run(self, script: str) -> str:
        """Run Python in it, in the file system; returns what it prints."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(f"{script!r}\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def contain(source: Path, root: Path) -> None:
    mount("tmpfs", root, "tmpfs", 0)
    (root / "lustre").mkdir()
    bind(root, source, root / "lustre")
    for line in sys.stdin:
        os.chdir(root / "lustre")
        code = ["-c", "import os, shutil; from pathlib import Path; " + eval(line)]
        done = subprocess.run([sys.executable, *code], capture_output=True, text=True, check=False)
        print(" ".join(done.stdout.split()) or done.stderr.splitlines()[-1], flush=True)
        os.chdir("/")


def main() -> None:
    directory = Path(sys.argv[1])
    enter_own_namespace()
    mounts = LustreMounts(scratch=directory.with_name("scratch"))
    mounts.share(directory)
    early = Container(directory, directory.with_name("early"))
    assert early.run("print(Path('step_2/weights').read_text())") == "two"
    mounts.reconcile(0)
    late = Container(directory, directory.with_name("late"))
    for container in (early, late):
        said = container.run("Path('fresh').write_text('x' * 10)")
        assert os.strerror(errno.ENOSPC) in said, said
        assert container.run("print(Path('step_2/weights').read_text())") == "two"
    assert early.run("os.mkdir('tmp_step_4'); Path('tmp_step_4/weights').touch(); print('made')") == "made"
    assert early.run("shutil.rmtree('step_1'); print('gone')") == "gone"
    assert late.run("print(*sorted(os.listdir()))") == "fresh step_2 tmp_step_4"
    mounts.reconcile(None)
    for container in (early, late):
        assert container.run("print(*sorted(os.listdir()))") == "fresh step_2 tmp_step_4"
        assert container.run("print(Path('fresh').write_text('x' * 10))") == "10"
    assert early.run("print(Path('tmp_step_4/weights').write_text('4'))") == "1"
    assert (directory / "tmp_step_4" / "weights").read_text() == "4"
    mounts.reconcile(1 << 20)
    assert late.run("print(Path('half').write_text('x' * 500_000))") == "500000"
    assert os.strerror(errno.ENOSPC) in late.run("Path('more').write_text('x' * 900_000)")
    mounts.reconcile(None)
    assert (directory / "half").stat().st_size == 500_000
    for container in (early, late):
        container.close()
    print("PASSED")


if __name__ == "__main__":
    if sys.argv[1] == "--container":
        contain(Path(sys.argv[2]), Path(sys.argv[3]))
    else:
        main()
