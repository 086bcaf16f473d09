"""Copies one complete checkpoint from Lustre to a bucket: `python -m jobs.payload.export`, a Ray job on the head.

    gs://BUCKET/PREFIX/step_N/…              the files, under their own names
    gs://BUCKET/PREFIX/step_N/_COMPLETE.json written last: the copy is whole when it is there
    RUN_DIR/supervisor/exported.json         then says so on Lustre

Every object is checked against the md5 of what was read. What is there already and equal is not sent again, so the
same command goes on where an interrupted one stopped. Four threads of 16 MiB each are all that it takes of the head's
memory, and it asks Ray for nothing: training does not wait for it.

NeMo-RL prunes old checkpoints (`keep_top_k`) and knows nothing of copies: one that goes while it is read fails by name.
"""

import argparse
import base64
import errno
import hashlib
import io
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jobs.payload import checkpoints
from jobs.payload.clock import Clock
from jobs.payload.cloud_storage import Bucket, Metadata, StorageError, StoredObject, md5_text
from jobs.payload.workers import CREDENTIALS_DIR

THREADS = 4
COMPLETE = "_COMPLETE.json"
RECORD = "exported.json"
EXIT_FAILED = 1
EXIT_USAGE = 2

# https://cloud.google.com/storage/docs/buckets#naming, without the rarer rules.
_URL = re.compile(r"gs://(?P<bucket>[a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(?P<prefix>.*))?")
_TELL_EVERY_S = 10.0
_READ_BYTES = 1024**2
_GONE = (errno.ENOENT, errno.ESTALE)
_MEGABYTE = 1e6


class NothingToExport(Exception):
    """There is no such complete checkpoint; the text names those that there are."""


class ExportFailed(Exception):
    """The copy is not whole."""


@dataclass(frozen=True, kw_only=True)
class SourceFile:
    """A file of the checkpoint, as it was when the copy began."""

    name: str
    path: Path
    bytes: int
    modified_ns: int


def find_checkpoint(checkpoint_dir: Path, step: int) -> Path:
    """Return the directory of a complete checkpoint.

    Raises:
        NothingToExport: the step has none.
    """
    complete = [
        each
        for each in checkpoints.steps(checkpoint_dir)
        if (checkpoint_dir / f"step_{each}/training_info.json").is_file()
    ]
    if step in complete:
        return checkpoint_dir / f"step_{step}"
    kind = "is not complete" if any(checkpoint_dir.glob(f"*step_{step}")) else "does not exist"
    there_is = ", ".join(f"step_{each}" for each in complete) or "none"
    raise NothingToExport(
        f"{checkpoint_dir}/step_{step} {kind}, so nothing was copied. Complete checkpoints: {there_is}"
    )


def list_files(directory: Path) -> list[SourceFile]:
    """List all files of a checkpoint, the largest first, so that none is left for the end.

    Raises:
        ExportFailed: it holds a link, which a bucket cannot.
        FileNotFoundError: it was pruned meanwhile.
    """
    files = []
    for parent, directories, names in os.walk(directory):
        for path in (Path(parent) / name for name in (*directories, *names)):
            if path.is_symlink():
                raise ExportFailed(f"{path} is a link, which a bucket cannot hold, so nothing was copied")
        for path in (Path(parent) / name for name in names):
            seen = path.stat()
            name = path.relative_to(directory).as_posix()
            files.append(SourceFile(name=name, path=path, bytes=seen.st_size, modified_ns=seen.st_mtime_ns))
    return sorted(files, key=lambda file: (-file.bytes, file.name))


