"""Check and list many runs: `RunIndex` for a folder of runs that is read again and again, `check_paths` for once.

Lists use the same grade as `trainproof check`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from evidence import layout
from evidence.grade import RunReport, check_across_runs
from evidence.index import cache
from evidence.index.cache import FolderState, IndexEntry, folder_state
from evidence.index.summary import RunSummary, apply_report, summarize
from evidence.index.workers import WORTH_A_PROCESS, Progress, iter_entries, read_entries
from evidence.proof.receipts import receipts_version
from evidence.proof.verification import grade_reports, grade_run
from evidence.report import Report
from evidence.run import read_run
from schemas.catalog import document_kind, is_rows
from schemas.problems import Problem, ProblemError, problem_of, worst_first
from schemas.reading import collector_paused, parse_time, read_rows
from schemas.validate import read_document

WORTH_SAVING_SECONDS = 0.5
"""Reading time since the cache was last written that is worth writing it again."""

LONG_BYTES = 5_000_000
"""Size of a file from which on reading a run takes longer than a screenful of ordinary runs."""

LONG_SECONDS = 0.2
REST = 10
"""A running run that takes long to read is reused for this many times as long: a million rows change every second."""


@dataclass(frozen=True, kw_only=True)
class _KnownRun:
    state: FolderState
    entry: IndexEntry
    read_at: float = 0.0
    seconds: float = 0.0


class RunIndex:
    """The runs of a folder, kept in memory and read again only when they change; safe to share between threads.

    Args:
        root: Folder of runs; it need not exist.
        follow_links: Whether links to folders are runs. They may lead anywhere on the machine.
        entries_in: Cache folder (`evidence.index.cache`), or None to cache nothing on disk.

    Attributes:
        look_seconds: Time of the last scan of all folders, without reading changed ones.
        asked: Names of folders to read first, because a user waits for them.
    """

    def __init__(self, root: Path, *, follow_links: bool = True, entries_in: Path | None = None) -> None:
        self.root = Path(root)
        self.asked: frozenset[str] = frozenset()
        self.look_seconds = 0.0
        self._entries_in = entries_in
        self._follow_links = follow_links
        # Keyed by folder name, because paths are slow to create and there may be thousands.
        self._known: dict[str, _KnownRun] = {}
        self._reports: dict[str, RunReport] = {}
        self._summaries: Sequence[RunSummary] = []
        self._partial: list[IndexEntry] = []
        self._receipts = 0
        self._unsaved_seconds = 0.0
        self._busy = threading.Lock()

    def refresh(self, *, progress: Progress | None = None, rest: bool = False) -> Sequence[RunSummary]:
        """Return the summaries of all runs, newest first; only changed folders are read again.

        A missing root gives an empty list. A root that cannot be read is itself listed with its problem. While nothing
        changes, the same objects are returned.

        Args:
            progress: Called with the number of changed folders that are read.
            rest: Whether a running run that took long to read (`LONG_SECONDS`) may be reused, see `REST`.
        """
        # Collecting garbage among thousands of entries would take half as long as scanning their folders.
        with self._busy, collector_paused():
            began = time.monotonic()
            try:
                names = run_names(self.root, follow_links=self._follow_links)
            except FileNotFoundError:
                names = []
            except OSError as error:
                return [_unreadable_root(self.root, error)]
            # States are taken before reading, so that a change in between is seen by the next refresh.
            states = {name: folder_state(f"{self.root}{os.sep}{name}") for name in names}
            self.look_seconds = time.monotonic() - began
            if not self._known:
                self._load_cache(states)
            known = {name: self._known[name] for name in names if self._is_fresh(name, states[name], rest=rest)}
            changed = [name for name in names if name not in known]
            receipts = receipts_version()
            if changed or len(known) != len(self._summaries) or receipts != self._receipts:
                self._receipts = receipts
                try:
                    self._reload(changed, states, known, progress)
                finally:
                    self._save_cache({**self._known, **known})
                self._publish(names, known)
                self._partial = []
            return self._summaries

    @property
    def latest(self) -> Sequence[RunSummary]:
        """Summaries of the last refresh, newest first; the same object until something changes."""
        return self._summaries

    def partial(self) -> Sequence[RunSummary]:
        """Return the runs read so far by a refresh in another thread, newest first; copies are found when it ends."""
        return _judge_together(some)[1] if (some := self._partial) else self._summaries

    def report(self, folder: Path) -> RunReport | None:
        """Return the findings and the grade of a run as of the last refresh, or None if it is not in the index."""
        return self._reports.get(folder.name) if folder.parent == self.root else None

    def is_current(self, folder: Path) -> bool:
        """Return whether a folder is unchanged since it was read; a running run always counts as unchanged."""
        known = self._known.get(folder.name) if folder.parent == self.root else None
        state = folder_state(str(folder))
        return known is not None and (known.state == state or (known.state.is_held and state.is_held))

    def names(self) -> frozenset[str]:
        """Return the names of the folders that exist now; empty if the root cannot be read."""
        try:
            return frozenset(run_names(self.root, follow_links=self._follow_links))
        except OSError:
            return frozenset()

    def _publish(self, names: Sequence[str], known: Mapping[str, _KnownRun]) -> None:
        """Replace the published runs; a run that is still to be read keeps its old entry."""
        both = {**self._known, **known}
        self._known = {name: both[name] for name in names if name in both}
        reports, self._summaries = _judge_together([run.entry for run in self._known.values()])
        self._reports = dict(zip(self._known, reports, strict=True))

    def _reload(
        self,
        changed: Sequence[str],
        states: Mapping[str, FolderState],
        known: dict[str, _KnownRun],
        progress: Progress | None,
    ) -> None:
        """Read folders and add them to `known`, those written last first and long runs at the end."""
        self._partial = [run.entry for run in known.values()]
        before, is_first = len(known), not self._known

        def read_folders(names: Sequence[str]) -> None:
            began = time.monotonic()
            for entry in iter_entries([self.root / name for name in names]):
                ended = time.monotonic()
                name, seconds, began = entry.summary.path.name, ended - began, ended
                known[name] = _KnownRun(state=states[name], entry=entry, read_at=ended, seconds=seconds)
                self._partial = [*self._partial, entry]  # another thread may be iterating over the old list
                self._unsaved_seconds += seconds
                if progress:
                    progress(len(known) - before, len(changed))

        newest_first = sorted(changed, key=lambda name: states[name].last_written_ns, reverse=True)
        long = [name for name in newest_first if states[name].largest_bytes > LONG_BYTES]
        short = [name for name in newest_first if states[name].largest_bytes <= LONG_BYTES]
        read_folders(sorted(short, key=lambda name: name not in self.asked))
        if short and long and not is_first:
            self._publish(list(states), known)
        while long:
            # One at a time, so that one which a user asks for meanwhile is next; hundreds in workers instead.
            some = [next((name for name in long if name in self.asked), long[0])]
            some = some if len(long) < 2 * WORTH_A_PROCESS else long
            long = [name for name in long if name not in some]
            read_folders(some)

    def _load_cache(self, states: Mapping[str, FolderState]) -> None:
        if self._entries_in is None:
            return
        digests = {name: state.digest for name, state in states.items()}
        for name, entry in cache.load(self._entries_in, self.root, digests).items():
            if entry.summary.path == self.root / name:
                self._known[name] = _KnownRun(state=states[name], entry=entry)

    def _save_cache(self, known: Mapping[str, _KnownRun]) -> None:
        if self._entries_in is None or self._unsaved_seconds < WORTH_SAVING_SECONDS:
            return
        cache.save(self._entries_in, self.root, {name: (run.state.digest, run.entry) for name, run in known.items()})
        self._unsaved_seconds = 0.0

    def _is_fresh(self, name: str, state: FolderState, *, rest: bool) -> bool:
        run = self._known.get(name)
        if run is None:
            return False
        is_throttled = run.seconds > LONG_SECONDS and time.monotonic() - run.read_at < REST * run.seconds
        return run.state == state or (rest and state.is_held and is_throttled)


def _judge_together(entries: Sequence[IndexEntry]) -> tuple[list[RunReport], list[RunSummary]]:
    """Compare runs with each other; return their reports, and their summaries sorted by start time."""
    reports = grade_reports(check_across_runs([entry.judged for entry in entries]))
    summaries = [
        entry.summary if report is entry.judged.report else apply_report(entry.summary, report)
        for entry, report in zip(entries, reports, strict=True)
    ]
    return reports, sorted(summaries, key=_start_time, reverse=True)


def _start_time(summary: RunSummary) -> tuple[datetime, str]:
    """Return the sort key of lists. Runs without a start time sort last."""
    at = parse_time(summary.started_at) if summary.started_at else None
    return at or datetime.min.replace(tzinfo=UTC), summary.run_id


def run_names(root: Path, *, follow_links: bool) -> list[str]:
    """Return the sorted names of the run folders in a folder.

    Raises:
        OSError: The folder cannot be read.
    """
    with os.scandir(root) as listing:
        return sorted(
            entry.name
            for entry in listing
            if not layout.is_ignored_dir(entry.name) and entry.is_dir(follow_symlinks=follow_links)
        )


def _unreadable_root(root: Path, error: OSError) -> RunSummary:
    what = f"The folder cannot be read: {error.strerror or error}."
    problem = problem_of("TP209", file=str(root), what=what)
    return RunSummary(
        path=root, run_id=root.name, grade="not a run", reasons=(what,), problem_count=1, first_problem=problem
    )


def index_runs(root: Path) -> Sequence[RunSummary]:
    """Read all runs of a folder and return their summaries, newest first."""
    return RunIndex(root).refresh()


def index_folder(root: Path) -> Sequence[RunSummary]:
    """Summarize the runs of a folder that a user named, newest first, or the run if it is a run folder.

    Raises:
        ProblemError: The folder does not exist (exit code 2).
    """
    if not Path(root).is_dir():
        what = f"{root} does not exist, or is not a folder."
        fix = "Check the path; `trainproof demo` writes two runs to submission_runs."
        raise ProblemError([problem_of("TP091", file=str(root), what=what, why=None, next=fix)], exit_code=2)
    if (Path(root) / layout.MANIFEST).is_file():
        run = read_run(Path(root))
        return [summarize(run, grade_run(run))]
    return index_runs(root)


def check_paths(paths: Iterable[Path], *, progress: Progress | None = None) -> Report:
    """Check runs, folders of runs and single documents.

    A folder with a file that only a run writes is a run. Any other folder is a folder of runs, in which hidden folders
    are ignored. A folder among runs that is not a run gets a note. A folder without any run is an error.

    Raises:
        ProblemError: A path does not exist, or a file is not a document of trainproof (exit code 2).
    """
    requested = [Path(path) for path in paths]
    if problems := [problem for path in requested for problem in _path_problems(path)]:
        raise ProblemError(problems, exit_code=2)
    documents = tuple(path for path in requested if not path.is_dir())
    folders = [folder for path in requested if path.is_dir() for folder in run_folders(path)]
    reports = grade_reports(check_across_runs([entry.judged for entry in read_entries(folders, progress=progress)]))
    return Report(
        runs=tuple(report if report.path in requested else _excuse_other_folder(report) for report in reports),
        documents=documents,
        findings=tuple(problem for path in documents for problem in check_document(path)),
    )


def check_document(path: Path) -> list[Problem]:
    """Return the problems of a single document, whose kind follows from its name."""
    kind = document_kind(path.name) or ""
    read = read_rows(path, kind) if is_rows(kind) else read_document(path, kind)
    return list(worst_first(read.problems))


def run_folders(path: Path) -> list[Path]:
    """Return the folders in a folder of runs, sorted, or only the folder itself if it is a run or lacks runs."""
    if _looks_like_run(path):
        return [path]
    try:
        children = sorted(child for child in path.iterdir() if child.is_dir() and not layout.is_ignored_dir(child.name))
    except OSError:
        return [path]
    return children if any(_looks_like_run(child) for child in children) else [path]


def _looks_like_run(folder: Path) -> bool:
    try:
        return layout.holds_run(child.name for child in folder.iterdir())
    except OSError:
        return True  # Reading it as a run reports why it cannot be read.


def _excuse_other_folder(report: RunReport) -> RunReport:
    """Return the report of a folder among runs that is not a run with a note instead of an error."""
    if report.grade.name != "not a run" or any(problem.code != "TP501" for problem in report.findings):
        return report
    note = problem_of("TP502", file=str(report.path), what=report.findings[0].what)
    return replace(report, findings=(note,))


def _path_problems(path: Path) -> list[Problem]:
    fix = "Pass a run folder, a folder of runs, or a document under the name that a run gives it."
    if not path.exists():
        what = f"{path} does not exist."
    elif not path.is_dir() and not path.is_file():
        what = f"{path} is neither a file nor a folder."
    elif path.is_file() and path.suffix == ".zip":
        what, fix = f"{path} is a bundle, not a run.", f"Use `trainproof verify {path}`."
    elif path.is_file() and document_kind(path.name) is None:
        what = f"{path} is not a document that trainproof writes."
    else:
        return []
    return [problem_of("TP091", file=str(path), what=what, why=None, next=fix)]
