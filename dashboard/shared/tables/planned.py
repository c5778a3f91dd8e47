"""Contents of a plan: the answer in one sentence, its figures, programs, time and advice.

Plans come from run folders too, so every value is checked: what is missing or impossible becomes None.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dashboard.shared.words import METHODS, get_method, get_verdict, program_name
from schemas.formats import count, duration, duration_range, number, percent, size
from schemas.problems import Problem, Severity
from schemas.reading import get_number, get_objects, get_path, get_str

_MAX_ADVICE = 8
_MAX_FINDINGS = 30
_MAX_PROGRAMS = 8
_MAX_PARTS = 24
_MAX_BYTES = 2**60
_MAX_SECONDS = 1e10
_PHASES = ("install", "compile", "load", "train", "save", "evaluate", "export")
_HOUR_SECONDS = 3600.0
_ANSWERS: Mapping[str, str] = {
    "fits": "Fits on {target}",
    "tight": "May run out of memory on {target}",
    "does not fit": "Does not fit on {target}",
    "unsupported": "Cannot run on {target}",
    "unknown": "The memory of {target} is unknown",
}

Plan = Mapping[str, Any]


class Estimate(NamedTuple):
    """A range and its most likely value."""

    low: float
    likely: float
    high: float


class TimePart(NamedTuple):
    """A phase of a run and how long it takes."""

    name: str
    seconds: Estimate
    because: str


class MemoryPart(NamedTuple):
    """A part of the memory of a compiled program at its peak."""

    program: str
    is_on_host: bool
    verdict: str
    peak: float
    limit: float | None
    name: str
    bytes: float
    because: str


def get_bytes(document: Mapping[str, Any] | None, *path: str) -> float | None:
    """Read a number of bytes, or None if no machine could have so many."""
    value = get_number(document, *path)
    return value if value is not None and 0 <= value <= _MAX_BYTES else None


def get_band(document: Mapping[str, Any] | None, *path: str) -> Estimate | None:
    """Read an estimate, or None unless 0 ≤ low ≤ likely ≤ high."""
    low, likely, high = (get_number(document, *path, end) for end in ("low", "likely", "high"))
    if low is None or likely is None or high is None or not 0 <= low <= likely <= high <= _MAX_SECONDS:
        return None
    return Estimate(low, likely, high)


def sentence(plan: Plan) -> str:
    """Answer whether it fits, how long it takes and, if it does not fit, what would make it fit."""
    verdict = get_verdict(plan, "verdict")
    target = get_str(plan, "target", "title") or get_str(plan, "target", "name") or "an unknown device"
    answer = _ANSWERS[verdict].format(target=target)
    if verdict == "unsupported":
        return f"{answer}."
    available, hours = get_bytes(plan, "available_bytes"), get_band(plan, "time", "hours")
    limit = "" if available is None else f" of {size(available)}"
    text = f"{answer}: needs {size(get_bytes(plan, 'need_bytes'))}{limit}{_per_device(plan)}"
    if verdict != "does not fit" and hours is not None:
        text += f", takes about {duration(hours.likely * _HOUR_SECONDS)}"
    cure = next((one for one in advice(plan) if get_verdict(one, "verdict") == "fits"), None)
    if verdict in {"does not fit", "tight"} and cure is not None:
        text += f". It fits with {' and '.join(settings(cure))} ({size(get_bytes(cure, 'need_bytes'))})"
    return f"{text}."


def need_in_words(plan: Plan) -> str:
    """Return the memory that is needed: `12.55 GiB per device ± 17 %`."""
    return f"{size(get_bytes(plan, 'need_bytes'))}{_per_device(plan)}{_error(plan)}"


def details(plan: Plan) -> list[str]:
    """Return a line each for how memory was estimated, the time, quotas, disk and the host."""
    if get_verdict(plan, "verdict") == "unsupported":
        return []
    method = get_method(plan) or METHODS["closed_form"]
    largest = max(get_objects(plan, "programs"), key=lambda one: get_bytes(one, "peak_bytes") or 0, default=plan)
    reason = get_str(largest, "because") or ""  # of a formula: why nothing was compiled
    how = reason if reason.startswith(method) else method
    devices, name = get_number(plan, "target", "devices") or 1, get_str(plan, "target", "name") or "unknown device"
    lines = [f"Memory on {count(devices)} × {name}{_error(plan)}, {how}.", _time_line(plan), _quota_line(plan)]
    needs = {"disk": "Checkpoints need {} of disk space", "host": "Saving and exporting need {} of host memory"}
    for key, template in needs.items():
        need, available = get_bytes(plan, key, "need_bytes"), get_bytes(plan, key, "available_bytes")
        if need is not None:
            lack = ", too little" if available is not None and need > available else ""
            limit = "" if available is None else f"; {size(available)} are available{lack}"
            lines.append(f"{template.format(size(need))}{limit}.")
    return [line for line in lines if line]


def memory_parts(plan: Mapping[str, Any] | None) -> list[MemoryPart]:
    """Read the parts of every program; plans before version 1.1 only have the largest program."""
    programs = get_objects(plan, "programs")[:_MAX_PROGRAMS]
    if not programs and plan is not None:
        programs = [{**plan, "name": "train", "peak_bytes": plan.get("need_bytes")}]
    return [
        MemoryPart(
            program=program_name(get_str(program, "name")),
            is_on_host=get_str(program, "on") == "host",
            verdict=get_verdict(program, "verdict"),
            peak=peak,
            limit=get_bytes(program, "available_bytes") or None,
            name=get_str(part, "name") or "?",
            bytes=value,
            because=get_str(part, "because") or "",
        )
        for program in programs
        if (peak := get_bytes(program, "peak_bytes"))
        for part in get_objects(program, "parts")[:_MAX_PARTS]
        if (value := get_bytes(part, "bytes"))
    ]


def time_parts(plan: Mapping[str, Any] | None) -> list[TimePart]:
    """Read the phases of a run in the order in which they happen."""
    found = {}
    for one in get_objects(plan, "time", "session"):
        name, seconds = get_str(one, "name") or "", get_band(one, "seconds")
        if seconds is not None and seconds.likely > 0:
            found[name] = TimePart(name=name, seconds=seconds, because=get_str(one, "because") or "")
    return [found[name] for name in _PHASES if name in found]


def advice(plan: Plan) -> list[Mapping[str, Any]]:
    """Return the objects of a plan's advice that have settings."""
    return [one for one in get_objects(plan, "advice")[:_MAX_ADVICE] if settings(one)]


