"""What an out-of-memory text states, and amounts of memory as these texts write them: `28.59G`, `165425291480B`."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

Memory = Literal["tpu", "vmem", "smem", "gpu", "cpu", "host"]
"""tpu: a TPU's main memory (HBM). vmem, smem: the small memories inside a TPU core. gpu: a GPU's. cpu: main memory of
a CPU that computes. host: main memory, beside a device or of a process that was ended."""

When = Literal["compile", "run"]
"""compile: the compiler refused the program before it began. run: an allocation failed."""

AMOUNT = r"(?:[\d.]+\s?(?:[KMGT]i?B?|kB|bytes|B)|0B|unknown size)"
"""A pattern for one; whatever unit it is in, 1G is 2**30 bytes in all of them."""

_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_WRITTEN = re.compile(r"([\d.]+)\s*([KMGTkmgt]?)i?(?:[Bb](?:ytes)?)?")


def bytes_in(text: str | None) -> int | None:
    """Return the bytes of an amount; None for `unknown size`, or where there is none.

    >>> [bytes_in(text) for text in ("15.75G", "20.00 MiB", "6291456 bytes", "0B", "926. GiB", "unknown size")]
    [16911433728, 20971520, 6291456, 0, 994284929024, None]
    """
    written = _WRITTEN.fullmatch(text.strip()) if text else None
    if written is None or written[1].count(".") > 1 or written[1] == ".":
        return None
    power: int = _POWERS[written[2].lower()]
    return round(float(written[1]) * float(1024**power))


def first(pattern: re.Pattern[str], text: str) -> int | None:
    """Return the bytes of the first amount that a pattern's first group finds."""
    found = pattern.search(text)
    return bytes_in(found[1]) if found else None


@dataclass(frozen=True, kw_only=True)
class Allocation:
    """One buffer that the text names."""

    bytes: int
    shape: str | None = None
    """Element type and axes, `bf16[256000,3072]`. None: not said."""
    operator: str | None = None
    """Where in the program it comes from: JAX's op_name, or XLA's label."""
    is_argument: bool = False
    """It is given to the program: parameters, optimizer state, a batch."""
    padding_bytes: int = 0
    """Of the bytes, those that only fill the device's tiles."""

    @property
    def element_type(self) -> str | None:
        """`bf16` of `bf16[256000,3072]`."""
        return self.shape.partition("[")[0] if self.shape else None

    @property
    def axes(self) -> tuple[int, ...]:
        """(256000, 3072) of `bf16[256000,3072]`; none where no shape is said."""
        inside = self.shape.partition("[")[2].rstrip("]") if self.shape else ""
        return tuple(int(axis) for axis in inside.split(",") if axis)


@dataclass(frozen=True, kw_only=True)
class OutOfMemory:
    """One failure for want of memory; None is what the text does not say."""

    memory: Memory
    when: When
    said: str
    """The sentence it was read from."""
    need_bytes: int | None = None
    """Of the program, or of all that would have had to be there at once, on one device."""
    cap_bytes: int | None = None
    """Usable on that device."""
    tried_bytes: int | None = None
    """Of the allocation that failed."""
    free_bytes: int | None = None
    """Left when it failed."""
    unused_bytes: int | None = None
    """Held by the allocator and not in use: fragments."""
    others_bytes: int | None = None
    """Of other processes on the same device."""
    parts: dict[str, int] = field(default_factory=dict)
    """What the need consists of, by the text's own names."""
    shared_bytes: int | None = None
    """Of the output, what reuses the memory of arguments: 0 means that nothing is donated."""
    largest: tuple[Allocation, ...] = ()
    """Named buffers, largest first."""
    notes: tuple[str, ...] = ()
    """What else the text tells, as sentences."""

    @property
    def missing_bytes(self) -> int | None:
        """How much is lacking: the need beyond what is there, else the failed allocation beyond what was free."""
        if self.need_bytes is not None and self.cap_bytes is not None and self.need_bytes > self.cap_bytes:
            return self.need_bytes - self.cap_bytes
        if self.tried_bytes is not None and self.free_bytes is not None and self.tried_bytes > self.free_bytes:
            return self.tried_bytes - self.free_bytes
        return None

    @property
    def holds_state_twice(self) -> bool:
        """Whether the program's results are as large as what they replace, and reuse none of it."""
        given, back = self.parts.get("arguments", 0), self.parts.get("output", 0)
        large = given > 0 and back > given / 2
        return large and self.shared_bytes is not None and self.shared_bytes < back / 10
