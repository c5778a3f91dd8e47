"""Load the machines that a run can be planned for: the built-in table, or a user's own file."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

from schemas.problems import Problem, ProblemError, problem_of
from schemas.validate import read_document

GIB, GB, TERA, HOUR_SECONDS = 2**30, 10**9, 10**12, 3600

THIS_MACHINE = "this-machine"  # name of the machine that plans; its figures are measured

Platform = Literal["cpu", "gpu", "tpu"]


@dataclass(frozen=True, kw_only=True)
class Target:
    """A machine with one or several devices of one kind. None means an unknown figure or no limit.

    Memory, rates and `interconnect` are of one device, in bytes, bytes per second and operations per second by element
    type (`bfloat16` → 1.97e14); `memory_bytes` is the usable part, from `memory_source`. `device_kinds` are the names
    that JAX may use, the usual one first. `session_seconds` is the longest session, `week_seconds` the weekly quota,
    and `compiler` how the compiler names a device that is not present, or None if it cannot compile for it.
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

    @property
    def kind(self) -> str:
        """The usual JAX name of the devices."""
        return self.device_kinds[0]


def _target(document: Mapping[str, Any]) -> Target:
    """Build a target from a valid document, in bytes, seconds and operations."""

    def scaled(name: str, unit: int) -> Any:
        return None if document[name] is None else document[name]["value"] * unit

    def scaled_int(name: str, unit: int) -> int | None:
        return None if document[name] is None else int(document[name]["value"] * unit)

    return Target(
        **{name: document[name] for name in ("name", "title", "platform", "devices", "compiler")},
        device_kinds=tuple(document["device_kinds"]),
        memory_bytes=scaled_int("memory", GIB),
        memory_source=document["memory"]["source"],
        memory_bandwidth=scaled("memory_bandwidth", GB),
        peak_flops={name: figure["value"] * TERA for name, figure in document["peak"].items()},
        element_types=tuple(document["element_types"]["value"]),
        interconnect=scaled("interconnect", GB),
        host_memory_bytes=scaled_int("host_memory", GB),
        disk_bytes=scaled_int("disk", GB),
        session_seconds=scaled("session", HOUR_SECONDS),
        week_seconds=scaled("weekly_quota", HOUR_SECONDS),
    )


@cache
def targets() -> dict[str, Target]:
    """Return the built-in targets by name."""
    text = (files("evidence") / "targets.json").read_text(encoding="utf-8")
    return {document["name"]: _target(document) for document in json.loads(text)}


def target_names() -> tuple[str, ...]:
    """Return every name that `--on` accepts."""
    return (*targets(), THIS_MACHINE)


def load_target(name: str) -> Target:
    """Load a built-in target by name or a user's YAML file by path; raise ProblemError if it is not valid."""
    if name in targets():
        return targets()[name]
    if not Path(name).is_file():
        raise ProblemError([_not_found(name)], exit_code=2)
    read = read_document(Path(name), "target")
    if read.problems or read.value is None:
        raise ProblemError(read.problems, exit_code=2)
    return _target(read.value)


def find_target(device_kind: str, devices: int | None = None) -> Target | None:
    """Return the built-in target with this JAX device kind, preferably with this number of devices, or None."""
    same = [target for target in targets().values() if device_kind in target.device_kinds]
    return max(same, key=lambda target: target.devices == devices, default=None)


def _not_found(name: str) -> Problem:
    near = difflib.get_close_matches(name.lower(), target_names(), n=3, cutoff=0.4)
    is_file = name.endswith((".yaml", ".yml", ".json"))
    what = f"There is no file {name}." if is_file else f"There is no target {name!r}."
    expected = f"one of: {', '.join(target_names())}; or the path of a target's YAML file"
    fix = f"Did you mean {' or '.join(near)}?" if near and not is_file else None
    return problem_of("TP750", file="--on", what=what, why=None, expected=expected, next=fix)
