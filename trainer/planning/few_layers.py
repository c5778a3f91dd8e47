"""What few layers of a program, compiled beside memory that the others would take, say of the whole."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.problems.formats import size
from trainer.planning.estimate.part import SHARDED_ERROR_FRACTION, Part, is_sharded, total_bytes
from trainer.planning.program_answer import ProgramAnswer

FEW_LAYERS = 3

EXTRAPOLATED_ERROR = 0.23
"""Beyond the compiler's own, on one device: large models were within 5 %, the step of SmolLM2-135M 10 % and small
decoding 24 % apart."""

ANCHORED_ERROR = 0.08
"""The same of a run that differs in a setting or two from one whose whole was compiled, and is corrected by it: five
changes of Gemma 2B on eight chips were at most 5.4 % apart."""


@dataclass(frozen=True, kw_only=True)
class Whole:
    """What a whole program is said to need."""

    bytes: int
    error_fraction: float
    """Beyond the compiler's own, unless it is the sum."""
    because: str
    """The end of a sentence on how few layers were compiled; may be empty."""
    is_sum: bool = False
    """Whether it is what is summed, which few layers say less than."""


@dataclass(frozen=True, kw_only=True)
class Anchor:
    """A program whose few layers and whole were both compiled."""

    few_bytes: int
    sum_bytes: int
    said_bytes: int
    """What was said of the whole before it was compiled."""
    whole_bytes: int


def anchor_of(few: ProgramAnswer, whole: ProgramAnswer, parts: tuple[Part, ...]) -> Anchor:
    """Return what a program teaches that was asked about by its few layers first, and then whole."""
    assert few.few_bytes is not None, "its few layers were compiled"
    return Anchor(
        few_bytes=few.few_bytes,
        sum_bytes=total_bytes(parts),
        said_bytes=few.peak_bytes,
        whole_bytes=whole.peak_bytes,
    )


def whole_from(few_bytes: int, parts: tuple[Part, ...], anchor: Anchor | None = None) -> Whole:
    """Return what few layers say of the whole.

    Of several devices few layers keep up to 30 % less than the whole, whose gathers run ahead of each other over as
    many layers as there are: there the sum is taken where it says more.

    Args:
        few_bytes: what the compiler said of few layers beside occupied memory.
        parts: what is summed for the whole.
        anchor: of the same program of a run that differs in a setting or two. None: its whole was not compiled.
    """
    summed = total_bytes(parts)
    said = max(few_bytes, summed) if is_sharded(parts) else few_bytes
    if anchor is not None and (few_bytes, summed) == (anchor.few_bytes, anchor.sum_bytes):
        because = ", and nothing of them differs from the run that was compiled whole"
        return Whole(bytes=anchor.whole_bytes, error_fraction=0.0, because=because)
    if anchor is not None:
        because = ", corrected by the whole of the run that was planned first"
        corrected = said * anchor.whole_bytes // anchor.said_bytes
        return Whole(bytes=corrected, error_fraction=ANCHORED_ERROR, because=because)
    error = SHARDED_ERROR_FRACTION if is_sharded(parts) else EXTRAPOLATED_ERROR
    if said > few_bytes:
        because = f". Adding up all parts gives more, {size(summed)}: that is taken, with the band of sums"
        return Whole(bytes=said, error_fraction=error, because=because, is_sum=True)
    return Whole(
        bytes=said, error_fraction=error, because=f". The band is of how far few layers may mislead, {error:.0%}"
    )
