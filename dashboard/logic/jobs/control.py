"""What the buttons do: start, stop, kill, move, retry, resume. Each returns at once; the worker does the work."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from dashboard.logic.jobs import process
from dashboard.logic.jobs.folder import (
    ANY_DEVICE,
    CONFIG,
    DEVICES,
    Job,
    enqueue,
    exchange_positions,
    jobs,
    launch_folder,
    mark_cancelled,
    new_job_folder,
    read_job,
)
from evidence import layout, lock
from evidence.layout import new_run_id
from evidence.write import write_text
from schemas.validate import read_document

_RUN_TIME = re.compile(r"-\d{8}-\d{6}-[0-9a-f]{4}$")
"""What `new_run_id` adds to a run's name."""

PROGRAM = (sys.executable, "-m", "trainproof")


def config_text(config: Mapping[str, Any]) -> str:
    """Return a configuration as YAML, in its own order."""
    return yaml.safe_dump(dict(config), sort_keys=False, allow_unicode=True)


def train_arguments(config_path: Path, run_folder: Path, *, force: bool) -> list[str]:
    """Return what follows the program's name to train by a configuration into a run folder."""
    forced = ["--force"] if force else []
    return ["train", "--config", str(config_path), "--output", str(run_folder), *forced]


def shown(arguments: Sequence[str]) -> str:
    """Return a command as a line to copy into a terminal."""
    return shlex.join(["trainproof", *arguments])


def start(root: Path, config: Mapping[str, Any], *, force: bool = False) -> Job:
    """Put a run by a checked configuration into the queue and see that somebody works through it.

    Args:
        root: Folder of runs.
        config: What is written to `config.yaml`.
        force: Whether to run although the plan says that it does not fit; the run records it.

    Raises:
        OSError: The job could not be written under the root.
    """
    now = datetime.now(UTC)
    root = root.resolve()
    folder = new_job_folder(root, now)
    write_text(folder / CONFIG, config_text(config))
    run = new_run_id(str(config.get("name", "run")), now)
    arguments = train_arguments(folder / CONFIG, root / run, force=force)
    return _put(root, folder, run, arguments, now, device=_device(config))


def resume(root: Path, run: str) -> Job:
    """Put the continuation of an interrupted run into the queue; it is a run of its own that names its parent.

    Raises:
        OSError: The job could not be written under the root.
    """
    now = datetime.now(UTC)
    root = root.resolve()
    continued = new_run_id(_RUN_TIME.sub("", run), now)
    arguments = ["train", "--resume", str(root / run), "--output", str(root / continued)]
    config = read_document(root / run / layout.CONFIG, "train_config").value or {}
    return _put(root, new_job_folder(root, now), continued, arguments, now, device=_device(config))


def retry(root: Path, job: Job) -> Job:
    """Put the same again into the queue, as a run of its own; what the first attempt wrote stays.

    Raises:
        OSError: The job could not be written under the root, or its configuration is gone.
    """
    now = datetime.now(UTC)
    root = root.resolve()
    folder = new_job_folder(root, now)
    if (job.folder / CONFIG).is_file():
        write_text(folder / CONFIG, (job.folder / CONFIG).read_text("utf-8"))
    run = new_run_id(_RUN_TIME.sub("", job.run), now)
    # Nothing else in the command names the first attempt.
    renamed = {str(job.folder / CONFIG): str(folder / CONFIG), str(root / job.run): str(root / run)}
    command = [renamed.get(part, part) for part in job.command]
    return _put(root, folder, run, command[len(PROGRAM) :], now, device=job.device)


def cancel(job: Job) -> None:
    """Stop a job: one that waits never starts, one that runs is asked to seal its run and end."""
    mark_cancelled(job, datetime.now(UTC))
    now = read_job(job.folder)
    if now is not None and now.started is not None:
        process.interrupt(now.started)


def kill(job: Job) -> None:
    """End a job at once; its run keeps the rows written so far and is not sealed."""
    mark_cancelled(job, datetime.now(UTC))
    if job.started is not None:
        process.kill(job.started)


def move_up(root: Path, job: Job) -> None:
    """Let a waiting job change places with the waiting job before it."""
    waiting = [other for other in jobs(root) if other.state == "waiting"]
    place = next((index for index, other in enumerate(waiting) if other.job_id == job.job_id), 0)
    if place > 0:
        exchange_positions(waiting[place - 1], waiting[place])


def is_worked_on(root: Path) -> bool:
    """Return whether a worker holds the queue of this root."""
    return lock.is_alive(launch_folder(root))


def start_worker(root: Path) -> None:
    """Start a worker for the queue; one that finds another at work ends at once."""
    launch_folder(root).mkdir(parents=True, exist_ok=True)
    with (launch_folder(root) / "worker.log").open("ab") as output:
        worker = subprocess.Popen(
            [sys.executable, "-m", "dashboard.logic.jobs.worker", str(root.resolve())],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    # Whoever starts a process must wait for it, or it stays in the process table after its end.
    threading.Thread(target=worker.wait, name="reap queue worker", daemon=True).start()


def _device(config: Mapping[str, Any]) -> str:
    """Return the device that a configuration asks for; `ANY_DEVICE` where it leaves that open."""
    mesh = config.get("mesh")
    asked = mesh.get("device") if isinstance(mesh, Mapping) else None
    return str(asked) if asked in DEVICES else ANY_DEVICE


def _put(root: Path, folder: Path, run: str, arguments: list[str], now: datetime, *, device: str) -> Job:
    enqueue(folder, run=run, command=[*PROGRAM, *arguments], working_folder=Path.cwd(), now=now, device=device)
    start_worker(root)
    job = read_job(folder)
    assert job is not None  # It was written just now.
    return job
