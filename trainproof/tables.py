"""Read and check runs in scripts and notebooks, and get them as pandas DataFrames."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from evidence import layout
from evidence.index.index import check_paths, index_folder
from evidence.report import Report
from evidence.run import Run, read_existing_run

if TYPE_CHECKING:
    from pandas import DataFrame

AnyPath = str | PathLike[str]

_NOT_A_COLUMN = {"path", "first_problem", "settings", "figures", "loss_points"}
"""Fields of `RunSummary` that are not single values."""


def read_run(path: AnyPath) -> Run:
    """Read a run folder, which may be incomplete or invalid.

    Raises:
        ProblemError: The folder does not exist.
    """
    return read_existing_run(Path(path))


def check(paths: AnyPath | Iterable[AnyPath]) -> Report:
    """Check runs, folders of runs or single documents, as `trainproof check` does.

    Args:
        paths: One or more paths.

    Returns:
        A report with `ok`, and the grade, reasons and findings of each run.

    Raises:
        ProblemError: A path does not exist, or a file is not a document of trainproof.
    """
    several = [paths] if isinstance(paths, str | PathLike) else paths
    return check_paths([Path(path) for path in several])


def frame(root: AnyPath = "submission_runs") -> DataFrame:
    """Return the runs of a folder as a DataFrame, newest first.

    Args:
        root: Folder of runs.

    Returns:
        One row per run, indexed by folder name: grade, status, model, steps, losses in nats, scores from 0 to 1,
        durations in seconds and `started_at`; then each setting of its configuration by dotted name
        (`optimizer.learning_rate`) and each figure. Unknown values are missing.

    Raises:
        ProblemError: The folder does not exist.
    """
    import pandas

    summaries = index_folder(Path(root))
    documents = map(asdict, summaries)
    stated = [{name: value for name, value in each.items() if name not in _NOT_A_COLUMN} for each in documents]
    rows = [{**summary.settings, **summary.figures, **own} for summary, own in zip(summaries, stated, strict=True)]
    columns = dict.fromkeys(name for row in (*stated, *rows) for name in row)
    names = pandas.Index([summary.path.name for summary in summaries], name="run")
    table: DataFrame = pandas.DataFrame(rows, index=names, columns=list(columns))
    if "started_at" in table:
        table["started_at"] = pandas.to_datetime(table["started_at"], utc=True, errors="coerce", format="ISO8601")
    return table


def metrics(run: AnyPath) -> DataFrame:
    """Return the metric rows of a run as a DataFrame.

    Args:
        run: Run folder.

    Returns:
        One row per recorded step, indexed by step, with the columns of `metrics.jsonl`.

    Raises:
        ProblemError: The folder does not exist.
    """
    import pandas

    rows = list(read_existing_run(Path(run)).rows(layout.METRICS).values)
    table: DataFrame = pandas.DataFrame(rows, columns=None if rows else ["step"]).set_index("step")
    if "time" in table:
        table["time"] = pandas.to_datetime(table["time"], utc=True, errors="coerce", format="ISO8601")
    return table
