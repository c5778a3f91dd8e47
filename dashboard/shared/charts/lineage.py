"""What came before a resumed run: the rows of its parents up to where it took over, and where that was.

A resumed run is a run of its own that names its parent (docs/decisions/run-folder.md); here the chain is joined for the
eye, and no folder is touched. Time is training time: the pause between two runs is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dashboard.shared.charts.line import Mark
from dashboard.shared.charts.panels import axes
from dashboard.shared.reading.series import Series
from schemas.formats import count
from schemas.reading import get_number, get_str

Document = Mapping[str, Any] | None

MOST_PARENTS = 50
"""Parents followed; more, or a circle, is a mistake in the manifests."""


@dataclass(frozen=True, kw_only=True)
class Ancestor:
    """What is known of a run whose name another one gave as its parent."""

    manifest: Document
    eval_summary: Document
    series: Series


@dataclass(frozen=True, kw_only=True)
class Lineage:
    """A run with what came before it.

    Attributes:
        series: The run's own rows, its time going on from that of its parents.
        earlier: The rows of its parents up to where they were taken over. None: none is at hand.
        resumed: Where it and its parents took over.
        scores: Where it and its parents were evaluated.
        missing: Name of a parent that is not under the root. None: none is missing.
    """

    series: Series
    earlier: Series | None
    resumed: tuple[Mark, ...]
    scores: tuple[Mark, ...]
    missing: str | None


def lineage(
    manifest: Document, eval_summary: Document, series: Series, find: Callable[[str], Ancestor | None]
) -> Lineage:
    """Return a run with what came before it.

    `find` returns the run of a name under the root, or None if it is missing.
    """
    chain, missing = _chain(manifest, find)
    parts: list[Series] = []
    resumed: list[Mark] = []
    scores: list[Mark] = []
    seconds = 0.0
    members = [(found.manifest, found.eval_summary, found.series, until) for found, until in reversed(chain)]
    for own_manifest, own_summary, rows, until in [*members, (manifest, eval_summary, series, None)]:
        part = _part(rows, until, seconds)
        step = get_number(own_manifest, "parent", "step")
        if step is not None and part.rows:
            resumed.append(Mark(at=_at(part, 0), text=f"resumed after step {count(step)}"))
        scores += _scores(own_summary, part)
        if until is not None and part.rows:
            seconds = float(part.columns["seconds"][-1])
        parts.append(part)
    return Lineage(
        series=parts[-1], earlier=_join(parts[:-1]), resumed=tuple(resumed), scores=tuple(scores), missing=missing
    )


def _chain(
    manifest: Document, find: Callable[[str], Ancestor | None]
) -> tuple[list[tuple[Ancestor, float]], str | None]:
    """Return the parents at hand, nearest first, each with the step up to which it counts; and the one that is not."""
    chain: list[tuple[Ancestor, float]] = []
    seen = set()
    while len(chain) < MOST_PARENTS:
        name, step = get_str(manifest, "parent", "run_id"), get_number(manifest, "parent", "step")
        if name is None or step is None or name in seen:
            break
        seen.add(name)
        found = find(name)
        if found is None:
            return chain, name
        chain.append((found, step))
        manifest = found.manifest
    return chain, None


def _part(series: Series, until: float | None, seconds: float) -> Series:
    """Return the rows up to a step, time going on from `seconds`."""
    rows = series.rows if until is None else int(np.searchsorted(series.columns["step"], until, side="right"))
    if rows == series.rows and seconds == 0:
        return series
    columns = {name: column[:rows] for name, column in series.columns.items()}
    columns["seconds"] = columns["seconds"] + seconds
    return Series(columns=columns, unread=series.unread)


def _join(parts: list[Series]) -> Series | None:
    with_rows = [part for part in parts if part.rows]
    if len(with_rows) < 2:
        return with_rows[0] if with_rows else None
    columns = {name: np.concatenate([part.columns[name] for part in with_rows]) for name in with_rows[0].columns}
    return Series(columns=columns, unread=0)


def _scores(eval_summary: Document, series: Series) -> list[Mark]:
    """Return where the trained model was evaluated; the untrained one has no place on a curve."""
    step = get_number(eval_summary, "checkpoint", "step")
    value = get_number(eval_summary, "metrics", "exact_match", "value")
    if step is None or value is None or not series.rows:
        return []
    row = max(0, int(np.searchsorted(series.columns["step"], step, side="right")) - 1)
    return [Mark(at=_at(series, row) | {"step": step}, text="exact match", score=value)]


def _at(series: Series, row: int) -> dict[Any, float]:
    return {name: float(series.columns[name][row]) for name in axes()}
