"""The model is fetched once, before GPUs are asked for, and a fetch that fails costs none."""

import shlex
import sys
from pathlib import Path

from jobs.payload.endings import EXIT_FAILED
from jobs.payload.lease import process_start
from tests.jobs.payload.supervised import Nodes, Run

DOWNLOAD = """
import os, pathlib, sys
part = pathlib.Path(os.environ["HF_HOME"], "weights"); part.parent.mkdir(exist_ok=True)
part.write_bytes(b"x" * (100 + (part.stat().st_size if part.exists() else 0)))
if part.stat().st_size < 200: sys.exit("ConnectionError: the hub hung up")
"""


def shell(program: str) -> str:
    return shlex.join([sys.executable, "-c", program])


def test_an_interrupted_fetch_goes_on_and_is_done_before_gpus_are_waited_for(tmp_path: Path) -> None:
    nodes = Nodes()
    run = Run(tmp_path, nodes, prefetch=shell(DOWNLOAD))
    run.output.reactions['"event": "prefetched"'] = lambda: nodes.gpu_nodes.update("ab")

    assert run.supervisor.run() == 0

    assert (tmp_path / "cache" / "weights").stat().st_size == 200
    assert run.output.of("crashed")[0]["cause"] == "ConnectionError: the hub hung up"
    assert run.output.of("prefetched")[0]["bytes"] >= 200
    assert run.output.names("prefetched", "started") == ["prefetched", "started"]


def test_what_is_complete_is_not_fetched_again_but_for_another_release(tmp_path: Path, nodes: Nodes) -> None:
    command = shell("import os, pathlib; pathlib.Path('fetches').open('a').write('x')")
    for release in ("v1", "v1", "v2"):
        Run(tmp_path, nodes, prefetch=command, release=release, max_capacity_wait_s=1, gpus_per_node=9).supervisor.run()

    assert (tmp_path / "fetches").read_text() == "xx"


def test_a_fetch_that_fails_every_time_ends_the_run_before_a_gpu_is_asked_for(tmp_path: Path, nodes: Nodes) -> None:
    run = Run(tmp_path, nodes, prefetch=shell("import sys; sys.exit('GatedRepoError: ask for access')"), max_crashes=2)

    assert run.supervisor.run() == EXIT_FAILED

    cause = run.output.of("failed")[0]["cause"]
    assert cause.count("GatedRepoError: ask for access") == 1
    assert "2 times in a row" in cause
    assert {event["reason"] for event in run.output.of("waiting")} == {"prefetch"}
    assert run.output.of("started") == []


def test_a_fetch_that_talks_but_does_not_grow_is_ended(tmp_path: Path, nodes: Nodes) -> None:
    chatter = shell("import time\nwhile True: print('downloading', flush=True); time.sleep(0.05)")
    run = Run(tmp_path, nodes, prefetch=chatter, prefetch_limit_s=20, max_crashes=1)

    assert run.supervisor.run() == EXIT_FAILED

    assert run.output.of("stalled")[0]["phase"] == "prefetch"
    assert process_start(run.trainers[0].pid) is None


def test_a_finished_run_fetches_nothing(tmp_path: Path, nodes: Nodes) -> None:
    command = shell("import pathlib; pathlib.Path('fetched').touch()")
    assert Run(tmp_path, nodes, prefetch=command).supervisor.run() == 0
    (tmp_path / "fetched").unlink()
    again = Run(tmp_path, Nodes(), prefetch=f"{command} ")

    assert again.supervisor.run() == 0

    assert again.output.names() == ["done"]
    assert not (tmp_path / "fetched").exists()
