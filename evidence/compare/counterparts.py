"""What a run is worth comparing with: its parent, its smoke run, the run before it, the best on its items."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from evidence.compare.pairing import rehearsals_of, rehearsed_by
from evidence.index.runs import RunSummary
from schemas.reading.times import moment

_LIKE = ("model.name", "data.dataset")
_ITEMS = "evaluation.eval_set"
_NEVER = datetime.min.replace(tzinfo=UTC)


def counterparts(run: RunSummary, found: Sequence[RunSummary]) -> dict[str, RunSummary]:
    """Return the sound runs that a reader most likely wants beside a run, by what each is to it.

    Example:
        For the newest of three runs of one configuration: the second as `previous run`, and as `best on its items` that
        of the other two which scores higher.
    """
    others = [other for other in found if other.path != run.path and other.grade != "contradictory"]
    return {what: other for what, other in _each(run, others) if other is not None}


def _each(run: RunSummary, others: Sequence[RunSummary]) -> Iterator[tuple[str, RunSummary | None]]:
    """Yield each kind of counterpart with the run that is one, None if it is missing."""
    yield "parent", next((other for other in others if other.run_id == run.parent), None)
    if run.mode == "smoke":
        yield "full run", next(iter(rehearsed_by(run, others)), None)
    else:
        yield "smoke run", next(iter(rehearsals_of(run, others)), None)
    like = [other for other in others if other.mode == run.mode and _agree(run, other, _LIKE)]
    yield "previous run", max((other for other in like if _start(other) < _start(run)), key=_start, default=None)
    scored = [other for other in others if other.score is not None and _agree(run, other, (_ITEMS,))]
    yield "best on its items", max(scored, key=lambda other: (other.score, _start(other)), default=None)


def _agree(run: RunSummary, other: RunSummary, names: Sequence[str]) -> bool:
    """Return whether both state these settings, and alike."""
    return all(run.settings.get(name) is not None and run.settings[name] == other.settings.get(name) for name in names)


def _start(run: RunSummary) -> datetime:
    return moment(run.started_at or "") or _NEVER
