"""Many runs read and judged at once, on every processor of the machine.

Runs do not depend on each other, so a long list is dealt out to further Python processes (`evidence.many_worker`).
They are started as commands and not through `multiprocessing`, which would run the caller's main script again, and
that may be a page of the dashboard.
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from evidence.judge import Judged, judge
from evidence.kept_columns import keep, signature_of
from evidence.layout import METRICS
from evidence.read import read_run
from evidence.summary import RunSummary, summary_of
from schemas.columns import Table

Progress = Callable[[int, int], None]
"""Called with runs done and runs in all."""

WORTH_A_PROCESS = 100
"""Runs that take longer to read than a further process takes to start."""

FIRST = 20
"""Runs read here while the further processes start: as many as a screen shows at once."""

BATCH = 25
"""Runs given to a process at a time: about as long as a reader waits for a sign of progress."""

LENGTH_BYTES = 8
"""An answer of a further process begins with its length, as this many bytes, the highest first."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A run judged and summed up."""

    judged: Judged
    summary: RunSummary


def read_entry(folder: Path, *, columns_in: Path | None = None) -> Entry:
    """Read, judge and sum up one run, and keep the columns of a long one in a folder of `evidence.kept_columns`."""
    signature = signature_of(folder / METRICS)
    run = read_run(folder)
    judged = judge(run)
    rows = run.metrics()
    # Of a file with a torn tail nothing is kept: it may still grow.
    if columns_in and signature and isinstance(rows.values, Table) and rows.bytes_read == signature[1]:
        keep(columns_in, folder / METRICS, signature, rows.values.columns)
    return Entry(judged=judged, summary=summary_of(run, judged.report))


def read_entries(
    folders: Sequence[Path], *, progress: Progress | None = None, columns_in: Path | None = None
) -> list[Entry]:
    """Read, judge and sum up runs, in the order given.

    Args:
        folders: The run folders.
        columns_in: As for `read_entry`.
        progress: Told, in the caller's own thread, each time that some more runs are read.
    """
    read: dict[Path, Entry] = {}
    for batch in read_batches(folders, columns_in=columns_in):
        read |= batch
        if progress:
            progress(len(read), len(folders))
    return [read[folder] for folder in folders]


def read_batches(folders: Sequence[Path], *, columns_in: Path | None = None) -> Iterator[Mapping[Path, Entry]]:
    """Read, judge and sum up runs, and yield some as soon as they are read, about in the order given."""
    helpers = min(_processors(), len(folders) // WORTH_A_PROCESS)
    if helpers < 2:
        for folder in folders:
            yield {folder: read_entry(folder, columns_in=columns_in)}
        return
    batches = [folders[start : start + BATCH] for start in range(FIRST, len(folders), BATCH)]
    with _Helpers(columns_in) as helping, ThreadPoolExecutor(helpers) as threads:
        numbers = {threads.submit(helping.read, batch): number for number, batch in enumerate(batches)}
        try:
            for folder in folders[:FIRST]:
                yield {folder: read_entry(folder, columns_in=columns_in)}
            for future in as_completed(numbers):
                yield dict(zip(batches[numbers[future]], future.result(), strict=True))
        finally:
            # After Ctrl-C only what is being read is waited for.
            threads.shutdown(wait=False, cancel_futures=True)


class _Helpers:
    """One further process for each thread that asks; all are gone at the end of the block."""

    def __init__(self, columns_in: Path | None) -> None:
        self._columns_in = columns_in
        self._of_thread = threading.local()
        self._started: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._started:
            process.kill()
            process.communicate()

    def read(self, batch: Sequence[Path]) -> list[Entry]:
        """Return the entries of a batch from this thread's process; read here, if it cannot be started or dies."""
        try:
            process = self._process()
            answer = _ask(process, batch)
        except OSError:
            answer = b""
        if answer:
            # Our own process wrote this from our own classes; no file of a run is ever unpickled.
            entries: list[Entry] = pickle.loads(answer)  # noqa: S301
            return entries
        return [read_entry(folder, columns_in=self._columns_in) for folder in batch]

    def _process(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._of_thread, "process"):
            home = str(Path(__file__).resolve().parents[1])
            path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
            self._of_thread.process = subprocess.Popen(
                [sys.executable, "-m", "evidence.many_worker", *([str(self._columns_in)] if self._columns_in else [])],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
            )
            self._started.append(self._of_thread.process)
        process: subprocess.Popen[bytes] = self._of_thread.process
        return process


def _ask(process: subprocess.Popen[bytes], batch: Sequence[Path]) -> bytes:
    """Send paths as one line of JSON; return the answer, which comes after its length. Empty: there is none."""
    if process.stdin is None or process.stdout is None:
        return b""
    process.stdin.write(json.dumps([os.fsencode(folder).hex() for folder in batch]).encode() + b"\n")
    process.stdin.flush()
    size = process.stdout.read(LENGTH_BYTES)
    answer = process.stdout.read(int.from_bytes(size, "big"))
    return answer if len(size) == LENGTH_BYTES and len(answer) == int.from_bytes(size, "big") else b""


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
