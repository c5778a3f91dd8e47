"""Check and list many runs: `RunIndex` for a folder of runs that is read again and again, `check_paths` for once.

Lists use the same grade as `trainproof check`. Many runs are read in worker processes, and the dashboard keeps checked
runs in the user's cache folder, which can be deleted at any time.
"""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import json
import os
import pickle
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from evidence import layout
from evidence.grade import RunJudgement, RunReport, check_across_runs, judge
from evidence.hashes import make_seal, verify_seal
from evidence.index.summary import RunSummary, apply_report, summarize
from evidence.lock import is_alive
from evidence.proof.receipts import receipts_version
from evidence.proof.verification import grade_reports, grade_run
from evidence.report import Report
from evidence.run import read_run
from evidence.writing import write_bytes
from schemas.catalog import document_kind, is_rows
from schemas.problems import Problem, ProblemError, problem_of, worst_first
from schemas.reading import collector_paused, read_rows
from schemas.validate import read_document

Progress = Callable[[int, int], None]  # called with the number of runs read and the number of runs in total

WORTH_A_PROCESS = 100  # number of runs that take longer to read than a worker takes to start
FIRST = 20  # runs read in this process while the workers start: as many as a screen shows
LONG_BYTES = 5_000_000  # size of a file from which on reading a run takes longer than a screenful of ordinary runs
LONG_SECONDS = 0.2
REST = 10
"""A running run that takes long to read is reused for this many times as long: a million rows change every second."""

WORTH_SAVING_SECONDS = 0.5  # reading time since the cache was last written that is worth writing it again
MAX_ROOTS = 20  # number of folders of runs that are cached; those not written for longest are deleted
_SEAL_BYTES, _DIGEST_BYTES = 64, 32

_FileState = tuple[str, int, int, int]
"""Name, mtime and ctime in ns since 1970, and size in bytes. Anyone can set an mtime back, but not a ctime."""


class FolderState(NamedTuple):
    """State of a run folder; equal states mean that no file was written, added or removed in between."""

    is_held: bool  # whether the process that writes the run is alive
    files: tuple[_FileState, ...]  # all except model weights, sorted by name


def folder_state(folder: str) -> FolderState:
    """Return the state of a folder; a part that cannot be read has a fixed state of its own."""
    files = _file_states(folder, "")
    is_held = layout.LOCK in [name for name, _, _, _ in files] and is_alive(Path(folder))
    return FolderState(is_held, tuple(files))


def _file_states(folder: str, prefix: str) -> list[_FileState]:
    found: list[_FileState] = []
    try:
        with os.scandir(folder) as listing:
            for entry in listing:
                name = prefix + entry.name
                if not entry.is_dir(follow_symlinks=False):
                    try:
                        status = entry.stat(follow_symlinks=False)
                    except OSError:
                        continue  # Replaced while listing; the next call sees the new file.
                    found.append((name, status.st_mtime_ns, status.st_ctime_ns, status.st_size))
                elif name not in layout.WEIGHT_FOLDERS and prefix.count("/") < layout.DEEPEST:
                    found += _file_states(entry.path, f"{name}/")
    except OSError:
        return [(prefix, -1, -1, -1)]
    found.sort()
    return found


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """A checked and summarized run."""

    judged: RunJudgement
    summary: RunSummary


def read_entry(folder: Path) -> IndexEntry:
    """Read, check and summarize a run."""
    run = read_run(folder)
    judged = judge(run)
    return IndexEntry(judged=judged, summary=summarize(run, judged.report))