def settings(advice: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the settings of an advice as `--set` takes them."""
    stated = get_path(advice, "set")
    return tuple(text for text in stated if isinstance(text, str)) if isinstance(stated, list) else ()


def problems(plan: Plan) -> list[Problem]:
    """Read the findings of a plan, or of `trainproof train --check`."""
    severities: Mapping[str | None, Severity] = {"error": "error", "warning": "warning"}
    return [
        Problem(
            code=get_str(one, "code") or "?",
            severity=severities.get(get_str(one, "severity"), "note"),
            file=get_str(one, "file") or "",
            line=None if (line := get_number(one, "line")) is None else int(line),
            pointer=get_str(one, "pointer"),
            what=get_str(one, "what") or "?",
            why=get_str(one, "why"),
            next=get_str(one, "next") or "?",
        )
        for one in get_objects(plan, "findings")[:_MAX_FINDINGS]
    ]


def _per_device(plan: Plan) -> str:
    return " per device" if (get_number(plan, "target", "devices") or 1) > 1 else ""


def _error(plan: Plan) -> str:
    error = get_number(plan, "error_fraction")
    return "" if error is None else f" ± {100 * error:.0f} %"


def _time_line(plan: Plan) -> str:
    step, hours = get_band(plan, "time", "step_seconds"), get_band(plan, "time", "hours")
    if step is None or hours is None:
        return ""
    tokens, real = get_number(plan, "time", "tokens"), get_number(plan, "time", "real_tokens")
    padding = f" ({percent(1 - real / tokens)} padding)" if tokens and real is not None and real <= tokens else ""
    batch = f" of {count(tokens)} padded tokens{padding}" if tokens else ""
    run = duration_range(hours.low * _HOUR_SECONDS, hours.high * _HOUR_SECONDS)
    rollout = get_str(plan, "time", "rollout", "because")
    each = duration_range(step.low, step.high)
    return f"{run} in total, {each} per step{batch}." + (f" {rollout}." if rollout else "")


def _quota_line(plan: Plan) -> str:
    """Format shares of the limits: `57 % of a 9 h 00 min session (29 to 114 %)`; and the number of sessions."""
    parts = []
    names = {"session": "a {} session", "week": "the weekly quota of {}"}
    for name, limit in names.items():
        seconds, share = get_number(plan, "time", f"{name}_seconds"), get_band(plan, "time", f"{name}_fraction")
        if seconds and 0 < seconds < _MAX_SECONDS and share is not None:
            low, likely, high = (number(100 * value, 2) for value in (share.low, share.likely, share.high))
            interval = f" ({low} to {high} %)" if low != high else ""
            parts.append(f"{likely} % of {limit.format(duration(seconds))}{interval}")
    stated = get_path(plan, "time", "sessions")
    if isinstance(stated, list) and len(stated) == 3:
        likely, weeks = stated[1], get_number(plan, "time", "weeks")
        if likely is None:
            parts.append("cannot finish in any number of sessions")
        elif isinstance(likely, int) and likely > 1:
            parts.append(f"{count(likely)} sessions" + (f" in {count(weeks)} weeks" if weeks and weeks > 1 else ""))
    return f"{', '.join(parts)}." if parts else ""
