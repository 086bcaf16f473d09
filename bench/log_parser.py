"""Figures of the log parser on this machine: `python -m bench.log_parser`. Takes about half a minute.

A log of 10^6 lines, as watched: NeMo-RL's lines of a run of many steps between the lines of 64 workers, in chunks as
Ray's dashboard sends them. Limits of the product: 100,000 lines a second, 20 MiB.

| figure | what is measured |
|---|---|
| lines a second of processor time | what `python -m jobs watch` does with a line, printing included |
| growth | resident memory at its largest, less that before the first line |
"""

import os
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console

from jobs.dashboard import Job, JobStatus
from jobs.payload.event_lines import EVENT_PREFIX
from jobs.watch import PlainScreen, Watcher

LINES = 1_000_000
CHUNK_BYTES = 20_000  # Ray's tail sends 10 lines or 20,000 characters at a time
WORKERS = 64
SAVE_PERIOD = 2
KEPT = 2
SAMPLE_EVERY_CHUNKS = 100


def main() -> None:
    """Measure and print."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        measure(Watcher(PlainScreen(Console(file=nowhere))))


def measure(watcher: Watcher) -> None:
    """Feed the log to a watcher."""
    before = peak = resident_mib()
    lines, parsing_s = 0, 0.0
    for number, chunk in enumerate(chunks()):
        lines += chunk.count("\n")
        started = time.process_time()
        watcher.read(chunk)
        parsing_s += time.process_time() - started
        if number % SAMPLE_EVERY_CHUNKS == 0:
            peak = max(peak, resident_mib())
    watcher.finish(Job(submission_id="bench-a1", status=JobStatus.SUCCEEDED))
    print(f"lines: {lines}")
    print(f"steps: {watcher.progress.step}")
    print(f"lines a second of processor time: {lines / parsing_s:.0f}")
    print(f"growth: {max(peak, resident_mib()) - before:.1f} MiB")


def chunks() -> Iterator[str]:
    """Yield the log in pieces that cut lines, made one by one so that the log itself takes no memory."""
    rest, lines, step = "", 0, 0
    while lines < LINES:
        step += 1
        text = one_step(step)
        lines += text.count("\n")
        rest += text
        while len(rest) >= CHUNK_BYTES:
            yield rest[:CHUNK_BYTES]
            rest = rest[CHUNK_BYTES:]
    yield rest


def one_step(step: int) -> str:
    """Return what one step prints: about a hundred and fifty lines, most of them the workers'."""
    workers = "".join(
        f"\x1b[36m(MegatronPolicyWorker[rank={rank}] pid={4000 + rank}, ip=192.168.0.{rank // 8 + 2})\x1b[0m "
        f"iteration {step}: lm loss 0.01{rank}, grad norm 1.2, {rank} of {WORKERS} microbatches done\n"
        f"Processed prompts:  {rank}%|█▌| {rank}/{WORKERS} [00:0{rank % 10}<00:12, 2.31it/s]\r"
        f"(VllmGenerationWorker pid={7000 + rank}, ip=192.168.0.{rank // 8 + 2}) INFO engine.py:310 tokens {rank}"
        " [repeated 7x across cluster] (Ray deduplicates logs by default.)\n"
        for rank in range(WORKERS)
    )
    saving = f"Saving checkpoint for step {step}...\n" if step % SAVE_PERIOD == 0 else ""
    saved = "  • checkpointing: 118.40s (37.0%)\n" if saving else ""
    event = f'{EVENT_PREFIX}{{"v": 1, "event": "step", "at": {step * 320}, "step": {step}, "reward": 0.41, '
    event += '"step_time_s": 320.1, "max_steps": 1000000}\n'
    if saving:
        event += f'{EVENT_PREFIX}{{"v": 1, "event": "checkpoint", "at": {step * 320}, "step": {step}, '
        event += '"bytes": 1020000000000, "files": 300, "blocking_s": 118.4}\n'
        event += f"Removing checkpoint /lustre/c/step_{step - KEPT * SAVE_PERIOD} due to being outside top-{KEPT}\n"
    return (
        f"\n{'=' * 25} Step {step}/1000000 {'=' * 25}\n▶ Preparing batch...\n"
        f"▶ Generating responses for batch of size 256...\n{workers}{saving}"
        "\n📊 Training Results:\n  • Loss: 0.0123\n  • Avg Reward: 0.4102\n  • Mean Generation Length: 811.2\n"
        f"\n⏱️  Timing:\n  • Total step time: 320.10s\n  • generation: 120.00s (37.5%)\n{saved}\n{event}"
    )


def resident_mib() -> float:
    """Return the resident memory of this process."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) / 1024


if __name__ == "__main__":
    main()
