"""What a plan states in words: the answer in one sentence, its figures, and advice as settings to put into a form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dashboard.shared.tables.plan_time import Estimate, band_at, limits, share_in_words
from dashboard.shared.words.verdicts import METHODS, method_at, verdict_at
from schemas.formats import count, duration, percent, size
from schemas.problems import Problem, Severity
from schemas.reading import get_bool, get_number, get_objects, get_path, get_str

MOST_ADVICE, MOST_FINDINGS = 8, 30
_HOUR_SECONDS = 3600.0
_BEGINNINGS: Mapping[str, str] = {
    "fits": "Yes, it fits on {target}",
    "tight": "Perhaps: it is tight on {target}",
    "does not fit": "No, it does not fit on {target}",
    "unsupported": "No, {target} does not compute what the configuration asks for",
    "unknown": "How much memory {target} has is not known",
}

Plan = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class Advice:
    """A set of settings that was planned again.

    Attributes:
        settings: As `--set` takes them.
        need: Bytes on each device with them. None: not stated.
        frees: Bytes on each device, negative where more are needed. None: not stated.
    """

    settings: tuple[str, ...]
    verdict: str
    need: float | None
    frees: float | None
    costs: str
    method: str


def target_name(plan: Plan) -> str:
    """Return what the target of a plan is called: its title in the table, or what the device calls itself."""
    return get_str(plan, "target", "title") or get_str(plan, "target", "name") or "unknown device"


def sentence(plan: Plan) -> str:
    """Return the answer: does it fit, how long does it take, and if it does not fit, what would make it fit."""
    verdict = verdict_at(plan, "verdict")
    said = _BEGINNINGS[verdict].format(target=target_name(plan))
    need, available = get_number(plan, "need_bytes"), get_number(plan, "available_bytes")
    if verdict in {"does not fit", "tight"} and need is not None and available is not None:
        said += f": {size(need)} are needed, {size(available)} are usable on each device"
    hours = hours_of(plan)
    if verdict in {"fits", "tight"} and hours is not None:
        said += f", and the whole run takes about {duration(hours.likely * _HOUR_SECONDS)}"
    cure = next((one for one in advice(plan) if one.verdict == "fits"), None)
    if verdict in {"does not fit", "tight"} and cure is not None:
        said += f". With {' and '.join(cure.settings)} it fits" + (f" in {size(cure.need)}" if cure.need else "")
    return f"{said}."


def need_in_words(plan: Plan) -> str:
    """Return what is needed: `12.55 GiB needed on each device ± 17 %`."""
    need, error = get_number(plan, "need_bytes"), get_number(plan, "error_fraction")
    return f"{size(need)} needed on each device" + (f" ± {error * 100:.0f} %" if error is not None else "")


def figures_in_words(plan: Plan) -> list[str]:
    """Return what stands below the sentence, line by line: memory and how it is known, time, sessions, disk."""
    return [
        line for line in (_memory(plan), _time(plan), _shares(plan), _disk(plan), _host(plan), _largest(plan)) if line
    ]


def hours_of(plan: Plan | None) -> Estimate | None:
    """Return how many hours the whole run takes."""
    return band_at(plan, "time", "hours")


def advice(plan: Plan) -> list[Advice]:
    """Return the sets of settings that were planned again; a plan of before 1.1 has single changes."""
    stated = get_objects(plan, "advice")
    if stated:
        return [_advice(one) for one in stated[:MOST_ADVICE] if _settings(one)]
    need = get_number(plan, "need_bytes")
    found = []
    for one in get_objects(plan, "changes")[:MOST_ADVICE]:
        saves, fits = get_number(one, "saves_bytes"), get_bool(one, "fits")
        setting = get_str(one, "set")
        if setting:
            found.append(
                Advice(
                    settings=(setting,),
                    verdict={True: "fits", False: "does not fit", None: "unknown"}[fits],
                    need=None if need is None or saves is None else need - saves,
                    frees=saves,
                    costs="",
                    method=method_at(plan),
                )
            )
    return found


def problems(plan: Plan) -> list[Problem]:
    """Return the findings of a plan, or of a check before training."""
    return [
        Problem(
            code=get_str(one, "code") or "?",
            severity=_severity(get_str(one, "severity")),
            file=get_str(one, "file") or "",
            line=None if (line := get_number(one, "line")) is None else int(line),
            pointer=get_str(one, "pointer"),
            what=get_str(one, "what") or "?",
            why=get_str(one, "why"),
            next=get_str(one, "next") or "?",
        )
        for one in get_objects(plan, "findings")[:MOST_FINDINGS]
    ]


def _memory(plan: Plan) -> str:
    target = f"{get_number(plan, 'target', 'devices') or 1:.0f} × {get_str(plan, 'target', 'name') or 'unknown device'}"
    if verdict_at(plan, "verdict") == "unsupported":
        return ""
    how = method_at(plan) or METHODS["closed_form"]
    each = "each of " if (get_number(plan, "target", "devices") or 1) > 1 else ""
    return f"{size(get_number(plan, 'available_bytes'))} available on {each}{target}; {how}."


def _time(plan: Plan) -> str:
    hours, step = hours_of(plan), band_at(plan, "time", "step_seconds")
    if hours is None or step is None:
        return ""
    tokens, real = get_number(plan, "time", "tokens"), get_number(plan, "time", "real_tokens")
    said = (
        f"The whole run takes {_from_to(hours.low * _HOUR_SECONDS, hours.high * _HOUR_SECONDS)}, "
        f"a step {_from_to(step.low, step.high)}"
    )
    if tokens:
        said += f" for {count(tokens)} tokens" + (f", {percent(real / tokens)} of them real" if real else "")
    drawn = get_str(plan, "time", "rollout", "because")
    return f"{said}. {drawn}." if drawn else f"{said}."


def _shares(plan: Plan) -> str:
    within = {one.name: one.seconds for one in limits(plan)}
    said = [
        share_in_words(band_at(plan, "time", f"{name}_fraction"), name, within.get(name))
        for name in ("session", "week")
    ]
    words = ", ".join(one for one in said if one)
    stated = get_path(plan, "time", "sessions")
    sessions = stated[1] if isinstance(stated, list) and len(stated) == 3 and isinstance(stated[1], int) else None
    if sessions is not None and sessions > 1:
        weeks = get_number(plan, "time", "weeks")
        words += f"; it takes {count(sessions)} sessions" + (f" in {count(weeks)} weeks" if weeks and weeks > 1 else "")
    elif isinstance(stated, list) and sessions is None:
        words += "; no number of sessions is enough"
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _disk(plan: Plan) -> str:
    need, available = get_number(plan, "disk", "need_bytes"), get_number(plan, "disk", "available_bytes")
    if need is None:
        return ""
    of = f" of {size(available)}" if available is not None else ""
    return f"Checkpoints take {size(need)}{of} on disk{': too little' if available and need > available else ''}."


def _host(plan: Plan) -> str:
    need, available = get_number(plan, "host", "need_bytes"), get_number(plan, "host", "available_bytes")
    if need is None:
        return ""
    of = f" of {size(available)}" if available is not None else ""
    too_little = ": too little" if available and need > available else ""
    return f"Saving and exporting take {size(need)}{of} of the machine's own memory{too_little}."


def _largest(plan: Plan) -> str:
    batch, need = get_number(plan, "max_batch", "microbatch_size"), get_number(plan, "max_batch", "need_bytes")
    length = get_number(plan, "max_batch", "max_length")
    if not batch or not length:
        return ""
    return f"The largest microbatch that fits is {count(batch)} × {count(length)} tokens, {size(need)}."


def _from_to(low: float, high: float) -> str:
    return duration(low) if low == high else f"{duration(low)} to {duration(high)}"


def _settings(one: Mapping[str, Any]) -> tuple[str, ...]:
    stated = get_path(one, "set")
    return tuple(text for text in stated if isinstance(text, str)) if isinstance(stated, list) else ()


def _advice(one: Mapping[str, Any]) -> Advice:
    return Advice(
        settings=_settings(one),
        verdict=verdict_at(one, "verdict"),
        need=get_number(one, "need_bytes"),
        frees=get_number(one, "frees_bytes"),
        costs=get_str(one, "costs") or "",
        method=method_at(one),
    )


def _severity(stated: str | None) -> Severity:
    if stated == "error":
        return "error"
    return "warning" if stated == "warning" else "note"
