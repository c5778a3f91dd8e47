"""Many runs read and judged at once, on every processor of the machine.

Runs do not depend on each other, so a long list is dealt out to further Python processes (`evidence.many_worker`).
They are started as commands and not through `multiprocessing`, which would run the caller's main script again, and
that may be a page of the dashboard.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from evidence.judge import Judged, judge
from evidence.read import read_run
from evidence.summary import RunSummary, summary_of

Progress = Callable[[int, int], None]
"""Called with runs done and runs in all."""

WORTH_A_PROCESS = 100
"""Runs that take longer to read than a further process takes to start."""


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
        progress: Told of the runs that this process reads; the others are told of together at the end.
    """
    helpers = min(_processors(), len(folders) // WORTH_A_PROCESS) - 1
    if helpers < 1:
        return _read_here(folders, len(folders), progress)
    parts = [folders[first :: helpers + 1] for first in range(helpers + 1)]
    with ThreadPoolExecutor(helpers) as threads:
        elsewhere = [threads.submit(_read_elsewhere, part) for part in parts[1:]]
        read = [_read_here(parts[0], len(folders), progress), *(one.result() for one in elsewhere)]
    if progress:
        progress(len(folders), len(folders))
    return [read[number % len(parts)][number // len(parts)] for number in range(len(folders))]


def _read_here(folders: Sequence[Path], total: int, progress: Progress | None) -> list[Entry]:
    entries = []
    for done, folder in enumerate(folders, start=1):
        entries.append(read_entry(folder))
        if progress:
            progress(done, total)
    return entries


def _read_elsewhere(folders: Sequence[Path]) -> list[Entry]:
    """Read the runs in another process; here, if it cannot be started or dies."""
    home = str(Path(__file__).resolve().parents[1])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        done = subprocess.run(
            [sys.executable, "-m", "evidence.many_worker"],
            input=pickle.dumps([str(folder) for folder in folders]),
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONPATH": path},
        )
    except (OSError, subprocess.CalledProcessError):
        return [read_entry(folder) for folder in folders]
    # Our own process wrote this from our own classes; no file of a run is ever unpickled.
    entries: list[Entry] = pickle.loads(done.stdout)  # noqa: S301
    return entries


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
