"""Answers that a compiler has given, kept on disk by everything that decides them."""

from __future__ import annotations

import hashlib
import json
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import ModuleType
from typing import Any

import trainer
from evidence.hashes import sha256_json
from trainer.recorder.cache_folder import folder

VERSIONS = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-pjrt", "jax-cuda13-pjrt")
"""Packages that decide what a program is compiled to."""

NO_PART_OF_A_PROGRAM = ("name", "mode", "checkpoint", "recording", "seed")
"""Groups of a configuration that no program depends on."""

NO_PART_OF = {
    "draw": ("batch", "data", "evaluation"),
    "start": ("batch", "data", "evaluation"),
    "train": ("evaluation",),
    "decode": ("batch", "data", "limits", "optimizer"),
    "rollout": ("evaluation", "limits", "optimizer"),
    "export": ("batch", "data", "evaluation", "limits", "optimizer"),
}
"""Groups that one program does not depend on either: a change of the evaluation leaves the train step as it was."""


def key_of(question: dict[str, Any]) -> str:
    """Return the name under which an answer is kept: a hash of the question, versions and the program's own source."""
    nothing_to_it = (*NO_PART_OF_A_PROGRAM, *NO_PART_OF[question["program"].partition("_")[0]])
    config = {key: value for key, value in question["config"].items() if key not in nothing_to_it}
    everything = {**question, "config": config, "versions": versions(), "source": source_digest()}
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def kept(key: str) -> dict[str, Any] | None:
    """Return what is kept under a key, None where nothing is, or something else than was written."""
    try:
        found = json.loads((folder() / "plans" / f"{key}.json").read_text(encoding="utf-8"))
        is_whole = isinstance(found, dict) and found.get("sha256") == sha256_json(found.get("answer"))
    except (OSError, ValueError):
        return None
    answer: dict[str, Any] | None = found["answer"] if is_whole else None
    return answer


def keep(key: str, answer: dict[str, Any]) -> None:
    """Keep an answer; a folder that cannot be written to keeps none, and the next plan asks again."""
    room = folder() / "plans"
    with suppress(OSError):
        room.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=room, suffix=".new", delete=False, encoding="utf-8") as file:
            json.dump({"sha256": sha256_json(answer), "answer": answer}, file)
        Path(file.name).replace(room / f"{key}.json")


@cache
def versions() -> dict[str, str]:
    """Return the versions of what compiles; a package that is not installed has none."""
    found = {}
    for package in VERSIONS:
        with suppress(PackageNotFoundError):
            found[package] = version(package)
    return found


@cache
def source_digest(*packages: ModuleType) -> str:
    """Return a hash of this program's own files that decide what is compiled, and of the packages named.

    Args:
        packages: others than the trainer that an answer is made by.
    """
    digest = hashlib.sha256()
    for package in (trainer, *packages):
        folder_of = Path(package.__path__[0])
        for file in sorted(folder_of.rglob("*.py")):
            digest.update(file.relative_to(folder_of).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
