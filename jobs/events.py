"""`python -m jobs events FILE`: a saved job log as one JSON record a line, the last one its summary."""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from jobs.errors import UsageError
from jobs.log_parser import LogParser
from jobs.log_records import Record, to_json
from jobs.log_summary import LogSummary

_CHUNK_BYTES = 1 << 20


def read_records(stream: BinaryIO) -> Iterator[Record]:
    """Yield a log's records as they are read, then its summary."""
    parser, summary = LogParser(), LogSummary()
    while chunk := stream.read(_CHUNK_BYTES):
        for record in parser.feed(chunk):
            summary.add(record)
            yield record
    for record in parser.close():
        summary.add(record)
        yield record
    yield summary.summary(line=parser.line)


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the command line."""
    parser = subparsers.add_parser("events", help="print a saved job log as JSON records, one a line")
    parser.add_argument("file", metavar="FILE", help="the log; - for standard input")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print the records.

    Raises:
        UsageError: the file cannot be read.
    """
    if args.file == "-":
        return _print(sys.stdin.buffer)
    try:
        with Path(args.file).open("rb") as stream:
            return _print(stream)
    except OSError as error:
        raise UsageError(
            f"The log {args.file} cannot be read ({error.strerror}); nothing was printed of it. "
            "Name a file that `python -m jobs logs` has written."
        ) from error


def _print(stream: BinaryIO) -> int:
    for record in read_records(stream):
        print(to_json(record))
    return 0
