"""The index of runs shared by all visitors: one reads at a time, and the others watch how far it is.

The reading has a thread of its own. A page's script may be stopped at any moment, and what it waits for must go on.
A page is drawn from what the last look found, and the folders are looked at when it stands: to look first would cost
every click a tenth of a second with two thousand runs, and most of a second with ten thousand. While a very first look
takes long, a page is drawn from what it has read so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence, Set
from concurrent.futures import Future, wait

from evidence.index.index import RunIndex
from evidence.index.summary import RunSummary
from evidence.index.workers import Progress

_TOLD_EVERY_SECONDS = 0.1
_SOME = 20
"""Runs that are worth a page, where the others take longer than `_PATIENCE_SECONDS`."""
_PATIENCE_SECONDS = 1.0


class SharedIndex:
    """An index, and the look at it that is under way."""

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self._starting = threading.Lock()
        self._refreshing = threading.Lock()
        self._look: Future[Sequence[RunSummary]] | None = None
        self._found: Sequence[RunSummary] | None = None
        self._progress = (0, 0)
        self._began = self._moved = 0.0

    @property
    def is_whole(self) -> bool:
        """Whether every run has been read once."""
        return self._found is not None

    @property
    def found(self) -> Sequence[RunSummary] | None:
        """The runs as found last, newest first. None: they are read for the first time."""
        return self._found

    @property
    def progress(self) -> tuple[int, int]:
        """Runs that the look under way has read, and runs that it has to read."""
        return self._progress

    def known(self, tell: Progress, *, named: Set[str] = frozenset()) -> Sequence[RunSummary]:
        """Return the runs as of the last look, newest first; of a first look, those that it has read so far.

        Args:
            tell: Called with how many of how many are read while this waits.
            named: Names of folders; runs without them are not enough, as long as they may still come.
        """
        found = self._found
        if found is not None and named <= {summary.path.name for summary in found}:
            return found
        named = named & self.index.names()
        self.index.asked |= named
        if found is not None and named <= {summary.path.name for summary in found}:
            return found
        look = self.started()
        enough = _SOME if found is None else 0
        while not self._is_done(look, tell):
            done, total = self._progress
            now = time.monotonic()
            seconds_left = (now - self._began) * (total - done) / max(1, done)
            is_stuck = bool(done) and now - self._moved > _PATIENCE_SECONDS  # By a run that takes long by itself.
            if (done < enough or seconds_left < _PATIENCE_SECONDS) and not is_stuck and found is None:
                continue
            some = self.index.partial()
            if named <= {summary.path.name for summary in some}:
                return some
            enough = 2 * done
        return look.result()

    def look_again(self) -> None:
        """Look at the folders after any look that is under way, however lately they were looked at.

        During the very first look, which may take a minute, this does nothing: the next look sees the change.
        """
        if self.is_whole:
            self._refresh(rest=False)

    def started(self) -> Future[Sequence[RunSummary]]:
        """Return the look that is under way, begun now if nothing is under way."""
        with self._starting:
            if self._look is None or self._look.done():
                self._progress = (0, 0)
                self._began = self._moved = time.monotonic()
                self._look = Future()
                # A daemon, and no pool of threads: a server that is stopped would first read all runs.
                threading.Thread(target=self._fulfil, args=(self._look,), name="index", daemon=True).start()
            return self._look

    def _fulfil(self, look: Future[Sequence[RunSummary]]) -> None:
        try:
            look.set_result(self._refresh())
        except BaseException as error:
            look.set_exception(error)
            raise

    def _is_done(self, look: Future[Sequence[RunSummary]], tell: Progress) -> bool:
        """Wait a moment for a look, and report how far it is if that was not enough."""
        wait([look], timeout=_TOLD_EVERY_SECONDS)
        if look.done():
            return True
        if self._progress[1]:
            tell(*self._progress)
        return False

    def _refresh(self, *, rest: bool = True) -> Sequence[RunSummary]:
        with self._refreshing:  # Of two looks the later one is what was found.
            self._found = self.index.refresh(progress=self._note, rest=rest)
            return self._found

    def _note(self, done: int, total: int) -> None:
        if self.is_whole:
            self._found = self.index.latest
        self._progress, self._moved = (done, total), time.monotonic()
