"""Read and check many runs in worker processes.

Workers are started as commands and not through `multiprocessing`, which would import the caller's main script again,
and that may be a page of the dashboard.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import pickle
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, cast

from evidence.grade import judge
from evidence.index.cache import IndexEntry
from evidence.index.summary import summarize
from evidence.run import read_run

Progress = Callable[[int, int], None]
"""Called with the number of runs read and the number of runs in total."""

WORTH_A_PROCESS = 100
"""Number of runs that take longer to read than a worker takes to start."""

FIRST = 20
"""Runs read in this process while the workers start: as many as a screen shows."""


def read_entry(folder: Path) -> IndexEntry:
    """Read, check and summarize a run."""
    run = read_run(folder)
    judged = judge(run)
    return IndexEntry(judged=judged, summary=summarize(run, judged.report))


def read_entries(folders: Sequence[Path], *, progress: Progress | None = None) -> list[IndexEntry]:
    """Read, check and summarize runs, in the order given."""
    entries: list[IndexEntry] = []
    for entry in iter_entries(folders):
        entries.append(entry)
        if progress:
            progress(len(entries), len(folders))
    return entries


def iter_entries(folders: Sequence[Path]) -> Iterator[IndexEntry]:
    """Read, check and summarize runs, and yield them one by one in the order given."""
    count = min(processors(), len(folders) // WORTH_A_PROCESS)
    if count < 2:
        yield from map(read_entry, folders)
        return
    rest = folders[FIRST:]
    with contextlib.ExitStack() as stack:
        workers = [_start_worker(rest[number::count], stack) for number in range(count)]
        yield from map(read_entry, folders[:FIRST])
        for number, folder in enumerate(rest):
            try:
                entry: IndexEntry = pickle.load(workers[number % count])  # noqa: S301 - of our own process
            except (EOFError, pickle.UnpicklingError):  # The worker died.
                entry = read_entry(folder)
            yield entry


def _start_worker(folders: Sequence[Path], stack: contextlib.ExitStack) -> BinaryIO:
    """Start a worker that ends with `stack`, and return its output, which is empty if it cannot be started."""
    home = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile("w+") as names:
        json.dump([str(folder) for folder in folders], names)
        names.seek(0)
        command = [sys.executable, "-P", "-m", "evidence.index.workers"]
        env = {**os.environ, "PYTHONPATH": path}
        try:
            pipes: dict[str, Any] = {"stdin": names, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            worker = stack.enter_context(subprocess.Popen(command, **pipes, env=env))
        except OSError:
            return BytesIO()
    stack.callback(worker.kill)
    return cast("BinaryIO", worker.stdout)


def worker_main() -> None:
    """Read a JSON list of paths from standard input, and write each entry to standard output."""
    gc.disable()  # Thousands of small objects without cycles; collecting costs an eighth of the time.
    if hasattr(os, "nice"):
        os.nice(10)  # Training on this machine comes first.
    for folder in json.load(sys.stdin):
        pickle.dump(read_entry(Path(folder)), sys.stdout.buffer)
        sys.stdout.flush()


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    worker_main()
