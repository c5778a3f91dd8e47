"""How far the clock of a machine was set back while a run went, distinguished from times that were changed afterwards.

Since version 1.2 rows and events state a clock that cannot be set beside the time of day. In older runs only rows show
it: a clock that was set back goes on from where it was set, so the rows behind it follow in their usual time; a row
with another time is followed by a jump forward to the rest.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from evidence.records.facts import Facts
from schemas.reading import Array, Columns, parse_time

CLOCK_SECONDS = 2.0
"""How far a clock may be set back while a run writes: time services correct clocks by less than this."""
_SEALED = "run_sealed"


def set_back_seconds(facts: Facts) -> float:
    """Return by how much the clock was set back in all, in seconds; 0 where only time services corrected it."""
    columns, log = facts.columns, list(_of_this_process(facts.log or []))
    if np.isfinite(columns["clock_seconds"]).any():
        times = [at.timestamp() if (at := parse_time(row["time"])) else math.nan for row in log]
        events = np.array(times, np.float64) - [row.get("clock_seconds", math.nan) for row in log]
        return max(_set_back(columns["seconds"] - columns["clock_seconds"]), _set_back(events))
    return _set_back_by_rows(columns)


def _of_this_process(log: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the events up to the seal; a later evaluation is another process, whose clock began elsewhere."""
    for record in log:
        yield record
        if record["event"] == _SEALED:
            return


def _set_back(ahead: Array) -> float:
    """Return by how much less the time of day went on than the clock that cannot be set, where it did.

    A row whose time alone was changed is away from the others and back again, by as much; that is not counted.

    Args:
        ahead: `[rows]` seconds between the two.
    """
    lost = -np.diff(ahead[np.isfinite(ahead)])
    gained = -lost[lost < -CLOCK_SECONDS]
    return math.fsum(each for each in lost[lost > CLOCK_SECONDS] if not (abs(gained - each) < CLOCK_SECONDS).any())


def _set_back_by_rows(columns: Columns) -> float:
    if len(columns["seconds"]) < 3:
        return 0.0
    between = np.diff(columns["seconds"])
    lost: Array = columns["step_seconds"][1:] * np.diff(columns["step"]) - between
    places = np.flatnonzero(between < -CLOCK_SECONDS)
    # The last row has no row behind it that could show that the clock went on from there.
    if not len(places) or places[-1] == len(lost) - 1:
        return 0.0
    back = float(lost[places].sum())
    forward = -float(lost[lost < -CLOCK_SECONDS].sum())
    return back if forward < back / 2 else 0.0
