"""The memory of one program of a run: its need, how that was found, how far it may be off, and whether it fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

from trainer.planning.compile.buffers import Buffer
from trainer.planning.estimate.part import Part, total_bytes

Verdict = Literal["fits", "tight", "does_not_fit", "unsupported", "unknown"]
Way = Literal["closed_form", "compiler", "extrapolated"]

WORST_FIRST: tuple[Verdict, ...] = ("unsupported", "does_not_fit", "tight", "unknown", "fits")


def verdict(need_bytes: int, available_bytes: int | None, error_fraction: float, way: Way = "closed_form") -> Verdict:
    """Return whether the need, within its error, is within what there is.

    fits: all of the band `need · (1 ± error)` is below; does_not_fit: all of it is above; tight: the limit lies inside
    it. A compiler that has seen the whole program refuses what is above the limit, so there the band ends at the need.

    >>> [verdict(need, 100, 0.08) for need in (92, 95, 108, 109)]
    ['fits', 'tight', 'tight', 'does_not_fit']
    >>> [verdict(need, 100, 0.08, "compiler") for need in (92, 95, 101)]
    ['fits', 'tight', 'does_not_fit']
    """
    if available_bytes is None:
        return "unknown"
    if need_bytes * (1 + error_fraction) <= available_bytes:
        return "fits"
    least = need_bytes if way == "compiler" else need_bytes * (1 - error_fraction)
    return "tight" if least <= available_bytes else "does_not_fit"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Return the worst of the programs' verdicts: that of the run."""
    return min(verdicts, key=WORST_FIRST.index)


COMPILED_ERROR = 0.02
"""The public failure: 28.12 GiB by the compiler, 28.59 on the chip."""


@dataclass(frozen=True, kw_only=True)
class ProgramMemory:
    """What one program of a run needs of each device."""

    name: str
    way: Way
    peak_bytes: int
    available_bytes: int | None
    error_fraction: float
    because: str
    seconds: float | None
    """How long the compiler took. None: it was not asked."""
    parts: tuple[Part, ...]
    buffers: tuple[Buffer, ...] = ()
    aliased_fraction: float | None = None
    """Of the state that a compiled step replaces, what it reuses. None: not seen, or another program."""
    opt_state_ratio: float | None = None
    """Optimizer state among a compiled step's arguments over what the declared optimizer keeps. None: as above."""

    few_bytes: int | None = None
    """What the first layers were said to need beside occupied memory. None: they were not asked about."""

    @property
    def verdict(self) -> Verdict:
        """Whether the program fits."""
        return verdict(self.peak_bytes, self.available_bytes, self.error_fraction, self.way)

    def document(self) -> dict[str, Any]:
        """Return the program as plan.json has it."""
        return {
            "name": self.name,
            "on": "device",
            "verdict": self.verdict,
            "method": self.way,
            "peak_bytes": self.peak_bytes,
            "available_bytes": self.available_bytes,
            "error_fraction": self.error_fraction,
            "because": self.because,
            "seconds": self.seconds,
            "parts": parts_document(self.parts),
            "buffers": [asdict(buffer) for buffer in self.buffers],
        }


def parts_document(parts: tuple[Part, ...]) -> list[dict[str, Any]]:
    """Return parts as plan.json has them, largest first."""
    ordered = sorted((part for part in parts if part.bytes), key=lambda part: -part.bytes)
    return [{"name": part.name, "bytes": part.bytes, "because": part.because} for part in ordered]


KEPT_WHOLE = ("params", "frozen", "opt_state", "batch", "adapters")
"""Parts that are exact: arrays of known shape that are there from begin to end."""


def divided(peak: int, parts: tuple[Part, ...]) -> tuple[Part, ...]:
    """Return parts that add up to a compiled peak: arrays of known shape as they are, the rest in proportion.

    A peak of 100 with params of 60 and temporaries summed as 30 and 20 has 60, 24 and 16.
    """
    exact = [part for part in parts if part.name in KEPT_WHOLE]
    loose = [part for part in parts if part.name not in KEPT_WHOLE and part.bytes]
    left = peak - total_bytes(tuple(exact))
    if left < 0 or not loose:
        rest = Part(name="temporaries", bytes=max(left, 0), because="what the compiler keeps besides")
        whole = tuple(_fitted(peak, exact)) if left < 0 else (*exact, rest)
        return tuple(part for part in whole if part.bytes)
    summed = total_bytes(tuple(loose))
    shared = [replace(part, bytes=part.bytes * left // summed) for part in loose]
    lost = left - sum(part.bytes for part in shared)
    shared[0] = replace(shared[0], bytes=shared[0].bytes + lost)
    return tuple(part for part in (*exact, *shared) if part.bytes)


def _fitted(peak: int, parts: list[Part]) -> Iterator[Part]:
    """Yield parts cut so that they add up to a peak below their sum."""
    left = peak
    for part in parts:
        taken = min(part.bytes, left)
        left -= taken
        yield replace(part, bytes=taken)
