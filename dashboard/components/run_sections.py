"""The sections of the run page below its headline, one function each."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard import reading
from dashboard.components import log as log_lines
from dashboard.components import markup, tokens
from dashboard.components import problems as problem_list
from dashboard.logic import forecast, numbers, predictions_table, settings
from dashboard.logic.documents import flag_at, number_at, objects_at, text_at
from dashboard.logic.grades import GRADES
from dashboard.logic.text import shortened
from evidence.layout import MANIFEST, METRICS
from evidence.read import Run

_MOST_RECORDS = 500


def plan(run: Run) -> None:
    """Draw what was planned beside what was observed, and what the memory is for."""
    rows = forecast.forecasts(run.plan, run.manifest)
    if not rows:
        markup.empty("No plan", "This run has no plan.json; training writes one before the first step.")
        return
    markup.table(
        ["What", "Planned", "Observed", "Remark"], [(row.what, row.planned, row.observed, row.remark) for row in rows]
    )
    st.header("What the planned memory is for", anchor=False)
    markup.table(["Part", "Bytes on each device", "Because"], forecast.parts(run.plan), numbers=[1])


def configuration(run: Run) -> None:
    """Draw every setting as declared, as it took effect, and as it would be by default."""
    rows = settings.settings(run.config, run.manifest)
    only = st.toggle("Only settings that are not at their default", key="changed", bind="query-params")
    shown = [row for row in rows if not only or row.is_changed or row.differs]
    differing = [index for index, row in enumerate(shown) if row.differs]
    if differing:
        markup.note(f"{len(differing)} settings took effect with another value than declared; they are marked ≠.")
    markup.table(
        ["Setting", "Differs", "Declared", "Effective", "Default"],
        [
            (
                row.key,
                "≠" if row.differs else "",
                row.declared or numbers.NOTHING,
                row.effective or numbers.NOTHING,
                row.default or numbers.NOTHING,
            )
            for row in shown
        ],
        marked=differing,
    )
    markup.note("Effective values were read back from the program that ran; a dash means that it reads none back.")


def examples(run: Run) -> None:
    """Draw the first training examples, and the counts over all of them."""
    if run.first_examples is None:
        markup.empty("No examples", "This run has no first_examples.json that can be read.")
        return
    end_token = flag_at(run.first_examples, "counts", "end_token_supervised")
    ends = "?" if end_token is None else "yes" if end_token else "no: the model never learns to stop"
    markup.table(
        ["Rows", "Tokens only read", "Tokens supervised", "Rows cut", "Rows without answer", "End token supervised"],
        [
            (
                *(
                    numbers.count(number_at(run.first_examples, "counts", name))
                    for name in ("rows", "prompt_tokens", "supervised_tokens", "truncated_rows", "rows_without_answer")
                ),
                ends,
            )
        ],
    )
    tokens.key()
    for example in objects_at(run.first_examples, "examples"):
        tokens.show(example)


def predictions(run: Run) -> None:
    """Draw the scores by group and the outputs, filtered as the reader asks."""
    rows = run.predictions().values
    if not rows:
        markup.empty("No predictions", "This run was not evaluated, or has not got that far.")
        return
    _scores(run)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        kinds = predictions_table.OUTCOMES
        outcome = st.segmented_control(
            "Outcome", list(kinds), default="all", required=True, key="outcome", bind="query-params"
        )
        chosen = {
            group: st.multiselect(
                group.capitalize(), options, key=group, bind="query-params", placeholder="all", width=180
            )
            for group, options in predictions_table.groups(rows).items()
        }
        words = st.text_input("Search", key="find", bind="query-params", icon=":material/search:")
    shown = predictions_table.filtered(rows, outcome=outcome, groups=chosen, words=words or "")
    markup.note(f"{numbers.count(len(shown))} of {numbers.count(len(rows))} items. Choose a row to read its output.")
    picked = st.dataframe(
        predictions_table.frame(shown),
        hide_index=True,
        key="predictions_table",
        on_select="rerun",
        selection_mode="single-row",
        column_config=_PREDICTION_COLUMNS,
        height=min(36 * (len(shown) + 1) + 3, 430),
        alt="Predictions, one in a row",
    )
    for index in picked["selection"]["rows"]:
        if index < len(shown):
            _prediction(shown[index])


_PREDICTION_COLUMNS: Mapping[str, Any] = {
    "id": st.column_config.TextColumn("Item", width=110, pinned=True),
    "outcome": st.column_config.TextColumn("Outcome", width=96),
    "form": st.column_config.TextColumn("Form", width=80, help="Whether the output has exactly the required form."),
    "prompt": st.column_config.TextColumn("Prompt", width=420),
    "expected": st.column_config.TextColumn("Expected", width=120),
    "got": st.column_config.TextColumn("Got", width=120),
    "tokens": st.column_config.NumberColumn("Tokens", width=70),
    "finish": st.column_config.TextColumn("Ended by", width=80),
    "section": st.column_config.TextColumn("Section"),
    "category": st.column_config.TextColumn("Category"),
    "difficulty": st.column_config.TextColumn("Difficulty"),
}


def _scores(run: Run) -> None:
    summary = run.eval_summary
    if summary is None:
        return
    with st.expander("Scores by group", icon=":material/analytics:"):
        markup.table(
            ["Group", "Value", "Items", "Exact match", "95 % interval", "Form", "Untrained"],
            predictions_table.score_rows(summary),
            numbers=[2, 3, 4, 5, 6],
        )


def _prediction(row: Mapping[str, Any]) -> None:
    with st.container(border=True):
        markup.note(
            f"{text_at(row, 'id')}: expected {text_at(row, 'expected')}, got {text_at(row, 'extracted_answer')}"
        )
        left, right = st.columns(2)
        with left:
            st.caption("Prompt")
            st.code(shortened(text_at(row, "prompt") or "", 4000), language=None, wrap_lines=True)
        with right:
            st.caption("Output")
            st.code(shortened(text_at(row, "output_text") or "", 8000), language=None, wrap_lines=True)


def log(run: Run, *, following: bool) -> None:
    """Draw the log, newest last; while the run is at work the newest come first, where the eye is."""
    records = run.log().values
    if not records:
        markup.empty("No log", "This run has no log.jsonl that can be read.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        levels = st.multiselect(
            "Levels", log_lines.LEVELS, default=["info", "warning", "error"], key="levels", bind="query-params"
        )
        words = st.text_input("Search", key="in_log", bind="query-params", icon=":material/search:")
    wanted = (words or "").lower()
    shown = [
        record
        for record in records
        if text_at(record, "level") in levels
        and wanted in f"{text_at(record, 'message')} {text_at(record, 'event')}".lower()
    ]
    markup.note(f"{numbers.count(len(shown))} of {numbers.count(len(records))} records.")
    last = shown[-_MOST_RECORDS:]
    log_lines.show(reversed(last) if following else last, reading.reader_zone())


def files(run: Run) -> None:
    """Draw every file of the run with its stated hash, and let the reader have it."""
    stated = {text_at(item, "path"): item for item in objects_at(run.manifest, "artifacts")}
    rows = []
    for name in run.files:
        artifact = stated.get(name)
        rows.append(
            (
                name,
                numbers.memory(_size(run.path / name)),
                (text_at(artifact, "role") if artifact else None) or numbers.NOTHING,
                (text_at(artifact, "sha256") if artifact else None) or _unstated(name),
            )
        )
    markup.table(["File", "Size", "Role", "SHA-256 stated in the manifest"], rows, numbers=[1])
    gone = [name for name in stated if name not in run.files]
    if gone:
        markup.note(f"Stated but missing: {', '.join(str(name) for name in gone)}")
    if run.files:
        _download(run)


def _unstated(name: str) -> str:
    return "the manifest itself" if name == MANIFEST else "not stated"


def _download(run: Run) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("File", run.files, key="file", width=320)
        st.download_button(
            "Download",
            data=(run.path / name).read_bytes,
            file_name=Path(name).name,
            icon=":material/download:",
            on_click="ignore",
        )


def metrics_download(folder: Path) -> None:
    """Draw the button that gives the metrics as they are in the file."""
    st.download_button(
        METRICS,
        data=(folder / METRICS).read_bytes,
        file_name=f"{folder.name}-{METRICS}",
        icon=":material/download:",
        on_click="ignore",
    )


def problems(folder: Path) -> None:
    """Draw the grade with its reasons, and everything that was found."""
    found = reading.checked(folder)
    grade = found.grade
    meaning = GRADES[grade.name].meaning
    st.html(f'<p class="tp-sub">{markup.sign(GRADES, grade.name)} {markup.safe(meaning)}</p>')
    if found.findings:
        problem_list.show(found.findings)
    else:
        markup.bullets("Why this grade", grade.reasons)


def _size(path: Path) -> float | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None
