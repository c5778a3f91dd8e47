"""One machine's figures in bytes, seconds and operations, as a document of the kind `target` states them."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from schemas.problems import Problem, ProblemError, problem_of
from schemas.validate import read_document

GIB = 2**30
GB = 10**9
TERA = 10**12
HOUR_SECONDS = 3600

Platform = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine with one or several devices of one kind."""

    name: str
    """What `--on` takes."""
    title: str
    platform: Platform
    device_kinds: tuple[str, ...]
    """What JAX may call one of its devices; the first is the usual one."""
    devices: int
    memory_bytes: int | None
    """Memory of one device that programs may use. None: the device does not state it."""
    memory_source: str
    memory_bandwidth: float | None
    """Bytes a second, one device. None: not known."""
    peak_flops: Mapping[str, float]
    """Operations a second of one device by element type: `bfloat16` → 1.97e14."""
    element_types: tuple[str, ...]
    """Element types that a device computes with."""
    interconnect: float | None = None
    """Bytes a second that one device sends to others. None: not known."""
    host_memory_bytes: int | None = None
    disk_bytes: int | None = None
    session_seconds: float | None = None
    """Longest time in one go. None: without limit."""
    week_seconds: float | None = None
    """Time in a week. None: without limit."""
    compiler: Mapping[str, Any] | None = None
    """How the compiler names a device that is not here. None: it cannot compile for it."""
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """The document that all of this is from, with sources and dates."""

    @property
    def kind(self) -> str:
        """What JAX usually calls one of its devices."""
        return self.device_kinds[0]


def target_from(document: Mapping[str, Any]) -> Target:
    """Return the target of a valid document.

    Example: a memory of 15.75 GiB is 16,911,433,728 bytes; a session of 9 hours is 32,400 seconds.
    """
    return Target(
        name=document["name"],
        title=document["title"],
        platform=document["platform"],
        device_kinds=tuple(document["device_kinds"]),
        devices=document["devices"],
        memory_bytes=int(document["memory"]["value"] * GIB),
        memory_source=document["memory"]["source"],
        memory_bandwidth=document["memory_bandwidth"]["value"] * GB,
        peak_flops={name: figure["value"] * TERA for name, figure in document["peak"].items()},
        element_types=tuple(document["element_types"]["value"]),
        interconnect=_in(GB, document["interconnect"]),
        host_memory_bytes=_whole(_in(GB, document["host_memory"])),
        disk_bytes=_whole(_in(GB, document["disk"])),
        session_seconds=_in(HOUR_SECONDS, document["session"]),
        week_seconds=_in(HOUR_SECONDS, document["weekly_quota"]),
        compiler=document["compiler"],
        document=document,
    )


def _in(unit: int, figure: Mapping[str, Any] | None) -> float | None:
    """Return a figure in the smaller unit, or None if it is missing."""
    return None if figure is None else figure["value"] * unit


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


THIS_MACHINE = "this-machine"
"""The name of the machine that plans: its figures are measured on it, not looked up."""


OWN_ENDINGS = (".yaml", ".yml", ".json")
MOST_NEAR = 3


@cache
def targets() -> dict[str, Target]:
    """Return the targets of the table by name, in its order."""
    text = (files("evidence") / "targets" / "targets.json").read_text(encoding="utf-8")
    return {document["name"]: target_from(document) for document in json.loads(text)}


def target_names() -> tuple[str, ...]:
    """Return every name that `--on` takes besides a file."""
    return (*targets(), THIS_MACHINE)


def target_of(name: str) -> Target:
    """Return a target of the table, or the one that a user's own file describes.

    Args:
        name: a name of the table, or the path of a YAML file; `this-machine` is for the trainer, which measures it.

    Raises:
        ProblemError: exit code 2; there is no such target, or everything that is wrong with the file.
    """
    if (known := targets().get(name)) is not None:
        return known
    path = Path(name)
    if path.is_file():
        return _from_file(path)
    raise ProblemError([no_target(name)], exit_code=2)


def target_of_kind(device_kind: str, devices: int | None = None) -> Target | None:
    """Return the target of the table whose devices JAX calls so, the one with as many devices where there is one."""
    same = [target for target in targets().values() if device_kind in target.device_kinds]
    exact = [target for target in same if target.devices == devices]
    return next(iter(exact or same), None)


def no_target(name: str) -> Problem:
    """Return the problem of a name that means no target, with the nearest names."""
    near = difflib.get_close_matches(name.lower(), target_names(), n=MOST_NEAR, cutoff=0.4)
    is_file = name.endswith(OWN_ENDINGS)
    return problem_of(
        "TP750",
        file="--on",
        what=f"There is no file {name}." if is_file else f"There is no target {name!r}.",
        why=None,
        expected=f"one of: {', '.join(target_names())}; or the path of a target's YAML file",
        next=f"Did you mean {' or '.join(near)}?" if near and not is_file else None,
    )


def _from_file(path: Path) -> Target:
    """Return the target that a file describes.

    Raises:
        ProblemError: exit code 2; everything that is wrong with it.
    """
    read = read_document(path, "target")
    if read.problems or read.value is None:
        raise ProblemError(read.problems, exit_code=2)
    return target_from(read.value)
