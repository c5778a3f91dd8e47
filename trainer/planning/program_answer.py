"""What is known of one program of a run: its need, how that was found, and how far it may be off."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from trainer.planning.compile.buffers import Buffer
from trainer.planning.estimate.part import Part
from trainer.planning.verdict import Verdict, Way, verdict

COMPILED_ERROR = 0.02
"""The public failure: 28.12 GiB by the compiler, 28.59 on the chip."""


@dataclass(frozen=True, kw_only=True)
class ProgramAnswer:
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
