"""Tasks: commands of trainproof that the dashboard runs in the background, which are plans, replays and prompts.

A task has a folder like a job, with the same process.json, output.log, cancelled, exit_code and seal (see
`launch.jobs`). Three files are added:

    <root>/.launch/<kind>/<hash of the question>/
        answer.json   standard output of the command: a JSON object, or one per line
        input.json    standard input of the command, if it has one
        watched       touched while a page waits for the answer

The same question has the same folder, so its answer is found after a restart, and can be computed again. Answers are
sealed, because a runs folder from an untrusted source could contain forged ones. The process started by `Task.start` is
`python -m launch.tasks FOLDER WORKING_FOLDER LIMIT_SECONDS WATCH_SECONDS ARGUMENT…`. It waits for the command and is
the only one that ends it, so no process is ended by an id from a file.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Literal

from evidence.writing import write_text
from launch import jobs, process
from launch.process import HOME, PROGRAM
from schemas.reading import write_yaml

ANSWER, INPUT, WATCHED = "answer.json", "input.json", "watched"

TIMED_OUT = 124
"""Exit code of a task that took too long, as of the command `timeout`."""

STOPPED = 130
"""Exit code of a cancelled task, as in shells after Ctrl-C."""

WATCH_SECONDS = 150.0
"""Time after which a plan or prompt is cancelled if no page waits for it. Browsers wake hidden pages once a minute."""

LIMIT_SECONDS = 900.0
REPLAY_LIMIT_SECONDS = 6 * 3600.0
_POLL_SECONDS = 0.1
_OUTPUT_LINES = 400

CHECK, PLACES = ("train", "--check"), ("queue", "places")
"""Questions of other commands than `plan`: whether model and data can be read, and what places offer."""

_COMPILERS = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-pjrt")

State = Literal["none", "running", "cancelled", "answered", "failed"]
Verb = Literal["replay", "challenge"]


@dataclass(frozen=True, kw_only=True)
class TaskResult:
    """State of a task.

    Attributes:
        state: `none` if this user never started it, `failed` if it ended without an answer.
        answer: Answer, or None. Of a prompt, `{"events": […]}`, which grows while the task runs.
        exit_code: Exit code, or None before the end, or if the task was killed.
        output: Standard error of the command: progress, or the reason of a failure.
        seconds: Time since the start of a running task, or None.
    """

    state: State
    answer: Mapping[str, Any] | None = None
    exit_code: int | None = None
    output: str = ""
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class Task:
    """A command of trainproof in the background, started or not. Methods that write raise `OSError` if that fails.

    Attributes:
        folder: Folder of the task. It may not exist.
        arguments: Arguments of trainproof. They must not contain prompts, because other users can see them.
        files: Files that are written before the start, the configuration or `INPUT`.
        limit_seconds: Time after which it is stopped.
        watch_seconds: Time without `watch` after which it is cancelled. Unless this is infinite, it is also cancelled
            when the process that started it has ended.
    """

    folder: Path
    arguments: Sequence[str]
    files: Mapping[str, str] = field(default_factory=dict)
    limit_seconds: float
    watch_seconds: float = math.inf

    def result(self) -> TaskResult:
        """Return the state of the task, and its answer."""
        if not self.folder.is_dir():
            return TaskResult(state="none")
        status = jobs.read_status(self.folder)
        if status.is_cancelled:
            return TaskResult(state="cancelled")
        output = jobs.tail(self.folder / jobs.OUTPUT, lines=_OUTPUT_LINES)
        if status.exit_code is None:
            if status.started is None or not status.is_running:
                return TaskResult(state="failed" if self.folder.is_dir() else "none")  # removed in the meantime
            seconds = max(0.0, time.time() - status.started.created)
            answer = self._read_answer() if INPUT in self.files else None
            return TaskResult(state="running", answer=answer, output=output, seconds=seconds)
        if not jobs.has_own_seal(self.folder, (ANSWER, jobs.OUTPUT, jobs.EXIT_CODE)):
            return TaskResult(state="none")
        answer = self._read_answer()
        state: State = "answered" if answer else "failed"
        return TaskResult(state=state, answer=answer, exit_code=status.exit_code, output=output)

    def _read_answer(self) -> dict[str, Any] | None:
        if INPUT in self.files:
            return {"events": parse_events(jobs.read_bytes(self.folder / ANSWER).decode("utf-8", "replace"))}
        return jobs.read_object(self.folder / ANSWER)

    def start(self) -> None:
        """Start the task, unless it is running or being stopped."""
        if self._is_running():
            return
        jobs.refuse_link(self.folder).mkdir(parents=True, exist_ok=True)
        for name in (ANSWER, jobs.SEAL, jobs.EXIT_CODE, jobs.OUTPUT, jobs.CANCELLED):
            (self.folder / name).unlink(missing_ok=True)
        for name, text in self.files.items():
            write_text(self.folder / name, text)
        self.watch()
        settings = [str(self.folder), str(Path.cwd()), str(self.limit_seconds), str(self.watch_seconds)]
        waiter = process.start(
            [sys.executable, "-m", "launch.tasks", *settings, *self.arguments],
            folder=HOME,
            output=subprocess.DEVNULL,
            errors=subprocess.DEVNULL,
        )
        started = process.identify(waiter.pid)
        jobs.mark_started(self.folder, started, worker=started)
        # A process that nobody waits for becomes a zombie.
        threading.Thread(target=waiter.wait, name="wait for task", daemon=True).start()

    def _is_running(self) -> bool:
        status = jobs.read_status(self.folder)
        return status.exit_code is None and status.is_running

    def watch(self) -> None:
        """Record that a page waits for the answer."""
        with suppress(OSError):
            (self.folder / WATCHED).touch()

    def cancel(self) -> None:
        """End a running task with all processes that it started."""
        if self._is_running():
            jobs.mark_cancelled(self.folder)

    def forget(self) -> None:
        """Remove the task with its answer, unless it is running."""
        if self.folder.is_dir() and not self._is_running():
            _remove(self.folder)


def plan_task(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> Task:
    """Return the task that plans a complete configuration, with options of `trainproof plan`, or another question.

    The answer is plan.json, unless the options begin with the name of another command. `PLACES` needs no configuration.
    """
    text = "" if tuple(options) == PLACES else write_yaml(dict(config))
    folder = _folder(root, "plans", text, *options, planner_digest())
    verb, *flags = options if options and not options[0].startswith("-") else ("plan", *options)
    source = ["--config", str(folder / jobs.CONFIG)] if text else []
    return Task(
        folder=folder,
        arguments=[verb, *source, *flags, "--json"],
        files={jobs.CONFIG: text},
        limit_seconds=LIMIT_SECONDS,
        watch_seconds=WATCH_SECONDS,
    )


@cache
def planner_digest() -> str:
    """Return a hash of the planner's code and of the compilers' versions, so that old plans are not reused."""
    digest = hashlib.sha256()
    for file in sorted((HOME / "trainer").rglob("*.py")):
        digest.update(file.read_bytes())
    for package in _COMPILERS:
        with suppress(PackageNotFoundError):
            digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()


def replay_task(root: Path, subject: Path, sha256: str, verb: Verb, options: Sequence[str] = ()) -> Task:
    """Return the task that replays a run folder or bundle or asks its model new questions. The answer is a receipt.

    `sha256` is the hash of the manifest or bundle, so that another run of the same name is another question.
    """
    return Task(
        folder=_folder(root, "replays", verb, subject.name, sha256, *options),
        arguments=[verb, str(subject.resolve()), *options, "--json", "--json-lines"],
        limit_seconds=REPLAY_LIMIT_SECONDS,
    )


def play_task(root: Path, run: Path, question: Mapping[str, str], options: Sequence[str] = ()) -> Task:
    """Return a new task that asks models a question, `{"prompt": …}` or `{"item": …}`. The answer is a stream."""
    return Task(
        folder=_folder(root, "plays", secrets.token_hex()),
        arguments=["play", str(run.resolve()), *options, "--json-lines"],
        files={INPUT: json.dumps(question) + "\n"},  # standard input of the command
        limit_seconds=LIMIT_SECONDS,
        watch_seconds=WATCH_SECONDS,
    )


def _folder(root: Path, kind: str, *question: str) -> Path:
    digest = hashlib.sha256("\0".join(question).encode()).hexdigest()
    return jobs.launch_folder(root.resolve()) / kind / digest[:24]


def parse_events(text: str) -> list[dict[str, Any]]:
    """Return the JSON objects among the lines of a text. Other lines are messages for people."""
    found = []
    for line in text.splitlines():
        with suppress(ValueError, RecursionError):
            if isinstance(value := json.loads(line), dict):
                found.append(value)
    return found


def main(folder: Path, working_folder: Path, limit_seconds: float, watch_seconds: float, arguments: list[str]) -> None:
    """Run the command of a task, end it when it is cancelled or takes too long, and record its exit code."""
    source = folder / INPUT if (folder / INPUT).exists() else Path(os.devnull)
    answers, outputs = folder / ANSWER, folder / jobs.OUTPUT
    with source.open("rb") as question, answers.open("wb") as answer, outputs.open("wb") as output:
        command = [*PROGRAM, *arguments]
        child = process.start(command, folder=working_folder, input=question, output=answer, errors=output)
        code = _wait(child, folder, limit_seconds, watch_seconds)
        if code == TIMED_OUT:
            output.write(f"Stopped after {limit_seconds / 60:.0f} minutes.\n".encode())
    if code == STOPPED and (folder / INPUT).exists():
        with suppress(OSError):
            _remove(folder)  # a cancelled prompt is not asked again
    else:
        finish(folder, code)


def _remove(folder: Path) -> None:
    """Hide a folder, then delete it. A half empty one would look like a failed task."""
    hidden = folder.rename(folder.with_name(f".{folder.name}"))
    shutil.rmtree(hidden, ignore_errors=True)


def finish(folder: Path, exit_code: int) -> None:
    """Seal the answer of a task and record its exit code."""
    contents = [jobs.read_bytes(folder / ANSWER), jobs.read_bytes(folder / jobs.OUTPUT), f"{exit_code}\n".encode()]
    jobs.write_seal(folder, contents)
    jobs.mark_ended(folder, exit_code)


def _wait(child: subprocess.Popen[bytes], folder: Path, limit_seconds: float, watch_seconds: float) -> int:
    """Wait for a command and return its exit code."""
    deadline, parent = time.monotonic() + limit_seconds, os.getppid()
    while True:
        try:
            return child.wait(timeout=_POLL_SECONDS)
        except subprocess.TimeoutExpired:
            is_unwatched = os.getppid() != parent or _seconds_since_watched(folder) > watch_seconds
            is_unwatched = is_unwatched and watch_seconds < math.inf
            is_cancelled = is_unwatched or (folder / jobs.CANCELLED).exists()
            if is_cancelled or time.monotonic() > deadline:
                process.kill(process.identify(child.pid))
                child.wait()
                if is_unwatched:
                    jobs.mark_cancelled(folder)
                return STOPPED if is_cancelled else TIMED_OUT


def _seconds_since_watched(folder: Path) -> float:
    with suppress(OSError):
        return time.time() - (folder / WATCHED).stat().st_mtime
    return 0.0


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), sys.argv[5:])
