"""The evidence strip and the smaller tabs of the Run page, one function each."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from dashboard.shared import form, reading
from dashboard.shared.charts import foreign_run
from dashboard.shared.charts.theme import Palette, choose_unit
from dashboard.shared.files import read_log
from dashboard.shared.form import format_yaml
from dashboard.shared.parts import markup, plan_answer
from dashboard.shared.parts.curves import stack_panels
from dashboard.shared.parts.problems import show as show_problems
from dashboard.shared.tables import headline
from dashboard.shared.words import (
    GRADES,
    LADDER,
    MARKS,
    advice_for_grade,
    cards,
    date_and_time,
    format_schemas,
    format_state,
    glimpse,
    merge_marks,
)
from evidence import layout
from evidence.bundle.secrets import strip_invisible
from evidence.effective import compare_settings, peak_memory
from evidence.grade import FOLDER
from evidence.imports.run import ImportedRun
from evidence.index.summary import RunSummary
from evidence.layout import LOG, PLAN, ROLLOUTS, SYSTEM
from evidence.report import DocumentState, document_errors
from evidence.rules.across import CONTRADICTS_COPY
from evidence.run import Run
from schemas import formats
from schemas.catalog import ROWS, document_kind
from schemas.formats import count, quantity
from schemas.problems import Problem
from schemas.reading import get_bool, get_number, get_objects, get_path, get_str

_MAX_FACTS = 500


def draw_plan(run: Run) -> None:
    """Compare the plan with the run, and draw the planned memory by part."""
    if run.plan is None:
        reason = "cannot be read, see Problems" if PLAN in run.files else "is missing; training writes it before step 1"
        markup.empty("No plan", f"plan.json {reason}.")
        return
    compared = headline.compare_with_plan(run.plan, run.manifest, reading.load_series(run.path))
    markup.table(["Figure", "Planned", "Observed", "Remark"], compared)
    st.header("Planned memory by part", anchor=False)
    peak = peak_memory(run.manifest)
    observed = peak.bytes if peak is not None and peak.scope == "one device" else None
    plan_answer.draw_memory(run.plan, key="run_memory", observed=observed)


def draw_configuration(run: Run) -> None:
    """Draw the declared, the effective and the default value of every setting."""
    only = st.toggle("Only changed settings", key="changed", bind="query-params")
    frame = settings_frame(run, only_changed=only)
    if differing := frame["Differs"].notna().sum():
        markup.note(f"≠ {quantity(differing, 'setting')} took effect with a different value than declared.")
    st.dataframe(
        frame.dropna(axis=1, how="all").fillna({"Differs": ""}),
        hide_index=True,
        height=600,
        placeholder=formats.NOTHING,
        column_config={"Setting": st.column_config.TextColumn(pinned=True, width=280)},
        alt="Settings",
    )
    markup.note("Effective values were read back from the compiled program. A dash means that this is not possible.")


def settings_frame(run: Run, *, only_changed: bool = False) -> pd.DataFrame:
    """Return the settings of a run as text, all or those that differ from their default or took effect differently."""
    compared = compare_settings(run.config, run.manifest)
    rows = []
    for setting in form.fields():
        found, is_declared = compared.get(setting.dotted), form.has_key(run.config, setting.path)
        declared, differs = get_path(run.config, *setting.path), found is not None and found.state == "differs"
        if not only_changed or differs or (is_declared and declared != setting.default):
            rows.append(
                {
                    "Setting": setting.dotted,
                    "Differs": "≠" if differs else None,
                    "Declared": strip_invisible(format_yaml(declared)) if is_declared else None,
                    "Effective": strip_invisible(format_yaml(found.effective)) if found and found.pointer else None,
                    "Default": None if setting.required else format_yaml(setting.default),
                }
            )
    return pd.DataFrame(rows, columns=["Setting", "Differs", "Declared", "Effective", "Default"])


def draw_sources(view: ImportedRun) -> None:
    """Draw the facts, scores and files of a run of another tool."""
    tools = ", ".join(view.tools) or "an unknown tool"
    markup.note(f"Written by {tools}. ≈ marks inferred values.")
    facts, scores = foreign_run.fact_rows(view), foreign_run.score_rows(view)
    if facts:
        inferred = [index for index, row in enumerate(facts[:_MAX_FACTS]) if row[2] != "stated"]
        markup.table(["Fact", "Value", "How", "Source", "Note"], facts[:_MAX_FACTS], quiet=inferred)
    if len(facts) > _MAX_FACTS:
        st.caption(f"{len(facts) - _MAX_FACTS:,} more facts are not shown. `trainproof show --json` prints all.")
    if scores:
        st.header("Stated scores", anchor=False)
        markup.table(["Score", "Value", "Checkpoint", "How", "Source", "Note"], scores, numbers=[1])
    st.header("Files", anchor=False)
    markup.table(["File", "Written by", "Contents"], foreign_run.file_rows(view))


def draw_examples(run: Run) -> None:
    """Draw the first training examples token by token, and counts over all examples."""
    found = run.raw(layout.FIRST_EXAMPLES)
    if not found:
        markup.empty("No examples", "first_examples.json is missing or cannot be read.")
        return
    end_token = get_bool(found, "counts", "end_token_supervised")
    ends = "?" if end_token is None else "yes" if end_token else "no, so the model never learns to stop"
    if ROLLOUTS in run.files:
        ends = "no, the model learns from its own completions (see Roll-outs)"
    counts = {
        "Examples": "rows",
        "Prompt tokens": "prompt_tokens",
        "Supervised tokens": "supervised_tokens",
        "Truncated": "truncated_rows",
        "Without answer": "rows_without_answer",
    }
    values = [count(get_number(found, "counts", name)) for name in counts.values()]
    markup.table([*counts, "End token supervised"], [(*values, ends)])
    markup.show_examples(get_objects(found, "examples"))


def draw_files(run: Run) -> None:
    """Draw every file with its size, role and hash in the manifest; the selected one can be downloaded."""
    listed = {get_str(item, "path"): item for item in get_objects(run.manifest, "artifacts")}
    sizes = {}
    for name in run.files:
        with suppress(OSError):
            sizes[name] = (run.path / name).lstat().st_size
    frame = pd.DataFrame(
        {
            "File": [strip_invisible(name) for name in run.files],
            "Size": [formats.size(sizes.get(name)) for name in run.files],
            "Role": [get_str(listed.get(name), "role") for name in run.files],
            "SHA-256 in the manifest": [get_str(listed.get(name), "sha256") for name in run.files],
        }
    )
    key = f"files {hash(run.files)}"
    row = markup.choose_row(frame, key=key, placeholder=formats.NOTHING, alt="Files of the run")
    if missing := [str(name) for name in listed if name not in run.files]:
        markup.note(f"Listed in the manifest, but missing: {', '.join(missing)}")
    if row is not None:
        name = run.files[row]
        markup.download("Download the selected file", (run.path / name).read_bytes, Path(name).name)
    elif run.files:
        markup.note("Select a file to download it.")


def draw_machine(run: Run) -> None:
    """Draw the figures of the machine's sensors while the run worked; nothing without such rows."""
    if rows := run.rows(SYSTEM).values:
        st.header("System metrics", anchor=False)
        if len(rows) < _CHARTED:
            markup.table(["Figure", *(f"Sample {number}" for number in range(1, len(rows) + 1))], machine_rows(rows))
            markup.note(f"Charts need {_CHARTED} samples; recording.system_every_seconds sets their interval.")
        else:
            alt = "Memory, load and waiting for data over the run"
            markup.show_figure(machine_figure(rows, markup.colours()), key="machine", alt=alt)
        if not rows[-1]["device_utilisation_percent"]:
            markup.note("No sensor for the load of devices was found.")


