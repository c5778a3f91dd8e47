"""What the pages read, kept between reruns and shared by all visitors; the folders stay the truth.

Everything is kept under the state of the files it was read from (`evidence.lock`), so a changed run is read
again and an unchanged one is not. Nothing kept here is ever changed by a page.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, tzinfo
from pathlib import Path
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import streamlit as st

from dashboard.shared.config import configs
from dashboard.shared.reading.log_tail import LogTail, read_log
from dashboard.shared.reading.series import Series, Tail
from dashboard.shared.reading.shared_index import SharedIndex
from dashboard.shared.session.reading_bar import reading_bar, still_reading
from dashboard.shared.session.state import root
from dashboard.shared.tables.runs import RunList
from evidence.compare.scores import Comparison, compare_runs
from evidence.compare.smoke import SmokeCheck, check_smoke_run
from evidence.grade import RunReport
from evidence.index import cache
from evidence.index.cache import folder_state
from evidence.index.index import RunIndex
from evidence.index.summary import RunSummary
from evidence.layout import LOG, METRICS
from evidence.proof.verification import grade_run
from evidence.run import Run, read_run
from launch.jobs import Job, JobReader

_POLL_SECONDS = 0.02
_MANY_MORE = 4
_PAUSE, _LONGEST_PAUSE_SECONDS = 3.0, 0.4
"""A page that was drawn is given this many times as long as a look at the folders takes, before the next look."""
_BETWEEN_LOOKS_SECONDS, _LOOKS_SHARE = 4.0, 40.0
_SHOWN = "runs as they are shown"
_CAUGHT_UP = "drawn again for the runs"


def summaries() -> Sequence[RunSummary]:
    """Return every run under the root, newest first; none where the root does not exist.

    They are as the last look found them (`catch_up`), unless the address names one that was not there then. As long as
    thousands of runs are read for the first time, they are those read so far, and the page states it. A link among the
    folders may lead anywhere on this machine, so it is not followed.
    """
    shared = _shared_index()
    asked = {*st.query_params.get_all("run"), *st.query_params.get_all("runs")}
    asked |= configs.runs_of(st.query_params.get_all("source"))
    with reading_bar() as progress:
        found = shared.known(progress, named=frozenset(asked))
    if shared.is_whole:
        st.session_state[_SHOWN] = found
    else:
        _first_reading(len(found))
    return found


@st.fragment(run_every=1.0)
def _first_reading(shown: int) -> None:
    """Say how far the first reading is, and have the page drawn again when it has many more runs, or all of them."""
    shared = _shared_index()
    done, total = shared.progress
    if shared.is_whole or done >= _MANY_MORE * shown:
        st.rerun()
    still_reading(done, total)


def catch_up() -> None:
    """Look at the folders once the page stands, and have it drawn again if something is new; at most once a click."""
    shown, caught_up = st.session_state.pop(_SHOWN, None), st.session_state.pop(_CAUGHT_UP, False)
    if shown is None or caught_up:
        return
    # First the browser needs the processors, to draw what it was sent; a look at thousands of folders takes one.
    pause = time.monotonic() + min(_LONGEST_PAUSE_SECONDS, _PAUSE * _shared_index().index.look_seconds)
    _wait(lambda: time.monotonic() > pause)
    look = _shared_index().started()
    _wait(lambda: look.done() or _shared_index().found is not shown)
    if _shared_index().found is not shown:
        st.session_state[_CAUGHT_UP] = True
        st.rerun()


def changed_runs(shown: Sequence[RunSummary]) -> list[str]:
    """Return the names of runs whose folders are not as they were when these runs were judged, and look at them again.

    A run that is at work changes all the time: its page follows it, and it is not one of them.
    """
    shared = _shared_index()
    if not shared.is_whole:
        return []
    found = [summary.path.name for summary in shown if not shared.index.is_current(summary.path)]
    if found:
        shared.started()
    return found


def were_judged_again(shown: Sequence[RunSummary]) -> bool:
    """Return whether one of these runs is another by now, or is gone; one that is at work changes all the time."""
    found = _shared_index().found
    now = by_name(shown if found is None else found)
    pairs = [(summary, now.get(summary.path.name)) for summary in shown]
    return any(
        late != summary and not (late is not None and late.status == summary.status == "running")
        for summary, late in pairs
    )


def is_whole() -> bool:
    """Return whether every run has been read once, so that a list has them all."""
    return _shared_index().is_whole


def look_at_runs() -> Sequence[RunSummary]:
    """Look at the folders and return the runs, newest first."""
    look = _shared_index().started()
    _wait(look.done)
    return look.result()


def seconds_to_next_look() -> float:
    """Return how long an open list waits between looks: looking takes a fortieth of a processor at most."""
    return max(_BETWEEN_LOOKS_SECONDS, _LOOKS_SHARE * _shared_index().index.look_seconds)


def at_work() -> list[str]:
    """Return the folders of the runs that are at work, as the page that is being drawn has them."""
    shown: Sequence[RunSummary] = st.session_state.get(_SHOWN) or ()
    return [summary.path.name for summary in shown if summary.status == "running"]


def _wait(until: Callable[[], bool]) -> None:
    """Wait, and be stopped by the next click.

    Streamlit runs the next script at once and stops this one where it touches the session. One that came to its end
    instead would take the new page's fragments with it, so nothing long may follow the last touch.
    """
    while True:
        st.session_state.get(_SHOWN)
        if until():
            return
        time.sleep(_POLL_SECONDS)


def run_list(found: Sequence[RunSummary]) -> RunList:
    """Return the list of these runs, made once for the same sequence."""
    made = _run_lists(str(root().resolve()))
    if not made or made[0][0] is not found:
        made[:] = [(found, RunList(found))]
    return made[0][1]


def by_name(found: Sequence[RunSummary]) -> dict[str, RunSummary]:
    """Return the runs by the name of their folder, which is how the address names them."""
    return {summary.path.name: summary for summary in found}


def continuation_of(name: str, known: Mapping[str, RunSummary]) -> str | None:
    """Return the name of the newest run that continues a run, or is queued to; None: it is missing."""
    run_id = known[name].run_id if name in known else name
    started = [later.path.name for later in known.values() if later.parent == run_id]
    queued = [job.run for job in jobs() if job.resumes == name and not job.has_ended]
    return next(iter([*started, *queued]), None)


def series_of(folder: Path) -> Series:
    """Return the rows of a run up to now, reading only what is new."""
    return _tail(str(folder / METRICS)).series()


def log_of(folder: Path) -> LogTail:
    """Return the end of a run's log."""
    return read_log(folder / LOG)


