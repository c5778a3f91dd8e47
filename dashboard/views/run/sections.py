"""The smaller tabs of the Run page, one function each."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import streamlit as st

from dashboard.shared import form, reading
from dashboard.shared.charts import foreign_run, machine_figure
from dashboard.shared.parts import markup, plan_answer
from dashboard.shared.parts.problems import show as show_problems
from dashboard.shared.tables import headline
from dashboard.shared.words import GRADES, date_and_time, glimpse
from evidence import layout
from evidence.bundle.secrets import strip_invisible
from evidence.effective import peak_memory
from evidence.imports.run import ImportedRun
from evidence.layout import METRICS, PLAN, ROLLOUTS, SYSTEM
from evidence.run import Run
from schemas import formats
from schemas.formats import count, quantity
from schemas.reading import get_bool, get_number, get_objects, get_str

_MOST_FACTS = 500


def plan(run: Run) -> None:
    """Compare the plan with the run, and draw the planned memory by part."""
    if run.plan is None:
        reason = "cannot be read, see Problems" if PLAN in run.files else "is missing; training writes it before step 1"
        markup.empty("No plan", f"plan.json {reason}.")
        return
    markup.table(["Figure", "Planned", "Observed", "Remark"], headline.forecasts(run.plan, run.manifest))
    st.header("Planned memory by part", anchor=False)
    peak = peak_memory(run.manifest)
    observed = peak.bytes if peak is not None and peak.scope == "one device" else None
    plan_answer.memory_picture(run.plan, key="run_memory", observed=observed)
    markup.table(["Part", "Size on each device", "Because"], headline.parts(run.plan), numbers=[1])


def configuration(run: Run) -> None:
    """Draw the declared, the effective and the default value of every setting."""
    only = st.toggle("Only changed settings", key="changed", bind="query-params")
    shown = [row for row in form.run_settings(run) if not only or row.is_changed or row.differs]
    differing = sum(row.differs for row in shown)
    if differing:
        markup.note(f"≠ {quantity(differing, 'setting')} took effect with another value than declared.")
    frame = pd.DataFrame(
        [
            {
                "Setting": row.key,
                "Differs": "≠" if row.differs else None,
                "Declared": row.declared,
                "Effective": row.effective,
                "Default": row.default,
                "Remark": row.remark or None,
            }
            for row in shown
        ]
    )
    frame = frame.map(lambda cell: strip_invisible(cell) if isinstance(cell, str) else cell)
    st.dataframe(
        frame.dropna(axis=1, how="all").fillna({"Differs": "", "Remark": ""}),
        hide_index=True,
        height=600,
        placeholder=formats.NOTHING,
        column_config={"Setting": st.column_config.TextColumn(pinned=True, width=280)},
        alt="Settings",
    )
    markup.note("Effective values were read back from the compiled program. A dash means that this is not possible.")


def sources(view: ImportedRun) -> None:
    """Draw the facts, scores and files of a run of another tool."""
    tools = ", ".join(view.tools) or "an unknown tool"
    markup.note(f"Written by {tools}. ≈ marks inferred values.")
    facts = foreign_run.fact_rows(view)
    if facts:
        markup.table(
            ["Fact", "Value", "How", "Source", "Note"],
            facts[:_MOST_FACTS],
            quiet=[index for index, row in enumerate(facts[:_MOST_FACTS]) if row[2] != "stated"],
        )
    if len(facts) > _MOST_FACTS:
        st.caption(f"{len(facts) - _MOST_FACTS:,} more facts are not shown. `trainproof show --json` prints all.")
    scores = foreign_run.score_rows(view)
    if scores:
        st.header("Stated scores", anchor=False)
        markup.table(["Score", "Value", "Checkpoint", "How", "Source", "Note"], scores, numbers=[1])
    st.header("Files", anchor=False)
    markup.table(["File", "Written by", "Contents"], foreign_run.file_rows(view))


def examples(run: Run) -> None:
    """Draw the first training examples token by token, and counts over all examples."""
    found = run.raw(layout.FIRST_EXAMPLES)
    if not found:
        markup.empty("No examples", "first_examples.json is missing or cannot be read.")
        return
    end_token = get_bool(found, "counts", "end_token_supervised")
    ends = "?" if end_token is None else "yes" if end_token else "no, so the model never learns to stop"
    if ROLLOUTS in run.files:
        ends = "no, the model learns from its own completions (see Roll-outs)"
    markup.table(
        ["Examples", "Prompt tokens", "Supervised tokens", "Truncated", "Without answer", "End token supervised"],
        [
            (
                *(
                    count(get_number(found, "counts", name))
                    for name in ("rows", "prompt_tokens", "supervised_tokens", "truncated_rows", "rows_without_answer")
                ),
                ends,
            )
        ],
    )
    markup.show_examples(get_objects(found, "examples"))


def files(run: Run) -> None:
    """Draw every file with its size, role and hash in the manifest; the selected one can be downloaded."""
    listed = {get_str(item, "path"): item for item in get_objects(run.manifest, "artifacts")}
    artifacts = [listed.get(name, {}) for name in run.files]
    frame = pd.DataFrame(
        {
            "File": [strip_invisible(name) for name in run.files],
            "Size": [formats.size(_size(run.path / name)) for name in run.files],
            "Role": [get_str(artifact, "role") for artifact in artifacts],
            "SHA-256 in the manifest": [get_str(artifact, "sha256") for artifact in artifacts],
        }
    )
    table = st.dataframe(
        frame,
        hide_index=True,
        key=f"files {hash(run.files)}",
        placeholder=formats.NOTHING,
        on_select="rerun",
        selection_mode="single-row",
        alt="Files of the run",
    )
    if missing := [str(name) for name in listed if name not in run.files]:
        markup.note(f"Listed in the manifest, but missing: {', '.join(missing)}")
    for row in table["selection"]["rows"]:
        name = run.files[row]
        markup.download("Download the selected file", (run.path / name).read_bytes, Path(name).name)
    if run.files and not table["selection"]["rows"]:
        markup.note("Select a file to download it.")


def metrics_download(folder: Path) -> None:
    """Draw the button that gives the metrics as they are in the file."""
    markup.download(
        "JSONL, the file itself", (folder / METRICS).read_bytes, f"{folder.name}-{METRICS}", icon=None, width="stretch"
    )


def machine(run: Run) -> None:
    """Draw the figures of the machine's sensors while the run worked; nothing without such rows."""
    rows = run.rows(SYSTEM).values
    if not rows:
        return
    st.header("Machine at work", anchor=False)
    told = machine_figure.describe(rows)
    picture = machine_figure.draw(rows, markup.colours())
    markup.show_figure(picture, key="machine", alt=f"Memory, load and waiting for data over the run. {told}")
    markup.note(told)


