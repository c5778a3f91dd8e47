"""What came of a repetition, in words for the terminal. No finding is made here."""

from __future__ import annotations

from typing import Any

from evidence.proof.verification import for_judges
from schemas.problems.visible import as_lines


def replay_text(receipt: dict[str, Any]) -> str:
    """Return a receipt of a repetition as the terminal shows it: what came of it, then a judge's questions."""
    return as_lines([f"{receipt['run_id']}: {receipt['said']}", *(f"  {line}" for line in for_judges(receipt))])
