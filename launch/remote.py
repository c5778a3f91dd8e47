"""Take a job to a remote place and back: `python -m launch.remote JOB_FOLDER`, started by the worker of the queue.

The process may be killed at any time. `session.json` in the job's folder has the reference of the session as soon as
there is one, so the job continues from there and nothing is sent twice:

    prepare -> submit -> status and log until the session has ended -> fetch -> verify -> run folder
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from evidence import layout
from evidence.bundle.reading import open_bundle
from evidence.bundle.verify import refuse_invalid, verify_bundle
from evidence.hashes import sha256_file
from evidence.layout import SESSION
from evidence.writing import write_json
from launch.jobs import CONFIG, LOCAL, OUTPUT, STOPPED_BEFORE_RUN, Job, jobs, read_job, read_object, refuse_link, tail
from launch.places import PLACES, get_place
from launch.places.place import RemotePlace, Request, Status, Unreachable, refuse
from launch.places.ray import Ray
from launch.places.session import RESULT, RESUMABLE
from schemas.catalog import VERSION
from schemas.problems import ProblemError
from schemas.reading import get_number, get_path, get_str, os_error_problem, read_yaml
from schemas.render import render_json, render_text

POLL_SECONDS = float(os.environ.get("TRAINPROOF_POLL_SECONDS", "30"))
"""Time between two questions about the state; the variable is for tests."""
MAX_PAUSE_SECONDS = 300.0
_FAILED = 1
_MAX_REFUSALS = 200
"""Refusals after a session was started, most of five minutes each: a login that expired can be renewed meanwhile."""

Value = TypeVar("Value")


@dataclass
class Session:
    """State of a job at a remote place; saved after each change."""

    folder: Path
    fields: dict[str, Any]

    @classmethod
    def load(cls, folder: Path) -> Session:
        """Load the session of a job folder."""
        return cls(folder, read_object(folder / SESSION) or {})

    def update(self, **fields: Any) -> None:
        """Change fields and save them."""
        if any(self.fields.get(name) != value for name, value in fields.items()):
            self.fields |= fields
            write_json(self.folder / SESSION, self.fields)

    @property
    def reference(self) -> str | None:
        """Reference of the session at the place, or None before it is known."""
        return get_str(self.fields, "reference")


def read_request(job: Job) -> Request:
    """Build the request of a job.

    Raises:
        ProblemError: The session that it continues is not known (exit code 2).
    """
    config = read_yaml(refuse_link(job.folder / CONFIG).read_text("utf-8"), file=CONFIG).value
    reference = None
    if job.resumes is not None:
        file = job.root / job.resumes / layout.SESSION
        if (reference := get_str(read_object(file), "reference")) is None:
            refuse("TP773", str(file), "The session of this run is not known, so it cannot be continued there.")
    return Request(run=job.run, config=config, working_folder=Path(job.working_folder), continues=reference)


def run_job(job: Job) -> int:
    """Take a job to its place, wait for it, bring its run back, and return the exit code of the run."""
    place = get_place(job.place)
    session = Session.load(job.folder)
    if isinstance(place, Ray):
        return place.run(job, session.fields, session.update)
    assert isinstance(place, RemotePlace), "only these places start this process"
    try:
        reference = session.reference or _submit(job, place, session)
        say(f"{job.run} is at {place.address(reference)}")
        status = _watch(place, reference, session)
        if status.state == "cancelled":
            say("The session was cancelled there.")
        return _bring_back(job, place, reference, status)
    except KeyboardInterrupt:
        started = session.reference
        if started is None and session.fields.get("state") == "sending":
            started = _repeat(lambda: place.find(job.folder / "upload"), limit=5)  # it may have arrived
        if started is not None:
            _cancel(place, started)
            if place.keeps_output:
                session.update(state="sent", reference=started)
                return _bring_back(job, place, started, _watch(place, started, session))
        return STOPPED_BEFORE_RUN


def _cancel(place: RemotePlace, reference: str) -> None:
    say("Cancelling the session …")
    _repeat(lambda: place.cancel(reference), limit=5)


def _submit(job: Job, place: RemotePlace, session: Session) -> str:
    """Send a job, unless it was sent before, and return the reference of its session."""
    upload = job.folder / "upload"
    if session.fields.get("state") != "sending":
        request = read_request(job)
        offer = _repeat(lambda: place.offer(request))
        shutil.rmtree(upload, ignore_errors=True)
        upload.mkdir()
        place.prepare(request, upload)
        seconds = None if offer.session_hours is None else offer.session_hours * 3600
        session.update(state="sending", account=offer.account, target=offer.target, session_seconds=seconds)
    reference = _repeat(lambda: place.find(upload) or place.submit(upload))
    session.update(state="sent", reference=reference, sent_at=now())
    shutil.rmtree(upload, ignore_errors=True)
    return reference


def _watch(place: RemotePlace, reference: str, session: Session) -> Status:
    """Print the log and record the state of a session until it has ended."""
    ended = threading.Event()
    reader = threading.Thread(target=_follow, args=(place, reference, session.folder, ended), daemon=True)
    reader.start()
    while True:
        try:
            status = _repeat(lambda: place.status(reference), refusals=_MAX_REFUSALS)
            if status.has_ended:
                break
            began = {"began_at": now()} if status.state == "running" and "began_at" not in session.fields else {}
            session.update(state=status.state, **began)
            time.sleep(POLL_SECONDS)
        except KeyboardInterrupt:
            if not place.keeps_output:
                raise
            _cancel(place, reference)
    session.update(state=status.state, message=status.message, ended_at=now())
    ended.set()
    reader.join(timeout=2 * POLL_SECONDS)  # the last lines
    return status


def _follow(place: RemotePlace, reference: str, folder: Path, ended: threading.Event) -> None:
    """Print the lines of a log once. The place sends it from the beginning on each connection."""
    path = folder / "session.log"
    while True:
        with path.open("a+", encoding="utf-8") as log:
            log.seek(0)
            known = sum(1 for _ in log)
            with suppress(Unreachable, ProblemError):
                for number, line in enumerate(place.logs(reference)):
                    if number >= known:
                        say(line)
                        log.write(line + "\n")
                        log.flush()
        if ended.wait(POLL_SECONDS):
            return


def _repeat(call: Callable[[], Value], *, limit: int | None = None, refusals: int = 0) -> Value:
    """Call until the place answers, with growing pauses.

    Raises:
        Unreachable: It did not answer `limit` times.
        ProblemError: It refused more often than `refusals`.
    """
    pause, count = POLL_SECONDS, 0
    while True:
        count += 1
        try:
            return call()
        except Unreachable as error:
            if count == limit:
                raise
            text = str(error)
        except ProblemError as error:
            if count > refusals:
                raise
            text = render_text(error.problems)
        say(f"{text} Trying again in {pause:.0f} s.")
        time.sleep(pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)


def _bring_back(job: Job, place: RemotePlace, reference: str, status: Status) -> int:
    """Download the output of a session, and unpack its runs into the root."""
    output = job.folder / "fetched"
    shutil.rmtree(output, ignore_errors=True)
    output.mkdir()
    _repeat(lambda: place.fetch(reference, output), refusals=_MAX_REFUSALS)
    stated = read_result(output / "session.log")
    witness = {
        "schema_version": VERSION,
        "place": job.place,
        "reference": reference,
        "fetched_at": now(),
        "received": (stated or {}).get("received"),
        **_open_bundle(output, stated),
    }
    names = []
    for name in (job.run, f"{job.run}-smoke"):  # a session can only write the runs of its own job
        if (run := output / "runs" / name).is_dir():
            names.append(name)
            if not (job.root / name).exists():
                write_json(run / layout.SESSION, witness)
                run.rename(job.root / name)
    message = status.message or get_str(stated, "what") or ""
    if job.run not in names and status.state == "cancelled":
        say(f"It left no run. {message}".rstrip())
        return STOPPED_BEFORE_RUN
    if job.run not in names:
        what = f"The session ended as {status.state} and left no run. {message}".strip()
        refuse("TP775", place.address(reference), what, exit_code=_FAILED)
    shutil.rmtree(output, ignore_errors=True)
    say(f"Fetched {', '.join(names)} into {job.root}. {message}".rstrip())
    code = get_path(read_object(job.root / job.run / layout.MANIFEST), "exit", "code")
    if code in {0, RESUMABLE}:
        with suppress(Unreachable, ProblemError):
            place.release(reference, is_complete=code == 0)
    return code if type(code) is int else _FAILED


def _open_bundle(output: Path, stated: dict[str, Any] | None) -> dict[str, Any]:
    """Verify a bundle, if there is one, and unpack its `runs/` next to it; return what the witness says about it."""
    if not (bundle := output / "bundle.zip").is_file():
        return {"bundle_sha256": None, "is_in_log": False}
    sha256 = sha256_file(bundle)
    if stated is not None and stated.get("bundle_sha256") != sha256:
        what = f"The bundle has SHA-256 {sha256}; the log of the session states {stated.get('bundle_sha256')}."
        refuse("TP774", str(bundle), what, exit_code=1)
    refuse_invalid(verify_bundle(bundle))
    shutil.rmtree(output / "runs", ignore_errors=True)  # which nobody verified
    with open_bundle(bundle) as files:
        files.write_to(output, lambda name: name.startswith("runs/"))
    return {"bundle_sha256": sha256, "is_in_log": stated is not None}


def ask(call: Callable[[], Value]) -> Value:
    """Call a place once; raise `ProblemError` (exit code 3) if it does not answer."""
    try:
        return call()
    except Unreachable as error:
        refuse("TP770", "network", str(error), "Try again later.", exit_code=3)


def list_places(root: Path) -> list[dict[str, Any]]:
    """Return each place with its jobs, its account and quota, or the problems that make it unusable."""
    queued, found = [job for job in jobs(root) if not job.has_ended], []
    for name, place in PLACES.items():
        here = [job for job in queued if job.place == name]
        waiting = sum(job.state == "waiting" for job in here)
        entry: dict[str, Any] = {"place": name, "waiting": waiting, "running": len(here) - waiting, "findings": []}
        try:
            offer = ask(place.read_quota) if isinstance(place, RemotePlace) else None
        except ProblemError as error:
            entry["findings"], offer = render_json(error.problems), None
        facts = ("account", "session_hours", "left_hours", "refreshes_at")
        found.append(entry | {fact: getattr(offer, fact, None) for fact in facts})
    return found


def describe_session(job: Job) -> str | None:
    """Describe the session of a job that has not ended, with the time that it has left."""
    if job.place == LOCAL or job.has_ended:
        return None
    fields = Session.load(job.folder).fields
    text = f"{job.run} at {job.place}: {get_str(fields, 'state') or 'not sent yet'}"
    seconds, began = get_number(fields, "session_seconds"), get_str(fields, "began_at")
    if seconds is None or began is None:
        return text
    with suppress(ValueError):
        left = seconds - (datetime.now(UTC) - datetime.fromisoformat(began)).total_seconds()
        text += f", about {max(left, 0) / 3600:.1f} h of the session left"
    return text


def session_address(place_name: str, reference: str | None) -> str | None:
    """Return the page of a session, or None. The reference may come from a stranger, so it is checked."""
    with suppress(ProblemError):
        place = get_place(place_name)
        if reference is not None and isinstance(place, RemotePlace):
            address = place.address(reference)
            return address if address.startswith("https://") else None
    return None


def print_output(job: Job) -> int:
    """Print the output of a job until it has ended, and return its exit code. Ctrl-C only stops printing."""
    seen = 0
    with suppress(KeyboardInterrupt):
        while True:
            current, path = read_job(job.folder), job.folder / OUTPUT
            text = path.read_bytes()[seen:] if path.is_file() else b""
            seen += len(text)
            sys.stdout.write(text.decode("utf-8", "replace"))
            sys.stdout.flush()
            if current is None or current.has_ended:
                return _FAILED if current is None or current.exit_code is None else current.exit_code
            time.sleep(0.5)
    return 0


def read_result(path: Path) -> dict[str, Any] | None:
    """Return what the last line of a session's log states, or None if the session was killed before it."""
    last = tail(path).rpartition("\n")[2]
    with suppress(ValueError, RecursionError):
        value = json.loads(last.removeprefix(RESULT)) if last.startswith(RESULT) else None
        return value if isinstance(value, dict) else None
    return None


def say(line: str) -> None:
    """Print a line into the output of the job."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def now() -> str:
    """Return the time in UTC."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def main(folder: Path) -> int:
    """Run the job in a folder; print problems and return their exit code."""
    job = read_job(folder)
    assert job is not None, "the worker started this process for a job"
    try:
        return run_job(job)
    except ProblemError as error:
        say(render_text(error.problems))
        return error.exit_code
    except OSError as error:
        say(render_text([os_error_problem(error)]))
        return 2
    except Unreachable as error:
        say(f"{error} The session may still be running; end it on its page.")
        return _FAILED


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
