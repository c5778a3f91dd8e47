"""Jobs of a runs folder: their files, their state, and the seal that shows who queued them.

    <root>/.launch/<job id>/
        job.json       run, resumed run, force, working folder, device, place, jobs before it, time; never changed
        config.yaml    configuration of the run, unless the job resumes one
        run            run after a restart by the place, which writes to another folder than that of job.json
        seal           authenticates the two files above for this user
        position       place in the queue; the smallest number comes first
        cancelled      written when the user stops the job
        process.json   ids and start times of the job's process and of its worker
        output.log     output of the process
        exit_code      written after the process has ended

The state of a job is computed from these files and the process table on every read, so it is correct after any restart.
A runs folder may come from an untrusted source. Therefore no file names a program to start, links are not followed, and
a job without the seal of this user is never started. The tasks of `launch.tasks` use the same files.
"""

from __future__ import annotations

import errno
import hashlib
import json
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from evidence import hashes
from evidence.bundle.secrets import hide_secrets, strip_invisible
from evidence.layout import MANIFEST, SESSION, new_run_id
from evidence.writing import as_json_text, write_bytes, write_json, write_text
from launch.process import StartedProcess, is_alive, parse_process
from schemas.reading import get_path, get_str

LAUNCH = ".launch"
JOB = "job.json"
RUN = "run"
CONFIG = "config.yaml"
SEAL = "seal"
POSITION = "position"
CANCELLED = "cancelled"
PROCESS = "process.json"
OUTPUT = "output.log"
EXIT_CODE = "exit_code"
ANY_DEVICE = "auto"
"""Device of a job that takes any device. No other job may run at the same time."""
DEVICES = ("cpu", "gpu", "tpu")
"""Kinds of devices. Each runs one job at a time."""
LOCAL = "local"
"""Default place: this machine."""

State = Literal[
    "waiting", "running", "stopping", "succeeded", "interrupted", "refused", "failed", "cancelled", "lost", "unsealed"
]
"""`stopping`: cancelled, but still running. `cancelled`: stopped before the run began. `lost`: the process is gone
without an exit code, for example after a power cut. `unsealed`: queued by someone else, so it is not started."""
NO_JOBS: Mapping[str, bool] = MappingProxyType({})
ENDED: frozenset[State] = frozenset({"succeeded", "interrupted", "refused", "failed", "cancelled", "lost", "unsealed"})
STOPPED_BEFORE_RUN = 130
"""Exit code of a run that was stopped before it had a folder, as in shells."""
_STATES_BY_CODE: dict[int, State] = {0: "succeeded", 3: "refused", 5: "interrupted"}
_RUN_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_TAIL_BYTES = 16_384
_CONTROL_SEQUENCE = re.compile(r"\x1b(\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(\x07|\x1b\\)?|.)")


@dataclass(frozen=True, kw_only=True)
class Job:
    """A job at the moment of reading.

    Attributes:
        run: Name of the run folder that it writes, in the root.
        resumes: Name of the run folder that it resumes, or None for a new run.
        force: Run even if the plan does not fit.
        working_folder: Start of relative paths in the configuration.
        is_own: Whether this user queued it.
        device: `cpu`, `gpu`, `tpu` or `ANY_DEVICE`.
        place: Name in `launch.places` of the place where it runs.
        after: Ids of the jobs that must have ended before it starts, and whether each must have succeeded.
        started: Its process, or None before it is started.
        exit_code: Exit code, negative for a signal, or None before it has ended.
    """

    folder: Path
    run: str
    resumes: str | None
    force: bool
    working_folder: str
    is_own: bool
    device: str
    place: str
    after: Mapping[str, bool]
    created_at: str
    position: int
    started: StartedProcess | None
    exit_code: int | None
    state: State

    @property
    def root(self) -> Path:
        """Runs folder of the job."""
        return self.folder.parent.parent

    @property
    def job_id(self) -> str:
        """Name of the job's folder."""
        return self.folder.name

    @property
    def has_ended(self) -> bool:
        """Whether the state is final."""
        return self.state in ENDED

    def shares_device(self, other: Job) -> bool:
        """Return whether the two jobs must not run at the same time."""
        is_same = ANY_DEVICE in {self.device, other.device} or self.device == other.device
        return self.place == other.place and is_same


def launch_folder(root: Path) -> Path:
    """Return the folder with all jobs and tasks of a runs folder."""
    return root / LAUNCH


