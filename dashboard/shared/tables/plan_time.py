"""What a plan states of time, made safe: bands, the parts of a session, limits, and shares of them in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schemas.formats import duration
from schemas.reading import get_number, get_objects, get_str

PARTS = ("install", "compile", "load", "train", "save", "evaluate", "export")
"""Parts of a session, in the order in which they happen."""

_MOST_SECONDS = 1e10


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A figure that is not known exactly."""

    low: float
    likely: float
    high: float


@dataclass(frozen=True, kw_only=True)
class TimePart:
    """One thing that the time of a session goes to."""

    name: str
    seconds: Estimate
    because: str


@dataclass(frozen=True, kw_only=True)
class Limit:
    """The longest time there is: of a session, of a week."""

    name: str
    seconds: float


def band_at(document: Mapping[str, Any] | None, *path: str) -> Estimate | None:
    """Return a band of a document, or None if it is not one: low to high, from zero on."""
    low, likely, high = (get_number(document, *path, end) for end in ("low", "likely", "high"))
    if low is None or likely is None or high is None or not 0 <= low <= likely <= high <= _MOST_SECONDS:
        return None
    return Estimate(low=low, likely=likely, high=high)


def parts(plan: Mapping[str, Any] | None) -> list[TimePart]:
    """Return what the time of a planned run goes to, in the order in which it happens; empty where it is not known."""
    found = {}
    for one in get_objects(plan, "time", "session"):
        name, seconds = get_str(one, "name") or "", band_at(one, "seconds")
        if name in PARTS and seconds is not None:
            found[name] = TimePart(name=name, seconds=seconds, because=get_str(one, "because") or "")
    return [found[name] for name in PARTS if name in found]


def total(found: Sequence[TimePart]) -> Estimate:
    """Return what all parts take, one after the other."""
    return Estimate(
        low=sum(part.seconds.low for part in found),
        likely=sum(part.seconds.likely for part in found),
        high=sum(part.seconds.high for part in found),
    )


def limits(plan: Mapping[str, Any] | None) -> list[Limit]:
    """Return how long a session and a week's quota of the target are, as far as there is a limit."""
    named = (("session", "session_seconds"), ("week", "week_seconds"))
    stated = [(name, get_number(plan, "time", key)) for name, key in named]
    return [
        Limit(name=name, seconds=value) for name, value in stated if value is not None and 0 < value < _MOST_SECONDS
    ]


def share_in_words(band: Estimate | None, name: str, seconds: float | None) -> str:
    """Return a share of a limit in words: `57 % of a session of 9 h (29 to 114 %)`; empty if it is missing."""
    if band is None or not seconds:
        return ""
    low, likely, high = (
        (f"{100 * value:.0f}" if value >= 0.095 else f"{100 * value:.1g}")
        for value in (band.low, band.likely, band.high)
    )
    whole = duration(seconds).replace(" 00 min", "")
    return f"{likely} % of a {name} of {whole}" + (f" ({low} to {high} %)" if low != high else "")
