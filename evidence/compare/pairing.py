"""Which smoke run rehearsed which full run: by what their configurations state, never by the name of a model alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Literal

from evidence.compare.smoke import SIZE_SETTINGS
from evidence.index.runs import RunSummary
from schemas.reading import parse_time

Lineage = Literal["same configuration", "same but for size"]
"""Same configuration: for fewer steps. Same but for size: also of a smaller model, batch or set of rows."""

_LENGTH_GROUPS = ("limits.", "recording.", "checkpoint.", "evaluation.")
_LENGTH = frozenset({"name", "mode", "schema_version", "optimizer.warmup_steps", "mesh.device", "mesh.devices"})
"""What a run of the same configuration for fewer steps, on another machine, may state otherwise."""
_DECIDING = ("data.dataset", "method.kind", "optimizer.name", "optimizer.learning_rate", "optimizer.schedule")
_MOST = 50
_NEVER = datetime.min.replace(tzinfo=UTC)


def lineage(smoke: RunSummary, full: RunSummary) -> Lineage | None:
    """Return how a smoke run descends from the configuration of a full run, or None if it is of another one.

    A setting that only one of them knows, since they are of different versions, means nothing.

    Example:
        demo.yaml for two steps and for 2,800 are one configuration; under `--smoke_config smoke_tiny.yaml` the model
        and the batch are others, so that they are the same but for size. With another learning rate they are neither.
    """
    ours, theirs = smoke.settings, full.settings
    is_pair = smoke.mode == "smoke" and full.mode == "full" and _key(smoke) is not None and _key(smoke) == _key(full)
    if not is_pair or (smoke.steps_planned or 0) >= (full.steps_planned or 1e18):
        return None
    differing = {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name] and not _is_length(name)}
    if not differing:
        return "same configuration"
    return "same but for size" if differing <= SIZE_SETTINGS | {"seed"} else None


def rehearsals_of(full: RunSummary, found: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the smoke runs of a full run's configuration: see `_rank` for which comes first."""
    return sorted((run for run in found if lineage(run, full)), key=lambda run: _rank(run, full), reverse=True)


def rehearsed_by(smoke: RunSummary, found: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the full runs whose configuration a smoke run is of, in the same order."""
    return sorted((run for run in found if lineage(smoke, run)), key=lambda run: _rank(smoke, run), reverse=True)


def newest_pair(found: Sequence[RunSummary]) -> tuple[str, str] | None:
    """Return the names of a smoke run and the full run that it rehearsed; None if no full run was rehearsed.

    The full run is the newest that succeeded and was rehearsed, else the newest that was.
    """
    smokes: dict[object, list[RunSummary]] = {}
    for run in sorted((run for run in found if run.mode == "smoke"), key=_start, reverse=True):
        smokes.setdefault(_key(run), []).append(run)
    fulls = sorted((run for run in found if run.mode == "full"), key=_start, reverse=True)
    for full in sorted(fulls, key=lambda run: run.status != "succeeded"):
        if rehearsals := rehearsals_of(full, smokes.get(_key(full), [])[:_MOST]):
            return rehearsals[0].path.name, full.path.name
    return None


def _rank(smoke: RunSummary, full: RunSummary) -> tuple[bool, bool, bool, datetime, datetime]:
    """Return what makes a pair: first the same configuration, then success, the smoke run before, and the newest."""
    return (
        lineage(smoke, full) == "same configuration",
        smoke.status == full.status == "succeeded",
        _start(smoke) <= _start(full),
        _start(full),
        _start(smoke),
    )


def _is_length(name: str) -> bool:
    return name in _LENGTH or name.startswith(_LENGTH_GROUPS)


def _key(run: RunSummary) -> tuple[object, ...] | None:
    """Return what distinguishes most configurations at once; None: the run states no valid configuration."""
    return tuple(run.settings.get(name) for name in _DECIDING) if "data.dataset" in run.settings else None


def _start(run: RunSummary) -> datetime:
    return parse_time(run.started_at or "") or _NEVER


_LIKE = ("model.name", "data.dataset")
_ITEMS = "evaluation.eval_set"


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
