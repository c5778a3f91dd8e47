"""The run that `--resume auto` continues: the newest that can be, beside the output folder and in what Kaggle attaches.

The rule: a run of the same name and mode that has not reached its end, whose checkpoint `--resume RUN` would accept.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from evidence.layout import CHECKPOINTS, CONFIG, MANIFEST
from evidence.lock import is_alive
from evidence.writing import write_error
from schemas.formats import quantity
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.evaluation.recorded import is_evaluated
from trainer.loop.checkpoints import latest_step
from trainer.recorder.environment import attached_folder, walk_attached
from trainer.recorder.recorder import refuse_folder
from trainer.resume import manifest_of

AUTO = "auto"
"""What `--resume` takes instead of a folder."""

UNFIT = frozenset({"TP050", "TP051", "TP052", "TP053", "TP054", "TP055"})
"""Problems of a run to continue, all found before anything is written: the next one is tried."""

SPOILED = "non_finite"
"""How the failure that every continuation would have again begins in a manifest."""


@dataclass(frozen=True, kw_only=True)
class FoundRuns:
    """What was found to continue from."""

    folders: tuple[Path, ...]
    """Runs that can be continued as far as their documents state, the newest first."""
    said: tuple[str, ...]
    """Why others cannot, a line each."""


def find_runs(config: Config, beside: Path) -> FoundRuns:
    """Return the runs that a configuration may go on from.

    A run is left out where a later one continued it to its end.

    Args:
        config: of the run that would continue one.
        beside: folder of runs; those in it are looked at, and all below `attached_folder`.
    """
    folders, said, others = [], [], 0
    ended: set[str] = set()  # runs that were continued to the end
    read = [(folder, manifest_of(folder)) for folder in run_folders(beside)]
    for folder, manifest in sorted(read, key=lambda each: started_at(each[1]), reverse=True):
        reason = None
        try:
            before = load_config(folder / CONFIG)
        except ProblemError as error:
            reason = f"its configuration cannot be read: {error.problems[0].what}"
        else:
            if (before.name, before.mode) != (config.name, config.mode):
                others += 1
                continue
        if reason is None:
            reason = reason_against(folder, manifest, config, ended=ended)
        if reason is None:
            folders.append(folder)
        else:
            said.append(f"not continued: {folder}: {reason}")
    if others:
        than = f"{config.name}, {config.mode}"
        said.append(f"not continued: {quantity(others, 'run')} of another name or mode than {than}")
    return FoundRuns(folders=tuple(folders), said=tuple(said))


def reason_against(folder: Path, manifest: dict[str, Any] | None, config: Config, *, ended: set[str]) -> str | None:
    """Return why a run of the same name cannot be continued, None where it can.

    Args:
        folder: of the run.
        manifest: of the run. None: there is no valid one.
        config: of the run that would continue it.
        ended: ids of runs that were continued to their end; those before an ended one are added.
    """
    if manifest is None:
        return f"its {MANIFEST} is damaged"
    if manifest["run_id"] in ended or is_ended(folder, manifest, config):
        how = "was continued to its end" if manifest["run_id"] in ended else "has reached its end"
        ended.update({manifest["parent"]["run_id"]} if manifest["parent"] else ())
        return f"it {how}"
    if is_alive(folder):
        return "a process is writing it"
    if manifest["exit"] and (manifest["exit"]["error"] or "").startswith(SPOILED):
        return "it failed because its numbers were not finite, and its continuation would too"
    if latest_step(folder) is None:
        return "it has no complete checkpoint"
    return None


def is_ended(folder: Path, manifest: dict[str, Any], config: Config) -> bool:
    """Return whether a run has all that it was to have: every step, and its evaluation if a set is named."""
    done = max(latest_step(folder) or 0, (manifest["training"] or {}).get("steps_done") or 0)
    return done >= config.limits.steps and (config.evaluation.eval_set is None or is_evaluated(folder))


def awaits_evaluation(folder: Path, config: Config) -> bool:
    """Return whether a run has every step of the configuration, and lacks the evaluation that both declare."""
    if config.evaluation.eval_set is None or (latest_step(folder) or 0) < config.limits.steps or is_evaluated(folder):
        return False
    try:
        return load_config(folder / CONFIG).evaluation.eval_set == config.evaluation.eval_set
    except ProblemError:
        return False


def own_folder(folder: Path, output: Path) -> Path:
    """Return a run's folder, or a copy of it where it was attached read-only: an evaluation is added to a folder.

    Args:
        folder: of the run.
        output: a copy lies beside it, under the id of the run, with the newest checkpoint alone.

    Raises:
        ProblemError: exit code 2; another run or file lies there.
    """
    if attached_folder().resolve() not in folder.resolve().parents:
        return folder
    copy = output.with_name(folder.resolve().name)
    refuse_folder(copy)
    newest, part = str(latest_step(folder)), copy.with_name(f".{copy.name}.part")

    def older(parent: str, names: list[str]) -> list[str]:
        return [name for name in names if name.isdecimal() and name != newest] if parent == checkpoints else []

    checkpoints = str(folder / CHECKPOINTS)
    try:
        shutil.rmtree(part, ignore_errors=True)  # of a session that ended while it copied
        shutil.copytree(folder, part, ignore=older, copy_function=shutil.copyfile)
        for parent, _, _ in os.walk(part):
            Path(parent).chmod(0o755)  # it was copied with its rights
        part.rename(copy)
    except OSError as error:
        raise write_error(error, copy, what="The copy of the attached run") from error
    return copy


def started_at(manifest: dict[str, Any] | None) -> float:
    """Return when a run began, in seconds since 1970; 0 where its manifest is damaged."""
    return 0.0 if manifest is None else datetime.fromisoformat(manifest["started_at"]).timestamp()


def run_folders(beside: Path) -> Iterator[Path]:
    """Yield the folders of runs in one folder, and all below `attached_folder`."""
    if beside.is_dir():
        yield from (path for path in sorted(beside.iterdir()) if (path / MANIFEST).is_file())
    for folder, folders, files in walk_attached():
        if MANIFEST in files:
            folders.clear()
            if folder.parent.resolve() != beside.resolve():
                yield folder


def free_folder(folder: Path) -> Path:
    """Return a folder for a new run: the one given, or where it is taken the next free one, as in `full-2`."""
    number, found = 1, folder
    while found.is_dir() and any(found.iterdir()):
        number += 1
        found = folder.with_name(f"{folder.name}-{number}")
    return found
