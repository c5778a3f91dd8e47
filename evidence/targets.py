"""Load the machines that a run can be planned for: the built-in table, or a user's own file."""

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

FILE_ENDINGS = (".yaml", ".yml", ".json")
MOST_NEAR = 3

THIS_MACHINE = "this-machine"
"""Name of the machine that plans; its figures are measured."""

Platform = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine with one or several devices of one kind.

    Attributes:
        name: Value of `--on`.
        title: Name for readers.
        platform: cpu, gpu or tpu.
        device_kinds: Names that JAX may use for its devices, the usual one first.
        devices: Number of devices.
        memory_bytes: Usable memory of one device, or None if the device does not report it.
        memory_source: Where that figure is from.
        memory_bandwidth: Bytes per second of one device, or None if unknown.
        peak_flops: Operations per second of one device by element type: `bfloat16` → 1.97e14.
        element_types: Element types that a device supports.
        interconnect: Bytes per second that one device sends to others, or None if unknown.
        host_memory_bytes: Memory of the host, or None if unknown.
        disk_bytes: Size of the disk, or None if unknown.
        session_seconds: Longest session, or None without a limit.
        week_seconds: Weekly quota, or None without a limit.
        compiler: How the compiler names a device that is not present, or None if it cannot compile for it.
        document: The source document with references and dates.
    """

    name: str
    title: str
    platform: Platform
    device_kinds: tuple[str, ...]
    devices: int
    memory_bytes: int | None
    memory_source: str
    memory_bandwidth: float | None
    peak_flops: Mapping[str, float]
    element_types: tuple[str, ...]
    interconnect: float | None = None
    host_memory_bytes: int | None = None
    disk_bytes: int | None = None
    session_seconds: float | None = None
    week_seconds: float | None = None
    compiler: Mapping[str, Any] | None = None
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kind(self) -> str:
        """The usual JAX name of its devices."""
        return self.device_kinds[0]


def target_from(document: Mapping[str, Any]) -> Target:
    """Build a target from a valid document, in bytes, seconds and operations."""

    def convert(name: str, unit: int) -> float | None:
        return None if document[name] is None else document[name]["value"] * unit

    host_memory, disk = convert("host_memory", GB), convert("disk", GB)
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
        interconnect=convert("interconnect", GB),
        host_memory_bytes=None if host_memory is None else int(host_memory),
        disk_bytes=None if disk is None else int(disk),
        session_seconds=convert("session", HOUR_SECONDS),
        week_seconds=convert("weekly_quota", HOUR_SECONDS),
        compiler=document["compiler"],
        document=document,
    )


@cache
def targets() -> dict[str, Target]:
    """Return the built-in targets by name."""
    text = (files("evidence") / "targets.json").read_text(encoding="utf-8")
    return {document["name"]: target_from(document) for document in json.loads(text)}


def target_names() -> tuple[str, ...]:
    """Return every name that `--on` accepts besides a file."""
    return (*targets(), THIS_MACHINE)


def load_target(name: str) -> Target:
    """Return a built-in target, or the one in a user's file.

    Args:
        name: Name of a built-in target, or path of a YAML file.

    Raises:
        ProblemError: There is no such target, or the file is not valid (exit code 2).
    """
    if (known := targets().get(name)) is not None:
        return known
    if not Path(name).is_file():
        raise ProblemError([target_not_found(name)], exit_code=2)
    read = read_document(Path(name), "target")
    if read.problems or read.value is None:
        raise ProblemError(read.problems, exit_code=2)
    return target_from(read.value)


def find_target(device_kind: str, devices: int | None = None) -> Target | None:
    """Return the built-in target with this JAX device kind, preferably with this number of devices, or None."""
    same = [target for target in targets().values() if device_kind in target.device_kinds]
    exact = [target for target in same if target.devices == devices]
    return next(iter(exact or same), None)


def target_not_found(name: str) -> Problem:
    """Return the problem of an unknown target, with similar names."""
    near = difflib.get_close_matches(name.lower(), target_names(), n=MOST_NEAR, cutoff=0.4)
    is_file = name.endswith(FILE_ENDINGS)
    return problem_of(
        "TP750",
        file="--on",
        what=f"There is no file {name}." if is_file else f"There is no target {name!r}.",
        why=None,
        expected=f"one of: {', '.join(target_names())}; or the path of a target's YAML file",
        next=f"Did you mean {' or '.join(near)}?" if near and not is_file else None,
    )
