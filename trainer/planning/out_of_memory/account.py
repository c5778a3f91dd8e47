"""What a configuration says to a failure: the sizes it consists of, what it should have needed, what it can change."""

from __future__ import annotations

from dataclasses import dataclass

from trainer.planning.out_of_memory.advice import Change
from trainer.planning.out_of_memory.roles import Sizes


@dataclass(frozen=True, kw_only=True)
class AccountPart:
    """One thing that the configured run needs memory for."""

    name: str
    bytes: int
    because: str

    def document(self) -> dict[str, str | int]:
        """Return it as plain values."""
        return {"name": self.name, "bytes": self.bytes, "because": self.because}


@dataclass(frozen=True, kw_only=True)
class Account:
    """A configuration beside a failure."""

    sizes: Sizes
    parts: tuple[AccountPart, ...]
    """Of the program that needs most, largest first."""
    notes: tuple[str, ...]
    """Whether the failure is that of this configuration, in sentences."""
    changes: tuple[Change, ...]
    """Cheapest first; what each frees is estimated anew."""
