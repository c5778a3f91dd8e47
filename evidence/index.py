"""Many runs at a glance: one `RunSummary` for each folder of a root, read again only where something changed.

The grade of a summary is the grade that `evidence.check` gives: there is no quicker, kinder verdict for lists.
"""

from __future__ import annotations

import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.judge import together
from evidence.lock import is_alive
from evidence.many import Entry, read_entries
from evidence.rules.finding import problem_of
from evidence.rules.reading import UNREADABLE_FOLDER
from evidence.summary import MOST_POINTS, RunSummary, summary_of, with_report
from schemas.problems import Problem, ProblemError
from schemas.times import moment

__all__ = ["MOST_POINTS", "RunIndex", "RunSummary", "index_folder", "index_runs", "summary_of"]

Signature = tuple[Any, ...]


class RunIndex:
    """The runs of one root, kept in memory; safe to share between threads."""

    def __init__(self, root: Path) -> None:
        self.root = Path(root)
        self._known: dict[Path, tuple[Signature, Entry]] = {}
        self._busy = threading.Lock()

    def refresh(self) -> list[RunSummary]:
        """Return a summary of every folder in the root, newest first; only changed folders are read again.

        Folders whose name begins with a dot and files are left out. A root that does not exist has no runs; one that
        cannot be read is listed itself, with its problem.
        """
        with self._busy:
            try:
                folders = sorted(
                    child for child in self.root.iterdir() if child.is_dir() and not child.name.startswith(".")
                )
            except FileNotFoundError:
                folders = []
            except OSError as error:
                return [_unreadable(self.root, error)]
            self._read(folders)
            entries = [entry for _, entry in self._known.values()]
            reports = together([entry.judged for entry in entries])
            summaries = [with_report(entry.summary, report) for entry, report in zip(entries, reports, strict=True)]
            return sorted(summaries, key=_when, reverse=True)

    def _read(self, folders: list[Path]) -> None:
        """Read the folders whose signature is new, and forget those that are gone."""
        # A signature is taken before its folder is read: a change in between is then seen the next time.
        signatures = {folder: _signature(folder) for folder in folders}
        known = {
            folder: self._known[folder]
            for folder in folders
            if folder in self._known and self._known[folder][0] == signatures[folder]
        }
        changed = [folder for folder in folders if folder not in known]
        fresh = dict(zip(changed, read_entries(changed), strict=True))
        self._known = {folder: known.get(folder) or (signatures[folder], fresh[folder]) for folder in folders}


def index_runs(root: Path) -> list[RunSummary]:
    """Return a summary of every run of a root, newest first, reading all of them; `RunIndex` remembers."""
    return RunIndex(root).refresh()


def index_folder(root: Path) -> list[RunSummary]:
    """Return what `index_runs` returns, of a folder that somebody named.

    Raises:
        ProblemError: There is no such folder (exit code 2).
    """
    if not Path(root).is_dir():
        raise ProblemError([_no_folder(root)], exit_code=2)
    return index_runs(root)


def _signature(folder: Path) -> Signature:
    """Return what changes when a file of the run is written, added or removed, or its process ends."""
    return (is_alive(folder), *_entries(folder, ""))


def _entries(folder: Path, prefix: str) -> list[tuple[str, int, int]]:
    try:
        with os.scandir(folder) as listing:
            entries = sorted(listing, key=lambda entry: entry.name)
    except OSError:
        return [(prefix, -1, -1)]
    found = []
    for entry in entries:
        name = prefix + entry.name
        if entry.is_dir(follow_symlinks=False):
            if name not in layout.WEIGHT_FOLDERS:
                found += _entries(Path(entry.path), f"{name}/")
            continue
        try:
            status = entry.stat(follow_symlinks=False)
        except OSError:
            continue  # Replaced while it was being looked at; the next look sees the new one.
        found.append((name, status.st_mtime_ns, status.st_size))
    return found


def _unreadable(root: Path, error: OSError) -> RunSummary:
    what = f"The folder cannot be read: {error.strerror or error}."
    problem = problem_of(UNREADABLE_FOLDER, file=str(root), what=what)
    return RunSummary(
        path=root, run_id=root.name, grade="not a run", reasons=(what,), problem_count=1, first_problem=problem
    )


def _no_folder(root: Path) -> Problem:
    return Problem(
        code="TP091",
        severity="error",
        file=str(root),
        what=f"{root} is not a folder of runs: there is no such folder.",
        next="Check the path; `trainproof demo` makes two runs in submission_runs.",
    )


def _when(summary: RunSummary) -> tuple[datetime, str]:
    """Return what lists are sorted by; a run that does not say when it started comes last."""
    at = moment(summary.started_at) if summary.started_at else None
    return at or datetime.min.replace(tzinfo=UTC), summary.run_id