def run_of(folder: Path) -> Run:
    """Return a run, read again when one of its files changed but those that grow (`series_of`, `log_of`)."""
    is_held, files = folder_state(str(folder))
    return _run(str(folder), str((is_held, [file for file in files if file[0] not in {METRICS, LOG}])))


def compare(folders: Sequence[Path]) -> Comparison:
    """Return how runs differ, worked out again when one of their files changed."""
    return _compare(tuple(map(str, folders)), str([signature(folder) for folder in folders]))


def rehearsal_of(smoke: Path, full: Path) -> SmokeCheck:
    """Return what a smoke run shows of a full run, worked out again when one of their files changed."""
    return _rehearsal(str(smoke), str(full), signature(smoke) + signature(full))


def check(folder: Path) -> RunReport:
    """Return the grade and findings of a run as the list of runs has them; a run that is not in it is checked now."""
    return _shared_index().index.report(folder) or grade_run(read_run(folder))


def jobs() -> list[Job]:
    """Return the jobs of the root, first in the queue first; those that have ended are read once."""
    return _job_reader(str(root().resolve())).jobs()


def look_again() -> None:
    """Have the pages know at once what one of them has just changed, however many runs there are."""
    _shared_index().look_again()


def signature(folder: Path) -> str:
    """Return what is another where a file of a run changed, wherever it lies in the folder, or its process died."""
    return folder_state(str(folder)).digest


def reader_zone() -> tzinfo:
    """Return the time zone of the reader's browser, UTC where it does not state it."""
    try:
        return ZoneInfo(st.context.timezone or "UTC")
    except (ZoneInfoNotFoundError, ValueError):
        return UTC


def _shared_index() -> SharedIndex:
    return _index(str(root().resolve()))


@st.cache_resource(max_entries=4, show_spinner=False)
def _index(root: str) -> SharedIndex:
    return SharedIndex(RunIndex(Path(root), follow_links=False, entries_in=cache.default_folder()))


@st.cache_resource(max_entries=4, show_spinner=False)
def _job_reader(root: str) -> JobReader:
    return JobReader(Path(root))


@st.cache_resource(max_entries=4, show_spinner=False)
def _run_lists(root: str) -> list[tuple[Sequence[RunSummary], RunList]]:
    return []


@st.cache_resource(max_entries=64, show_spinner=False)
def _tail(path: str) -> Tail:
    return Tail(Path(path))


@st.cache_resource(max_entries=8, show_spinner=False)
def _compare(folders: tuple[str, ...], signatures: str) -> Comparison:
    return compare_runs([read_run(Path(folder)) for folder in folders], [check(Path(folder)) for folder in folders])


@st.cache_resource(max_entries=32, show_spinner=False)
def _rehearsal(smoke: str, full: str, signatures: str) -> SmokeCheck:
    ours, theirs = Path(smoke), Path(full)
    return check_smoke_run(read_run(ours), check(ours), read_run(theirs), check(theirs))


@st.cache_resource(max_entries=32, show_spinner=False)  # More than are held side by side.
def _run(folder: str, signature: str) -> Run:
    return read_run(Path(folder))
