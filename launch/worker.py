"""The process that works through the queue of one root: `python -m launch.worker ROOT`.

It starts the first job that waits for each device (one on a CPU may run beside one on a GPU), waits for every job that
it started, writes exit codes down, and ends when nothing waits. It is the parent of every job, so no zombie stays; it
holds no pipe that would have to be read; and it leads a session of its own, so that neither a closed browser nor a
stopped dashboard nor a logout reaches it. A lock keeps it alone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from urllib.parse import urlsplit

from evidence.lock import RunLock
from launch.jobs.folder import OUTPUT, Job, JobReader, launch_folder, mark_ended, mark_started, read_job
from launch.jobs.output import what_killed
from launch.jobs.process import ONLY_PARENT_INTERRUPTS, StartedProcess, interrupt, kill, start, started_now
from launch.places import PLACES
from schemas.problems import ProblemError

CANNOT_START = 127
"""Exit code noted for a job that could not even be started, as shells use it."""

WEBHOOK = "TRAINPROOF_WEBHOOK"
"""Variable of the environment with the address that the end of each job is posted to."""

_WEBHOOK_SECONDS = 10.0
_POLL_SECONDS = 0.5
AGAIN_SECONDS = 5.0
"""Pause after the disk has refused something, as it does until there is room."""


def main(root: Path) -> None:
    """Work through the queue until nothing waits; return at once if another worker already does."""
    # A worker started from a background shell inherits an ignored SIGINT, and its jobs would too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    launch_folder(root).mkdir(parents=True, exist_ok=True)
    try:
        with RunLock(launch_folder(root)) as lock:
            _work(root, lock)
    except ProblemError:
        return  # Somebody else holds the queue, and looks for new jobs before letting go.


def _work(root: Path, lock: RunLock) -> None:
    """Start jobs as devices become free, until none waits and none that was started here is at work."""
    waits: list[threading.Thread] = []
    asked: set[StartedProcess] = set()
    reader = JobReader(root)
    while lock.holds():
        waits = [wait for wait in waits if wait.is_alive()]
        known = reader.jobs()
        if ONLY_PARENT_INTERRUPTS:
            _interrupt_cancelled(known, asked)
        # Nothing here waits for jobs that an earlier worker left running, but their devices are taken.
        if not waits and all(job.has_ended for job in known):
            return
        time.sleep(_POLL_SECONDS if _start_all(startable(known), waits) else AGAIN_SECONDS)
    # Somebody removed the root and may have begun another there, whose queue is not ours.
    for wait in waits:
        wait.join()


def _interrupt_cancelled(known: Sequence[Job], asked: set[StartedProcess]) -> None:
    """Interrupt each cancelled job once: a second interruption would end it without a checkpoint."""
    for job in known:
        if job.state == "stopping" and job.started is not None and job.started not in asked:
            asked.add(job.started)
            interrupt(job.started)


def _start_all(chosen: Sequence[Job], waits: list[threading.Thread]) -> bool:
    """Start jobs, add who waits for each, and return whether the disk took what had to be noted."""
    for job in chosen:
        try:
            process = _start(job)
        except OSError:
            return False
        if process is not None:
            waits.append(threading.Thread(target=_wait, args=(job, process), name=job.job_id))
            waits[-1].start()
    return True


def startable(known: Sequence[Job]) -> list[Job]:
    """Return the waiting jobs that may start now, in their order.

    A job starts when no job before it, be it at work or waiting, needs the same device. So no job is overtaken on a
    device, and a job that takes whichever device it finds runs alone. A place with a queue of its own takes every job.
    """
    at_work = [job for job in known if job.state in {"running", "stopping"}]
    chosen, before = [], list(at_work)
    for job in known:
        if job.state == "waiting":
            place = PLACES.get(job.place)
            if (place and place.has_own_queue) or not any(job.shares_device(other) for other in before):
                chosen.append(job)
            before.append(job)
    return chosen


def _start(job: Job) -> subprocess.Popen[bytes] | None:
    """Start a job and note its process; None if it could not be started, which is noted too.

    Raises:
        OSError: Nothing could be noted, as where the disk is full. The job is not started and waits as before.
    """
    # Nothing waits in a buffer: who sees that the job has ended finds its last words.
    with (job.folder / OUTPUT).open("ab", buffering=0) as output:
        if job.place not in PLACES:
            known = ", ".join(PLACES)
            output.write(f"The run could not be started: {job.place} is not one of the places {known}.\n".encode())
            mark_ended(job, CANNOT_START)
            return None
        try:
            process = start(
                PLACES[job.place].command(job),
                folder=job.working_folder,
                output=output,
                errors=subprocess.STDOUT,
                environment={**os.environ, "PYTHONUNBUFFERED": "1"},  # or the page would see nothing for a long time
                own_console=False,
            )
        except OSError as error:
            output.write(f"The run could not be started: {error}\n".encode())
            mark_ended(job, CANNOT_START)
            return None
    started = started_now(process.pid)
    try:
        mark_started(job, started, worker=started_now(os.getpid()))
    except OSError:
        # The queue would start a process that it does not know of a second time.
        kill(started)
        process.wait()
        raise
    again = read_job(job.folder)
    if again is not None and again.state == "stopping":
        interrupt(started)  # Somebody cancelled in the instant before the process was noted.
    return process


def _wait(job: Job, process: subprocess.Popen[bytes]) -> None:
    """Wait for a job and note how it ended, when the disk has room for that, as long as the job's folder is there."""
    code = process.wait()
    with suppress(OSError):
        if said := what_killed(replace(job, exit_code=code)):
            with (job.folder / OUTPUT).open("a", encoding="utf-8") as output:
                output.write(f"{said}\n")
    while job.folder.is_dir():
        try:
            mark_ended(job, code)
        except OSError:
            time.sleep(AGAIN_SECONDS)
        else:
            _announce(job, code)
            return