class Copy:
    """One checkpoint on its way to one bucket."""

    def __init__(
        self, directory: Path, bucket: Bucket, prefix: str, *, say: Callable[[str], None], clock: Clock = time
    ) -> None:
        """Look at the source.

        Args:
            directory: the checkpoint.
            bucket: where it goes.
            prefix: what the names of its objects begin with.
            say: told of progress, a line at a time.
            clock: what speed is measured by.

        Raises:
            ExportFailed: it cannot be copied as it is.
        """
        self._directory = directory
        self._bucket = bucket
        self._prefix = prefix
        self._say = say
        self._clock = clock
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._sent_bytes = 0
        self._done = 0
        with _pruning_told(directory):
            self.files = list_files(directory)
        self.bytes = sum(file.bytes for file in self.files)

    def run(self, summary: Mapping[str, object]) -> None:
        """Copy what is not there yet, check all of it, then write `_COMPLETE.json`.

        Args:
            summary: what `_COMPLETE.json` says besides bytes and files.

        Raises:
            ExportFailed: the copy is not whole, or something else lies where it should go.
            StorageError: the bucket cannot be used.
        """
        there = self._objects()
        expected = {file.name for file in self.files}
        strangers = sorted(there.keys() - expected - {COMPLETE})
        if strangers:
            raise ExportFailed(
                f"{self._url()} holds {len(strangers)} objects that are not of this checkpoint ({strangers[0]}), so "
                "nothing was copied: the two would be mixed. Choose another prefix, or delete them"
            )
        self._say(f"copying {len(self.files)} files, {_megabytes(self.bytes)}, to {self._url()}")
        md5s = self._copy_all(there)
        self._verify(md5s)
        text = json.dumps({**summary, "bytes": self.bytes, "files": len(self.files)}).encode()
        if _md5_if_equal(there.get(COMPLETE), io.BytesIO(text), len(text)) is None:
            self._bucket.upload(self._prefix + COMPLETE, io.BytesIO(text), len(text), on_sent=lambda _: None)
        self._say(f"{self._url()} is complete: {len(md5s)} files, {_megabytes(self.bytes)}, every md5 as it was read")

    def _objects(self) -> dict[str, StoredObject]:
        found = self._bucket.objects(self._prefix)
        return {name.removeprefix(self._prefix): stored for name, stored in found.items()}

    def _copy_all(self, there: Mapping[str, StoredObject]) -> dict[str, str]:
        is_complete = COMPLETE in there
        began = self._clock.monotonic()
        with ThreadPoolExecutor(THREADS) as pool:
            copies = {
                pool.submit(self._copy, file, there.get(file.name), is_complete=is_complete): file.name
                for file in self.files
            }
            pending: set[Future[str]] = set(copies)
            try:
                while pending:
                    done, pending = wait(pending, timeout=_TELL_EVERY_S, return_when=FIRST_EXCEPTION)
                    for copy in done:
                        copy.result()
                    self._tell(began)
            finally:
                self._stop.set()
                pool.shutdown(wait=True, cancel_futures=True)
        return {name: copy.result() for copy, name in copies.items()}

    def _copy(self, file: SourceFile, stored: StoredObject | None, *, is_complete: bool) -> str:
        """Upload a file unless it is there; return its md5."""
        with _pruning_told(self._directory), file.path.open("rb") as source:
            md5 = _md5_if_equal(stored, source, file.bytes)
            if md5 is None and is_complete:
                raise ExportFailed(
                    f"{self._url()} holds another complete checkpoint ({file.name} differs), which stays as it is. "
                    "Choose another prefix, or delete it"
                )
            if md5 is None:
                source.seek(0)
                md5 = self._bucket.upload(self._prefix + file.name, source, file.bytes, on_sent=self._on_sent)
            seen = os.fstat(source.fileno())
            if (seen.st_size, seen.st_mtime_ns) != (file.bytes, file.modified_ns):
                raise EOFError
        with self._lock:
            self._done += 1
        return md5

    def _on_sent(self, size: int) -> None:
        if self._stop.is_set():
            raise ExportFailed(f"{self._url()} is not whole")
        with self._lock:
            self._sent_bytes += size

    def _tell(self, began: float) -> None:
        seconds = max(self._clock.monotonic() - began, 0.001)
        with self._lock:
            sent_bytes, done = self._sent_bytes, self._done
        self._say(
            f"{done} of {len(self.files)} files are there; {_megabytes(sent_bytes)} sent, "
            f"{_megabytes(sent_bytes / seconds)}/s"
        )

    def _verify(self, md5s: Mapping[str, str]) -> None:
        there = self._objects()
        for file in self.files:
            stored = there.get(file.name)
            if stored != StoredObject(bytes=file.bytes, md5=md5s[file.name]):
                raise ExportFailed(
                    f"{self._url()}{file.name} is {stored or 'not there'}, and {file.bytes} bytes with md5 "
                    f"{md5s[file.name]} were read: something else writes there. Choose another prefix"
                )

    def _url(self) -> str:
        return f"gs://{self._bucket.name}/{self._prefix}"


