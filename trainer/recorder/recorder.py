"""Write a run folder: manifest at every change, one row per step, one line per event, hashes at the seal."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import jax

from evidence import layout
from evidence.extras import need
from evidence.hashes import Chain, sha256_file, sha256_manifest
from evidence.lock import RunLock, refuse_without_locks
from evidence.proof.receipts import load_extent, measure_coverage, run_sha256
from evidence.proof.signatures import problem_error
from evidence.proof.timestamps import stamp_run, start_message
from evidence.proof.trust import is_http_url
from evidence.scores.recompute import compute_result
from evidence.writing import RowWriter, append_rows, write_json, write_text
from schemas.catalog import VERSION, schema
from schemas.formats import visible
from schemas.problems import INTERNAL_ERROR, Problem, ProblemError, first_line, problem_of
from trainer.distributed import lost_process
from trainer.recorder.code import code_identity
from trainer.recorder.environment import environment

FAILED = INTERNAL_ERROR
INTERRUPTED = 5
FOLDER_MOVED = "it was moved, renamed or removed while the run was writing to it"
MAX_RUN_ID = 128
"""Longest run id in characters."""
Say = Callable[[str], None]
"""Prints one line."""


def now() -> str:
    """Return the time in UTC with offset, to the millisecond: `2026-11-20T15:30:12.345+00:00`."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def clock_seconds() -> float:
    """Return the time of a monotonic clock in seconds, to the millisecond."""
    return round(time.monotonic(), 3)


