"""What differs between a run's rows and those of its repetition: where first, in which part of a step, by how much.

A processor with other instructions, or another number of threads, adds in another order. The first step then differs
in the last bits of its loss, and training carries that on, so that more is allowed the more steps lie behind the common
state. The table `tolerances.json` is made by `benchmarks/replay_tolerance.py`: for each element type of the products,
the largest difference relative to the larger value that was seen up to some number of steps, and a stated factor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

FLOOR = 1e-6
"""Values below it count as this large, so that two that are nearly 0 are not far apart."""


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """What is allowed where products have one element type."""

    factor: float
    """How many times what was measured is allowed."""
    least: float
    """What is allowed at least: a few units in the last place of float32, in which losses and norms are added up."""
    measured: Mapping[str, tuple[tuple[int, float], ...]]
    """By field: up to how many steps, and the largest relative difference seen up to there, ascending."""

    @property
    def floor(self) -> float:
        """Values below it count as this large."""
        return FLOOR

    @property
    def most_steps(self) -> int:
        """Steps up to which anything was measured."""
        return max(steps for pairs in self.measured.values() for steps, _ in pairs)

    def allowed(self, field: str, *, steps: int) -> float:
        """Return the largest relative difference that is allowed some steps after a common state.

        Beyond what was measured nothing more is allowed than at its end. A field without a table is held to the
        loss's.
        """
        pairs = self.measured.get(field, self.measured["loss"])
        seen = next((worst for most, worst in pairs if steps <= most), pairs[-1][1])
        return max(self.factor * seen, self.least)


@cache
def tolerance_of(compute: str) -> Tolerance:
    """Return what is allowed where products are computed in an element type: float32, bfloat16 or float16."""
    table: dict[str, Any] = json.loads((files("trainer") / "replay" / "tolerances.json").read_text(encoding="utf-8"))
    measured = {
        field: tuple((int(steps), float(worst)) for steps, worst in pairs)
        for field, pairs in table["measured"][compute].items()
    }
    return Tolerance(factor=table["factor"], least=table["least"], measured=measured)


Verdict = Literal["identical", "within tolerance", "different", "not tried"]

OF_THIS_MACHINE = frozenset(
    {"step_seconds", "tokens_per_second", "mfu", "device_memory_bytes", "time", "clock_seconds"}
    | {"rollout_seconds", "update_seconds", "held_out_seconds"}
)
"""Fields of a row that no repetition gives again."""

SINCE_THE_ROW_BEFORE = frozenset({"padding_fraction", "tokens_per_step"})
"""Fields that are of all steps since the row before."""

EXACT = frozenset({"step", "tokens_seen", "padding_fraction", "tokens_per_step"})
"""Fields that are counts of the data, equal on every machine."""

PARTS = (
    ("rows", (*SINCE_THE_ROW_BEFORE, "tokens_seen"), "the rows that it learned from"),
    ("loss", ("loss",), "its loss"),
    ("gradient", ("grad_norm",), "its gradient"),
    ("learning rate", ("learning_rate",), "its learning rate"),
)
"""Parts of a step in the order in which they follow from each other: name, fields, words."""


@dataclass(frozen=True, kw_only=True)
class FieldDifference:
    """One value of a row that the repetition does not give."""

    step: int
    field: str
    stated: Any
    found: Any


def row_differences(
    stated: Mapping[str, Any], found: Mapping[str, Any], *, is_whole: bool
) -> Iterator[FieldDifference]:
    """Yield the fields of a row that differ in any bit, the data's first; what the run does not state is not compared.

    Args:
        stated: the run's row.
        found: the repetition's.
        is_whole: whether both count the same steps since the row before.
    """
    fields = [*(field for _, fields, _ in PARTS for field in fields), *sorted(stated)]
    for field in dict.fromkeys(fields):
        if field == "tokens_seen" and "padding_fraction" not in stated:
            continue  # such a row counts padding too
        if field not in stated or field in OF_THIS_MACHINE or (field in SINCE_THE_ROW_BEFORE and not is_whole):
            continue
        if stated[field] != found.get(field):
            yield FieldDifference(step=stated["step"], field=field, stated=stated[field], found=found.get(field))


def is_tolerated(difference: FieldDifference, tolerance: Tolerance, *, steps: int) -> bool:
    """Return whether another machine of the kind may give that other value.

    Args:
        difference: of one field.
        tolerance: what was measured.
        steps: since both had the same state.
    """
    if difference.field in EXACT:
        return False
    stated, found = difference.stated, difference.found
    allowed = tolerance.allowed(difference.field, steps=steps)
    if not (isinstance(stated, int | float) and isinstance(found, int | float)):
        return allowed >= 1  # one of them was not finite, which is wholly apart
    scale = max(abs(stated), abs(found), tolerance.floor)
    return abs(stated - found) <= allowed * scale


def locate_difference(
    differences: Sequence[FieldDifference], *, is_same_state: bool | None, agreed: int, step: int
) -> str:
    """Return where a segment differs first and in what, in a sentence or two with both values.

    Args:
        differences: of its rows, in their order.
        is_same_state: whether the state at its end is the one that the chain states. None: none is stated.
        agreed: the last step up to which everything was found equal.
        step: with which the segment ends.
    """
    if not differences:
        where = f"step {step}" if step == agreed + 1 else f"steps {agreed + 1} to {step}"
        return (
            f"The state after step {step} is not the one that the chain states, while every row before it is: the "
            f"update of {where} was another one (optimizer, learning rate, clipping or rounding)."
        )
    first = differences[0]
    _, words = part_of(first.field)
    since = f", of which step {agreed + 1} is the first that may differ" if first.step > agreed + 1 else ""
    values = f"{first.field} is {_number(first.stated)} in the run and {_number(first.found)} here"
    said = f"Step {first.step} is the first row that differs{since}, in {words}: {values}."
    if is_same_state:
        return (
            f"{said} The state after step {step} is the one that the chain states, so the run did train so, and the "
            "row is not what it measured."
        )
    more = len({each.step for each in differences}) - 1
    return f"{said} {more} more rows differ after it." if more else said


def part_of(field: str) -> tuple[str, str]:
    """Return the part of a step to which a field belongs: its name, and in words."""
    for name, fields, words in PARTS:
        if field in fields:
            return name, words
    return field, f"its {field}"


def _number(value: Any) -> str:
    return "not stated" if value is None else f"{value!r}"
