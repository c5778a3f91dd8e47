"""Writing evidence so that a kill or a full disk never costs what was already there.

Documents are replaced whole: a temporary file in the same folder, synced, renamed over the old one, the folder
synced. Rows are appended, each with one system call, and synced every few seconds.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import threading
import time
from collections.abc import Iterable
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from evidence.run.platform import sync_folder
from schemas.problems import ProblemError, problem_of

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def is_full(error: OSError) -> bool:
    """Return whether a write failed for want of space."""
    return error.errno in _FULL


def not_written(error: OSError, where: Path, *, what: str) -> ProblemError:
    """Return the end of a command whose output could not be written, exit code 2.

    Args:
        error: Why it could not be written.
        where: Where it was to be.
        what: What it was, as the subject of a sentence: `The export`.
    """
    if is_full(error):
        folder = next(folder for folder in (where, *where.resolve().parents) if folder.is_dir())
        free = shutil.disk_usage(folder).free
        reason, then = "the disk is full", f"Free space there ({free:,} bytes are left), or give another place."
    else:
        reason, then = f"{error.strerror or error}", "Give a place that you may write to."
    why = "What was there before is as it was, and nothing is left half made."
    what = f"{what} could not be written: {reason}."
    problem = problem_of("TP089", file=str(where), what=what, why=why, next=then)
    return ProblemError([problem], exit_code=2)


SYNC_SECONDS = 3.0
"""Longest time for which appended rows may exist only in the memory of the operating system."""

_BLOCK = 65536


def as_json_text(value: Any) -> str:
    """Return a JSON document in the one form that bundles hold and every verb prints."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON document: after any interruption the file holds the old text or the new one, never a part.

    Raises:
        OSError: It could not be written; the previous file is intact.
        ValueError: The value holds a number that is not finite; the previous file is intact.
    """
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a text file as `write_json` does, in UTF-8 and with the text's own line ends.

    Raises:
        OSError: It could not be written; the previous file is intact.
    """
    write_bytes(Path(path), text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file as `write_json` does.

    Raises:
        OSError: It could not be written; the previous file is intact.
    """
    # Two threads of one process may write the same document: each has a file of its own until it takes the name.
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append rows to a JSONL file and close it; as `RowWriter`, of which each row is written."""
    with RowWriter(path) as writer:
        for row in rows:
            writer.append(row)


class RowWriter:
    """Appends rows to a JSONL file; a row that `append` returned from survives the death of this process.

    Opening an existing file first cuts off a torn last line, which is what a kill in the middle of a row leaves.

    Raises:
        OSError: The file cannot be opened, read or cut.
    """

    def __init__(self, path: Path) -> None:
        self._file = Path(path).open("ab+", buffering=0)  # noqa: SIM115 - closed by close(), which __exit__ calls
        self._size = _end_of_last_line(self._file)
        os.ftruncate(self._file.fileno(), self._size)
        self._synced_at = time.monotonic()

    def append(self, row: dict[str, Any]) -> bytes:
        """Write one row as one line, in one system call, and return the line.

        Raises:
            OSError: The row could not be written, for example because the disk is full; the rows before it are intact.
            ValueError: The row holds a number that is not finite; nothing was written.
        """
        line = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
        try:
            self._write_all(line)
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(line)
        if time.monotonic() - self._synced_at >= SYNC_SECONDS:
            self.sync()
        return line

    def sync(self) -> None:
        """Wait until every row is on the disk itself, so that it survives a power cut too."""
        os.fsync(self._file.fileno())
        self._synced_at = time.monotonic()

    def close(self) -> None:
        """Sync and close; closing twice is harmless."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_all(self, line: bytes) -> None:
        rest = memoryview(line)
        while rest:
            rest = rest[os.write(self._file.fileno(), rest) :]


def _end_of_last_line(file: FileIO) -> int:
    """Return the offset after the last newline of an open file, or 0 without a newline."""
    end = os.fstat(file.fileno()).st_size
    while end > 0:
        start = max(0, end - _BLOCK)
        file.seek(start)
        newline = (file.read(end - start) or b"").rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0
