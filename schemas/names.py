"""The names of data and models in a configuration: built in, a file, a folder, or on the hub.

The trainer finds things by these rules; the launch form, which never imports it, says the same when one is missing.
"""

from __future__ import annotations

import difflib
import re
from contextlib import suppress
from pathlib import Path

from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of

NO_ROWS = Rule("TP010", "No such dataset", "The name is neither built in nor a file.", "Check the name or the path.")
NO_MODEL = Rule(
    "TP040",
    "No such model",
    "It is not built in, not a folder on this machine, and not written like a hub name (owner/model).",
    "Name a built-in model or a folder.",
)

DATASETS = ("dev-reasoning-v2", "dev-stories-v1")
EVAL_SETS = ("eval_v1", "eval_v2", "eval_stories_v1")
MODELS = ("demo", "tiny-gpt2")

HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")


def no_dataset(name: str) -> Problem | None:
    """Return why a dataset cannot be found, None where it is built in, a file or a folder of the datasets library."""
    if (Path(name) / "state.json").is_file() or (Path(name) / "dataset_dict.json").is_file():
        return None  # a folder of the datasets library
    return _no_rows(name, builtin=DATASETS, what="dataset", flag="--dataset")


def no_eval_set(name: str) -> Problem | None:
    """Return why an evaluation set cannot be found, None where it is built in or a file."""
    return _no_rows(name, builtin=EVAL_SETS, what="evaluation set", flag="--set evaluation.eval_set")


def no_model(name: str) -> Problem | None:
    """Return why nothing can have this name, None for a built-in model, a folder, or a name as the hub has them."""
    if name in MODELS or model_folder(name) is not None or is_hub_name(name):
        return None
    return problem_of(NO_MODEL, file=name, what=f"There is no model {name}.", next=other_models(name))


def model_folder(name: str) -> Path | None:
    """Return the folder that a model's name means, None where it is not a folder."""
    with suppress(RuntimeError):  # the `~user` does not exist on this machine
        folder = Path(name).expanduser()
        return folder if folder.is_dir() else None
    return None


def is_hub_name(name: str) -> bool:
    """Return whether the name is written like one on the hub: `owner/model`, or `model` alone as `gpt2`."""
    return HUB_NAME.fullmatch(name) is not None


def other_models(name: str) -> str:
    """Return what to name instead: the nearest built-in model as a question, then everything that works offline."""
    near = difflib.get_close_matches(name, MODELS, n=1)
    question = f"Did you mean {near[0]}? " if near else ""
    return (
        f"{question}Name a built-in model ({', '.join(MODELS)}), "
        "or a local folder with config.json, safetensors and tokenizer."
    )


def _no_rows(name: str, *, builtin: tuple[str, ...], what: str, flag: str) -> Problem | None:
    if name in builtin or Path(name).is_file():
        return None
    near = difflib.get_close_matches(name, builtin, n=1)
    hint = f"Did you mean {near[0]}? Else give" if near else "Give"
    return problem_of(
        NO_ROWS,
        file=name,
        what=f"There is no {what} {name!r}: it is not built in, and no such file exists.",
        why=None,
        expected=f"a built-in name ({', '.join(builtin)}) or the path of a JSONL file",
        next=f"{hint} {flag} one of these.",
    )
