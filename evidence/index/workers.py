"""Read and check many runs in worker processes.

Workers are started as commands and not through `multiprocessing`, which would import the caller's main script again,
and that may be a page of the dashboard.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from queue import SimpleQueue

from evidence.grade import judge
from evidence.index.cache import IndexEntry, decode, encode
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
    read: dict[Path, IndexEntry] = {}
    for entry in iter_entries(folders):
        read[entry.summary.path] = entry
        if progress:
            progress(len(read), len(folders))
    return [read[folder] for folder in folders]


def iter_entries(folders: Sequence[Path]) -> Iterator[IndexEntry]:
    """Read, check and summarize runs, and yield them as soon as they are read, roughly in the order given."""
    count = min(processors(), len(folders) // WORTH_A_PROCESS)
    if count < 2:
        yield from map(read_entry, folders)
        return
    rest = folders[FIRST:]
    results: SimpleQueue[IndexEntry | None] = SimpleQueue()
    stop = threading.Event()
    for number in range(count):
        # Daemon threads, so that Ctrl-C does not wait for them.
        arguments = (rest[number::count], results, stop)
        threading.Thread(target=_run_worker, args=arguments, daemon=True).start()
    try:
        yield from map(read_entry, folders[:FIRST])
        missing = dict.fromkeys(rest)
        for _ in range(count):
            for entry in iter(results.get, None):
                missing.pop(entry.summary.path, None)
                yield entry
        # Runs of a worker that died.
        yield from map(read_entry, missing)
    finally:
        stop.set()


def _run_worker(folders: Sequence[Path], results: SimpleQueue[IndexEntry | None], stop: threading.Event) -> None:
    """Start a worker and put its entries into the queue, followed by None."""
    home = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    try:
        with (
            contextlib.suppress(OSError),
            subprocess.Popen(
                [sys.executable, "-P", "-m", "evidence.index.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": path},
                text=True,
            ) as process,
        ):
            assert process.stdin is not None, "a pipe"
            assert process.stdout is not None, "a pipe"
            process.stdin.write(json.dumps(list(map(str, folders))))
            process.stdin.close()
            for line in process.stdout:
                if stop.is_set():
                    break
                if entry := decode(line):
                    results.put(entry)
            process.kill()
    finally:
        results.put(None)


def worker_main() -> None:
    """Read a JSON list of paths from standard input, and write one entry per line to standard output."""
    gc.disable()  # Thousands of small objects without cycles; collecting costs an eighth of the time.
    if hasattr(os, "nice"):
        os.nice(10)  # Training on this machine comes first.
    for folder in json.load(sys.stdin):
        sys.stdout.write(encode(read_entry(Path(folder))) + "\n")
        sys.stdout.flush()


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


if __name__ == "__main__":
    worker_main()
