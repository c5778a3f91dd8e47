"""What was observed of a run's memory, beside the figure of its plan that speaks of the same memory.

An allocator's peak is of arrays, as a plan's programs are (`need_bytes`). The growth of a process on a CPU has
libraries and compiled programs in it, so it stands beside the arrays and what the plan adds for the process.
What runs of version 1.1 counted on a CPU is left out: the plan's own figure was part of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from schemas.reading import get_number, get_str

Document = Mapping[str, Any] | None

COUNTED_BY_DEVICE = "reported by the device"
"""Source of an observed peak in manifests of version 1.1."""
PROCESS_ERROR = 0.3
"""How far the growth of a process may be from its plan: 28 % at most in the cases of benchmarks/observed_memory.py."""


@dataclass(frozen=True, kw_only=True)
class ObservedMemory:
    """An observed peak, and what was planned for it."""

    observed_bytes: float
    planned_bytes: float | None
    """None: the plan does not speak of this memory."""
    error_fraction: float | None
    """How far the plan may be off, by its own words; None: it does not state it."""
    of: str
    """Whose memory: `arrays on a device` or `the process`."""
    part: str | None
    """Part of the run that took most, or None if it is not known."""


def observed_memory(plan: Document, manifest: Document) -> ObservedMemory | None:
    """Return the observed peak of a run, or None if nothing but its plan states it."""
    if (grown := get_number(manifest, "result", "observed_memory", "bytes")) is not None:
        part = get_str(manifest, "result", "observed_memory", "part")
        if get_str(manifest, "result", "observed_memory", "source") == "process_growth":
            return ObservedMemory(
                observed_bytes=grown,
                planned_bytes=_process_bytes(plan),
                error_fraction=PROCESS_ERROR,
                of="the process",
                part=part,
            )
        return _of_arrays(plan, grown, part)
    arrays = get_number(manifest, "result", "peak_arrays", "bytes")
    if arrays is not None and get_str(manifest, "result", "peak_arrays", "source") == COUNTED_BY_DEVICE:
        return _of_arrays(plan, arrays, get_str(manifest, "result", "peak_arrays", "program"))
    peak = get_number(manifest, "result", "peak_memory_bytes")
    if peak is None or get_str(manifest, "devices", "platform") in (None, "cpu"):
        return None
    return _of_arrays(plan, peak, None)


def _process_bytes(plan: Document) -> float | None:
    """Return what a plan states of a process on a CPU: the arrays of all its devices, and what it takes beside them."""
    need, beside = get_number(plan, "need_bytes"), get_number(plan, "target", "process_bytes")
    devices = get_number(plan, "target", "devices")
    return None if need is None or beside is None or devices is None else need * devices + beside


def _of_arrays(plan: Document, observed: float, part: str | None) -> ObservedMemory:
    return ObservedMemory(
        observed_bytes=observed,
        planned_bytes=get_number(plan, "need_bytes"),
        error_fraction=get_number(plan, "error_fraction"),
        of="arrays on a device",
        part=part,
    )
