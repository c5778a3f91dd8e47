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
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from evidence.judge import Judged, judge
from evidence.read import read_run
from evidence.summary import RunSummary, summary_of

Progress = Callable[[int, int], None]
"""Called with runs done and runs in all."""

WORTH_A_PROCESS = 100
"""Runs that take longer to read than a further process takes to start."""

BATCH = 25
"""Runs given to a process at a time: about as long as a reader waits for a sign of progress."""

LENGTH_BYTES = 8
"""An answer of a further process begins with its length, as this many bytes, the highest first."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A run judged and summed up."""

    judged: Judged
    summary: RunSummary


def read_entry(folder: Path) -> Entry:
    """Read, judge and sum up one run."""
    run = read_run(folder)
    judged = judge(run)
    return Entry(judged=judged, summary=summary_of(run, judged.report))


def read_entries(folders: Sequence[Path], *, progress: Progress | None = None) -> list[Entry]:
    """Read, judge and sum up runs, in the order given.

    Args:
        folders: The run folders.
        progress: Told, in the caller's own thread, each time that some more runs are read.
    """
    helpers = min(_processors(), len(folders) // WORTH_A_PROCESS)
    if helpers < 2:
        return _read_here(folders, progress)
    batches = [folders[first : first + BATCH] for first in range(0, len(folders), BATCH)]
    read: dict[int, list[Entry]] = {}
    with _Helpers() as helping, ThreadPoolExecutor(helpers) as threads:
        numbers = {threads.submit(helping.read, batch): number for number, batch in enumerate(batches)}
        for future in as_completed(numbers):
            read[numbers[future]] = future.result()
            if progress:
                progress(sum(map(len, read.values())), len(folders))
    return [entry for number in range(len(batches)) for entry in read[number]]


def _read_here(folders: Sequence[Path], progress: Progress | None) -> list[Entry]:
    entries = []
    for done, folder in enumerate(folders, start=1):
        entries.append(read_entry(folder))
        if progress:
            progress(done, len(folders))
    return entries


class _Helpers:
    """One further process for each thread that asks; all are gone at the end of the block."""

    def __init__(self) -> None:
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
        # Our own process wrote this from our own classes; no file of a run is ever unpickled.
        return pickle.loads(answer) if answer else [read_entry(folder) for folder in batch]  # noqa: S301

    def _process(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._of_thread, "process"):
            home = str(Path(__file__).resolve().parents[1])
            path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
            self._of_thread.process = subprocess.Popen(
                [sys.executable, "-m", "evidence.many_worker"],
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