def enqueue(
    root: Path,
    *,
    run: str,
    working_folder: Path,
    now: datetime,
    config: str | None = None,
    resumes: str | None = None,
    force: bool = False,
    device: str = ANY_DEVICE,
    place: str = LOCAL,
    after: Mapping[str, bool] = NO_JOBS,
) -> Job:
    """Add a job to the end of the queue.

    Raises:
        OSError: The files, or the secret of this user, cannot be written.
    """
    folder = launch_folder(root) / new_run_id("job", now)
    folder.mkdir(parents=True)
    # Nanoseconds since 1970 sort behind all other jobs, unless the clock was set back.
    last = max((job.position for job in jobs(root) if job.state == "waiting"), default=0)
    write_text(folder / POSITION, f"{max(int(now.timestamp() * 1e9), last + 1)}\n")
    if config is not None:
        write_text(folder / CONFIG, config)
    request = {
        "run": run,
        "resumes": resumes,
        "force": force,
        "working_folder": str(working_folder),
        "device": device,
        "place": place,
        "after": {**after},
        "created_at": now.isoformat(),
    }
    content = as_json_text(request).encode()
    write_seal(folder, (content, (config or "").encode()))
    write_bytes(folder / JOB, content)  # last, because a folder with job.json is a job
    job = read_job(folder)
    assert job is not None, "it was written just now"
    return job


def jobs(root: Path) -> list[Job]:
    """Return all jobs in the order of the queue. Folders without a valid job are skipped."""
    return JobReader(root).jobs()


class JobReader:
    """Reads the jobs of a root repeatedly, but each job with an exit code only once, because it cannot change."""

    def __init__(self, root: Path) -> None:
        self._folder = launch_folder(root)
        self._ended: dict[Path, Job] = {}

    def jobs(self) -> list[Job]:
        """Return all jobs in the order of the queue."""
        try:
            folders = [path for path in self._folder.iterdir() if path.is_dir() and not path.is_symlink()]
        except OSError:
            return []
        found = [job for path in folders if (job := self._ended.get(path) or read_job(path)) is not None]
        self._ended = {job.folder: job for job in found if job.exit_code is not None}
        return sorted(found, key=lambda job: (job.position, job.job_id))


def read_job(folder: Path) -> Job | None:
    """Return the job in a folder, or None if job.json is missing, invalid or names a folder outside of the root."""
    request = read_object(folder / JOB)
    run = read_bytes(folder / RUN).decode("utf-8", "replace") or get_str(request, "run") or ""
    resumes = get_str(request, "resumes")
    if request is None or _RUN_NAME.fullmatch(run) is None:
        return None
    if request.get("resumes") is not None and not _is_folder_name(resumes or ""):
        return None
    status = read_status(folder)
    if status.exit_code is None and status.started is not None and not is_alive(status.started):
        # The worker may have been killed before it could write the exit code.
        code = get_path(read_object(folder.parent.parent / run / MANIFEST), "exit", "code")
        status = ProcessStatus(status.started, status.worker, code if type(code) is int else None, status.is_cancelled)
    is_own = has_own_seal(folder, (JOB, CONFIG))
    state = _state(status)
    if state == "lost" and (folder / SESSION).exists():
        state = "waiting"  # its session goes on elsewhere, and a new process continues to watch it
    device, after = get_str(request, "device"), request.get("after")
    return Job(
        folder=folder,
        run=run,
        resumes=resumes,
        force=request.get("force") is True,
        working_folder=get_str(request, "working_folder") or "",
        is_own=is_own,
        device=device if device in DEVICES else ANY_DEVICE,
        place=get_str(request, "place") or LOCAL,
        after={name: is_needed is True for name, is_needed in after.items()} if isinstance(after, dict) else {},
        created_at=get_str(request, "created_at") or "",
        position=read_number(folder / POSITION) or 0,
        started=status.started,
        exit_code=status.exit_code,
        state="unsealed" if state == "waiting" and not is_own else state,
    )


def _is_folder_name(name: str) -> bool:
    """Return whether a name belongs to a visible folder in the root and is not a path to another place."""
    return name != "" and not name.startswith(".") and "\0" not in name and Path(name).name == name


@dataclass(frozen=True)
class ProcessStatus:
    """What the files of a job or task say about its processes."""

    started: StartedProcess | None
    worker: StartedProcess | None
    exit_code: int | None
    is_cancelled: bool

    @property
    def is_running(self) -> bool:
        """Whether the process is alive, or its worker, which still has to write the exit code."""
        return is_alive(self.started) or is_alive(self.worker)


