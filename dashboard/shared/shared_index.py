"""The index of runs that all users share, refreshed by one thread.

Pages show the runs of the last refresh and request the next one, so nothing is scanned while no page is open.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence, Set
from typing import NamedTuple

from evidence.index.index import RunIndex
from evidence.index.summary import RunSummary

FIRST_SECONDS, FIRST_RUNS = 1.0, 20
"""Time and number of runs after which those read so far are shown, while a folder is read for the first time."""
POLL_SECONDS = 2.0
_POLL_SHARE = 40.0  # polling waits this many times as long as a scan of all folders takes
_WORTH_WAITING = 0.2
"""A page waits for a scan if the last one took at most this share of `patience`. Otherwise polling finds changes."""
_STEP_SECONDS = 0.1


class Snapshot(NamedTuple):
    """Runs, newest first, the version of the index that they belong to, and whether they were read just now."""

    version: int
    runs: Sequence[RunSummary]
    is_fresh: bool = False


class SharedIndex:
    """An index of runs with a thread that refreshes it on request.

    Attributes:
        version: Raised when a run appears, disappears, ends or gets another grade or other facts. The progress of a
            run that is still running does not raise it.
        is_whole: Whether every run has been read once.
        progress: Number of runs that the current refresh has read, and that it has to read.
        refreshed_at: Time of `time.monotonic` at the end of the last refresh.
    """

    def __init__(self, index: RunIndex) -> None:
        self.index = index
        self.version = 0
        self.is_whole = False
        self.progress = (0, 0)
        self._runs: Sequence[RunSummary] = ()
        self._changed = threading.Condition()
        self._requested = self._finished = self._last_news = 0
        self._is_forced = False
        self.refreshed_at = -POLL_SECONDS
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def runs(self) -> Sequence[RunSummary]:
        """The runs of the last refresh, or those that the first one has read so far."""
        return self._runs if self.is_whole else self.index.partial()

    def request(self, *, force: bool = False) -> int:
        """Request a refresh that begins after this call and return its number; `force` reads recent runs too."""
        with self._changed:
            self._requested += 1
            self._is_forced |= force
            if self._thread is None:
                # A daemon thread, so that a server can be stopped while it reads thousands of runs.
                self._thread = threading.Thread(target=self._serve_requests, name="index", daemon=True)
                self._thread.start()
            self._changed.notify_all()
            return self._requested

    def poll(self) -> None:
        """Request a refresh unless the last one is recent."""
        pause = max(POLL_SECONDS, _POLL_SHARE * self.index.look_seconds)
        if self._requested == self._finished and time.monotonic() - self.refreshed_at >= pause:
            self.request()

    def load(
        self, patience: float, *, named: Set[str] = frozenset(), waiting: Callable[[], object] = lambda: None
    ) -> Snapshot:
        """Return the runs after a refresh, or those known before if it takes longer than `patience` seconds.

        Args:
            patience: Seconds to wait; during the first reading `FIRST_SECONDS` if that is longer.
            named: Names of folders to wait for, as long as they exist.
            waiting: Called about ten times per second while waiting. It may raise to stop.
        """
        if named := named - {run.path.name for run in self.runs}:
            named &= self.index.names()
            self.index.asked |= named
        if self.is_whole and not named and self.index.look_seconds > _WORTH_WAITING * patience:
            return Snapshot(self.version, self._runs)
        number, began = self.request(), time.monotonic()
        while not self._wait(number, min(patience, _STEP_SECONDS)):
            snapshot = Snapshot(self.version, self.runs)
            if named - {run.path.name for run in snapshot.runs}:
                # They may have been read by the refresh that has not ended.
                snapshot = Snapshot(self.version, self.index.partial())
            missing = named - {run.path.name for run in snapshot.runs}
            enough = patience
            if not self.is_whole:  # A single run may take long: then fewer runs are enough.
                enough = max(patience, FIRST_SECONDS if len(snapshot.runs) >= FIRST_RUNS else 3 * FIRST_SECONDS)
            if snapshot.runs and not missing and time.monotonic() - began >= enough:
                return snapshot
            waiting()
        return Snapshot(self.version, self._runs, is_fresh=True)

    def refresh(self, seconds: float) -> None:
        """Read what has just changed, and wait at most this long; the first reading is not waited for."""
        if self.is_whole:
            self._wait(self.request(force=True), seconds)

    def _wait(self, number: int, seconds: float) -> bool:
        """Return whether a refresh ended within this time."""
        with self._changed:
            is_done = self._changed.wait_for(lambda: self._finished >= number, timeout=seconds)
        if is_done and self._error is not None:
            raise self._error
        return is_done

    def _serve_requests(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._requested > self._finished)
                number, rest, self._is_forced = self._requested, not self._is_forced, False
            try:
                self._publish(self.index.refresh(progress=self._note_progress, rest=rest))
                self.is_whole, self._error = True, None
            except BaseException as error:
                self._error = error
                raise
            finally:
                with self._changed:
                    self._thread = None if self._error else self._thread
                    self._finished, self.refreshed_at = number, time.monotonic()
                    self._changed.notify_all()

    def _note_progress(self, done: int, total: int) -> None:
        self.progress = (done, total)
        if self.is_whole:
            self._publish(self.index.latest)  # Short runs are published before long ones are read.
        elif done >= min(2 * self._last_news, self._last_news + total // 10):
            self._last_news = done
            self.version += 1

    def _publish(self, runs: Sequence[RunSummary]) -> None:
        has_changed = not self.is_whole or len(runs) != len(self._runs) or any(map(is_changed, self._runs, runs))
        self._runs = runs
        self.version += has_changed


def is_changed(before: RunSummary, now: RunSummary | None) -> bool:
    """Return whether a run is gone, or differs in more than the progress of a run that is still running."""

    def identity(run: RunSummary) -> object:
        return run if run.status != "running" else (run.path, run.grade)

    return now is None or (now is not before and identity(now) != identity(before))
