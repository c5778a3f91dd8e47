"""Many runs at a glance: one `RunSummary` for each folder of a root, read again only where something changed.

The grade of a summary is the grade that `evidence.index.check` gives: there is not quicker, kinder verdict for lists.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evidence.index import entries as kept_entries
from evidence.index.entries import IndexEntry
from evidence.index.parallel import WORTH_A_PROCESS, Progress, read_batches
from evidence.index.summary import (
    MOST_POINTS,
    RunSummary,
    no_root,
    run_folders,
    summary_of,
    unreadable_root,
    with_report,
)
from evidence.judge.judgement import together
from evidence.judge.report import RunReport
from evidence.proof.receipts import receipts_state
from evidence.proof.verification import standing_of, with_proofs
from evidence.records.ours import read_run
from evidence.run import layout
from evidence.run.lock import FolderState, folder_state
from schemas.problems import ProblemError
from schemas.reading import collector_paused, parse_time

__all__ = ["MOST_POINTS", "RunIndex", "RunSummary", "index_folder", "index_runs", "summary_of"]

WORTH_KEEPING_SECONDS = 0.5
"""Reading since entries were kept last that is worth writing all of them again."""

LONG_BYTES = 5_000_000
"""A file of a run that takes longer to read than a screenful of ordinary runs, which are therefore read first."""

LONG_SECONDS = 0.2
REST = 10
"""How many times as long as it took a result may be kept by a caller that calls every second.

