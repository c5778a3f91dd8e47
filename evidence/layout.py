"""Names of the files in a run folder, run ids, and the folders of this user."""

from __future__ import annotations

import atexit
import contextlib
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterable
from datetime import datetime
from functools import cache
from pathlib import Path
from types import MappingProxyType

from schemas.problems import Problem, problem_of

MANIFEST = "run_manifest.json"
CONFIG = "config.yaml"
PLAN = "plan.json"
METRICS = "metrics.jsonl"
LOG = "log.jsonl"
SYSTEM = "system.jsonl"  # sensor readings of the machine, every few seconds
CHAIN = "chain.jsonl"
ROLLOUTS = "rollouts.jsonl"  # sampled completions and their rewards, at some training steps
ANSWERS_OVER_STEPS = "answers_over_steps.jsonl"  # answers to some evaluation items during training
FIRST_EXAMPLES = "first_examples.json"
PREDICTIONS = "predictions.jsonl"
BASELINE_PREDICTIONS = "baseline_predictions.jsonl"
EVAL_SUMMARY = "eval_summary.json"
TRAINED_PARAMS = "trained_params.safetensors"
"""Final trained parameters of a small run, so that others can query the model."""
STATES = "states"  # folder of small train states from which a replay can start; listed and packed as evidence
LOCK = "run.lock"

IMPORT = "import.json"  # what was read from the folder of another tool; replaces the manifest
ORIGINAL = "original"  # folder with the original files of an imported run
NOTES = "notes.json"  # tags, note and archived flag that a user added later; not evidence
STAMPS = "stamps.json"  # replies of timestamping authorities; added last, so no file list contains it
SESSION = "session.json"  # where a remote place ran it; written when its bundle was fetched
RECEIPTS = "receipts"  # folder with results of others who replayed the run; added later, so no file list contains it
PROFILE = ".profile"  # folder with a trace of some steps; hidden, so that it is neither checked nor packed

CHECKPOINTS, ADAPTER, EXPORT, GGUF = WEIGHT_FOLDERS = ("checkpoints", "adapter", "export", "gguf")
"""Folders of weights, which are never committed, hashed or packed unless requested."""

SWEEPS = ".sweeps"  # folder next to runs with a folder for each sweep
SWEEP = "sweep.json"  # all trials of a sweep
CHOOSING, HELD_BACK = "choosing.jsonl", "held_back.jsonl"  # evaluation items that score the trials, or only the best

PROGRAMS = "compiled_programs"  # folder next to runs with the compiled programs of a session
DEEPEST = 64  # largest depth of nested folders that is read

_EVIDENCE = (
    CONFIG, PLAN, METRICS, LOG, SYSTEM, CHAIN, ROLLOUTS, ANSWERS_OVER_STEPS, FIRST_EXAMPLES, PREDICTIONS,
    BASELINE_PREDICTIONS, EVAL_SUMMARY, TRAINED_PARAMS,
)  # fmt: skip
ROLES = MappingProxyType({name: Path(name).stem for name in _EVIDENCE})
"""Role of each evidence file in the artifact list of the manifest; other files have the role `other`."""
_COMMON = {CONFIG, PLAN, TRAINED_PARAMS}  # names that other programs use too; a folder with only these is not a run
_LFS_POINTER = b"version https://git-lfs.github.com/spec/"


def holds_run(names: Iterable[str]) -> bool:
    """Return whether a folder with these files holds a run: only runs use some names."""
    return bool((({MANIFEST, IMPORT} | ROLES.keys()) - _COMMON) & set(names))


def is_weight_file(path: str) -> bool:
    """Return whether a file of a run is in a folder of weights."""
    return path.partition("/")[0] in WEIGHT_FOLDERS


def holds_weights(path: str) -> bool:
    """Return whether a file of a run contains arrays instead of text."""
    return path == TRAINED_PARAMS or path.startswith(f"{STATES}/") or is_weight_file(path)


def is_lfs_pointer(path: Path) -> bool:
    """Return whether a file is a Git LFS pointer instead of its content."""
    with path.open("rb") as file:
        return file.read(len(_LFS_POINTER)) == _LFS_POINTER


def new_run_id(name: str, now: datetime) -> str:
    """Return a run id that sorts by start time: `demo-20261120-153012-9f3a` for `demo` at 15:30:12.

    The random suffix separates runs that start in the same second.
    """
    return f"{name}-{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


def run_not_found(folder: Path) -> Problem:
    """Return the problem of a run folder that does not exist."""
    return problem_of("TP091", file=str(folder), what=f"{folder} does not exist.", why=None)


def nested_too_deep(folder: Path) -> Problem:
    """Return the problem of a folder that is nested deeper than any run."""
    what = f"The folder is nested more than {DEEPEST} levels deep in the run; it was not read."
    return problem_of("TP209", file=str(folder), what=what, next="Check that this is the right folder.")


def user_folder(variable: str, *below_home: str) -> Path:
    """Return the folder of trainproof in the folder of an XDG variable, or in the home folder if that is not set.

    Without a home folder, as in a container with a bare user id, it is in a temporary folder of this user.
    """
    if parent := os.environ.get(variable):
        return Path(parent) / "trainproof"
    try:
        home = Path.home()
    except RuntimeError:
        home = _temporary_home()
    return home.joinpath(*below_home, "trainproof")


def user_data_folder() -> Path:
    """Return the folder for this user's secret, receipts and trusted keys."""
    return user_folder("XDG_DATA_HOME", ".local", "share")


@cache
def _temporary_home() -> Path:
    """Return a folder that no other user can write to, deleted at exit if its usual name is taken."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        folder = Path(tempfile.gettempdir()) / f"trainproof-{user}"
    except FileNotFoundError:  # no folder can be written, so nothing is stored
        return Path(os.devnull)
    with contextlib.suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077:
        return folder
    own = tempfile.mkdtemp(prefix="trainproof-")
    atexit.register(shutil.rmtree, own, ignore_errors=True)
    return Path(own)
