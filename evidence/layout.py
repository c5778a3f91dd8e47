"""The names of the files in a run folder, what each is for, and how a run gets its name."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from types import MappingProxyType

from schemas.problems.problem import Problem
from schemas.problems.rule import problem_of

MANIFEST = "run_manifest.json"
CONFIG = "config.yaml"
PLAN = "plan.json"
METRICS = "metrics.jsonl"
LOG = "log.jsonl"
SYSTEM = "system.jsonl"
"""Figures of the machine's sensors, every few seconds."""
CHAIN = "chain.jsonl"
ROLLOUTS = "rollouts.jsonl"
"""What was sampled in training by rewards, at some steps."""
ANSWERS_OVER_STEPS = "answers_over_steps.jsonl"
"""What the model answered to some items of the evaluation set while it was trained."""
FIRST_EXAMPLES = "first_examples.json"
PREDICTIONS = "predictions.jsonl"
BASELINE_PREDICTIONS = "baseline_predictions.jsonl"
EVAL_SUMMARY = "eval_summary.json"
TRAINED_PARAMS = "trained_params.safetensors"
"""The trained parameters at the end of a run, where they are small: with them a stranger can question the model."""
STATES = "states"
"""Folder of a run for small train states from which a judge can begin; listed and packed as evidence."""
LOCK = "run.lock"

IMPORT = "import.json"
"""What was read from the folder of another tool; stands in place of a manifest."""
ORIGINAL = "original"
"""Folder of an imported run that holds the files it was read from."""

NOTES = "notes.json"
"""Tags and a note that a user gave the run afterwards, and whether it is archived; their words, not evidence."""

STAMPS = "stamps.json"
"""Answers of time authorities about the run; the last stamp is of the manifest, so no list of the run names it."""

RECEIPTS = "receipts"
"""Folder of a run for what others found who repeated it; added afterwards, so no list of the run names it."""

PROFILE = ".profile"
"""Folder of a run for a trace of some steps; hidden, so that it is neither judged nor packed."""

CHECKPOINTS = "checkpoints"
ADAPTER = "adapter"
EXPORT = "export"
GGUF = "gguf"

WEIGHT_FOLDERS = (CHECKPOINTS, ADAPTER, EXPORT, GGUF)
"""Folders of a run that hold weights: never committed, hashed or packed unless requested."""

PROGRAMS = "compiled_programs"
"""Folder beside the runs of a session for what they compiled."""

DEEPEST = 64
"""Folders inside each other that are looked into; no run has so many."""


def is_ignored_dir(name: str) -> bool:
    """Return whether a folder of this name in a root holds no run: it is hidden, or holds compiled programs."""
    return name.startswith(".") or name == PROGRAMS


def holds_weights(path: str) -> bool:
    """Return whether a file of a run, by its path inside it, holds arrays: it is not a text."""
    return path == TRAINED_PARAMS or path.startswith(f"{STATES}/") or in_weight_folder(path)


def in_weight_folder(path: str) -> bool:
    """Return whether a file of a run, by its path inside it, lies in a folder for weights."""
    return path.partition("/")[0] in WEIGHT_FOLDERS


ROLES = MappingProxyType(
    {
        CONFIG: "config",
        PLAN: "plan",
        METRICS: "metrics",
        LOG: "log",
        SYSTEM: "system",
        CHAIN: "chain",
        ROLLOUTS: "rollouts",
        ANSWERS_OVER_STEPS: "answers_over_steps",
        FIRST_EXAMPLES: "first_examples",
        PREDICTIONS: "predictions",
        BASELINE_PREDICTIONS: "baseline_predictions",
        EVAL_SUMMARY: "eval_summary",
        TRAINED_PARAMS: "trained_params",
    }
)
"""Role of each evidence file in the manifest's artifact list; any other file has the role `other`."""


_COMMON = {CONFIG, PLAN, TRAINED_PARAMS}
"""Names that files elsewhere have too; a folder with nothing else is not a run."""


def holds_run(names: Iterable[str]) -> bool:
    """Return whether a folder with files of these names is a run: one of them is a file that only a run writes."""
    return bool((({MANIFEST, IMPORT} | ROLES.keys()) - _COMMON) & set(names))


def new_run_id(name: str, now: datetime) -> str:
    """Return a run id that sorts by start time: `demo-20261120-153012-9f3a` for `demo` at 15:30:12.

    The four hexadecimal digits are random, so that two runs started in the same second differ.
    """
    return f"{name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def run_not_found(folder: Path) -> Problem:
    """Return the problem of a run folder that was named and is missing."""
    what = f"{folder} is not a run: there is no such folder."
    return problem_of("TP091", file=str(folder), what=what, why=None)


def nested_too_deep(folder: Path) -> Problem:
    """Return the problem of a folder inside more others than any run has."""
    what = f"The folder is nested more than {DEEPEST} levels deep in the run; it was not read."
    return problem_of("TP209", file=str(folder), what=what, next="Check that this is the folder that is meant.")


_BEGINS = b"version https://git-lfs.github.com/spec/"


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is the pointer that Git LFS leaves in place of a file.

    Raises:
        OSError: it cannot be read.
    """
    with path.open("rb") as file:
        return file.read(len(_BEGINS)) == _BEGINS