class RunningResult:
    """Computes the figures of `compute_result` row by row, without keeping the rows."""

    def __init__(self) -> None:
        self.last, self._first, self._best = dict[str, Any](), dict[str, Any](), dict[str, Any]()
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

    Use it as a context manager: it locks the folder, and an exception seals the run as failed or cancelled and becomes
    a `ProblemError`, so that no folder is left with status `running`. Rows are written immediately.
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

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is not None:
                self._fail(error)
        finally:
            self._metrics.close()
            self._log.close()
            self._lock.__exit__()

    def _fail(self, error: BaseException) -> None:
        """Seal the run with the outcome of an exception and raise its problems."""
        if isinstance(error, OSError) and not self._lock.holds():
            error = FileNotFoundError(errno.ENOENT, FOLDER_MOVED, str(self.folder))
        failure = describe_failure(error, file=str(self.folder))
        message = " ".join(problem.what for problem in failure.problems)
        try:
            self.log("error", f"run_{failure.status}", message, **failure.details)
            if self.result.last:
                self.manifest["result"] |= self.result.document()
                self.manifest["training"]["steps_done"] = self.result.last["step"]
            if self.manifest:
                self.manifest["result"]["stopped_because"] = message
                self.seal(failure.status, exit_code=failure.exit_code, error=failure.kind, message=message)
        except OSError:
            # The disk that failed the run fails the seal too. The last complete manifest remains, and the lock ends
            # with this process, so readers show the run as interrupted.
            self._say("The manifest could not be updated; its status is still running.")
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

    def link(self, **entry: Any) -> None:
        """Append an entry to chain.jsonl; see `Chain.entry`."""
        self.append(layout.CHAIN, [self.chain.entry(**entry)])

    def append(self, name: str, rows: Iterable[dict[str, Any]]) -> None:
        """Append rows to one of the run's other JSONL files."""
        append_rows(self._path(name), rows)

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
        rename, so a run with status `succeeded` has every hash.
        """
        for end in self.before_seal:
            end()
        ended = {"code": exit_code, "error": error, "message": message}
        self.manifest |= {"status": status, "finished_at": now(), "exit": ended}
        if self.chain.entries:
            self.manifest["chain"] = self.chain.document()
        self.log(
            "info",
            "run_sealed",
            f"{status}: files hashed, manifest written",
            manifest_sha256=sha256_manifest(self.manifest),
        )
        self.sync()
        self.manifest["artifacts"] = list_artifacts(self.folder)
        self.save()


def list_artifacts(folder: Path, *, replaced: Mapping[str, Path] | None = None) -> list[dict[str, Any]]:
    """Return every evidence file with size, hash and role; `replaced` files will be moved here, by later name."""
    files = {folder / name: role for name, role in layout.ROLES.items()}
    files |= dict.fromkeys(sorted((folder / layout.STATES).glob("*.safetensors")), "other")
    artifacts = []
    for path, role in files.items():
        name = path.relative_to(folder).as_posix()
        if (source := (replaced or {}).get(name, path)).is_file():
            size, sha256 = source.stat().st_size, sha256_file(source)
            artifacts.append({"path": name, "bytes": size, "sha256": sha256, "role": role})
    return artifacts


def build_receipt(folder: Path, kind: str, *, device: dict[str, Any], **groups: Any) -> dict[str, Any]:
    """Return the document `receipt` of a `replay` or `challenge` of a run folder, not sealed yet.

    `device` is the manifest's group `devices` of this machine; `groups` are for example `covered`, `result` and `said`.
    """
    code = code_identity()
    receipt = {
        "schema_version": VERSION,
        "kind": kind,
        "run_id": folder.resolve().name,
        "run_sha256": run_sha256(folder),
        "made_at": now(),
        "made_by": {"version": code["version"], "commit": code["commit"]},
        "environment": environment(),
        "device": {key: device[key] for key in ("platform", "kind", "count")},
        **groups,
    }
    return receipt | {"marks": measure_coverage(receipt, load_extent(folder)).to_document()}


def claim(folder: Path) -> None:
    """Create the folder of a new run, or take an empty one, and check that it is writable; see `refuse_folder`."""
    refuse_folder(folder)
    probe = folder / ".writable.tmp"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        probe.write_bytes(b"")
        probe.unlink()
    except OSError as error:
        raise ProblemError([_unwritable(folder, error)], exit_code=2) from error


def refuse_folder(folder: Path) -> None:
    """Refuse a folder that cannot become a run folder (`ProblemError`, exit code 2).

    Its name is not a valid run id, it is not empty, or it cannot be written or locked.
    """
    problems = check_run_name(folder, "--output")
    try:
        names = sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []
        if not names:
            refuse_without_locks(folder)
    except OSError as error:
        raise ProblemError([*problems, _unwritable(folder, error)], exit_code=2) from error
    if layout.MANIFEST in names:
        what = "The folder already contains a run."
        then = f"Pass another folder with --output, or continue that run with --resume {folder}."
        problems.append(problem_of("TP031", file=str(folder), what=what, next=then))
    elif names:
        what = f"The folder is not empty: it contains {', '.join(names[:3])}{' and more' if len(names) > 3 else ''}."
        problems.append(problem_of("TP031", file=str(folder), what=what))
    if problems:
        raise ProblemError(problems, exit_code=2)


def check_run_name(folder: Path, flag: str) -> list[Problem]:
    """Return a problem if the name of a folder, given with `flag`, is not a valid run id."""
    name = folder.resolve().name
    if re.search(schema("types")["$defs"]["run_id"]["pattern"], name):
        return []
    suggestion = re.sub("[^A-Za-z0-9._-]+", "-", name).lstrip("._-")[:MAX_RUN_ID] or "run"
    what = f"The folder's name {name!r} cannot be the id of a run."
    expected = f"letters, digits, dot, underscore and hyphen, a letter or digit first, at most {MAX_RUN_ID}"
    then = f"Use {flag} with a valid name, for example {suggestion}."
    return [problem_of("TP032", file=str(folder), what=what, expected=expected, next=then)]


def _unwritable(folder: Path, error: OSError) -> Problem:
    return problem_of("TP030", file=str(folder), what=f"The run folder cannot be written: {error.strerror}.", why=None)


class Failure(NamedTuple):
    """How an exception ended a run: `kind` (`exit.error`) and other fields of the manifest, and of the log."""

    kind: str
    problems: Sequence[Problem]
    exit_code: int = FAILED
    status: str = "failed"
    details: Mapping[str, str] = MappingProxyType({})


def describe_failure(error: BaseException, *, file: str) -> Failure:
    """Return how an exception ends the run in the folder `file`."""
    if isinstance(error, KeyboardInterrupt):
        what = "The run was stopped by a second signal; the current step was not saved."
        return Failure("cancelled", [problem_of("TP721", file=file, what=what, why=None)], INTERRUPTED, "cancelled")
    if isinstance(error, ProblemError):
        return Failure("problem", error.problems, error.exit_code)
    if (lost := lost_process(error)) is not None:
        return Failure("process_lost", [lost])
    if isinstance(error, OSError):
        kind, what = "not_written", f"The run folder could not be written: {error.strerror}."
        then = "Check the folder and the disk. Then start the run again, with --resume if a checkpoint was saved."
        if is_full := error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            needed = f": {error.strerror}" if error.strerror != os.strerror(error.errno) else ""
            kind, what = "disk_full", f"The disk is full{needed}; the run cannot be recorded any further."
        file = str(error.filename or file)
        return Failure(kind, [problem_of("TP722", file=file, what=what, next=None if is_full else then)])
    if is_out_of_memory(error):
        then = f"`trainproof plan --explain-oom {file}` says what filled it and what to change."
        return Failure("out_of_memory", [_out_of_memory(error, file, then)], details={"traceback": str(error)})
    what = f"The run stopped on an error inside trainproof: {type(error).__name__}: {first_line(error)}"
    then = "Report it with the traceback in the last line of the run's log.jsonl."
    details = {"traceback": "".join(traceback.format_exception(error))}
    return Failure(type(error).__name__, [problem_of("TP799", file=file, what=what, next=then)], details=details)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an exception says that a device ran out of memory."""
    return isinstance(error, jax.errors.JaxRuntimeError) and "RESOURCE_EXHAUSTED" in str(error)


