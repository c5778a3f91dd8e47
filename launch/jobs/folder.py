"""What is on disk of a job: `<root>/.launch/<job id>/`, and the state that follows from the files there.

    config.yaml    the configuration, as checked on the page
    job.json       what is requested: run, whether forced, what it resumes; device, place, time, seal; never changed
    position       place in the queue, a whole number; the smallest comes first
    cancelled      exists once the user stopped it
    process.json   process id and start time of it and of the worker that waits for it, once started
    output.log     everything it printed
    exit_code      once it has ended

The state is read from these files and from the process table each time, so that it is true after any restart. They may
have come with another user's root: no file states which program is started, and a job without this user's seal is never
started.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from evidence import hashes
from evidence.layout import MANIFEST, new_run_id
from evidence.writing import write_json, write_text
from launch.jobs.files import no_link, read_number, read_object, started_in
from launch.jobs.process import StartedProcess, is_alive
from schemas.reading import get_path, get_str

LAUNCH = ".launch"
CONFIG = "config.yaml"
OUTPUT = "output.log"
PROCESS = "process.json"
EXIT_CODE = "exit_code"
_JOB = "job.json"
_POSITION = "position"
_CANCELLED = "cancelled"

State = Literal[
    "waiting", "running", "stopping", "succeeded", "interrupted", "refused", "failed", "cancelled", "lost", "unasked"
]
"""Where a run has a word for the same, its status, it is this one."""

ANY_DEVICE = "auto"
"""Device of a job that takes whichever it finds, so that nothing else may run beside it."""

DEVICES = ("cpu", "gpu", "tpu")
"""Devices that each run one job at a time, side by side with the others."""

LOCAL = "local"
"""Place of a job that states none: this machine."""

ENDED: frozenset[State] = frozenset({"succeeded", "interrupted", "refused", "failed", "cancelled", "lost", "unasked"})
_RUN_NAME = re.compile("[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
"""As the schemas have it; a name of this form never leads out of the root."""
STOPPED_BEFORE = 130
"""Exit code of a run that was stopped before it had a folder, as shells use it."""
_STATE_OF_CODE: dict[int, State] = {0: "succeeded", 3: "refused", 5: "interrupted"}


@dataclass(frozen=True, kw_only=True)
class Job:
    """One job as it is at the moment of reading.

    Attributes:
        run: name of the run folder that it writes, inside the root.
        resumes: name of the run folder that it continues, inside the root. None: it starts by its `config.yaml`.
        force: whether it runs although the plan states that it does not fit.
        working_folder: where relative paths of the configuration start.
        is_own: whether it is as this user put it into the queue.
        device: cpu, gpu or tpu; `ANY_DEVICE` where that is decided only when it starts.
        place: name of the place where it runs, as in `launch/places`.
        exit_code: as the process gave it, negative for a signal; None until it has ended.
        state: cancelled means that it was stopped before its run began; lost, that it was started, and
            it and its worker are gone without an exit code (a machine that was switched off, for instance); unasked,
            that this user did not put it into the queue, so it is not started.
    """

    folder: Path
    run: str
    resumes: str | None
    force: bool
    working_folder: str
    is_own: bool
    device: str
    created_at: str
    position: int
    started: StartedProcess | None
    exit_code: int | None
    state: State
    place: str = LOCAL

    @property
    def root(self) -> Path:
        """The root of runs that it belongs to."""
        return self.folder.parent.parent

    @property
    def job_id(self) -> str:
        """Name of the job's folder."""
        return self.folder.name

    def shares_device(self, other: Job) -> bool:
        """Whether the two may not run at the same time."""
        one_device = ANY_DEVICE in {self.device, other.device} or self.device == other.device
        return self.place == other.place and one_device

    @property
    def has_ended(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ENDED


def launch_folder(root: Path) -> Path:
    """Return the folder of all jobs of a root."""
    return root / LAUNCH


def new_job_folder(root: Path, now: datetime) -> Path:
    """Make and return an empty folder for a job; its name sorts by time."""
    folder = launch_folder(root) / new_run_id("job", now)
    folder.mkdir(parents=True)
    return folder


def enqueue(
    folder: Path,
    *,
    run: str,
    working_folder: Path,
    now: datetime,
    resumes: str | None = None,
    force: bool = False,
    device: str = ANY_DEVICE,
    place: str = LOCAL,
) -> None:
    """Put the job at the end of the queue. `job.json` comes last: without it the folder is not a job yet.

    Raises:
        OSError: It could not be written, or this user's secret could not.
    """
    # Nanoseconds since 1970 put it behind every other, unless the clock was set back; moving exchanges two of them.
    last = max((job.position for job in jobs(folder.parent.parent) if job.state == "waiting"), default=0)
    write_text(folder / _POSITION, f"{max(int(now.timestamp() * 1e9), last + 1)}\n")
    value = {
        "run": run,
        "resumes": resumes,
        "force": force,
        "working_folder": str(working_folder),
        "device": device,
        "created_at": now.isoformat(),
        **_place(place),
    }
    write_json(folder / _JOB, {**value, "seal": hashes.make_seal(_sealed_content(folder, value))})


def jobs(root: Path) -> list[Job]:
    """Return every job, first in the queue first; a folder without a readable job is skipped."""
    return JobReader(root).jobs()


class JobReader:
    """Reads the jobs of a root again and again; those whose exit code is written down change no more and are kept."""

    def __init__(self, root: Path) -> None:
        self._folder = launch_folder(root)
        self._ended: dict[Path, Job] = {}

    def jobs(self) -> list[Job]:
        """Return what `jobs` does."""
        try:
            folders = [path for path in self._folder.iterdir() if path.is_dir() and not path.is_symlink()]
        except OSError:
            return []
        found = [job for path in folders if (job := self._ended.get(path) or read_job(path)) is not None]
        self._ended = {job.folder: job for job in found if job.exit_code is not None}
        return sorted(found, key=lambda job: (job.position, job.job_id))


def read_job(folder: Path) -> Job | None:
    """Return the job in a folder, or None if it is missing."""
    value = _read_job(folder)
    if value is None:
        return None
    processes = read_object(folder / PROCESS) or {}
    started = started_in(processes.get("job"))
    code = read_number(folder / EXIT_CODE)
    if code is None and started is not None and not is_alive(started):
        code = _sealed_code(folder.parent.parent / value["run"])
    state = _state(started, started_in(processes.get("worker")), code, cancelled=(folder / _CANCELLED).exists())
    is_own = hashes.verify_seal(value.pop("seal"), _sealed_content(folder, value))
    return Job(
        **value,
        folder=folder,
        is_own=is_own,
        position=read_number(folder / _POSITION) or 0,
        started=started,
        exit_code=code,
        state="unasked" if state == "waiting" and not is_own else state,
    )


def exchange_positions(first: Job, second: Job) -> None:
    """Let two jobs that follow each other change places in the queue."""
    # They have the same number where a process was stopped between these two lines.
    write_text(first.folder / _POSITION, f"{max(second.position, first.position + 1)}\n")
    write_text(second.folder / _POSITION, f"{first.position}\n")


def mark_cancelled(job: Job, now: datetime) -> None:
    """Note that the user stopped the job; one that has not started never will."""
    write_text(job.folder / _CANCELLED, now.isoformat() + "\n")


def is_cancelled(job: Job) -> bool:
    """Return whether the user stopped the job."""
    return (job.folder / _CANCELLED).exists()


def mark_started(job: Job, started: StartedProcess, worker: StartedProcess) -> None:
    """Note which process runs the job, and which will write its exit code down."""
    write_json(job.folder / PROCESS, {"job": asdict(started), "worker": asdict(worker)})


def mark_ended(job: Job, exit_code: int) -> None:
    """Note how the process ended."""
    write_text(job.folder / EXIT_CODE, f"{exit_code}\n")


def _state(
    started: StartedProcess | None, worker: StartedProcess | None, exit_code: int | None, *, cancelled: bool
) -> State:
    if exit_code is not None:
        if cancelled and exit_code == STOPPED_BEFORE:
            return "cancelled"
        return "interrupted" if exit_code < 0 else _STATE_OF_CODE.get(exit_code, "failed")
    if started is None:
        return "cancelled" if cancelled else "waiting"
    # Between its end and its exit code there is a moment in which only the worker still lives.
    if not is_alive(started) and not (worker is not None and is_alive(worker)):
        return "lost"
    return "stopping" if cancelled else "running"


def _sealed_code(run: Path) -> int | None:
    """Return the exit code that a run states at its end, None if it states none; its worker may have been killed."""
    code = get_path(read_object(run / MANIFEST), "exit", "code")
    return code if type(code) is int else None


def _read_job(folder: Path) -> dict[str, Any] | None:
    """Return what `job.json` states, each value of its type; None if it is not a job, or leads out of the root."""
    value = read_object(folder / _JOB)
    run, resumes = get_str(value, "run") or "", get_str(value, "resumes")
    if value is None or _RUN_NAME.fullmatch(run) is None or (resumes is None) != (value.get("resumes") is None):
        return None
    if resumes is not None and not _is_inside(resumes):
        return None
    device = get_str(value, "device")
    return {
        "run": run,
        "resumes": resumes,
        "force": value.get("force") is True,
        "working_folder": get_str(value, "working_folder") or "",
        "device": device if device in DEVICES else ANY_DEVICE,
        "created_at": get_str(value, "created_at") or "",
        "seal": get_str(value, "seal"),
        **_place(get_str(value, "place") or LOCAL),
    }


def _place(name: str) -> dict[str, str]:
    """Return what `job.json` states of the place: nothing of this machine, as jobs that were sealed before have it."""
    return {} if name == LOCAL else {"place": name}


def _is_inside(name: str) -> bool:
    """Return whether a name is that of a folder in the root, whatever a user called it, and leads nowhere else."""
    return name != "" and not name.startswith(".") and "\0" not in name and Path(name).name == name


def _sealed_content(folder: Path, value: Mapping[str, Any]) -> bytes:
    """Return what a job's seal is on: its id, what `job.json` states, and the configuration."""
    try:
        config = no_link(folder / CONFIG).read_bytes()
    except OSError:
        config = b""  # A job that resumes a run has no configuration.
    return json.dumps([folder.name, value], sort_keys=True).encode("utf-8") + b"\n" + config
