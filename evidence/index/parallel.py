"""Many runs read and judged at once, on every processor of the machine.

Runs do not depend on each other, so a long list is dealt out to further Python processes (`evidence.index.worker`).
They are started as commands and not through `multiprocessing`, which would run the caller's main script again, and
that may be a page of the dashboard.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from queue import SimpleQueue

from evidence.index.columns_cache import keep, signature_of
from evidence.index.read_ahead import read_ahead
from evidence.index.summary import RunSummary, summary_of
from evidence.judge.judgement import Judged, judge
from evidence.records.ours import read_run
from evidence.run.layout import METRICS
from schemas.reading.columns import Table

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
    """Read, judge and sum up one run, and keep the columns of a long one for `columns_cache`."""
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
        yield from read_in_turn(folders, columns_in=columns_in)
        return
    waiting = deque(folders[start : start + BATCH] for start in range(FIRST, len(folders), BATCH))
    answers: SimpleQueue[Mapping[Path, Entry] | None] = SimpleQueue()
    for _ in range(helpers):
        # A daemon: whoever presses Ctrl-C does not wait for runs that are being read.
        threading.Thread(target=_have_read, args=(waiting, answers, columns_in), daemon=True).start()
    try:
        yield from read_in_turn(folders[:FIRST], columns_in=columns_in)
        for _ in range(helpers):
            yield from iter(answers.get, None)
        yield from read_in_turn(list(chain.from_iterable(waiting)), columns_in=columns_in)
    finally:
        waiting.clear()


def read_in_turn(folders: Sequence[Path], *, columns_in: Path | None = None) -> Iterator[Mapping[Path, Entry]]:
    """Read, judge and sum up one run after the other in this process, while the disk fetches those that follow."""
    for start in range(0, len(folders), BATCH):
        some = folders[start : start + BATCH]
        read_ahead(some)
        for folder in some:
            yield {folder: read_entry(folder, columns_in=columns_in)}


def _have_read(
    waiting: deque[Sequence[Path]], answers: SimpleQueue[Mapping[Path, Entry] | None], columns_in: Path | None
) -> None:
    """Have a further process read batch after batch; answer None when nothing waits, or the process is of no use."""
    try:
        with contextlib.suppress(OSError), _helper(columns_in) as process:
            while waiting:
                try:
                    batch = waiting.popleft()
                except IndexError:  # Another thread was faster.
                    break
                entries = _ask(process, batch)
                if not entries:
                    waiting.append(batch)
                    break
                answers.put(dict(zip(batch, entries, strict=True)))
            process.kill()
    finally:
        answers.put(None)


def _helper(columns_in: Path | None) -> subprocess.Popen[bytes]:
    home = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-m", "evidence.index.worker", *([str(columns_in)] if columns_in else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _ask(process: subprocess.Popen[bytes], batch: Sequence[Path]) -> list[Entry]:
    """Send paths as one line of JSON; return their entries, which come after their length. Empty: the process died."""
    if process.stdin is None or process.stdout is None:
        return []
    try:
        process.stdin.write(json.dumps([os.fsencode(folder).hex() for folder in batch]).encode() + b"\n")
        process.stdin.flush()
        length = int.from_bytes(process.stdout.read(LENGTH_BYTES), "big")
        answer = process.stdout.read(length)
    except OSError:
        return []
    if not length or len(answer) < length:
        return []
    # Our own process wrote this from our own classes; no file of a run is ever unpickled.
    entries: list[Entry] = pickle.loads(answer)  # noqa: S301
    return entries


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
