"""Worker of a queue: `python -m launch.worker ROOT` runs the jobs of a runs folder and exits after the last one.

Each device runs one job at a time. The worker is the parent of its jobs, waits for each and records its exit code. It
has its own session, so it keeps running when you close the browser, stop the dashboard or log out. A lock ensures that
a queue has only one worker.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import Any

from evidence.layout import SESSION
from evidence.lock import RunLock
from launch import jobs, process
from launch.jobs import Job
from launch.places import find_place, get_place
from launch.process import ONLY_PARENT_INTERRUPTS, StartedProcess
from schemas.problems import ProblemError

WEBHOOK = "TRAINPROOF_WEBHOOK"
"""Environment variable with the address to which the end of each job is posted."""

CANNOT_START = 127
"""Exit code of a job that could not be started, as in shells."""

RETRY_SECONDS = 5.0
"""Pause after a failed write, for example on a full disk."""

_POLL_SECONDS = 0.5
_WEBHOOK_SECONDS = 10.0


def main(root: Path) -> None:
    """Run jobs until none is waiting. Return immediately if the queue has another worker."""
    # Background shells make their children ignore SIGINT, and jobs would inherit that.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    jobs.launch_folder(root).mkdir(parents=True, exist_ok=True)
    try:
        with RunLock(jobs.launch_folder(root)) as lock:
            _work(root, lock)
    except ProblemError:
        return  # the other worker looks for new jobs before it unlocks the queue


def _work(root: Path, lock: RunLock) -> None:
    waits: list[threading.Thread] = []
    interrupted: set[StartedProcess] = set()
    reader = jobs.JobReader(root)
    while lock.holds():
        waits = [wait for wait in waits if wait.is_alive()]
        known = reader.jobs()
        for job in known if ONLY_PARENT_INTERRUPTS else ():
            # Only once: a second interrupt would end the job without a checkpoint.
            if job.state == "stopping" and job.started is not None and job.started not in interrupted:
                interrupted.add(job.started)
                process.interrupt(job.started)
        # Jobs of a killed worker may still be running. This worker cannot wait for them, but their devices are in use.
        if not waits and all(job.has_ended for job in known):
            return
        pause = _POLL_SECONDS
        try:
            _cancel_dependents(known)
            for job in startable(known):
                _start(job, waits)
        except OSError:
            pause = RETRY_SECONDS
        time.sleep(pause)
    # The root was removed. If there is a new one at this path, another worker has its queue.
    for wait in waits:
        wait.join()


def startable(known: Sequence[Job]) -> list[Job]:
    """Return the waiting jobs that can start now, in the order of the queue.

    A job starts if the jobs that it waits for have ended, and no earlier job, running or waiting, needs the same
    device. A place with its own queue takes every job immediately.
    """
    earlier = [job for job in known if job.state in {"running", "stopping"}]
    unended = {job.job_id for job in known if not job.has_ended}
    succeeded = {job.job_id for job in known if job.state == "succeeded"}
    found = []
    for job in known:
        if job.state == "waiting" and all(
            name in succeeded if is_needed else name not in unended for name, is_needed in job.after.items()
        ):
            place = find_place(job.place)
            if (place and place.has_own_queue) or not any(job.shares_device(other) for other in earlier):
                found.append(job)
            earlier.append(job)
    return found


def _cancel_dependents(known: Sequence[Job]) -> None:
    """Cancel the waiting jobs that need a job which ended without success, and say so in their output."""
    ended = {job.job_id: f"{job.run}, which ended as {job.state}" for job in known if job.has_ended}
    usable = {job.job_id for job in known if not job.has_ended or job.state == "succeeded"}
    for job in known:
        needed = [name for name, is_needed in job.after.items() if is_needed and name not in usable]
        if job.state == "waiting" and job.started is None and needed:
            why = ended.get(needed[0], f"{needed[0]}, which is no longer in the queue")
            _append_output(job, f"Not started: it needs {why}. Give the command with --phases again to continue.")
            jobs.mark_cancelled(job.folder)


def _start(job: Job, waits: list[threading.Thread]) -> None:
    """Start a job, record its process, and add a thread that waits for it.

    Raises:
        OSError: Nothing can be recorded, for example on a full disk. The job is not running and still waits.
    """
    with (job.folder / jobs.OUTPUT).open("ab", buffering=0) as output:
        try:
            child = process.start(
                get_place(job.place).command(job),
                folder=job.working_folder,
                output=output,
                errors=subprocess.STDOUT,
                environment={**os.environ, "PYTHONUNBUFFERED": "1"},  # otherwise pages show output late
                own_console=False,
            )
        except (OSError, ProblemError) as error:
            output.write(f"The run could not be started: {error}\n".encode())
            jobs.mark_ended(job.folder, CANNOT_START)
            return
    started = process.identify(child.pid)
    try:
        jobs.mark_started(job.folder, started, worker=process.identify(os.getpid()))
    except OSError:
        # The queue would start an unrecorded process a second time.
        process.kill(started)
        child.wait()
        raise
    waits.append(threading.Thread(target=_wait, args=(job, child), name=job.job_id))
    waits[-1].start()
    current = jobs.read_job(job.folder)
    if current is not None and current.state == "stopping":
        process.interrupt(started)  # cancelled just before the process was recorded


def _wait(job: Job, child: subprocess.Popen[bytes]) -> None:
    """Wait for a job and record its exit code, retrying while the disk is full."""
    code = child.wait()
    if code < 0 and (job.folder / SESSION).exists() and not (job.folder / jobs.CANCELLED).exists():
        # Its session goes on elsewhere, and a new process continues to watch it.
        (job.folder / jobs.PROCESS).unlink(missing_ok=True)
        return
    if explanation := jobs.explain_signal(job, code):
        _append_output(job, explanation)
    while job.folder.is_dir():
        try:
            jobs.mark_ended(job.folder, code)
        except OSError:
            time.sleep(RETRY_SECONDS)
        else:
            _post_end(job, code)
            return


def _append_output(job: Job, line: str) -> None:
    with suppress(OSError), (job.folder / jobs.OUTPUT).open("a", encoding="utf-8") as output:
        output.write(f"{line}\n")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Report redirects as errors, because urllib would repeat a POST as a GET."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def _post_end(job: Job, code: int) -> None:
    """Post the end of a job to the address in `TRAINPROOF_WEBHOOK`. Slack shows `text`, Discord `content`."""
    address = os.environ.get(WEBHOOK, "").strip()
    if not address:
        return
    ended = jobs.read_job(job.folder)
    state = ended.state if ended else "ended"
    line = f"{job.run}: {state}, exit code {code}"
    body = json.dumps({"text": line, "content": line, "run": job.run, "state": state, "exit_code": code}).encode()
    problem = f"{WEBHOOK} is not a valid http or https address."
    if address.startswith(("http://", "https://")):
        try:
            request = urllib.request.Request(address, body, {"Content-Type": "application/json"})  # noqa: S310
            urllib.request.build_opener(_NoRedirect).open(request, timeout=_WEBHOOK_SECONDS).close()
        except OSError as error:
            problem = str(error)
        except (ValueError, HTTPException):
            pass  # the message of this error may contain the address, which may contain a secret
        else:
            return
    _append_output(job, f"The end could not be posted: {problem}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
