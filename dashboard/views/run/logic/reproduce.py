"""How to make a run again: the commands, what must be the same, and what stands in the way.

Everything is taken from the run's own documents. What they do not state is named, never guessed.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.bundle.secrets import hide_secrets, strip_invisible
from evidence.layout import CONFIG
from launch.resuming import is_forced
from schemas import formats
from schemas.reading import get_bool, get_number, get_path, get_str

Document = Mapping[str, Any]

REQUIREMENTS = "requirements.txt"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """What a stranger needs to make a run again.

    Attributes:
        typed: The command as it was given, one line for a shell; secrets in it hidden. Empty: not stated.
        steps: Commands that make the run again from its own folder, in their order.
        requirements: The packages as a file for pip; empty where none is stated.
        facts: What must be the same: what, its value, where it is stated.
        gaps: Why the run cannot be made again exactly, as sentences; empty where nothing is known to stand in the way.
    """

    typed: str
    steps: tuple[str, ...]
    requirements: str
    facts: tuple[tuple[str, str, str], ...]
    gaps: tuple[str, ...]


def recipe(manifest: Document, config: Document | None, plan: Document | None, *, name: str) -> Recipe:
    """Return how to make the run again.

    Args:
        manifest: The run's manifest, valid or not.
        config: Its resolved configuration. None: it cannot be read.
        plan: What was planned before it. None: nothing that can be read.
        name: Name of its folder.
    """
    return Recipe(
        typed=_typed_packages(manifest),
        steps=tuple(_steps(manifest, name, forced=is_forced(plan, manifest))),
        requirements=_requirements(manifest),
        facts=tuple(_facts(manifest)),
        gaps=tuple(_gaps(manifest, config)),
    )


def _typed_packages(manifest: Document) -> str:
    command = get_path(manifest, "command")
    if not isinstance(command, list):
        return ""
    return hide_secrets(_line(command))


def _steps(manifest: Document, name: str, *, forced: bool) -> Iterator[str]:
    commit = get_str(manifest, "code", "commit")
    if commit and re.fullmatch("[0-9a-f]{7,64}", commit):
        yield f"git checkout {commit}"
    if _requirements(manifest):
        yield f"pip install -r {REQUIREMENTS}"
    parent = get_str(manifest, "parent", "run_id")
    source = ["--resume", parent] if parent else ["--config", CONFIG]
    force = ["--force"] if forced else []
    yield _line(["trainproof", "train", *source, "--output", f"{name}-again", *force])
    yield _line(["trainproof", "compare", name, f"{name}-again"])


def _line(command: Sequence[object]) -> str:
    """Return a command as one line for a shell, whose words stand in the order in which they are read."""
    return shlex.join(strip_invisible(str(part)).replace("\n", " ") for part in command)


def _requirements(manifest: Document) -> str:
    """Return the packages as pip takes them; an invalid name or version is left out, since pip would obey it."""
    packages = get_path(manifest, "environment", "packages")
    if not isinstance(packages, Mapping):
        return ""
    lines = [
        f"{package}=={version}\n"
        for package, version in sorted(packages.items())
        if isinstance(version, str) and _NAME.fullmatch(str(package)) and _VERSION.fullmatch(version)
    ]
    return "".join(lines)


def _facts(manifest: Document) -> Iterator[tuple[str, str, str]]:
    for what, path in (
        ("Code, commit", ("code", "commit")),
        ("Code, uncommitted changes", ("code", "diff_sha256")),
        ("trainproof", ("code", "version")),
        ("Python", ("environment", "python")),
        ("Operating system", ("environment", "os")),
        ("Device", ("devices", "kind")),
        ("Number of devices", ("devices", "count")),
        ("Model", ("model", "name")),
        ("Model, revision", ("model", "revision")),
        ("First parameters, SHA-256", ("model", "weights_sha256")),
        ("Data set", ("dataset", "name")),
        ("Data set, SHA-256", ("dataset", "sha256")),
        ("Rows generated besides", ("dataset", "generated_rows")),
        ("Seed of generated rows", ("dataset", "generator_seed")),
        ("Seed of the run", ("training", "seed")),
    ):
        value = get_path(manifest, *path)
        shown = formats.NOTHING if value is None else hide_secrets(str(value))
        yield what, shown, ".".join(path)
    flags = get_path(manifest, "environment", "flags")
    for flag, value in sorted(flags.items()) if isinstance(flags, Mapping) else ():
        yield "Environment variable", hide_secrets(f"{flag}={value}"), "environment.flags"


def _gaps(manifest: Document, config: Document | None) -> Iterator[str]:
    """Yield what stands in the way, worst first."""
    if get_bool(manifest, "code", "dirty") is True:
        digest = get_str(manifest, "code", "diff_sha256") or "not stated"
        yield (
            "The code had uncommitted changes. They cannot be checked out; only their hash is known: "
            f"{digest}. Commit before a run that counts."
        )
    if get_str(manifest, "code", "commit") is None:
        yield "The commit is not stated, so the code is not known. Run from a git checkout."
    if config is None:
        yield f"{CONFIG} is missing or cannot be read, so the settings are not known in full."
    if not _requirements(manifest):
        yield "No package versions are stated, so other versions may give other numbers."
    if get_str(manifest, "dataset", "sha256") is None:
        yield "The training data has no hash, so other data cannot be compared with it."
    if get_str(manifest, "model", "weights") == "pretrained" and get_str(manifest, "model", "revision") is None:
        yield "The model has no revision, and what its name points to may change."
    parent = get_str(manifest, "parent", "run_id")
    if parent is not None:
        step = formats.count(get_number(manifest, "parent", "step"))
        yield f"The run continues {parent} from step {step}. Make that run first; its checkpoint is needed."
    if get_str(manifest, "devices", "platform") in {"gpu", "tpu"}:
        yield "Another kind of device adds in another order: the last digits will differ."
