"""Write a run folder: manifest at every change, one row per step, one line per event, hashes at the seal.

A recorder locks its folder, and leaves a manifest with the outcome however the run ends. `evidence` reads run folders.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

from evidence import layout
from evidence.hashes import Chain, RowsSoFar, sha256_file, sha256_manifest
from evidence.lock import RunLock, refuse_without_locks
from evidence.scores.recompute import compute_result
from evidence.writing import RowWriter, append_rows, write_json, write_text
from schemas.catalog import schema
from schemas.problems import Problem, ProblemError, problem_of
from trainer.recorder.failure import describe_failure

FOLDER_MOVED = "it was moved, renamed or removed while the run was writing to it"

Say = Callable[[str], None]
"""Shows one line to the user."""

NO_RESULT: dict[str, Any] = {
    "first_loss": None,
    "last_loss": None,
    "mean_loss": None,
    "best_loss": None,
    "best_step": None,
    "tokens_seen": None,
    "train_seconds": None,
    "compile_seconds": None,
    "peak_memory_bytes": None,
    "stopped_because": None,
}

NO_FILES: Mapping[str, Path] = MappingProxyType({})

MAX_RUN_ID = 128
"""Longest run id in characters."""


def now() -> str:
    """Return the time in UTC with offset, to the millisecond: `2026-11-20T15:30:12.345+00:00`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def clock_seconds() -> float:
    """Return the time of a monotonic clock in seconds, to the millisecond."""
    return round(time.monotonic(), 3)


class RunningResult:
    """Computes the figures of `compute_result` row by row, without keeping the rows."""

    def __init__(self) -> None:
        self.last: dict[str, Any] = {}
        """The last row."""
        self._first: dict[str, Any] = {}
        self._best: dict[str, Any] = {}
        self._sum, self._count = Fraction(), 0  # exact, as the mean is rounded once

    def add(self, row: dict[str, Any]) -> None:
        """Add a row of metrics.jsonl."""
        self._first, self.last, loss = self._first or row, row, row["loss"]
        if loss is not None:
            self._sum, self._count = self._sum + Fraction(loss), self._count + 1
            if not self._best or loss < self._best["loss"]:
                self._best = row

    def document(self) -> dict[str, Any]:
        """Return the fields of the manifest's `result`."""
        result = compute_result([row for row in (self._first, self._best, self.last) if row])
        return result | {"mean_loss": float(self._sum) / self._count if self._count else None}


class Recorder:
    """Writes one run folder.

    Use it as a context manager: an exception seals the run as failed or cancelled and becomes a `ProblemError`, so that
    no folder is left with status `running`. Rows are written immediately.
    """

    def __init__(self, folder: Path, *, say: Say) -> None:
        """Prepare to write an empty folder; see `claim`."""
        self.folder = folder
        self.run_id = folder.resolve().name
        self.manifest: dict[str, Any] = {}
        self.result = RunningResult()
        self.chain = Chain()
        self.before_seal: list[Callable[[], None]] = []
        """Callbacks that finish files of the run before they are hashed."""
        self._say = say
        self._lock = RunLock(folder)
        self._metrics: RowWriter
        self._log: RowWriter

    def __enter__(self) -> Self:
        self._lock.__enter__()
        self._metrics = RowWriter(self.folder / layout.METRICS)
        self._log = RowWriter(self.folder / layout.LOG)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is not None:
                self._fail(error)
        finally:
            self._metrics.close()
            self._log.close()
            self._lock.__exit__(kind, error, trace)

    def _fail(self, error: BaseException) -> None:
        """Seal the run with the outcome of an exception and raise its problems."""
        if isinstance(error, OSError) and not self._lock.holds():
            error = FileNotFoundError(errno.ENOENT, FOLDER_MOVED, str(self.folder))
        failure = describe_failure(error, file=str(self.folder))
        try:
            details = {"traceback": failure.traceback} if failure.traceback else {}
            self.log("error", f"run_{failure.status}", failure.message, **details)
            if self.result.last:
                self.manifest["result"] |= self.result.document()
                self.manifest["training"]["steps_done"] = self.result.last["step"]
            if self.manifest:
                self.manifest["result"]["stopped_because"] = failure.message
                self.seal(failure.status, exit_code=failure.exit_code, error=failure.kind, message=failure.message)
        except OSError:
            # The disk that failed the run fails the seal too. The last complete manifest remains, and the lock ends
            # with this process, so readers show the run as interrupted.
            self._say("The manifest could not be updated; it still says running.")
        raise ProblemError(failure.problems, exit_code=failure.exit_code) from error

    def start(self, manifest: dict[str, Any]) -> None:
        """Write the first manifest."""
        self.manifest = manifest
        self.chain = Chain((manifest["parent"] or {}).get("link"))
        self.save()

    def set(self, **groups: Any) -> None:
        """Replace groups of the manifest and write it."""
        self.manifest |= groups
        self.save()

    def update(self, group: str, **values: Any) -> None:
        """Change fields of a group of the manifest and write it."""
        self.manifest[group] |= values
        self.save()

    def _path(self, name: str) -> Path:
        """Return the path of a file of the run; raise FileNotFoundError if the folder was moved or replaced."""
        if not self._lock.holds():
            raise FileNotFoundError(errno.ENOENT, FOLDER_MOVED, str(self.folder))
        return self.folder / name

    def save(self) -> None:
        """Write the manifest."""
        write_json(self._path(layout.MANIFEST), self.manifest)

    def document(self, name: str, value: dict[str, Any]) -> None:
        """Write one of the run's other JSON documents."""
        write_json(self._path(name), value)

    def text(self, name: str, text: str) -> None:
        """Write one of the run's text files."""
        write_text(self._path(name), text)

    def metric(self, row: dict[str, Any]) -> None:
        """Append a row to metrics.jsonl, with the time of a monotonic clock."""
        row = row | {"clock_seconds": clock_seconds()}
        self.chain.row(self._metrics.append(row))
        self.result.add(row)

    def rows_so_far(self) -> RowsSoFar:
        """Return the summary of the rows so far for the next entry of the chain."""
        return self.chain.rows_so_far()

    def link(self, **entry: Any) -> None:
        """Append an entry to chain.jsonl; see `Chain.entry`."""
        append_rows(self._path(layout.CHAIN), [self.chain.entry(**entry)])

    def completions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append completions to rollouts.jsonl."""
        append_rows(self._path(layout.ROLLOUTS), rows)

    def answers(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append held-out answers to answers_over_steps.jsonl."""
        append_rows(self._path(layout.ANSWERS_OVER_STEPS), rows)

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Append an event to log.jsonl and show its message."""
        self.note(level, event, message, **fields)
        self._say(message)

    def note(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Append an event to log.jsonl without showing it."""
        head = {"time": now(), "clock_seconds": clock_seconds()}
        self._log.append(head | {"level": level, "event": event, "message": message, "fields": fields})

    def sync(self) -> None:
        """Flush rows to the disk; called at checkpoints."""
        self._metrics.sync()
        self._log.sync()

    def record_result(self, **measured: Any) -> None:
        """Write the result into the manifest: figures computed from the rows, and those measured by the run."""
        self.update("result", **self.result.document(), **measured)

    def seal(self, status: str, *, exit_code: int, error: str | None = None, message: str | None = None) -> None:
        """Seal the run: set the status, log the manifest's hash, then write the manifest with the hash of every file.

        Manifest and log confirm each other, so a change in either is found. Status and hashes reach the disk in one
        rename, so a run with status `succeeded` has all of them.
        """
        for end in self.before_seal:
            end()
        ended = {"code": exit_code, "error": error, "message": message}
        self.manifest |= {"status": status, "finished_at": now(), "exit": ended}
        if self.chain.entries:
            self.manifest["chain"] = self.chain.document()
        self.log("info", "run_sealed", f"sealed as {status}", manifest_sha256=sha256_manifest(self.manifest))
        self.sync()
        self.manifest["artifacts"] = artifacts_of(self.folder)
        self.save()


