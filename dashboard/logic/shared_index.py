"""The index of runs shared by all visitors: one reads at a time, and the others watch how far it is.

The reading has a thread of its own. A page's script may be stopped at any moment, and what it waits for must go on.
A page is drawn from what the last look found, and the folders are looked at when it stands: to look first would cost
every click a tenth of a second with two thousand runs, and most of a second with ten thousand.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from evidence.index import RunIndex, RunSummary
from evidence.many import Progress

_TOLD_EVERY_SECONDS = 0.1


class SharedIndex:
    """An index, and the look at it that is under way."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self._reader = ThreadPoolExecutor(1, thread_name_prefix="index")
        self._starting = threading.Lock()
        self._look: Future[Sequence[RunSummary]] | None = None
        self._found: Sequence[RunSummary] | None = None
        self._progress = (0, 0)

    def known(self, tell: Progress) -> Sequence[RunSummary]:
        """Return the runs as of the last look, newest first; the very first look is waited for, as by `look`."""
        return self.look(tell) if self._found is None else self._found

    def look(self, tell: Progress) -> Sequence[RunSummary]:
        """Look at the folders and return the runs; tell how many of how many are read as long as that takes."""
        look = self.started()
        while True:
            try:
                return look.result(timeout=_TOLD_EVERY_SECONDS)
            except TimeoutError:
                if self._progress[1]:
                    tell(*self._progress)

    def look_again(self) -> None:
        """Look at the folders after any look that is under way, however lately they were looked at."""
        self._reader.submit(self._refresh, rest=False).result()

    def started(self) -> Future[Sequence[RunSummary]]:
        """Return the look that is under way, begun now if there is none."""
        with self._starting:
            if self._look is None or self._look.done():
                self._progress = (0, 0)
                self._look = self._reader.submit(self._refresh)
            return self._look

    def _refresh(self, *, rest: bool = True) -> Sequence[RunSummary]:
        self._found = self.index.refresh(progress=self._note, rest=rest)
        return self._found

    def _note(self, done: int, total: int) -> None:
        self._progress = (done, total)
