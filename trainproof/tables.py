"""Runs for scripts and notebooks: read, checked, and as tables of pandas."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evidence import layout
from evidence.index.index import check_paths, index_folder
from evidence.index.summary import RunSummary
from evidence.report import Report
from evidence.run import Run, read_existing_run

if TYPE_CHECKING:
    from pandas import DataFrame

AnyPath = str | PathLike[str]

_NOT_A_COLUMN = {"path", "first_problem", "settings", "figures", "loss_points"}
"""Fields of a run's summary that are not single values."""


def read_run(path: AnyPath) -> Run:
    """Return a run folder as it was read; what is missing or broken in it is part of the answer.

    Raises:
        ProblemError: The folder does not exist.
    """
    return read_existing_run(Path(path))


def check(paths: AnyPath | Iterable[AnyPath]) -> Report:
    """Check runs, folders of runs or single documents, as `trainproof check` does.

    Args:
        paths: One path, or several.

    Returns:
        The report: `ok`, and for each run its grade, the reasons and the findings.

    Raises:
        ProblemError: A path does not exist, or a file is not a document of trainproof.
    """
    several = [paths] if isinstance(paths, str | PathLike) else paths
    return check_paths([Path(path) for path in several])


def frame(root: AnyPath = "submission_runs") -> DataFrame:
    """Return the runs of a folder as a table, newest first.

    Args:
        root: Folder of runs.

    Returns:
        One row for each run, under the name of its folder: grade, status, model, steps, losses in nats, scores between
        0 and 1, durations in seconds, `started_at` as a time; then each setting of its configuration under its dotted
        name (`optimizer.learning_rate`), and each figure. What a run does not state is missing.

    Raises:
        ProblemError: The folder does not exist.
    """
    import pandas

    summaries = index_folder(Path(root))
    stated = [_single_values(summary) for summary in summaries]
    rows = [{**summary.settings, **summary.figures, **own} for summary, own in zip(summaries, stated, strict=True)]
    columns = dict.fromkeys(name for row in (*stated, *rows) for name in row)
    names = pandas.Index([summary.path.name for summary in summaries], name="run")
    table: DataFrame = pandas.DataFrame(rows, index=names, columns=list(columns))
    if "started_at" in table:
        table["started_at"] = pandas.to_datetime(table["started_at"], utc=True, errors="coerce", format="ISO8601")
    return table


def metrics(run: AnyPath) -> DataFrame:
    """Return the metric rows of a run as a table.

    Args:
        run: Run folder.

    Returns:
        One row for each recorded step, under the step's number, with the columns of `metrics.jsonl` in their own units.

    Raises:
        ProblemError: The folder does not exist.
    """
    import pandas

    rows = list(read_existing_run(Path(run)).rows(layout.METRICS).values)
    table: DataFrame = pandas.DataFrame(rows, columns=None if rows else ["step"]).set_index("step")
    if "time" in table:
        table["time"] = pandas.to_datetime(table["time"], utc=True, errors="coerce", format="ISO8601")
    return table


def _single_values(summary: RunSummary) -> dict[str, Any]:
    return {name: value for name, value in asdict(summary).items() if name not in _NOT_A_COLUMN}
