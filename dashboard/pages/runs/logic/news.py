"""What became of a list since it was drawn: runs that came, went, or ended."""

from __future__ import annotations

from collections.abc import Sequence

from evidence.index.runs import RunSummary
from schemas.problems.words import counted, listed


def news(shown: Sequence[RunSummary], now: Sequence[RunSummary]) -> str:
    """Return what is new in a few words, `2 new runs and 1 run that ended`; empty for nothing."""
    before, after = ({summary.path.name: summary.status for summary in each} for each in (shown, now))
    came, went = after.keys() - before.keys(), before.keys() - after.keys()
    ended = [name for name, status in before.items() if status == "running" and after.get(name, status) != "running"]
    said = [counted(len(came), "new run")] if came else []
    said += [f"{counted(len(ended), 'run')} that ended"] if ended else []
    said += [f"{counted(len(went), 'run')} whose folder is gone"] if went else []
    return listed(said, last="and") if said else ""
