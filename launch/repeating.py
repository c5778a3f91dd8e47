"""Repeating a run, or questioning its model, beside the page: `trainproof replay` and `trainproof challenge`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from launch import asking
from launch.asking import PlanRequest
from launch.jobs.folder import launch_folder

TIME_LIMIT_SECONDS = 6 * 3600.0
"""What takes longer is stopped; a user with less time states it with `--minutes`."""

_REPEATS = "repeats"

Verb = Literal["replay", "challenge"]


def repeating(root: Path, subject: Path, sha256: str, verb: Verb, options: Sequence[str] = ()) -> PlanRequest:
    """Return what is known about repeating a run; the answer is a receipt.

    Args:
        root: The root of runs.
        subject: The run's folder, or a bundle.
        sha256: Hash of the run's manifest, or of the bundle: another run under the same name is another question.
        verb: What is done with it.
        options: Options of the command besides it: `--all`, `--minutes 5`.
    """
    return asking.read_request(
        folder_of(root, subject, sha256, verb, options), is_answer=lambda value: "covered" in value
    )


def ask(root: Path, subject: Path, sha256: str, verb: Verb, options: Sequence[str] = ()) -> None:
    """Start repeating a run, unless it is being repeated; arguments as of `repeating`.

    Raises:
        OSError: The question could not be written under the root.
    """
    folder = folder_of(root.resolve(), subject, sha256, verb, options)
    arguments = [verb, str(subject.resolve()), *options, "--json", "--json-lines"]
    asking.ask(folder, arguments, limit_seconds=TIME_LIMIT_SECONDS)


def cancel(root: Path, subject: Path, sha256: str, verb: Verb, options: Sequence[str] = ()) -> None:
    """Have it end with everything that it started.

    Raises:
        OSError: The note could not be written down.
    """
    asking.cancel(folder_of(root, subject, sha256, verb, options))


def progress_of(output: str) -> Iterator[Mapping[str, Any]]:
    """Yield how far it is, from what the command printed: a JSON object a line; other lines are words for people."""
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except ValueError:
            continue
        if isinstance(value, dict):
            yield value


def folder_of(root: Path, subject: Path, sha256: str, verb: Verb, options: Sequence[str]) -> Path:
    """Return the folder of a question about repeating, be it there or not; arguments as of `repeating`."""
    asked = "\0".join([verb, subject.name, sha256, *options])
    return launch_folder(root) / _REPEATS / hashlib.sha256(asked.encode("utf-8")).hexdigest()[:24]