@contextmanager
def explain_full_device(file: str) -> Iterator[None]:
    """Raise a `ProblemError` about `file` if a device runs out of memory inside the block."""
    try:
        yield
    except jax.errors.JaxRuntimeError as error:
        if not is_out_of_memory(error):
            raise
        raise ProblemError([_out_of_memory(error, file, None)], exit_code=FAILED) from error


def _out_of_memory(error: BaseException, file: str, then: str | None) -> Problem:
    return problem_of("TP723", file=file, what=f"The device ran out of memory: {first_line(error)}", next=then)


def check_time_authority(authority: str | None) -> None:
    """Raise `ProblemError` (exit code 2) if an address is invalid or `rfc3161-client` is not installed; allow None."""
    if authority is None:
        return
    if not is_http_url(authority):
        what = f"{visible(authority)} is not an address of the form https://HOST/PATH."
        advice = "Set recording.time_authority to the address of a time authority, or to null."
        raise problem_error(file="recording.time_authority", code="TP861", what=what, next=advice)
    need("train", "witness")


def stamp_start(recorder: Recorder, authority: str | None) -> None:
    """Request a timestamp of configuration, data and plan before the first step, and log the result."""
    if authority is None:
        return
    message = start_message(recorder.folder, recorder.manifest)
    assert message is not None, "configuration, data and plan have been recorded"
    is_stamped, text = _stamp(recorder.folder, "start", message, authority)
    level, event = ("info", "start_stamped") if is_stamped else ("warning", "start_not_stamped")
    recorder.log(level, event, text, sha256=hashlib.sha256(message).hexdigest())


def stamp_end(folder: Path, authority: str | None) -> str | None:
    """Request a timestamp of the sealed manifest and return the result as text, or None without an authority."""
    if authority is None:
        return None
    return _stamp(folder, "manifest", (folder / layout.MANIFEST).read_bytes(), authority)[1]


def _stamp(folder: Path, subject: Literal["start", "manifest"], message: bytes, authority: str) -> tuple[bool, str]:
    """Return whether it worked, and a text; a failing authority costs at most ten seconds and never the run."""
    what = "start" if subject == "start" else "end"
    try:
        failure = stamp_run(folder, subject, message, authority, datetime.now(UTC))
    except OSError as error:
        failure = f"{layout.STAMPS} cannot be written: {error.strerror or error}."
    text = f"no timestamp of the {what}: {failure}" if failure else f"timestamp of the {what} by {authority}"
    return not failure, text