def draw_problems(folder: Path) -> None:
    """Draw the grade and the problems of the run, or the reasons for the grade if no problem was found."""
    found = reading.check(folder)
    grade = found.grade
    meaning = GRADES[grade.name].meaning
    st.html(f'<p class="tp-sub">{markup.sign(GRADES, grade.name, grade.coverage)} {markup.safe(meaning)}</p>')
    if not found.findings:
        markup.note("No problems found in the schemas, hashes, results, scores, settings and code of this run.")
        markup.bullets("Why this grade", grade.reasons)
    show_problems(found.findings)


_LEVELS = ("debug", "info", "warning", "error")
_OTHER = "other"
_MAX_MESSAGE = 2000
_MAX_ROWS, _MAX_PIXELS = 17, 640
_WIDTHS = {"Time": 150, "Level": 70, "Message": 900}


def draw_log(folder: Path, *, following: bool) -> None:
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
    log = read_log(folder / LOG)
    if not log.records:
        markup.empty("No log", "log.jsonl is missing or cannot be read.")
        return
    zone = reading.browser_timezone()
    rows = [
        (
            date_and_time(get_str(record, "time"), zone),
            get_str(record, "level") or "?",
            glimpse(get_str(record, "message") or "", _MAX_MESSAGE),
        )
        for record in log.records
    ]
    table = pd.DataFrame(rows, columns=["Time", "Level", "Message"])
    table = table[table["Level"].where(table["Level"].isin(_LEVELS), _OTHER).isin(levels)]
    note = f"{count(len(table))} of {quantity(len(rows), 'record')}{', newest first' if following else ''}."
    if log.is_cut:
        note += " Only the end of this long log is shown. The Files tab has the whole file."
    if log.unread:
        note += f" {quantity(log.unread, 'line')} could not be read."
    markup.note(note)
    st.dataframe(
        table[::-1] if following else table,
        height=_MAX_PIXELS if len(table) > _MAX_ROWS else "content",
        hide_index=True,
        column_config={name: st.column_config.Column(width=width) for name, width in _WIDTHS.items()},
        key="log",
    )


