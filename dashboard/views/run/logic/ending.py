"""How a run that did not succeed ended, in a sentence or two."""

from __future__ import annotations

from evidence.run import Run
from schemas.formats import count
from schemas.reading import get_number, get_str

_BY_A_USER = "signal SIGINT"
"""What Ctrl-C sends, and the button Stop."""


def describe(run: Run, *, may_resume: bool) -> str:
    """Return how a run ended; empty while it is running, where it succeeded, and where it does not state it."""
    message = get_str(run.manifest, "exit", "message")
    if message is None or run.status in {"succeeded", "running"}:
        return ""
    if not message.startswith(_BY_A_USER):
        return f"It ended: {message}"
    step = get_number(run.manifest, "training", "steps_done")
    at = f" at step {count(step)}" if step else " before the first step"
    before = ", before evaluation" if "evaluation" in message else ""
    return f"Stopped by a user{at}{before}." + (" Resume continues from there." if may_resume else "")
