"""A training as a strip of its parts: repeated alike, repeated with a difference, under way, not tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from types import MappingProxyType
from typing import Any

from dashboard.shared.words.grades import Sign
from schemas.formats import count
from schemas.reading import get_path

VERDICTS: Mapping[str, Sign] = MappingProxyType(
    {
        "identical": Sign(symbol="✓", tone="good", meaning="The same to the last bit: state, losses, gradient norms."),
        "within tolerance": Sign(
            symbol="≈", tone="fair", meaning="As close as another device or version comes; the bounds were measured."
        ),
        "different": Sign(symbol="≠", tone="bad", meaning="Not what the run states."),
        "under way": Sign(symbol="▸", tone="fair", meaning="It is being repeated now."),
        "planned": Sign(symbol="…", tone="quiet", meaning="Its turn comes."),
        "not tried": Sign(symbol="", tone="quiet", meaning="Nobody repeated it here."),
    }
)
"""What may come of a part of the training."""


@dataclass(frozen=True)
class StripPart:
    """Some steps of a training.

    Attributes:
        first_step: Step after which it begins.
        last_step: Step at which it ends.
        verdict: One of `VERDICTS`.
        difference: First step and part that differ, with both values; empty for none.
    """

    first_step: int
    last_step: int
    verdict: str
    difference: str = ""


def parts_so_far(events: Iterable[Mapping[str, Any]], *, steps: int) -> list[StripPart]:
    """Return the parts of a training of so many steps while it is being repeated, from what the command reports."""
    known: dict[tuple[int, int], StripPart] = {}
    for event in events:
        kind = event.get("event")
        if kind == "planned":
            planned = event.get("segments")
            known |= {each: StripPart(each[0], each[1], "planned") for each in _ends(planned)}
        elif kind == "segment":
            for part in _parts([event]):
                known[part.first_step, part.last_step] = part
        elif kind == "step" and isinstance(step := event.get("step"), int):
            for ends, part in known.items():
                if part.verdict == "planned" and ends[0] < step <= ends[1]:
                    known[ends] = StripPart(ends[0], ends[1], "under way")
    return _with_gaps(known.values(), steps=steps)


def parts_of(receipt: Mapping[str, Any], *, steps: int) -> list[StripPart]:
    """Return the parts of a training of so many steps by a receipt for it."""
    return _with_gaps(_parts(get_path(receipt, "covered", "segments")), steps=steps)


def strip(parts: Sequence[StripPart]) -> str:
    """Return the strip as HTML: widths by steps, a symbol in each part, its steps and verdict on hover.

    A part of no step, the start weights, is as wide as its symbol.
    """
    cells = "".join(
        f'<span class="tp-part tp-{VERDICTS[part.verdict].tone}{" tp-hatched" if part.verdict == "not tried" else ""}" '
        f'style="flex-grow:{part.last_step - part.first_step}" title="{escape(describe(part), quote=True)}">'
        f"{VERDICTS[part.verdict].symbol}</span>"
        for part in parts
    )
    whole = "; ".join(describe(part) for part in parts)
    return f'<div class="tp-strip" role="img" aria-label="{escape(whole, quote=True)}">{cells}</div>'


def describe(part: StripPart) -> str:
    """Return a part in words: `steps 1 to 40: identical`."""
    if part.last_step == part.first_step:
        where = "start weights" if part.first_step == 0 else f"state after step {count(part.first_step)}"
    else:
        where = f"steps {count(part.first_step + 1)} to {count(part.last_step)}"
    return f"{where}: {part.verdict}" + (f". {part.difference}" if part.difference else "")


def _parts(found: Any) -> list[StripPart]:
    return [
        StripPart(first, last, verdict, str(one.get("difference") or ""))
        for one in (found if isinstance(found, list) else [])
        for first, last in _ends([one])
        if (verdict := one.get("verdict")) in VERDICTS
    ]


def _ends(found: Any) -> list[tuple[int, int]]:
    pairs = [
        (one.get("first_step"), one.get("last_step"))
        for one in (found if isinstance(found, list) else [])
        if isinstance(one, dict)
    ]
    return [
        (first, last)
        for first, last in pairs
        if isinstance(first, int) and isinstance(last, int) and 0 <= first <= last
    ]


def _with_gaps(parts: Iterable[StripPart], *, steps: int) -> list[StripPart]:
    """Return parts in order with what lies between them as not tried."""
    whole: list[StripPart] = []
    reached = 0
    for part in sorted(parts, key=lambda part: (part.first_step, part.last_step)):
        if part.first_step > reached:
            whole.append(StripPart(reached, part.first_step, "not tried"))
        whole.append(part)
        reached = max(reached, part.last_step)
    if reached < steps:
        whole.append(StripPart(reached, steps, "not tried"))
    return whole