def problems(folder: Path) -> None:
    """Draw the grade, and the problems of the run or else the reasons of the grade."""
    found = reading.check(folder)
    grade = found.grade
    meaning = GRADES[grade.name].meaning
    st.html(f'<p class="tp-sub">{markup.sign(GRADES, grade.name, grade.coverage)} {markup.safe(meaning)}</p>')
    if found.findings:
        show_problems(found.findings)
    else:
        markup.bullets("Why this grade", grade.reasons)


def _size(path: Path) -> float | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None


_LEVELS = ("debug", "info", "warning", "error")
_OTHER = "other"
_LONGEST_MESSAGE = 2000
_ROW_PIXELS, _MOST_PIXELS = 35, 640


def section(folder: Path, *, following: bool) -> None:
    """Draw the records of a run's log; newest first while the run is running."""
    levels = st.pills(
        "Levels",
        [*_LEVELS, _OTHER],
        default=["info", "warning", "error", _OTHER],
        selection_mode="multi",
        key="levels",
        bind="query-params",
        help="Other: a missing or unknown level.",
    )
    log = reading.load_log(folder)
    if not log.records:
        markup.empty("No log", "log.jsonl is missing or cannot be read.")
        return
    zone = reading.reader_zone()
    rows = [
        (
            date_and_time(get_str(record, "time"), zone),
            get_str(record, "level") or "?",
            glimpse(get_str(record, "message") or "", _LONGEST_MESSAGE),
        )
        for record in log.records
    ]
    table = pd.DataFrame(rows, columns=["Time", "Level", "Message"])
    table = table[table["Level"].where(table["Level"].isin(_LEVELS), _OTHER).isin(levels)]
    notes = [f"{count(len(table))} of {quantity(len(rows), 'record')}{', newest first' if following else ''}."]
    if log.is_cut:
        notes.append("The log is long: only its end was read. Download it in the tab Files.")
    if log.unread:
        notes.append(f"{quantity(log.unread, 'line')} could not be read.")
    markup.note(" ".join(notes))
    st.dataframe(
        table[::-1] if following else table,
        height=min(_MOST_PIXELS, _ROW_PIXELS * (len(table) + 1) + 3),
        hide_index=True,
        column_config={"Time": st.column_config.Column(width=150), "Level": st.column_config.Column(width=70)},
        key="log",
    )
