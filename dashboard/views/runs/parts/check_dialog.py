"""Checking many runs at once: each run with its findings, and the whole report to take along."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import streamlit as st

from dashboard.shared.parts import markup, problems
from dashboard.shared.session.reading_bar import reading_bar
from dashboard.shared.words.grades import GRADES
from evidence.grade import RunReport
from evidence.index.index import check_paths
from evidence.report import Report, report_as
from schemas.formats import quantity
from schemas.problems import ProblemError

_KEPT = "report of the check"
MOST_SHOWN = 100
"""Runs whose findings are drawn; the files have those of all."""


@st.dialog("Check", width="large")
def check(folders: Sequence[Path], asked: int) -> None:
    """Check the runs as `trainproof check` does and draw what was found.

    Args:
        folders: The runs.
        asked: Another number for each press of the button; a click inside the dialog checks nothing again.
    """
    report = _report(folders, asked)
    if report is None:
        return
    unsound = [run for run in report.runs if any(found.severity != "note" for found in run.findings)]
    sound = len(report.runs) - len(unsound)
    markup.note(f"{quantity(len(report.runs), 'run')} checked: {sound:,} without error or warning.")
    with st.container(horizontal=True):
        _download("JSON", report, "json", "check.json", "application/json")
        _download("SARIF", report, "sarif", "check.sarif", "application/json")
    for run in unsound[:MOST_SHOWN]:
        _findings(run)
    if len(unsound) > MOST_SHOWN:
        markup.note(f"JSON and SARIF have the findings of {quantity(len(unsound) - MOST_SHOWN, 'more run')}.")


def _report(folders: Sequence[Path], asked: int) -> Report | None:
    kept: tuple[int, Report] | None = st.session_state.get(_KEPT)
    if kept is not None and kept[0] == asked:
        return kept[1]
    try:
        with reading_bar("Checking runs") as told:
            report = check_paths(folders, progress=told)
    except ProblemError as error:
        problems.show(error.problems)
        return None
    st.session_state[_KEPT] = (asked, report)
    return report


def _download(label: str, report: Report, form: str, name: str, mime: str) -> None:
    markup.download(label, lambda: report_as(report, [form]).encode("utf-8"), name, mime=mime)


def _findings(run: RunReport) -> None:
    bad = sum(found.severity != "note" for found in run.findings)
    sign = markup.sign(GRADES, run.grade.name, run.grade.coverage)
    st.html(
        f'<p class="tp-sub">{sign} <b>{markup.safe(run.path.name)}</b> '
        f'<span class="tp-dim">{quantity(bad, "finding")}</span></p>'
    )
    problems.show(run.findings)