Row = Mapping[str, Any]

_CHARTED = 5
_PANEL_PIXELS = 110
_DASHES = ("solid", "dash", "dot", "dashdot")


def _readings(rows: Sequence[Row]) -> list[tuple[int, str, list[float | None]]]:
    """Return the panel (memory in bytes, load or waiting in percent), the name and the values of each sensor."""
    waits = [None if row["data_wait_fraction"] is None else 100 * row["data_wait_fraction"] for row in rows]
    found = [
        (1, "host memory", [row["host_memory_used_bytes"] for row in rows]),
        (1, "memory of the training process", [row["process_memory_bytes"] for row in rows]),
        (2, "CPU load", [row["host_cpu_percent"] for row in rows]),
        (3, "waiting for data", waits),
    ]
    for panel, key, what in ((1, "device_memory_used_bytes", "memory"), (2, "device_utilisation_percent", "load")):
        columns = itertools.zip_longest(*(row[key] for row in rows))
        found += [(panel, f"{what} of device {number}", list(values)) for number, values in enumerate(columns)]
    return found


def machine_rows(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """Return the rows of system.jsonl as a table with a line per sensor."""
    return [
        (name, *(formats.size(one) if panel == 1 else formats.percent(one and one / 100) for one in values))
        for panel, name, values in _readings(rows)
    ]


def machine_figure(rows: Sequence[Row], colours: Palette) -> go.Figure:
    """Draw the rows of system.jsonl."""
    divisor, unit = choose_unit("bytes", max(row["host_memory_bytes"] for row in rows))
    seconds = [row["clock_seconds"] - rows[0]["clock_seconds"] for row in rows]
    second_divisor, time_unit = choose_unit("seconds", max(seconds))
    panels = [f"Memory ({unit})", "Load (%)", "Waiting for data (%)"]
    figure = stack_panels(colours, panels, [_PANEL_PIXELS] * len(panels), legend_rows=1)
    for index, (panel, name, values) in enumerate(_readings(rows)):
        scale = divisor if panel == 1 else 1
        figure.add_scatter(
            x=[second / second_divisor for second in seconds],
            y=[None if value is None else value / scale for value in values],
            name=name,
            line={"color": colours.tones[("fair", "good", "quiet")[index % 3]], "dash": _DASHES[index % 4]},
            yaxis=f"y{panel}",
            hovertemplate="%{y:.4~g}",
        )
        figure.update_layout({f"yaxis{panel}": {"rangemode": "tozero"}})
    figure.update_xaxes(title_text=f"{time_unit} since the first row")
    return figure


_MAX_NAMES = 200
_MAX_VALUE = 2000
_MAX_LINE = 64 * 1024
_FIRST_LINES = 3
_MAX_LINES = 20
_LINES_AROUND = 3


def draw_evidence(summary: RunSummary, run: Run) -> None:
    """Draw a card for each document, and one for the grade."""
    columns = st.columns([3, 3, 4, 5])
    for column, (title, documents) in zip(columns, cards(summary.documents).items(), strict=False):
        with column.container(border=True, height="stretch", gap="xsmall", key=f"evidence_{title.split()[-1].lower()}"):
            _draw_card(title, documents, run)
    with columns[-1].container(border=True, height="stretch", gap="xsmall", key="evidence_ladder"):
        _draw_grade(summary, is_foreign=run.foreign() is not None)


def _draw_card(title: str, documents: Sequence[DocumentState], run: Run) -> None:
    sign = markup.sign(MARKS, merge_marks(documents)) if documents else ""
    lines = ""
    for document in documents:
        name = f"{markup.safe(document.name)} " if len(documents) > 1 and document.schema else ""
        lines += f"<p>{name}{markup.safe(format_state(document))}</p>"
    small = format_schemas(documents)
    if view := run.foreign():
        small = ", ".join(
            dict.fromkeys(
                name
                for one in documents
                for name, reading in view.files.items()
                if getattr(reading, foreign_run.CONTENTS[one.name]) and not reading.template
            )
        )
    small = markup.safe(glimpse(small, _MAX_NAMES))
    st.html(f'<div class="tp-card"><h2>{markup.safe(title)}{sign}</h2>{lines}<small>{small}</small></div>')
    names = [document.name for document in documents if document.is_there and document.name in run.files]
    if names and st.button("View", icon=":material/account_tree:", type="tertiary", key=f"view {title}"):
        st.dialog(title, width="large")(_draw_documents)(title, names, run)


def _draw_grade(summary: RunSummary, *, is_foreign: bool) -> None:
    """Draw the ladder of grades, the reasons of the grade, and how to reach the next one."""
    grade = summary.grade
    items = "".join(
        f'<li class="{"tp-here" if name == grade else ""}" title="{markup.safe(GRADES[name].meaning)}">'
        f"{GRADES[name].symbol} {markup.safe(name)}</li>"
        for name in LADDER
    )
    off = "" if grade in LADDER else markup.sign(GRADES, grade)
    scope = "judged by its files" if summary.scope == FOLDER else summary.scope
    # The reasons are as old as the list of runs, and those of a running run change with every row.
    reasons = " ".join(summary.reasons[:3]) if summary.status != "running" else "The run has not finished."
    lines = f"<p><b>Why {markup.safe(grade)}, {markup.safe(scope)}:</b> {markup.words(reasons)}</p>"
    if grade != LADDER[-1]:
        copies = [one for one in reading.check(summary.path).findings if one.code in CONTRADICTS_COPY]
        advice = copies[0].next if copies else advice_for_grade(grade, is_foreign=is_foreign)
        following = f"To reach {LADDER[LADDER.index(grade) + 1]}:" if grade in LADDER else "Next:"
        lines += f"<p><b>{following}</b> {markup.words(advice)}</p>"
    ladder = f'<ol class="tp-ladder" aria-label="Grades, lowest first">{items}</ol>'
    st.html(f'<div class="tp-card">{ladder}{off}{lines}</div>')


def _draw_documents(title: str, names: Sequence[str], run: Run) -> None:
    name = names[0]
    if len(names) > 1:
        name = st.segmented_control(title, names, default=names[0], required=True, label_visibility="collapsed")
    errors = document_errors(run.path, name, reading.check(run.path).findings)
    with st.container(horizontal=True, vertical_alignment="center"):
        st.header(name, anchor=False)
        markup.download("Download", (run.path / name).read_bytes, f"{run.path.name}-{name}", type="tertiary")
    left, right = st.columns([3, 2]) if errors else (st.container(), st.empty())
    with left:
        _draw_content(name, run, errors)
    with right:
        show_problems(errors)


def _draw_content(name: str, run: Run, errors: Sequence[Problem]) -> None:
    """Draw a document as a tree. Of rows, and of a document that is not JSON, draw the wrong or the first lines."""
    if document := run.raw(name):
        st.json(_masked(document), expanded=2)
        return
    try:
        around = 0 if document_kind(name) in ROWS else _LINES_AROUND
        lines = excerpt(run.path / name, {one.line for one in errors if one.line}, around=around)
    except OSError as error:
        markup.note(f"{name} cannot be read: {error.strerror or error}.")
        return
    st.code("\n".join(f"{number:>6}  {_masked(line)}" for number, line in lines), language=None, wrap_lines=True)


def excerpt(path: Path, wrong: Collection[int], *, around: int = 0) -> Sequence[tuple[int, str]]:
    """Return the wrong lines of a file and those `around` each with their numbers, or the first lines if none is wrong.

    At most 20 wrong lines, and 64 KiB of each line, are returned.

    Raises:
        OSError: The file cannot be read.
    """
    first = sorted(wrong)[:_MAX_LINES]
    wanted = {line for number in first for line in range(number - around, number + around + 1)}
    wanted = wanted or set(range(1, _FIRST_LINES + 1))
    with path.open("rb") as file:
        lines = enumerate(itertools.islice(file, max(wanted)), start=1)
        found = [(number, line[:_MAX_LINE]) for number, line in lines if number in wanted]
    return [(number, line.decode("utf-8", "replace").rstrip("\r\n")) for number, line in found]


def _masked(value: Any) -> Any:
    """Return a JSON value with long strings shortened and secrets in strings masked."""
    if isinstance(value, dict):
        return {_masked(key): _masked(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_masked(inner) for inner in value]
    return glimpse(strip_invisible(value), _MAX_VALUE) if isinstance(value, str) else value
