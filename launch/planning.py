"""What a configuration needs before it runs: `trainproof plan` asked beside the page, one answer a configuration."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from evidence.writing import write_text
from launch import asking
from launch.asking import PlanRequest
from launch.jobs.folder import CONFIG, launch_folder
from launch.jobs.program import HOME
from schemas.reading import write_yaml

TIME_LIMIT_SECONDS = 900.0
"""What takes longer is stopped; a model on a slow disk may take minutes to be looked at."""

WATCHED_SECONDS = 150.0
"""What no page has looked at for so long is not wanted any more; a page in the background looks once a minute."""

_PLANS = "plans"
_COMPILING = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-plugin", "jax-cuda12-pjrt", "jax-cuda13-pjrt")
CHECK = ("train", "--check")
"""In place of options: the model and the rows are read as the run reads them, by `trainproof train --check`."""

_ANSWERS = ("need_bytes", "where", "grid", "can_begin")
"""What an answer holds at least one of."""


def planning(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> PlanRequest:
    """Return what is known about the need of a configuration; the answer is `plan.json` unless an option says else.

    Args:
        root: The root of runs.
        config: The configuration, complete.
        options: Flags of `trainproof plan` besides it: `--on t4`, `--grid`. Or `CHECK`.
    """
    return asking.read_request(
        folder_of(root, config, options), is_answer=lambda value: any(name in value for name in _ANSWERS)
    )


def ask(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """Start planning a checked configuration, unless it is being planned.

    Args:
        root: The root of runs.
        config: The configuration, complete.
        options: As of `planning`. They become arguments of a program, so no text of a reader may stand among them.

    Raises:
        OSError: The question could not be written under the root.
    """
    folder = folder_of(root.resolve(), config, options)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / CONFIG, write_yaml(dict(config)))
    verb, *flags = options if tuple(options) == CHECK else ("plan", *options)
    arguments = [verb, "--config", str(folder / CONFIG), *flags, "--json"]
    asking.ask(folder, arguments, limit_seconds=TIME_LIMIT_SECONDS, watched_seconds=WATCHED_SECONDS)


def watch(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """Note that somebody waits for the answer, so that planning goes on."""
    asking.watch(folder_of(root, config, options))


def cancel(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """Have planning end with everything that it started; one that has ended already stays answered.

    Raises:
        OSError: The wish could not be written down.
    """
    asking.cancel(folder_of(root, config, options))


def forget(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> None:
    """Have a question be one that was never asked, unless it is being answered.

    Raises:
        OSError: The answer could not be removed.
    """
    asking.forget(folder_of(root, config, options))


@cache
def planner() -> str:
    """Return what decides an answer besides the question: the planner's own files, and versions of what compiles."""
    digest = hashlib.sha256()
    for file in sorted((HOME / "trainer").rglob("*.py")):
        digest.update(file.read_bytes())
    for package in _COMPILING:
        with suppress(PackageNotFoundError):
            digest.update(f"{package} {version(package)}".encode())
    return digest.hexdigest()


def folder_of(root: Path, config: Mapping[str, Any], options: Sequence[str] = ()) -> Path:
    """Return the folder of the question about a configuration, be it there or not.

    Another version of the program, or a compiler that was installed since, is asked anew: the folder is another one.
    """
    asked = "\0".join([write_yaml(dict(config)), *options, planner()])
    return launch_folder(root) / _PLANS / hashlib.sha256(asked.encode("utf-8")).hexdigest()[:24]
