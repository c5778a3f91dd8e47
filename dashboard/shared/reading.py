"""Read runs and jobs for the pages: kept between reruns, shared by all users, and read again when a file changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from datetime import UTC, tzinfo
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from dashboard.shared import configs, state
from dashboard.shared.files import Series, Tail
from dashboard.shared.state import root
from dashboard.shared.tables.runs import RunTable
from dashboard.shared.words import JOBS, STATUSES, plain
from evidence.compare.scores import Comparison, compare_runs
from evidence.compare.smoke import SmokeCheck, check_smoke_run
from evidence.grade import RunReport
from evidence.index.index import RunIndex, cache_folder, folder_state
from evidence.index.summary import RunSummary
from evidence.layout import LOG, METRICS
from evidence.proof.verification import grade_run
from evidence.run import Run, read_run
from launch.jobs import Job, JobReader

T = TypeVar("T")

WAIT_SECONDS = 0.2
"""A page waits this long for a look at the folders; if that takes longer, it reruns when something has changed."""
_WAIT_AFTER_WRITING_SECONDS = 5.0
_VERSION = "version of the index that the page shows"


def summaries() -> Sequence[RunSummary]:
    """Return the runs of the root, newest first.

    While thousands of runs are read for the first time, these are the runs read so far, and the page says so.
    """
    index = shared_index()
    named = {*st.query_params.get_all("run"), *st.query_params.get_all("runs")}
    named |= {key.removeprefix(configs.SAME_AS) for key in st.query_params.get_all("source")}

    def waiting() -> object:
        # Streamlit stops a script that is no longer needed where it touches the session.
        return st.session_state.get(_VERSION)

    with st.spinner("Reading runs …"):
        version, runs, is_fresh = index.load(WAIT_SECONDS, named=named, waiting=waiting)
    st.session_state[_VERSION] = min(version, st.session_state.get(_VERSION, version))
    st.session_state[_IS_FRESH] = is_fresh
    bar = st.empty()  # Always there, so that what is below keeps its place.
    if not index.is_whole:
        done, total = index.progress
        text = f"Reading runs: {done:,} of {total:,}. Showing the runs loaded so far."
        bar.progress(min(1.0, done / max(1, total)), text=text)
    return runs


def changed_runs(shown: Sequence[RunSummary]) -> list[str]:
    """Return the names of runs that have changed on disk since they were graded, and read them again.

    The progress of a running run does not count as a change.
    """
    index = shared_index()
    if not index.is_whole:
        return []
    now = by_name(index.runs) if shown else {}
    outdated = [run.path.name for run in shown if not index.index.is_current(run.path)]
    if outdated:
        index.request()
    graded_again = [name for run in shown if is_changed(run, now.get(name := run.path.name))]
    return list(dict.fromkeys([*outdated, *graded_again]))


def look_again() -> None:
    """Read what a page has just written, before it is drawn again."""
    shared_index().refresh(_WAIT_AFTER_WRITING_SECONDS)


def run_table(found: Sequence[RunSummary]) -> RunTable:
    """Return the table of runs, built once for the same sequence."""
    kept = _keep("table", root().resolve(), list[RunTable])
    if not kept or kept[0].summaries is not found:
        kept[:] = [RunTable(found)]
    return kept[0]


def by_name(found: Sequence[RunSummary]) -> dict[str, RunSummary]:
    """Return runs by the names of their folders, as in the URL."""
    return {summary.path.name: summary for summary in found}


def find_continuation(name: str, known: Mapping[str, RunSummary]) -> str | None:
    """Return the name of a run that continues this one or is queued to, or None."""
    run_id = known[name].run_id if name in known else name
    started = [later.path.name for later in known.values() if later.parent == run_id]
    queued = [job.run for job in jobs() if job.resumes == name and not job.has_ended]
    return next(iter([*started, *queued]), None)


def load_series(folder: Path) -> Series:
    """Return the metrics of a run up to now; only new rows are read."""
    return _keep("series", folder, lambda: Tail(folder / METRICS)).series()


def load_run(folder: Path) -> Run:
    """Return a run, read again if a file other than its metrics and log has changed."""
    is_held, files = folder_state(str(folder))
    key = (str(folder), is_held, [file for file in files if file[0] not in {METRICS, LOG}])
    return _keep("run", key, lambda: read_run(folder))


def compare(folders: Sequence[Path]) -> Comparison:
    """Return the comparison of runs; it is computed again only if one of their files has changed."""
    key = [(str(folder), signature(folder)) for folder in folders]
    return _keep("comparison", key, lambda: compare_runs(list(map(read_run, folders)), list(map(check, folders))))


def load_smoke_check(smoke: Path, full: Path) -> SmokeCheck:
    """Return what a smoke run tests of a full run, checked again if one of their files has changed."""
    key = [(str(folder), signature(folder)) for folder in (smoke, full)]
    return _keep("smoke", key, lambda: check_smoke_run(read_run(smoke), check(smoke), read_run(full), check(full)))


def check(folder: Path) -> RunReport:
    """Return the grade and the problems of a run, from the index if it is there."""
    return shared_index().index.report(folder) or grade_run(read_run(folder))


def jobs() -> list[Job]:
    """Return the jobs of the root in the order of the queue."""
    return _keep("jobs", root().resolve(), lambda: JobReader(root().resolve())).jobs()


def signature(folder: Path) -> str:
    """Return a text that changes with every file of a run and when its process ends."""
    return str(folder_state(str(folder)))


def browser_timezone() -> tzinfo:
    """Return the time zone of the browser, or UTC if it is unknown."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def shared_index() -> SharedIndex:
    """Return the index of the root."""
    return _index(str(root().resolve()))