def parse_url(text: str) -> tuple[str, str]:
    """Return bucket and prefix of `gs://BUCKET/PREFIX`, without slashes at the prefix's ends; it may be empty.

    Raises:
        ValueError: it is no such URL.
    """
    match = _URL.fullmatch(text)
    if not match:
        raise ValueError(f"{text} is no gs://BUCKET/PREFIX")
    return match["bucket"], (match["prefix"] or "").strip("/")


def object_prefix(prefix: str, step: int) -> str:
    """Return what the names of a checkpoint's objects begin with."""
    return f"{prefix}/step_{step}/".removeprefix("/")


def write_record(run_dir: Path, *, step: int, to: str, training_info: bytes) -> None:
    """Note on Lustre which checkpoint was copied whole, and where to; another of that step is another checkpoint."""
    path = run_dir / "supervisor" / RECORD
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_suffix(".draft")
    record = {"step": step, "to": to, "training_info_sha256": hashlib.sha256(training_info).hexdigest()}
    draft.write_text(json.dumps(record), encoding="utf-8")
    draft.replace(path)


@contextmanager
def _pruning_told(directory: Path) -> Iterator[None]:
    """Give what happens to a file that goes, or is written anew, its name."""
    try:
        yield
    except (OSError, EOFError) as error:
        if isinstance(error, OSError) and error.errno not in _GONE:
            raise
        raise ExportFailed(
            f"{directory} was pruned or written anew while it was copied (checkpointing.keep_top_k): the copy is not "
            "whole, and has no _COMPLETE.json. Copy the newest as soon as it is there (--step newest), or after "
            "`python -m jobs stop`, which keeps it as it is"
        ) from error


def _md5_if_equal(stored: StoredObject | None, source: IO[bytes], size: int) -> str | None:
    """Return the md5 of a source if the stored object is equal to it."""
    if stored is None or stored.bytes != size:
        return None
    digest = hashlib.md5(usedforsecurity=False)
    while data := source.read(_READ_BYTES):
        digest.update(data)
    md5 = md5_text(digest.digest())
    return md5 if md5 == stored.md5 else None


def _megabytes(size: float) -> str:
    return f"{size / _MEGABYTE:,.1f} MB"


def _kubernetes_account(namespace: str) -> str:
    """Return NAMESPACE/NAME of this pod's service account: the token that scales workers names it, if there is one."""
    try:
        claims = (CREDENTIALS_DIR / "token").read_text(encoding="utf-8").split(".")[1]
        subject = json.loads(base64.urlsafe_b64decode(claims + "=="))["sub"]
    except (OSError, ValueError, LookupError):
        return f"{namespace}/default"
    return "/".join(str(subject).split(":")[-2:])


def main(arguments: Sequence[str] | None = None, *, clock: Clock = time) -> int:
    """Copy a checkpoint; returns 0, 1 for a failure, 2 for a checkpoint or URL that cannot be meant."""
    parser = argparse.ArgumentParser(prog="python -m jobs.payload.export", description=__doc__)
    parser.add_argument("--checkpoint-dir", type=Path, required=True)
    parser.add_argument("--run-dir", type=Path, required=True)
    parser.add_argument("--step", type=int, required=True)
    parser.add_argument("--to", required=True, metavar="gs://BUCKET/PREFIX")
    parser.add_argument("--namespace", required=True, help="of this pod, for whoever has to give it a role")
    args = parser.parse_args(arguments)
    try:
        name, prefix = parse_url(args.to)
        directory = find_checkpoint(args.checkpoint_dir, args.step)
    except (ValueError, NothingToExport) as error:
        _say(f"error: {error}")
        return EXIT_USAGE
    try:
        bucket = Bucket(
            name,
            metadata=Metadata(os.environ, clock=clock),
            environment=os.environ,
            kubernetes_account=_kubernetes_account(args.namespace),
            clock=clock,
        )
        copy = Copy(directory, bucket, object_prefix(prefix, args.step), say=_say, clock=clock)
        training_info = (directory / "training_info.json").read_bytes()
        copy.run({"step": args.step, "model": checkpoints.model_of(args.checkpoint_dir, args.step)})
        write_record(args.run_dir, step=args.step, to=args.to, training_info=training_info)
    except (ExportFailed, StorageError, OSError, ValueError) as error:
        _say(f"error: {error}")
        return EXIT_FAILED
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
