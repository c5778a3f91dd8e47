"""Many runs read and judged at once, on every processor of the machine.

Runs do not depend on each other, so a long list is dealt out to further Python processes. They are started as commands
and not through `multiprocessing`, which would run the caller's main script again, and that may be a page of the
dashboard.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from queue import SimpleQueue

from evidence.index.columns_cache import keep, signature_of
from evidence.index.entries import IndexEntry, decode, encode
from evidence.index.summary import summary_of
from evidence.judge.judgement import judge
from evidence.records.ours import read_run
from evidence.run import platform
from evidence.run.layout import MANIFEST, METRICS, ROLES
from schemas.reading import Columns

Progress = Callable[[int, int], None]
"""Called with runs done and runs in all."""

WORTH_A_PROCESS = 100
"""Runs that take longer to read than a further process takes to start."""

FIRST = 20
"""Runs read here while the further processes start: as many as a screen shows at once."""

BATCH = 25
"""Runs given to a process at a time: about as long as a reader waits for a sign of progress."""

MOST_FETCHED = 4 * 2**20
"""Bytes of a file that are fetched ahead; the system is ahead by itself of anyone who reads a longer one through."""

_HELPER = "from evidence.index.parallel import help_reading; help_reading()"

LENGTH_BYTES = 8
"""An answer of a further process begins with its length, as this many bytes, the highest first."""


def read_entry(folder: Path, *, columns_in: Path | None = None) -> IndexEntry:
    """Read, judge and sum up one run, and keep the columns of a long one for `columns_cache`."""
    signature = signature_of(folder / METRICS)
    run = read_run(folder)
    judged = judge(run)
    rows = run.metrics()
    # Of a file with a torn tail nothing is kept: it may still grow.
    if columns_in and signature and not rows.problems and rows.bytes_read == signature[1]:
        keep(columns_in, folder / METRICS, signature, Columns(rows.values))
    return IndexEntry(judged=judged, summary=summary_of(run, judged.report))


def read_entries(
    folders: Sequence[Path], *, progress: Progress | None = None, columns_in: Path | None = None
) -> list[IndexEntry]:
    """Read, judge and sum up runs, in the order given.

    Args:
        folders: The run folders.
        columns_in: As for `read_entry`.
        progress: Told, in the caller's own thread, each time that some more runs are read.
    """
    read: dict[Path, IndexEntry] = {}
    for batch in read_batches(folders, columns_in=columns_in):
        read |= batch
        if progress:
            progress(len(read), len(folders))
    return [read[folder] for folder in folders]


def read_batches(folders: Sequence[Path], *, columns_in: Path | None = None) -> Iterator[Mapping[Path, IndexEntry]]:
    """Read, judge and sum up runs, and yield some as soon as they are read, about in the order given."""
    helpers = min(platform.processors(), len(folders) // WORTH_A_PROCESS)
    if helpers < 2:
        yield from read_in_turn(folders, columns_in=columns_in)
        return
    waiting = deque(folders[start : start + BATCH] for start in range(FIRST, len(folders), BATCH))
    answers: SimpleQueue[Mapping[Path, IndexEntry] | None] = SimpleQueue()
    for _ in range(helpers):
        # A daemon: anyone who presses Ctrl-C does not wait for runs that are being read.
        threading.Thread(target=_have_read, args=(waiting, answers, columns_in), daemon=True).start()
    try:
        yield from read_in_turn(folders[:FIRST], columns_in=columns_in)
        left = set(folders[FIRST:])
        for _ in range(helpers):
            for read in iter(answers.get, None):
                left -= read.keys()
                yield read
        yield from read_in_turn([folder for folder in folders if folder in left], columns_in=columns_in)
    finally:
        waiting.clear()


def read_in_turn(folders: Sequence[Path], *, columns_in: Path | None = None) -> Iterator[Mapping[Path, IndexEntry]]:
    """Read, judge and sum up one run after the other in this process, while the disk fetches those that follow."""
    for start in range(0, len(folders), BATCH):
        some = folders[start : start + BATCH]
        read_ahead(some)
        for folder in some:
            yield {folder: read_entry(folder, columns_in=columns_in)}


def read_ahead(folders: Iterable[Path]) -> None:
    """Tell the system which files of these folders will be read; what is missing, or is not a file, is passed over.

    Folders that no one has read for a while are not in memory, and each file would be waited for in turn.
    """
    for folder in folders:
        root = f"{folder}{os.sep}"  # Thousands of paths take a while to make.
        for name in (MANIFEST, *ROLES):
            with contextlib.suppress(OSError):
                platform.fetch(root + name, MOST_FETCHED)


def _have_read(
    waiting: deque[Sequence[Path]], answers: SimpleQueue[Mapping[Path, IndexEntry] | None], columns_in: Path | None
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
                read = dict(zip(batch, map(decode, entries), strict=True))
                answers.put({folder: entry for folder, entry in read.items() if entry is not None})
            process.kill()
    finally:
        answers.put(None)


def _helper(columns_in: Path | None) -> subprocess.Popen[bytes]:
    home = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.Popen(
        [sys.executable, "-c", _HELPER, *([str(columns_in)] if columns_in else [])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": path},
    )


def _ask(process: subprocess.Popen[bytes], batch: Sequence[Path]) -> list[bytes]:
    """Send paths as one line of JSON; return their entries as bytes. Empty: the process died."""
    if process.stdin is None or process.stdout is None:
        return []
    try:
        process.stdin.write(json.dumps([os.fsencode(folder).hex() for folder in batch]).encode() + b"\n")
        process.stdin.flush()
        length = int.from_bytes(process.stdout.read(LENGTH_BYTES), "big")
        answer = process.stdout.read(length)
    except OSError:
        return []
    return answer.split(b"\n") if length and len(answer) == length else []


def help_reading() -> None:
    """Read what another process requests: a line of paths comes in, the entries go out, until the input ends."""
    # Thousands of small documents are made and dropped and none refers to itself: looking for cycles costs an eighth.
    gc.disable()
    # Anyone who waits for the runs is to be told of them, and a training that runs here comes first.
    platform.give_way()
    columns_in = Path(sys.argv[1]) if len(sys.argv) > 1 else None
    for line in sys.stdin.buffer:
        folders = [Path(os.fsdecode(bytes.fromhex(name))) for name in json.loads(line)]
        read = [entry for one in read_in_turn(folders, columns_in=columns_in) for entry in one.values()]
        # What cannot be sent is empty, and read by who asked.
        answer = b"\n".join(encode(entry) or b"" for entry in read)
        sys.stdout.buffer.write(len(answer).to_bytes(LENGTH_BYTES, "big") + answer)
        sys.stdout.buffer.flush()