def iter_entries(folders: Sequence[Path]) -> Iterator[IndexEntry]:
    """Read, check and summarize runs, and yield them one by one in the order given."""
    count = min(processors(), len(folders) // WORTH_A_PROCESS)
    if count < 2:
        yield from map(read_entry, folders)
        return
    rest = folders[FIRST:]
    with contextlib.ExitStack() as stack:
        workers = [_start_worker(rest[number::count], stack) for number in range(count)]
        yield from map(read_entry, folders[:FIRST])
        for number, folder in enumerate(rest):
            entry = _decode_entry(workers[number % count].readline(), folder)
            if entry is None:  # The worker died, or something else was printed among its entries.
                workers[number % count] = BytesIO()
            yield entry or read_entry(folder)


def _start_worker(folders: Sequence[Path], stack: contextlib.ExitStack) -> BinaryIO:
    """Start a worker that ends with `stack`, and return its output, which is empty if it cannot be started.

    `multiprocessing` would import the caller's main script again, and that may be a page of the dashboard.
    """
    home = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join([home, *filter(None, [os.environ.get("PYTHONPATH")])])
    with tempfile.TemporaryFile("w+") as names:
        json.dump([str(folder) for folder in folders], names)
        names.seek(0)
        command = [sys.executable, "-P", "-m", "evidence.index"]
        pipes: dict[str, Any] = {"stdin": names, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
        try:
            worker = stack.enter_context(subprocess.Popen(command, **pipes, env={**os.environ, "PYTHONPATH": path}))
        except OSError:
            return BytesIO()
    stack.callback(worker.kill)
    return cast("BinaryIO", worker.stdout)


def _decode_entry(line: bytes, folder: Path) -> IndexEntry | None:
    """Return the entry of a folder in a worker's line, or None if the line is cut off or holds anything else."""
    try:
        data = base64.b64decode(line.removesuffix(b"\n"), validate=True)
    except ValueError:
        return None
    digest, content = data[:_DIGEST_BYTES], data[_DIGEST_BYTES:]
    if hashlib.sha256(content).digest() != digest:
        return None
    entry: IndexEntry = pickle.loads(content)  # noqa: S301 - of our own process
    return entry if entry.summary.path == folder else None


def worker_main() -> None:
    """Read a JSON list of paths from standard input, and write each entry to standard output as a line of base64."""
    output, sys.stdout = sys.stdout.buffer, sys.stderr  # what a library prints must not get among the entries
    gc.disable()  # Thousands of small objects without cycles; collecting costs an eighth of the time.
    if hasattr(os, "nice"):
        os.nice(10)  # Training on this machine comes first.
    for folder in json.load(sys.stdin):
        content = pickle.dumps(read_entry(Path(folder)))
        output.write(base64.b64encode(hashlib.sha256(content).digest() + content) + b"\n")
        output.flush()


def processors() -> int:
    """Return the number of processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class KnownRun:
    """An entry, the state of the folder that it is valid for, and when and how long it was read (monotonic seconds)."""

    state: FolderState
    entry: IndexEntry
    read_at: float = 0.0
    seconds: float = 0.0


def cache_folder() -> Path:
    """Return the folder of the cache."""
    return layout.user_folder("XDG_CACHE_HOME", ".cache") / "entries"


def save_cache(folder: Path, root: Path, known: Mapping[str, KnownRun]) -> None:
    """Replace the cached runs of a folder of runs; does nothing if the disk cannot be written."""
    content = pickle.dumps({name: KnownRun(state=run.state, entry=run.entry) for name, run in known.items()})
    # Without a cache the next process reads everything again: slower, but right.
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_bytes(_cache_file(folder, root), make_seal(_sealed(content)).encode("ascii") + content)
        newest_first = sorted(folder.glob("*.sealed"), key=lambda path: -path.stat().st_mtime_ns)
        for path in (*newest_first[MAX_ROOTS:], *folder.glob("*.jsonl")):  # earlier versions wrote JSON lines
            path.unlink()


def load_cache(folder: Path, root: Path, states: Mapping[str, FolderState]) -> dict[str, KnownRun]:
    """Return the cached runs that still have these states."""
    try:
        data = _cache_file(folder, root).read_bytes()
    except OSError:
        return {}
    seal, content = data[:_SEAL_BYTES], data[_SEAL_BYTES:]
    # A pickle can run code, so only one that this user's own process wrote, with the same code, is loaded.
    if not verify_seal(seal.decode("ascii", "replace"), _sealed(content)):
        return {}
    known: dict[str, KnownRun] = pickle.loads(content)  # noqa: S301 - sealed
    return {name: run for name, run in known.items() if states.get(name) == run.state}


def _sealed(content: bytes) -> bytes:
    """Return what the seal of a cache authenticates: never what any other seal of this user does."""
    return b"trainproof cache\n" + _code_digest() + content


@cache
def _code_digest() -> bytes:
    """Return a digest of the code that decides what an entry contains: name, size and mtime of its files."""
    home = Path(__file__).resolve().parents[2]
    digest = hashlib.sha256(sys.version.encode())
    for package in ("evidence", "schemas"):
        for path in sorted((home / package).rglob("*")):
            if path.suffix in (".py", ".json", ".toml"):
                status = path.stat()
                digest.update(f"{path.relative_to(home)} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.digest()


def _cache_file(folder: Path, root: Path) -> Path:
    return folder / f"{hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:24]}.sealed"


class RunIndex:
    """The runs of a folder, kept in memory and read again only when they change; safe to share between threads.

    Args:
        root: Folder of runs; it need not exist.
        follow_links: Whether links to folders are runs. They may lead anywhere on the machine.
        cached_in: Folder of the cache, or None to cache nothing on disk.

    Attributes:
        latest: Summaries of the last refresh, newest first; the same object until something changes.
        look_seconds: Time of the last scan of all folders, without reading changed ones.
        asked: Names of folders to read first, because a user waits for them.
    """

    def __init__(self, root: Path, *, follow_links: bool = True, cached_in: Path | None = None) -> None:
        self.root = Path(root)
        self.latest: Sequence[RunSummary] = []
        self.asked: frozenset[str] = frozenset()
        self.look_seconds = 0.0
        self._cached_in = cached_in
        self._follow_links = follow_links
        # Keyed by folder name, because paths are slow to create and there may be thousands.
        self._known: dict[str, KnownRun] = {}
        self._reports: dict[str, RunReport] = {}
        self._partial: list[IndexEntry] = []
        self._receipts = 0
        self._unsaved, self._unsaved_seconds = 0, 0.0
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
                what = f"The folder cannot be read: {error.strerror or error}."
                problem = problem_of("TP209", file=str(self.root), what=what)
                unread = RunSummary(path=self.root, run_id=self.root.name, reasons=(what,), problem_count=1)
                return [replace(unread, first_problem=problem)]
            # States are taken before reading, so that a change in between is seen by the next refresh.
            states = {name: folder_state(f"{self.root}{os.sep}{name}") for name in names}
            self.look_seconds = time.monotonic() - began
            if not self._known and self._cached_in is not None:
                cached = load_cache(self._cached_in, self.root, states)
                self._known = {name: run for name, run in cached.items() if run.entry.summary.path == self.root / name}
            known = {name: self._known[name] for name in names if self._is_fresh(name, states[name], rest=rest)}
            receipts = receipts_version()
            if not len(known) == len(names) == len(self.latest) or receipts != self._receipts:
                self._receipts = receipts
                try:
                    self._reload(states, known, progress)
                finally:
                    self._save(known)
                self._publish(names, known)
                self._partial = []
            return self.latest

    def partial(self) -> Sequence[RunSummary]:
        """Return the runs read so far by a refresh in another thread, newest first; copies are found when it ends."""
        return _judge_together(some)[1] if (some := self._partial) else self.latest

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

    def _publish(self, names: Iterable[str], known: Mapping[str, KnownRun]) -> None:
        """Replace the published runs; a run that is still to be read keeps its old entry."""
        both = {**self._known, **known}
        self._known = {name: both[name] for name in names if name in both}
        reports, self.latest = _judge_together([run.entry for run in self._known.values()])
        self._reports = dict(zip(self._known, reports, strict=True))

    def _reload(self, states: Mapping[str, FolderState], known: dict[str, KnownRun], progress: Progress | None) -> None:
        """Read the other folders and add them to `known`, those written last first and long runs at the end."""

        def order(name: str) -> tuple[bool, int]:
            files = states[name].files or (("", 0, 0, 0),)
            return max(size for *_, size in files) > LONG_BYTES, -max(mtime_ns for _, mtime_ns, _, _ in files)

        self._partial = [run.entry for run in known.values()]
        before, is_published = len(known), not self._known
        waiting = sorted(states.keys() - known.keys(), key=lambda name: (name not in self.asked, *order(name), name))
        while waiting:
            # One at a time, so that one which a user asks for meanwhile is next; hundreds in workers instead.
            some = waiting if len(waiting) >= 2 * WORTH_A_PROCESS else [min(waiting, key=lambda n: n not in self.asked)]
            if order(some[0])[0] and len(known) > before and not is_published:
                self._publish(states, known)
                is_published = True
            taken = set(some)
            waiting = [name for name in waiting if name not in taken]
            began = time.monotonic()
            for entry in iter_entries([self.root / name for name in some]):
                ended = time.monotonic()
                name, seconds, began = entry.summary.path.name, ended - began, ended
                known[name] = KnownRun(state=states[name], entry=entry, read_at=ended, seconds=seconds)
                self._partial = [*self._partial, entry]  # another thread may be iterating over the old list
                self._unsaved, self._unsaved_seconds = self._unsaved + 1, self._unsaved_seconds + seconds
                if 2 * self._unsaved >= len(known):  # Doubling keeps the time for saving linear.
                    self._save(known)
                if progress:
                    progress(len(known) - before, len(states) - before)

    def _save(self, known: Mapping[str, KnownRun]) -> None:
        """Cache the runs on disk if reading the unsaved ones took long enough."""
        if self._cached_in is not None and self._unsaved_seconds >= WORTH_SAVING_SECONDS:
            save_cache(self._cached_in, self.root, {**self._known, **known})
            self._unsaved, self._unsaved_seconds = 0, 0.0

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
    return reports, sorted(summaries, key=lambda summary: (summary.started, summary.run_id), reverse=True)


def run_names(root: Path, *, follow_links: bool) -> list[str]:
    """Return the sorted names of the folders in a folder of runs, without hidden ones and compiled programs."""
    with os.scandir(root) as listing:
        names = [entry.name for entry in listing if entry.is_dir(follow_symlinks=follow_links)]
    return sorted(name for name in names if not name.startswith(".") and name != layout.PROGRAMS)


def index_runs(root: Path) -> Sequence[RunSummary]:
    """Read all runs of a folder and return their summaries, newest first."""
    return RunIndex(root).refresh()


def index_folder(root: Path) -> Sequence[RunSummary]:
    """Summarize the runs of a folder that a user named, newest first, or the run if it is a run folder.

    Raises ProblemError (exit code 2) if the folder does not exist.
    """
    if not Path(root).is_dir():
        what = f"{root} does not exist, or is not a folder."
        fix = "Check the path; `trainproof demo` writes two runs to submission_runs."
        raise ProblemError([problem_of("TP091", file=str(root), what=what, why=None, next=fix)], exit_code=2)
    if (Path(root) / layout.MANIFEST).is_file():
        run = read_run(Path(root))
        return [summarize(run, grade_run(run))]
    return index_runs(root)


def check_paths(paths: Iterable[Path]) -> Report:
    """Check runs, folders of runs and single documents.

    A folder with a file that only a run writes is a run. Any other folder is a folder of runs, in which hidden folders
    are ignored. A folder among runs that is not a run gets a note. A folder without any run is an error. Raises
    ProblemError (exit code 2) if a path does not exist or a file is not a document of trainproof.
    """
    requested = [Path(path) for path in paths]
    if problems := [problem for path in requested for problem in _path_problems(path)]:
        raise ProblemError(problems, exit_code=2)
    folders = [folder for path in requested if path.is_dir() for folder in run_folders(path)]
    reports = grade_reports(check_across_runs([entry.judged for entry in iter_entries(folders)]))
    return Report(
        runs=tuple(report if report.path in requested else _excuse_other_folder(report) for report in reports),
        documents={path: check_document(path) for path in requested if not path.is_dir()},
    )


def check_document(path: Path) -> list[Problem]:
    """Return the problems of a single document, whose kind follows from its name."""
    kind = document_kind(path.name) or ""
    read = read_rows(path, kind) if is_rows(kind) else read_document(path, kind)
    return list(worst_first(read.problems))


def run_folders(path: Path) -> list[Path]:
    """Return the folders in a folder of runs, sorted, or only the folder itself if it is a run or lacks runs."""
    children = [] if _looks_like_run(path) else [path / name for name in run_names(path, follow_links=True)]
    return children if any(map(_looks_like_run, children)) else [path]


def _looks_like_run(folder: Path) -> bool:
    try:
        return layout.holds_run(child.name for child in folder.iterdir())
    except OSError:
        return True  # Reading it as a run reports why it cannot be read.


def _excuse_other_folder(report: RunReport) -> RunReport:
    """Turn the error of a folder among runs that is not a run into a note."""
    if report.grade.name != "not a run" or any(problem.code != "TP501" for problem in report.findings):
        return report
    return replace(report, findings=(problem_of("TP502", file=str(report.path), what=report.findings[0].what),))


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
