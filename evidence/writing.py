"""Write files durably: a kill or a full disk never damages existing data.

A document is replaced as a whole: a temporary file in the same folder is synced and renamed over the old one. Rows are
appended with one system call each and synced every few seconds.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from pathlib import Path
from typing import Any

from schemas.problems import ProblemError, problem_of

SYNC_SECONDS = 3.0  # for which appended rows may exist only in the memory of the operating system


def output_error(error: OSError, where: Path, *, subject: str) -> ProblemError:
    """Return the error (exit code 2) for output that could not be written; `subject` begins it, as in `The export`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        folder = next(folder for folder in (where, *where.resolve().parents) if folder.is_dir())
        free = shutil.disk_usage(folder).free
        reason, fix = "the disk is full", f"Free some space ({free:,} bytes are left), or choose another place."
    else:
        reason, fix = f"{error.strerror or error}", "Choose a place that you may write to."
    why = "Existing files are unchanged, and no partial output is left."
    what = f"{subject} could not be written: {reason}."
    return ProblemError([problem_of("TP089", file=str(where), what=what, why=why, next=fix)], exit_code=2)


def as_json_text(value: Any) -> str:
    """Format a JSON document as bundles store it and commands print it."""
    return json.dumps(value, ensure_ascii=False, indent=2) + "\n"


def write_json(path: Path, value: Any) -> None:
    """Replace a JSON document like `write_bytes`; a number that is not finite raises a `ValueError`."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def write_text(path: Path, text: str) -> None:
    """Replace a text file like `write_bytes`, in UTF-8 and without converting line ends."""
    write_bytes(Path(path), text.encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Replace a file atomically: after an interruption or an OSError it has the old content or the new one."""
    # Two threads of one process may write the same document, so the temporary name contains the thread.
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
    if os.name != "nt":  # Windows syncs renames by itself and cannot open a folder.
        descriptor = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def append_rows(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Append rows to a JSONL file with a `RowWriter`."""
    with RowWriter(path) as writer:
        for row in rows:
            writer.append(row)


class RowWriter(AbstractContextManager["RowWriter"]):
    """Append rows to a JSONL file. A row survives the death of this process once `append` has returned.

    Opening an existing file cuts off a torn last line, which a kill in the middle of a row leaves behind.
    """

    def __init__(self, path: Path) -> None:
        self._file = Path(path).open("ab+", buffering=0)  # noqa: SIM115 - closed by close(), which __exit__ calls
        self._size = _end_of_last_line(self._file)
        os.ftruncate(self._file.fileno(), self._size)
        self._synced_at = time.monotonic()

    def append(self, row: dict[str, Any]) -> bytes:
        """Write a row as one line with one system call and return the line.

        An OSError, for example of a full disk, leaves the rows before it intact. A number that is not finite raises a
        ValueError.
        """
        line = (json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n").encode("utf-8")
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError:
            os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += len(line)
        if time.monotonic() - self._synced_at >= SYNC_SECONDS:
            self.sync()
        return line

    def sync(self) -> None:
        """Wait until every row is on the disk, so that it survives a power cut too."""
        os.fsync(self._file.fileno())
        self._synced_at = time.monotonic()

    def close(self) -> None:
        """Sync and close; closing twice is harmless."""
        if not self._file.closed:
            self.sync()
            self._file.close()

    def __exit__(self, *_: object) -> None:
        self.close()


def _end_of_last_line(file: FileIO) -> int:
    """Return the offset after the last newline of an open file, or 0 without a newline."""
    end = os.fstat(file.fileno()).st_size
    while end > 0:
        start = max(0, end - 65536)
        file.seek(start)
        newline = (file.read(end - start) or b"").rfind(b"\n")
        if newline >= 0:
            return start + newline + 1
        end = start
    return 0


_scratch_folders: set[str] = set()


@contextmanager
def scratch_folder(prefix: str) -> Iterator[Path]:
    """Create a temporary folder that only this user can read, and remove it afterwards."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
        _scratch_folders.add(name)
        try:
            yield Path(name)
        finally:
            _scratch_folders.discard(name)


def remove_scratch() -> None:
    """Remove the scratch folders of this process, before it exits without unwinding."""
    for folder in _scratch_folders:
        shutil.rmtree(folder, ignore_errors=True)