A run of a million rows that is under way changes every second and takes seconds to read; a page that follows it would
do nothing else.
"""


@dataclass(frozen=True, kw_only=True)
class _KnownRun:
    state: FolderState
    entry: IndexEntry
    read_at: float
    seconds: float


class RunIndex:
    """The runs of one root, kept in memory; safe to share between threads.

    Args:
        root: Folder of runs; it need not exist.
        follow_links: Whether a link to a folder is a run as that folder is. It may lead anywhere on the machine.
        columns_in: Folder where the columns of long runs are kept (`columns_cache`). None: nowhere.
        entries_in: Folder where what was read is kept for the next process (`index.entries`). None: nowhere.

    Attributes:
        look_seconds: How long the last look at all folders took, the reading of changed ones not counted.
        asked: Names of folders that a user waits for; they are read before others of their length.
    """

    def __init__(
        self, root: Path, *, follow_links: bool = True, columns_in: Path | None = None, entries_in: Path | None = None
    ) -> None:
        self.root = Path(root)
        self._columns_in = columns_in
        self._entries_in = entries_in
        self._unkept, self._unkept_seconds = 0, 0.0
        self._follow_links = follow_links
        # By the names of the folders: a path is slow to make and to look up, and there may be thousands of them.
        self._known: dict[str, _KnownRun] = {}
        self._reports: dict[str, RunReport] = {}
        self._summaries: Sequence[RunSummary] = []
        self._so_far: list[IndexEntry] = []
        self._receipts = 0
        self.asked: frozenset[str] = frozenset()
        self._looked_at = self.look_seconds = 0.0
        self._busy = threading.Lock()

    def refresh(self, *, progress: Progress | None = None, rest: bool = False) -> Sequence[RunSummary]:
        """Return a summary of every folder in the root, newest first; only changed folders are read again.

        Folders whose name begins with a dot and files are left out. A root that does not exist has no runs; one that
        cannot be read is listed itself, with its problem. While nothing changes, the same objects are returned.

        Args:
            progress: Told how many of the changed folders are read.
            rest: Whether a look that took long (`LONG_SECONDS`), and what was read of a run that is at work, may be
                `REST` times as old as it took.
        """
        # No entry refers to itself: looking for cycles among thousands takes half as long as looking at their folders.
        with self._busy, collector_paused():
            if rest and _rests(self._looked_at, self.look_seconds):
                return self._summaries
            try:
                names = run_folders(self.root, follow_links=self._follow_links)
            except FileNotFoundError:
                names = []
            except OSError as error:
                return [unreadable_root(self.root, error)]
            look_seconds = self._read(names, progress, rest=rest)
            self._looked_at, self.look_seconds = time.monotonic(), look_seconds
            return self._summaries

    @property
    def latest(self) -> Sequence[RunSummary]:
        """The runs as found last, newest first; the same object until something changes."""
        return self._summaries

    def so_far(self) -> Sequence[RunSummary]:
        """Return the runs known at this moment, newest first; another thread may call while a refresh is under way.

        A refresh begins with the runs that were written last. Whether one is a copy of another is known at its end.
        """
        return _summed_up(some)[1] if (some := self._so_far) else self._summaries

    def report(self, folder: Path) -> RunReport | None:
        """Return the findings and the grade of a run as of the last look; None for a folder that was not there."""
        return self._reports.get(folder.name) if folder.parent == self.root else None

    def is_current(self, folder: Path) -> bool:
        """Return whether a folder is as it was when its run was judged; one that a run is at work in counts as such."""
        known = self._known.get(folder.name) if folder.parent == self.root else None
        state = folder_state(str(folder))
        return known is not None and (known.state == state or (known.state.is_held and state.is_held))

    def names(self) -> frozenset[str]:
        """Return the names of the folders that are there now; none where the root cannot be read."""
        try:
            return frozenset(run_folders(self.root, follow_links=self._follow_links))
        except OSError:
            return frozenset()

    def _read(self, names: Sequence[str], progress: Progress | None, *, rest: bool) -> float:
        """Read the folders whose state is new, forget those that are gone; return the seconds of looking at all."""
        # A state is taken before its folder is read: a change in between is then seen the next time.
        began = time.monotonic()
        root = f"{self.root}{os.sep}"  # Thousands of paths take a while to make.
        states = {name: folder_state(root + name) for name in names}
        look_seconds = time.monotonic() - began
        if not self._known:
            self._take_kept(states)
        known = {name: self._known[name] for name in names if self._is_fresh(name, states[name], rest=rest)}
        changed = [name for name in names if name not in known]
        receipts = receipts_state()
        if changed or len(known) != len(self._summaries) or receipts != self._receipts:
            self._receipts = receipts
            self._read_anew(changed, states, known, progress)
            self._publish(names, known)
            self._so_far = []
            self._keep(self._known)
        return look_seconds

    def _publish(self, names: Sequence[str], known: Mapping[str, _KnownRun]) -> None:
        """Have everybody see these runs; one that is still to be read is as it was, which `is_current` denies."""
        every = {**self._known, **known}
        self._known = {name: every[name] for name in names if name in every}
        reports, self._summaries = _summed_up([one.entry for one in self._known.values()])
        self._reports = dict(zip(self._known, reports, strict=True))

    def _read_anew(
        self,
        changed: Sequence[str],
        states: Mapping[str, FolderState],
        known: dict[str, _KnownRun],
        progress: Progress | None,
    ) -> None:
        """Read folders and add them to those that are known; what is read before a long run is seen before its end."""
        self._so_far = [one.entry for one in known.values()]
        began, before, is_first = time.monotonic(), len(known), not self._known
        for batch, is_followed in self._batches(changed, states):
            ended = time.monotonic()
            each, began = (ended - began) / len(batch), ended
            for folder, entry in batch.items():
                known[folder.name] = _KnownRun(state=states[folder.name], entry=entry, read_at=ended, seconds=each)
            self._so_far = [*self._so_far, *batch.values()]  # A new list: another thread may be going through the old.
            self._unkept += len(batch)
            self._unkept_seconds += each * len(batch)
            # Anyone who stops in the middle of thousands finds half of them kept. All are written each time, so not
            # often.
            if self._unkept >= len(known) // 2:
                self._keep(known)
            if is_followed and not is_first:
                self._publish(list(states), known)
            if progress:
                progress(len(known) - before, len(changed))

    def _batches(
        self, names: Sequence[str], states: Mapping[str, FolderState]
    ) -> Iterator[tuple[Mapping[Path, IndexEntry], bool]]:
        """Read folders, those that were written last first; yield some as soon as they are read.

        Long runs, each of which takes seconds, come after all others, and one at a time: anyone who requests one of
        them meanwhile has it next. Hundreds of them are read on every processor instead. With each batch goes whether a
        long run comes after it.
        """
        newest_first = sorted(names, key=lambda name: states[name].last_written_ns, reverse=True)
        long = [name for name in newest_first if states[name].largest_bytes > LONG_BYTES]
        short = [name for name in newest_first if states[name].largest_bytes <= LONG_BYTES]
        short.sort(key=lambda name: name not in self.asked)
        left = len(short)
        for batch in read_batches([self.root / name for name in short], columns_in=self._columns_in):
            left -= len(batch)
            yield batch, bool(long) and not left
        while long:
            asked = next((name for name in long if name in self.asked), long[0])
            some = [asked] if len(long) < 2 * WORTH_A_PROCESS else list(long)
            long = [name for name in long if name not in some]
            for batch in read_batches([self.root / name for name in some], columns_in=self._columns_in):
                yield batch, bool(long)

    def _take_kept(self, states: Mapping[str, FolderState]) -> None:
        """Take over what an earlier process read of the folders as they are now."""
        if self._entries_in is None:
            return
        digests = {name: state.digest for name, state in states.items()}
        for name, entry in kept_entries.read_cached(self._entries_in, self.root, digests).items():
            if entry.summary.path == self.root / name:
                self._known[name] = _KnownRun(state=states[name], entry=entry, read_at=0.0, seconds=0.0)

    def _keep(self, known: Mapping[str, _KnownRun]) -> None:
        """Keep all entries for the next process, if reading those that are not kept yet took long enough."""
        if self._entries_in is None or self._unkept_seconds < WORTH_KEEPING_SECONDS:
            return
        entries = ((name, one.state.digest, one.entry) for name, one in known.items())
        kept_entries.keep(self._entries_in, self.root, entries)
        self._unkept, self._unkept_seconds = 0, 0.0

    def _is_fresh(self, name: str, state: FolderState, *, rest: bool) -> bool:
        one = self._known.get(name)
        may_rest = rest and state.is_held
        return one is not None and (one.state == state or (may_rest and _rests(one.read_at, one.seconds)))


def _summed_up(entries: Sequence[IndexEntry]) -> tuple[list[RunReport], list[RunSummary]]:
    """Hold runs against each other; return their reports, and their summaries with the newest first."""
    reports = with_proofs(together([entry.judged for entry in entries]))
    summaries = [
        entry.summary if report is entry.judged.report else with_report(entry.summary, report)
        for entry, report in zip(entries, reports, strict=True)
    ]
    return reports, sorted(summaries, key=_when, reverse=True)


def _rests(ended: float, seconds: float) -> bool:
    return seconds > LONG_SECONDS and time.monotonic() - ended < REST * seconds


def index_runs(root: Path) -> Sequence[RunSummary]:
    """Return a summary of every run of a root, newest first, reading all of them; `RunIndex` remembers."""
    return RunIndex(root).refresh()


def index_folder(root: Path) -> Sequence[RunSummary]:
    """Return what `index_runs` returns, of a folder that a user named; of a run's own folder, that run alone.

    Raises:
        ProblemError: There is no such folder (exit code 2).
    """
    if not Path(root).is_dir():
        raise ProblemError([no_root(root)], exit_code=2)
    if (Path(root) / layout.MANIFEST).is_file():
        run = read_run(Path(root))
        return [summary_of(run, standing_of(run))]
    return index_runs(root)


def _when(summary: RunSummary) -> tuple[datetime, str]:
    """Return what lists are sorted by; a run that does not state it when it started comes last."""
    at = parse_time(summary.started_at) if summary.started_at else None
    return at or datetime.min.replace(tzinfo=UTC), summary.run_id
