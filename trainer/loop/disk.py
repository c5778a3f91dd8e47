"""Room on the disk for checkpoints: refused before anything is spent."""

from __future__ import annotations

import shutil
from pathlib import Path

from schemas.problems import ProblemError, problem_of
from trainer.config.tree import Config
from trainer.loop.checkpoint_format import bytes_of
from trainer.loop.state import state_shapes
from trainer.loop.task import Task


def most_at_once(config: Config) -> int:
    """Return how many checkpoints lie on the disk at one time: an old one goes when the new one is whole."""
    every = config.checkpoint.save_every_steps
    saved = 1 if every == 0 else 1 + (config.limits.steps - 1) // every
    return min(saved, config.checkpoint.keep + 1) + (config.checkpoint.keep_best is not None)


def refuse_no_room(run_folder: Path, task: Task) -> None:
    """Refuse a run whose checkpoints the disk has no room for, before anything is spent.

    Raises:
        ProblemError: exit code 2.
    """
    there = next(folder for folder in (run_folder, *run_folder.resolve().parents) if folder.is_dir())
    free = shutil.disk_usage(there).free
    state_bytes = bytes_of(state_shapes(task))
    at_once = most_at_once(task.config)
    if free >= state_bytes * at_once:
        return
    several = (
        f"{at_once} checkpoints of {state_bytes:,} bytes" if at_once > 1 else f"a checkpoint of {state_bytes:,} bytes"
    )
    fewer = ", keep fewer with --set checkpoint.keep=1," if at_once > 2 else ""
    problem = problem_of(
        "TP722",
        file=str(run_folder),
        what=f"The disk has no room for the run: it will hold {several} at a time, and {free:,} are free.",
        why="A run whose last state cannot be saved would be spent for nothing.",
        next=f"Free space there{fewer} or give --output a folder on another disk.",
    )
    raise ProblemError([problem], exit_code=2)
