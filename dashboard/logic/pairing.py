"""Which smoke run rehearsed which full run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from evidence.index import RunSummary


def smoke_and_full(found: Sequence[RunSummary]) -> tuple[str, str] | None:
    """Return the names of a smoke run and the full run it most likely rehearsed, None without one of each.

    The full run is the newest that succeeded, else the newest; the smoke run is the newest one started before it, else
    the newest. One of the same model is preferred, though a smoke run usually uses a smaller one.

    Args:
        found: Runs, newest first.
    """
    fulls = [summary for summary in found if summary.mode == "full"]
    smokes = [summary for summary in found if summary.mode == "smoke"]
    if not fulls or not smokes:
        return None
    full = next((summary for summary in fulls if summary.status == "succeeded"), fulls[0])
    earlier = [summary for summary in smokes if (summary.started_at or "") <= (full.started_at or "")] or smokes
    smoke = next((summary for summary in earlier if summary.model == full.model), earlier[0])
    return Path(smoke.path).name, Path(full.path).name
