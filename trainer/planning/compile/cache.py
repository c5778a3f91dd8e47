"""Answers that a compiler has given, kept on disk by everything that decides them."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import trainer

FOLDER = "TRAINPROOF_CACHE"
"""Environment variable with the folder that answers are kept in."""

VERSIONS = ("jax", "jaxlib", "flax", "optax", "libtpu", "jax-cuda12-pjrt", "jax-cuda13-pjrt")
"""Packages that decide what a program is compiled to."""

NO_PART_OF_A_PROGRAM = ("name", "mode", "checkpoint", "recording", "seed")
"""Groups of a configuration that no program depends on."""

NO_PART_OF = {
    "draw": ("batch", "data", "evaluation"),
    "start": ("batch", "data", "evaluation"),
    "train": ("evaluation",),
    "decode": ("batch", "data", "limits", "optimizer"),
    "export": ("batch", "data", "evaluation", "limits", "optimizer"),
}
"""Groups that one program does not depend on either: a change of the evaluation leaves the train step as it was."""


def folder() -> Path:
    """Return where answers are kept: `$TRAINPROOF_CACHE`, else the user's cache folder."""
    if stated := os.environ.get(FOLDER):
        return Path(stated)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trainproof"


def key_of(question: dict[str, Any]) -> str:
    """Return the name under which an answer is kept: a hash of the question, versions and the program's own source."""
    nothing_to_it = (*NO_PART_OF_A_PROGRAM, *NO_PART_OF[question["program"].partition("_")[0]])
    config = {key: value for key, value in question["config"].items() if key not in nothing_to_it}
    everything = {**question, "config": config, "versions": versions(), "source": source_digest()}
    return hashlib.sha256(json.dumps(everything, sort_keys=True).encode()).hexdigest()


def kept(key: str) -> dict[str, Any] | None:
    """Return what is kept under a key, None where nothing readable is."""
    try:
        found = json.loads((folder() / "plans" / f"{key}.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def keep(key: str, answer: dict[str, Any]) -> None:
    """Keep an answer; a folder that cannot be written to keeps none, and the next plan asks again."""
    room = folder() / "plans"
    with suppress(OSError):
        room.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile("w", dir=room, suffix=".new", delete=False, encoding="utf-8") as file:
            json.dump(answer, file)
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
def source_digest() -> str:
    """Return a hash of this program's own files that decide what is compiled and how an answer is made of it."""
    digest = hashlib.sha256()
    package = Path(trainer.__file__).parent
    for file in sorted(package.rglob("*.py")):
        digest.update(file.relative_to(package).as_posix().encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()
