"""Compare recorded and replayed rows: find the first difference, describe it, and decide whether it is tolerated.

Other CPU instructions or another number of threads change the order of additions. The loss of the first step then
differs in its last bits, and training amplifies that, so the tolerance grows with the steps since a common state.
`benchmarks/replay_tolerance.py` writes `tolerances.json`: for each compute dtype, the largest relative difference
measured up to some number of steps, and a safety factor.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal

FLOOR = 1e-6
"""Smallest denominator of a relative difference."""

MACHINE_FIELDS = frozenset(
    {"step_seconds", "tokens_per_second", "mfu", "device_memory_bytes", "time", "clock_seconds"}
    | {"rollout_seconds", "update_seconds", "held_out_seconds"}
)
"""Fields of a row that depend on the machine and are not compared."""

AVERAGED_FIELDS = frozenset({"padding_fraction", "tokens_per_step"})
"""Fields that average over all steps since the row before."""

EXACT_FIELDS = frozenset({"step", "tokens_seen"}) | AVERAGED_FIELDS
"""Fields that count data and are equal on every machine."""

FIELD_NAMES: Mapping[str, str] = {
    "padding_fraction": "training data",
    "tokens_per_step": "training data",
    "tokens_seen": "training data",
    "loss": "loss",
    "grad_norm": "gradient",
    "learning_rate": "learning rate",
}
"""Names of fields for messages, in the order in which a step computes them."""

Verdict = Literal["identical", "within tolerance", "different", "not tried"]


@dataclass(frozen=True, kw_only=True)
class FieldDifference:
    """A value of a row that the replay does not reproduce."""

    step: int
    field: str
    recorded: Any
    replayed: Any


@dataclass(frozen=True, kw_only=True)
class Tolerance:
    """Tolerance of one compute dtype."""

    factor: float
    """Factor by which the measured differences may be exceeded."""
    least: float
    """Smallest tolerance: a few units in the last place of float32, in which losses and norms are summed."""
    measured: Mapping[str, tuple[tuple[int, float], ...]]
    """Largest relative difference by field, as pairs of (maximum number of steps, difference), ascending."""

    @property
    def max_steps(self) -> int:
        """Largest number of steps that was measured."""
        return max(steps for pairs in self.measured.values() for steps, _ in pairs)

    def allowed(self, field: str, *, steps: int) -> float:
        """Return the largest accepted relative difference some steps after a common state.

        It does not grow beyond the measured range. Fields that were not measured use the tolerance of the loss.
        """
        pairs = self.measured.get(field, self.measured["loss"])
        seen = next((worst for most, worst in pairs if steps <= most), pairs[-1][1])
        return max(self.factor * seen, self.least)

    def accepts(self, difference: FieldDifference, *, steps: int) -> bool:
        """Return whether other hardware explains a difference some steps after a common state."""
        if difference.field in EXACT_FIELDS:
            return False
        recorded, replayed = difference.recorded, difference.replayed
        allowed = self.allowed(difference.field, steps=steps)
        if not (isinstance(recorded, int | float) and isinstance(replayed, int | float)):
            return allowed >= 1  # one of them is not finite, a relative difference of 1
        return abs(recorded - replayed) <= allowed * max(abs(recorded), abs(replayed), FLOOR)


@cache
def load_tolerance(compute: str) -> Tolerance:
    """Load the tolerance of a compute dtype: float32, bfloat16 or float16."""
    table: dict[str, Any] = json.loads((files("trainer") / "replay" / "tolerances.json").read_text(encoding="utf-8"))
    measured = {
        field: tuple((int(steps), float(worst)) for steps, worst in pairs)
        for field, pairs in table["measured"][compute].items()
    }
    return Tolerance(factor=table["factor"], least=table["least"], measured=measured)


def row_differences(
    recorded: Mapping[str, Any], replayed: Mapping[str, Any], *, is_whole: bool
) -> Iterator[FieldDifference]:
    """Yield the recorded fields of a row that differ in any bit; averages are compared only if `is_whole`."""
    for field in dict.fromkeys([*FIELD_NAMES, *sorted(recorded)]):
        if field == "tokens_seen" and "padding_fraction" not in recorded:
            continue  # rows of earlier versions count padding too
        if field not in recorded or field in MACHINE_FIELDS or (field in AVERAGED_FIELDS and not is_whole):
            continue
        if recorded[field] != replayed.get(field):
            yield FieldDifference(
                step=recorded["step"], field=field, recorded=recorded[field], replayed=replayed.get(field)
            )


def describe_difference(
    differences: Sequence[FieldDifference], *, is_same_state: bool | None, agreed: int, step: int
) -> str:
    """Describe the first difference of a segment that ends with `step` and whose rows are equal up to step `agreed`."""
    if not differences:
        where = f"step {step}" if step == agreed + 1 else f"steps {agreed + 1} to {step}"
        return (
            f"The state after step {step} is not the one in the chain, although every row up to it is equal: the "
            f"update of {where} differs (optimizer, learning rate, clipping or rounding)."
        )
    first = differences[0]
    began = f" (the training differs from step {agreed + 1} or later)" if first.step > agreed + 1 else ""
    recorded, replayed = ("null" if value is None else repr(value) for value in (first.recorded, first.replayed))
    text = (
        f"Step {first.step} is the first row that differs{began}, in its {FIELD_NAMES.get(first.field, first.field)}: "
        f"{first.field} is {recorded} in the run and {replayed} here."
    )
    if is_same_state:
        return f"{text} The state after step {step} is the one in the chain, so the row is not what training measured."
    more = len({each.step for each in differences}) - 1
    return f"{text} Later rows that differ: {more:,}." if more else text