@st.cache_resource(max_entries=4, show_spinner=False)
def _index(root: str) -> SharedIndex:
    # A link among the runs may lead anywhere on this machine.
    return SharedIndex(RunIndex(Path(root), follow_links=False, cached_in=cache_folder()))


def _keep(kind: str, key: object, build: Callable[[], T]) -> T:
    """Return what `build` returned for this key, to any user."""
    kept: T = _cached(kind, str(key), build)
    return kept


@st.cache_resource(max_entries=100, show_spinner=False)
def _cached(kind: str, key: str, _build: Callable[[], object]) -> Any:
    return _build()


_GRADED = "runs that the page shows with their grades, and those that have changed"
_SEEN = "states of jobs and runs at the last look"
_IS_FRESH = "the page shows runs that were read while it was drawn"
_ACTIVE = "active"
_AT_WORK = {_ACTIVE, "running"}
_SIGNS = {**JOBS, **STATUSES}
_MAX_TOASTS = 3


def are_as_judged(shown: Sequence[RunSummary]) -> bool:
    """Return whether runs are unchanged since they were graded; otherwise show that they are being checked again."""
    changed = changed_runs(shown)
    st.session_state[_GRADED] = (shown, changed)
    if changed:
        st.warning(f"Changed on disk since it was checked: {plain(', '.join(changed))}. Checking again.")
    return not changed


def watch() -> None:
    """Rerun the page when a run that it shows has changed on disk, or the theme of the browser."""
    shown, changed = st.session_state.pop(_GRADED, ((), []))
    drawn = (st.session_state.pop(_VERSION, None), changed, st.context.theme.type)
    st.fragment(run_every=POLL_SECONDS)(_tick)(shown, drawn, time.monotonic())


def _tick(shown: Sequence[RunSummary], drawn: tuple[int | None, list[str], str | None], drawn_at: float) -> None:
    index = shared_index()
    index.poll()
    version = None if drawn[0] is None else index.version
    is_current = (version, changed_runs(shown), st.context.theme.type) == drawn
    if is_current or time.monotonic() - drawn_at < POLL_SECONDS / 2:
        # Compared with a list from before the page was opened, runs that were there already would be new.
        if _SEEN in st.session_state or st.session_state.get(_IS_FRESH) or index.refreshed_at > drawn_at:
            _announce()
    elif not st.session_state.get(state.DIALOG):  # A rerun would close it, and what was typed there would be lost.
        st.rerun()


def _announce() -> None:
    """Show a toast for each run that is new or has ended since this user's last look."""
    index = shared_index()
    if not index.is_whole:
        return
    known = jobs()
    started_here = {job.run for job in known}
    now = {job.job_id: (job.run, job.state if job.has_ended else _ACTIVE) for job in known}
    for run in index.runs:
        if run.path.name not in started_here:
            now[run.path.name] = (run.path.name, run.status or "new run")
    before: Mapping[str, tuple[str, str]] | None = st.session_state.get(_SEEN)
    st.session_state[_SEEN] = now
    if before is None:
        return
    changed = [now[key] for key in now if key not in before or (before[key][1] in _AT_WORK and before[key] != now[key])]
    news = [(name, status) for name, status in changed if status != _ACTIVE]
    for name, status in news[:_MAX_TOASTS]:
        meaning = _SIGNS[status].meaning if status in _SIGNS else ""
        st.toast(f"{plain(name)}: {status}. {meaning}".strip(), icon=":material/flag:", duration=20)
    if len(news) > _MAX_TOASTS:
        st.toast(f"{len(news) - _MAX_TOASTS:,} more runs are new or have ended.", icon=":material/flag:")


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
