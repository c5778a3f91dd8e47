"""The run folder as a run writes it: manifest at every change, a row per step, a line per event, hashes at the seal.

A recorder holds its folder for one process and, however the run ends, leaves a manifest that states it. Reading run
folders is `evidence`'s work.
"""

from __future__ import annotations

import errno
import re
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
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
from trainer.recorder.failure import failure_of

MOVED = "it was moved, renamed or removed while the run was writing to it"

Say = Callable[[str], None]
"""Shows one line to anyone who watches the run."""

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

NOTHING: Mapping[str, Path] = MappingProxyType({})

MOST_OF_AN_ID = 128
"""Characters of the longest run id that the schemas allow."""


def now() -> str:
    """Return the time in UTC with offset, to the millisecond: `2026-11-20T15:30:12.345+00:00`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def clock_seconds() -> float:
    """Return the seconds of a clock that is never set, from a beginning of its own, to the millisecond."""
    return round(time.monotonic(), 3)


class Recorder:
    """Writes one run folder.

    Used as a context manager: leaving it by an exception seals the run as failed or cancelled and raises a
    `ProblemError` that states why, so that no folder is left stating `running`. Rows are in the file as soon as they
    are made.
    """

    def __init__(self, folder: Path, *, say: Say) -> None:
        """Take a new folder; see `claim`."""
        self.folder = folder
        self.run_id = folder.resolve().name
        self.manifest: dict[str, Any] = {}
        self.metric_rows: list[dict[str, Any]] = []
        self.chain = Chain()
        self.before_seal: list[Callable[[], None]] = []
        """What writes files of the run beside it, to be ended before they are hashed."""
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
        """Seal the run as what the exception makes of it, and raise that as the problems that users meet."""
        if isinstance(error, OSError) and not self._lock.holds():
            error = FileNotFoundError(errno.ENOENT, MOVED, str(self.folder))
        failure = failure_of(error, file=str(self.folder))
        try:
            details = {"traceback": failure.traceback} if failure.traceback else {}
            self.log("error", f"run_{failure.status}", failure.message, **details)
            if self.metric_rows:
                self.manifest["result"] |= compute_result(self.metric_rows)
                self.manifest["training"]["steps_done"] = self.metric_rows[-1]["step"]
            if self.manifest:
                self.manifest["result"]["stopped_because"] = failure.message
                self.seal(failure.status, exit_code=failure.exit_code, error=failure.kind, message=failure.message)
        except OSError:
            # The disk that failed the run fails the seal too. The manifest on it is the last whole one, and the lock
            # goes with this process, so readers show the run as interrupted.
            self._say("The manifest could not be updated; it still says running.")
        raise ProblemError(failure.problems, exit_code=failure.exit_code) from error

    def start(self, manifest: dict[str, Any]) -> None:
        """Write the first manifest: everything known before the first step."""
        self.manifest = manifest
        self.chain = Chain((manifest["parent"] or {}).get("link"))
        self.save()

    def set(self, **groups: Any) -> None:
        """Replace whole groups of the manifest and write it."""
        self.manifest |= groups
        self.save()

    def update(self, group: str, **values: Any) -> None:
        """Change fields of one group of the manifest and write it."""
        self.manifest[group] |= values
        self.save()

    def _path(self, name: str) -> Path:
        """Return the path of a file of the run, whose folder may have been moved and another made in its place.

        Raises:
            FileNotFoundError: it was.
        """
        if not self._lock.holds():
            raise FileNotFoundError(errno.ENOENT, MOVED, str(self.folder))
        return self.folder / name

    def save(self) -> None:
        """Write the manifest as it stands."""
        write_json(self._path(layout.MANIFEST), self.manifest)

    def document(self, name: str, value: dict[str, Any]) -> None:
        """Write one of the run's other JSON documents."""
        write_json(self._path(name), value)

    def text(self, name: str, text: str) -> None:
        """Write one of the run's text files."""
        write_text(self._path(name), text)

    def metric(self, row: dict[str, Any]) -> None:
        """Append a row to metrics.jsonl, with a clock that cannot be set beside the time of day."""
        row = row | {"clock_seconds": clock_seconds()}
        self.chain.row(self._metrics.append(row))
        self.metric_rows.append(row)

    def rows_so_far(self) -> RowsSoFar:
        """Return what the next entry of the chain states of the rows before it."""
        return self.chain.rows_so_far()

    def link(self, **entry: Any) -> None:
        """Append an entry to chain.jsonl: what the run is at this step; see `Chain.entry`."""
        append_rows(self._path(layout.CHAIN), [self.chain.entry(**entry)])

    def completions(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append the completions of a roll-out to rollouts.jsonl."""
        append_rows(self._path(layout.ROLLOUTS), rows)

    def answers(self, rows: Iterable[dict[str, Any]]) -> None:
        """Append answers of a model that is being trained to answers_over_steps.jsonl."""
        append_rows(self._path(layout.ANSWERS_OVER_STEPS), rows)

    def log(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Append an event to log.jsonl and show its message."""
        self.note(level, event, message, **fields)
        self._say(message)

    def note(self, level: str, event: str, message: str, **fields: Any) -> None:
        """Append an event to log.jsonl whose message was shown before."""
        head = {"time": now(), "clock_seconds": clock_seconds()}
        self._log.append(head | {"level": level, "event": event, "message": message, "fields": fields})

    def sync(self) -> None:
        """Put every row on the disk itself; called at checkpoints."""
        self._metrics.sync()
        self._log.sync()

    def record_result(self, **measured: Any) -> None:
        """Put the result into the manifest: what follows from the rows, and what only the run itself measured."""
        self.update("result", **compute_result(self.metric_rows), **measured)

    def seal(self, status: str, *, exit_code: int, error: str | None = None, message: str | None = None) -> None:
        """End the run: its status, then the log's last line with the manifest's hash, then the hash of every file.

        Manifest and log vouch for each other, so a change of one value in either shows. The status reaches the disk
        with the hashes, in one rename: a run that states `succeeded` has them all.
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


def artifacts_of(folder: Path, *, instead: Mapping[str, Path] = NOTHING) -> list[dict[str, Any]]:
    """Return the manifest's artifact list: every evidence file that is there, with size, hash and role.

    Args:
        folder: of the run.
        instead: files that will take the place of those with these names.
    """
    there = [(name, role, instead.get(name, folder / name)) for name, role in layout.ROLES.items()]
    states = sorted((folder / layout.STATES).glob("*.safetensors"))
    there += [(f"{layout.STATES}/{path.name}", "other", path) for path in states]
    return [
        {"path": name, "bytes": path.stat().st_size, "sha256": sha256_file(path), "role": role}
        for name, role, path in there
        if path.is_file()
    ]


def claim(folder: Path) -> None:
    """Make the run's folder, which must not exist or be empty, and see that it can be written.

    Raises:
        ProblemError: exit code 2; see `refuse_folder`, or it cannot be made.
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
    """Refuse a folder that can be no new run's, before anything is spent.

    Raises:
        ProblemError: exit code 2; its name cannot be a run's id, it holds a run or other files, or it cannot be written
            or locked.
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
    """Return the problem of a folder whose name cannot be the id of its run, if it has it; `flag` named the folder."""
    name = folder.resolve().name
    if re.search(schema("types")["$defs"]["run_id"]["pattern"], name):
        return []
    like_it = re.sub("[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:MOST_OF_AN_ID] or "run"
    problem = problem_of(
        "TP032",
        file=str(folder),
        what=f"The folder's name {name!r} cannot be the id of a run.",
        expected=f"letters, digits, dot, underscore and hyphen, a letter or digit first, at most {MOST_OF_AN_ID}",
        next=f"Give {flag} a folder with such a name, for example {like_it}.",
    )
    return [problem]


def unwritable(folder: Path, error: OSError) -> Problem:
    """Return the problem of a folder that cannot be made or written."""
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