def read_status(folder: Path) -> ProcessStatus:
    """Read the processes and the exit code of a job or task."""
    processes = read_object(folder / PROCESS) or {}
    started, worker = parse_process(processes.get("job")), parse_process(processes.get("worker"))
    return ProcessStatus(started, worker, read_number(folder / EXIT_CODE), (folder / CANCELLED).exists())


def _state(status: ProcessStatus) -> State:
    code = status.exit_code
    if code is not None:
        if status.is_cancelled and code == STOPPED_BEFORE_RUN:
            return "cancelled"
        return "interrupted" if code < 0 else _STATES_BY_CODE.get(code, "failed")
    if status.started is None:
        return "cancelled" if status.is_cancelled else "waiting"
    if not status.is_running:
        return "lost"
    return "stopping" if status.is_cancelled else "running"


def mark_cancelled(folder: Path) -> None:
    """Record that the user stopped a job or task."""
    write_text(folder / CANCELLED, f"{datetime.now(UTC).isoformat()}\n")


def mark_started(folder: Path, started: StartedProcess, worker: StartedProcess) -> None:
    """Record the process of a job or task, and the process that will write its exit code."""
    write_json(folder / PROCESS, {"job": asdict(started), "worker": asdict(worker)})


def mark_ended(folder: Path, exit_code: int) -> None:
    """Record the exit code of a job or task."""
    write_text(folder / EXIT_CODE, f"{exit_code}\n")


def write_seal(folder: Path, contents: Sequence[bytes]) -> None:
    """Authenticate the contents of files of a folder as written by this user."""
    write_text(folder / SEAL, hashes.make_seal(_sealed_content(folder, contents)))


def has_own_seal(folder: Path, names: Sequence[str]) -> bool:
    """Return whether this user sealed these files as they are now. A missing file counts as empty."""
    seal = read_bytes(folder / SEAL).decode("utf-8", "replace")
    return hashes.verify_seal(seal, _sealed_content(folder, [read_bytes(folder / name) for name in names]))


def _sealed_content(folder: Path, contents: Sequence[bytes]) -> bytes:
    """Return the input of a seal. It contains the folder's name, so that a sealed folder cannot be copied."""
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    return json.dumps([folder.parent.name, folder.name, *digests]).encode()


def refuse_link(path: Path) -> Path:
    """Return a path after checking that it is not a link, which could lead to any file of this user.

    Raises:
        OSError: It is a link.
    """
    if path.is_symlink():
        raise OSError(errno.ELOOP, "It is a link, which is not followed", str(path))
    return path


def read_bytes(path: Path) -> bytes:
    """Return the content of a file, empty if it cannot be read or is a link."""
    with suppress(OSError):
        return refuse_link(path).read_bytes()
    return b""


def read_object(path: Path) -> dict[str, Any] | None:
    """Return the JSON object in a file, or None if it contains something else."""
    try:
        value = json.loads(read_bytes(path))
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def read_number(path: Path) -> int | None:
    """Return the integer in a file, or None if it contains something else."""
    with suppress(ValueError):
        return int(read_bytes(path))
    return None


def tail(path: Path, lines: int = 40) -> str:
    """Return the last lines of an output file as a terminal shows them, with secrets masked."""
    try:
        with refuse_link(path).open("rb") as file:
            end = file.seek(0, 2)
            file.seek(max(0, end - _TAIL_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    found = _CONTROL_SEQUENCE.sub("", text).split("\n")
    if end > _TAIL_BYTES:
        del found[0]  # probably cut
    shown = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in found).rstrip()
    return hide_secrets(strip_invisible("\n".join(shown.split("\n")[-lines:])))


def explain_signal(job: Job, exit_code: int | None) -> str | None:
    """Explain which signal ended a job and how to continue, or return None if none did."""
    if exit_code is None or exit_code >= 0:
        return None
    number = -exit_code
    name = f" ({signal.Signals(number).name})" if number in list(signal.Signals) else ""
    ended = f"{job.run} was killed by signal {number}{name}"
    if (job.folder / CANCELLED).exists():
        return f"{ended} on request."
    if number != signal.SIGKILL:
        return f"{ended}."
    command = shlex.join(["trainproof", "train", "--resume", str(job.root / job.run), "--output", "NEW_FOLDER"])
    return (
        f"{ended}, probably because the machine ran out of memory (see `dmesg`). "
        f"To resume it with less memory: {command} --set memory.remat=layer"
    )
