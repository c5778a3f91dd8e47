"""How grades and statuses are written: a symbol and a word, so that no meaning hangs on colour alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Tone = Literal["good", "fair", "poor", "bad", "quiet"]


@dataclass(frozen=True, kw_only=True)
class Sign:
    """How a word is shown: its symbol, its tone (which a theme turns into a colour), and what it means."""

    symbol: str
    tone: Tone
    meaning: str


GRADES: Mapping[str, Sign] = {
    "verified": Sign(
        symbol="✓",
        tone="good",
        meaning="Consistent; somebody whom you trust repeated its score and its training, or saw it run. How much of "
        "it stands beside it.",
    ),
    "consistent": Sign(
        symbol="●",
        tone="fair",
        meaning="Finished; every document valid, every hash matches, every number recomputes, code known and clean. "
        "Nobody outside the folder was asked.",
    ),
    "measured": Sign(
        symbol="◐", tone="fair", meaning="Real measurements; something that consistent needs is missing, and named."
    ),
    "partial": Sign(symbol="◔", tone="poor", meaning="Some real measurement; unfinished, or documents are missing."),
    "template": Sign(symbol="○", tone="quiet", meaning="No measurement at all: nulls or placeholders."),
    "contradictory": Sign(symbol="≠", tone="bad", meaning="Two places state different things about the same fact."),
    "not a run": Sign(symbol="∅", tone="quiet", meaning="A folder with nothing to grade."),
}

STATUSES: Mapping[str, Sign] = {
    "running": Sign(symbol="▸", tone="fair", meaning="Its process is running now."),
    "succeeded": Sign(symbol="✓", tone="good", meaning="All steps were done and the run was sealed."),
    "failed": Sign(symbol="✕", tone="bad", meaning="It ended with an error."),
    "cancelled": Sign(symbol="■", tone="quiet", meaning="A user stopped it."),
    "interrupted": Sign(
        symbol="‖", tone="poor", meaning="A signal, a time limit or a kill stopped it; it may be resumed."
    ),
}

JOBS: Mapping[str, Sign] = {
    "waiting": Sign(symbol="…", tone="quiet", meaning="Its turn comes when the jobs before it have ended."),
    "running": STATUSES["running"],
    "stopping": Sign(symbol="■", tone="poor", meaning="It was asked to stop and is sealing its run."),
    "succeeded": STATUSES["succeeded"],
    "interrupted": STATUSES["interrupted"],
    "refused": Sign(symbol="✕", tone="bad", meaning="It does not fit, or the device is missing."),
    "failed": STATUSES["failed"],
    "cancelled": STATUSES["cancelled"],
    "lost": Sign(symbol="?", tone="bad", meaning="Its process is gone and left no exit code; it was killed."),
    "unsealed": Sign(
        symbol="?", tone="poor", meaning="You did not queue it on this machine, so it is not started; Retry starts it."
    ),
}

UNKNOWN = Sign(symbol="?", tone="quiet", meaning="The run does not say.")


def label(signs: Mapping[str, Sign], word: str | None) -> str:
    """Return symbol and word: `✓ verified`; a word without a sign keeps a question mark."""
    return f"{signs.get(word or '', UNKNOWN).symbol} {word or 'unknown'}"