def artifacts_of(folder: Path, *, instead: Mapping[str, Path] = NO_FILES) -> list[dict[str, Any]]:
    """Return the artifact list of the manifest: every evidence file with size, hash and role.

    Args:
        folder: Run folder.
        instead: Files to list under these names in place of those in the folder.
    """
    files = [(name, role, instead.get(name, folder / name)) for name, role in layout.ROLES.items()]
    states = sorted((folder / layout.STATES).glob("*.safetensors"))
    files += [(f"{layout.STATES}/{path.name}", "other", path) for path in states]
    return [
        {"path": name, "bytes": path.stat().st_size, "sha256": sha256_file(path), "role": role}
        for name, role, path in files
        if path.is_file()
    ]


def claim(folder: Path) -> None:
    """Create the folder of a new run, or take an empty one, and check that it is writable.

    Raises:
        ProblemError: exit code 2; see `refuse_folder`.
    """
    refuse_folder(folder)
    probe = folder / ".writable.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ProblemError([unwritable(folder, error)], exit_code=2) from error


def refuse_folder(folder: Path) -> None:
    """Check that a folder can become a run folder.

    Raises:
        ProblemError: exit code 2; its name is not a valid run id, it is not empty, or it cannot be written or locked.
    """
    problems = unfit_name(folder, "--output")
    try:
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if not names:
            refuse_without_locks(folder)
    except OSError as error:
        raise ProblemError([*problems, unwritable(folder, error)], exit_code=2) from error
    if names:
        problems.append(occupied_problem(folder, names))
    if problems:
        raise ProblemError(problems, exit_code=2)


def unfit_name(folder: Path, flag: str) -> list[Problem]:
    """Return a problem if the name of a folder, given with `flag`, is not a valid run id."""
    name = folder.resolve().name
    if re.search(schema("types")["$defs"]["run_id"]["pattern"], name):
        return []
    suggestion = re.sub("[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:MAX_RUN_ID] or "run"
    problem = problem_of(
        "TP032",
        file=str(folder),
        what=f"The folder's name {name!r} cannot be the id of a run.",
        expected=f"letters, digits, dot, underscore and hyphen, a letter or digit first, at most {MAX_RUN_ID}",
        next=f"Give {flag} a folder with such a name, for example {suggestion}.",
    )
    return [problem]


def unwritable(folder: Path, error: OSError) -> Problem:
    """Return the problem of a folder that cannot be created or written."""
    return problem_of("TP030", file=str(folder), what=f"The run folder cannot be written: {error.strerror}.", why=None)


def occupied_problem(folder: Path, names: list[str]) -> Problem:
    """Return the problem of a folder that is not empty."""
    holds_run = layout.MANIFEST in names
    shown = ", ".join(names[:3]) + (" and more" if len(names) > 3 else "")
    return problem_of(
        "TP031",
        file=str(folder),
        what="The folder already holds a run." if holds_run else f"The folder is not empty: it holds {shown}.",
        next=f"Give --output another folder{f', or continue that run with --resume {folder}' if holds_run else ''}.",
    )
