"""From a run to the line that draws it: its rows, what its parents did before it, where it was resumed and scored."""

from __future__ import annotations

from collections.abc import Mapping

from dashboard.shared.charts import foreign_run
from dashboard.shared.charts.line import RunLine
from dashboard.shared.charts.lineage import Ancestor, lineage
from dashboard.shared.session import reading
from evidence.index.summary import RunSummary
from evidence.run import Run

_OWN = frozenset({"seed", "name", "schema_version"})


def line_of(name: str, run: Run, known: Mapping[str, RunSummary]) -> tuple[RunLine, str]:
    """Return a run's line, and what a reader must know about it; empty for nothing."""
    view, summary = run.foreign(), known.get(name)
    if view is not None:
        return foreign_run.line_of(name, view)
    by_id = (
        {summary.run_id: summary for summary in known.values()} if run.manifest and run.manifest.get("parent") else {}
    )

    def find(parent: str) -> Ancestor | None:
        summary = by_id.get(parent)
        if summary is None:
            return None
        found = reading.run_of(summary.path)
        return Ancestor(
            manifest=found.manifest, eval_summary=found.eval_summary, series=reading.series_of(summary.path)
        )

    found = lineage(run.manifest, run.eval_summary, reading.series_of(run.path), find)
    remark = (
        f"Its parent {found.missing} is not under this root, so nothing before it is drawn." if found.missing else ""
    )
    is_doubtful = summary is not None and summary.grade == "contradictory"
    if is_doubtful:
        remark = f"It contradicts itself: drawn grey, without its score, and in no mean. {remark}".rstrip()
    own = RunLine(
        name=name,
        series=found.series,
        colour="",
        earlier=found.earlier,
        resumed=found.resumed,
        scores=() if is_doubtful else found.scores,
        is_doubtful=is_doubtful,
        kin="" if summary is None else but_for_seed(summary),
    )
    return own, remark


def but_for_seed(summary: RunSummary) -> str:
    """Return the settings of a run without its seed and its name; empty where it states none."""
    settings = {name: value for name, value in summary.settings.items() if name not in _OWN}
    return repr(sorted(settings.items())) if settings else ""
