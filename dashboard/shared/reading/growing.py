"""A file of lines that grows, read on from the last place: a page that follows a run reads every second.

What lives here: which bytes are new, and whether the file is still the same. The meaning of the lines is for who takes
them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

CHUNK_BYTES = 4 * 2**20
"""Bytes read at a time, so that a large file is never in memory as a whole; a line that is longer is passed over."""


class GrowingLines:
    """Gives the whole lines of one file as they come; an unfinished last one is left for the next reading.

    Args:
        path: The file.
        take: Called with whole lines, in their order.
        forget: Called where the file is another one than before (replaced, cut or gone), before its lines are given.
    """

    def __init__(
        self,
        path: Path,
        *,
        take: Callable[[bytes], None],
        forget: Callable[[], None],
    ) -> None:
        self._path = path
        self._take, self._forget = take, forget
        self._offset = 0
        self._start_afresh(None)

    @property
    def too_long(self) -> int:
        """Lines of the file that were passed over because they are longer than what is read at a time."""
        return self._too_long

    def read_on(self) -> None:
        """Give what is new; a file that is missing or cannot be read has no lines."""
        try:
            with self._path.open("rb") as file:
                status = os.fstat(file.fileno())
                if status.st_ino != self._inode or status.st_size < self._offset:
                    self._start_afresh(status.st_ino)
                file.seek(self._offset)
                while (chunk := file.read(CHUNK_BYTES)) and (used := self._used(chunk)):
                    self._offset += used
                    file.seek(self._offset)
        except OSError:
            self._start_afresh(None)

    def _start_afresh(self, inode: int | None) -> None:
        self._inode = inode
        self._offset = self._too_long = 0
        self._is_inside_long = False
        self._forget()

    def _used(self, chunk: bytes) -> int:
        """Take the whole lines of a chunk and return how many of its bytes are done with; 0: its line is unfinished."""
        if self._is_inside_long:
            end = chunk.find(b"\n") + 1
            self._is_inside_long = not end
            return end or len(chunk)
        if end := chunk.rfind(b"\n") + 1:
            self._take(chunk[:end])
            return end
        if len(chunk) < CHUNK_BYTES:
            return 0
        self._too_long += 1
        self._is_inside_long = True
        return len(chunk)