def _announce(job: Job, code: int) -> None:
    """Post how a job ended to the address in `TRAINPROOF_WEBHOOK`, if there is one; a failure is noted in its output.

    `text` and `content` are the fields that Slack and Discord show.
    """
    address = os.environ.get(WEBHOOK, "").strip()
    if not address:
        return
    ended = read_job(job.folder)
    state = "ended" if ended is None else ended.state
    line = f"{job.run}: {state}, exit code {code}"
    body = {"text": line, "content": line, "run": job.run, "state": state, "exit_code": code}
    try:
        _post(address, json.dumps(body).encode())
    except (OSError, HTTPException, ValueError) as error:
        # The address may hold a secret; only the error of an address in a wrong form quotes it.
        why = "it is not an address of http or https" if isinstance(error, ValueError) else str(error)
        with suppress(OSError), (job.folder / OUTPUT).open("a", encoding="utf-8") as output:
            output.write(f"The end could not be posted to {WEBHOOK}: {why}\n")


def _post(address: str, body: bytes) -> None:
    """Post JSON.

    Raises:
        ValueError: The address is not one of http or https.
        OSError: Nobody answers there, or the answer is an error.
        HTTPException: The answer is not HTTP.
    """
    parts = urlsplit(address)
    connect = {"https": HTTPSConnection, "http": HTTPConnection}.get(parts.scheme)
    if connect is None or parts.hostname is None:
        raise ValueError(address)
    connection = connect(parts.hostname, parts.port, timeout=_WEBHOOK_SECONDS)
    try:
        target = f"{parts.path or '/'}{f'?{parts.query}' if parts.query else ''}"
        connection.request("POST", target, body, {"Content-Type": "application/json"})
        status = connection.getresponse().status
    finally:
        connection.close()
    if status >= HTTPStatus.MULTIPLE_CHOICES:  # A redirection is not followed: nothing was posted.
        answered = f"it answered {status}"
        raise OSError(answered)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
