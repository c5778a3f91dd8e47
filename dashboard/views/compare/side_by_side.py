"""Side by side: the first of several runs compared with each of the others."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import pandas as pd
import plotly.express as px
import plotly.graph_objects as go
import streamlit as st

from dashboard.shared import reading
from dashboard.shared.charts import foreign_run
from dashboard.shared.form import format_yaml
from dashboard.shared.parts import markup, progress, run_box
from dashboard.shared.parts.curves import draw_curves, load_line
from dashboard.shared.parts.run_box import MAX_SIDE_BY_SIDE
from dashboard.shared.words import GRADES, STATUSES, Sign, both_ends, csv_text, glimpse, label, shorten
from evidence import layout
from evidence.bundle.secrets import strip_invisible
from evidence.compare.scores import Comparison, Flip, Pair, PairVerdict, judge_pairs
from evidence.compare.settings import ABSENT, ComparedSetting
from evidence.index.summary import RunSummary
from evidence.report import Headline
from evidence.run import Run
from schemas import formats
from schemas.reading import get_str

_SOUND_GRADES = {"verified", "consistent", "measured"}
_MAX_REASONS = 3
_MAX_CHANGES = 8
_MAX_VALUE = 40
_MAX_CELL = 300
_MAX_OUTPUT = 20_000

_VERDICTS: Mapping[str, Sign] = {
    "better": Sign(symbol="▲", tone="good", meaning="The score is higher, and not by chance (p < 0.05)."),
    "worse": Sign(symbol="▼", tone="bad", meaning="The score is lower, and not by chance (p < 0.05)."),
    "no significant difference": Sign(symbol="●", tone="quiet", meaning="The difference may be chance (p ≥ 0.05)."),
    "not compared": Sign(symbol="∅", tone="quiet", meaning="The scores cannot be compared."),
}
_WORDS = {"cannot tell": "no significant difference"}
_MARKERS = {"better": "triangle-up", "worse": "triangle-down", "no significant difference": "circle"}
_COLOURS = {"better": "#3a9d6e", "worse": "#d05555", "no significant difference": "#7d8a93"}
"""Readable on the light and the dark background."""

PLOT_CONFIG: Mapping[str, Any] = {"displaylogo": False, "toImageButtonOptions": {"format": "svg"}}


def draw(chosen: Sequence[str], known: Mapping[str, RunSummary], toolbar: AbstractContextManager[object]) -> None:
    """Draw the comparison, and the export of its tables into the toolbar."""
    names = chosen[:MAX_SIDE_BY_SIDE]
    if len(names) < 2:
        markup.empty(
            f"Choose a run to compare with {names[0]}" if names else "Choose two or more runs",
            "Use the button above to choose runs. The first run is the baseline.",
            f"{progress.TAB} compares a smoke run with its full run. Scatter shows all runs.",
        )
        return
    if not reading.are_as_judged([known[name] for name in names]):
        return
    folders = [known[name].path for name in names]
    runs = {folder.name: reading.load_run(folder) for folder in folders}
    # The curves are sent to the browser before the differences are computed.
    top = st.container()
    _draw_curves(runs, known)
    compared = reading.compare(folders)
    with top:
        _draw_verdicts(compared)
    with toolbar:
        _draw_export(compared)
        run_box.draw_share(folders)
    st.header("Figures and settings", anchor=False)
    every = st.toggle("Show equal values too", key="equal", bind="query-params")
    _draw_figures(compared, runs, every=every)
    _draw_settings(compared, every=every)
    _draw_flips(compared, runs)


# Verdicts


def _draw_verdicts(compared: Comparison) -> None:
    """Draw doubts about the runs, then for each run the difference in score, its costs and what was changed."""
    grades = dict(zip(compared.names, compared.grades, strict=True))
    doubtful = [name for name, grade in grades.items() if grade.name == "contradictory"]
    for name, grade in grades.items():
        if grade.name not in _SOUND_GRADES and grade.reasons:
            sign = markup.sign(GRADES, grade.name)
            st.html(f'<p class="tp-sub">{markup.safe(name)} {sign} {markup.safe(grade.reasons[0])}</p>')
    verdicts = judge_pairs(compared)
    items = "".join(_verdict_html(verdict, doubtful) for verdict in verdicts)
    st.html(f'<ul class="tp-verdicts">{items}</ul>')
    frame = verdicts_frame(verdicts, doubtful)
    if len(frame):
        scores = "; ".join(f"{one.pair.second} {describe_score(one)}" for one in verdicts if one.pair.score)
        st.plotly_chart(
            difference_figure(frame, compared.names[0]),
            key="difference_in_score",
            config={**PLOT_CONFIG, "modeBarButtons": [["toImage"]]},
            alt=f"Difference in exact match from {compared.names[0]} with its 95 % interval: {scores}",
        )
        st.caption(f"Shaded: differences too small to detect with {frame['Items'][0]:,} items.")
    if compared.smoke is not None:
        markup.note(f"This is a smoke run and a full run: see {progress.TAB} above.")


def _verdict_html(verdict: PairVerdict, doubtful: Collection[str]) -> str:
    name = verdict.pair.second
    lines = [markup.words(describe_score(verdict)), markup.safe(describe_costs(verdict))]
    if verdict.sameness:
        lines.append(f"<b>{markup.safe(verdict.sameness)}.</b>")
    body = "".join(f"<p>{line}</p>" for line in lines if line)
    for setting in verdict.changed[:_MAX_CHANGES]:
        before, after = (markup.safe(shorten(format_setting(value), _MAX_VALUE)) for value in setting.values)
        body += f'<span class="tp-chip">{markup.safe(setting.name.rpartition(".")[2])} {before} → {after}</span>'
    if len(verdict.changed) > _MAX_CHANGES:
        body += f'<span class="tp-dim">and {len(verdict.changed) - _MAX_CHANGES:,} more, see below</span>'
    doubt = f" {markup.sign(GRADES, 'contradictory')}" if name in doubtful else ""
    sign = markup.sign(_VERDICTS, _WORDS.get(verdict.word, verdict.word))
    return f"<li><b>{markup.safe(name)}</b> {sign}{doubt}{body}</li>"


def describe_score(verdict: PairVerdict) -> str:
    """Describe the paired difference in score, or why the scores are not compared."""
    score, refused = verdict.pair.score, verdict.pair.refused
    if score is None:
        more = [f"There are {len(refused) - _MAX_REASONS:,} more reasons."] if len(refused) > _MAX_REASONS else []
        return " ".join([formats.NOTHING, *refused[:_MAX_REASONS], *more])
    low, high = (formats.points(end).removesuffix(" points") for end in (score.low, score.high))
    p_value, table = score.adjusted_p_value, score.table
    p_text = f"p = {formats.number(p_value, 3)}" if p_value >= 0.001 else "p < 0.001"
    correction = " after Holm’s correction" if p_value != score.p_value else ""
    text = (
        f"{formats.points(score.difference)} (95 % interval {low} to {high}), {score.test}, {p_text}{correction}. "
        f"Of {table.items:,} items, {table.only_second:,} were fixed and {table.only_first:,} broken"
    )
    if score.detectable_difference is not None:
        text += f"; the smallest detectable difference is {100 * score.detectable_difference:.1f} points"
    return f"{text}. {score.gain_of_form}." if score.gain_of_form else f"{text}."


def describe_costs(verdict: PairVerdict) -> str:
    """Describe loss, time and memory: `time 3 min 20 s → 4 min 00 s (+20 %)`. Losses need the same objective."""
    names = {"last loss": "loss", "training time": "time", "peak memory": "memory"}
    objectives = next((one.values for one in verdict.changed if one.name == "objective.kind"), None)
    parts = []
    for first, second in verdict.costs:
        name = names[first.name]
        if name == "loss" and objectives is not None:
            parts.append(f"loss {formats.NOTHING} (objectives {objectives[0]} and {objectives[1]} are not comparable)")
        elif first.value == second.value:
            parts.append(f"same {name}")
        elif first.value is not None and second.value is not None:
            change = f" ({percent_change(first.value, second.value)})" if first.value else ""
            parts.append(f"{name} {first.as_text()} → {second.as_text()}{change}")
    return " · ".join(parts)


def percent_change(before: float, after: float) -> str:
    """Return a relative change: `+20 %`, or `×15` if it is large."""
    if after >= 10 * before > 0:
        return f"×{after / before:,.0f}"
    return f"{after / before - 1:+.0%}".replace("%", " %").replace("-", "−")


def verdicts_frame(verdicts: Sequence[PairVerdict], doubtful: Collection[str] = ()) -> pd.DataFrame:
    """Return a row for each pair with a score difference, in percentage points, with its verdict and interval."""
    return pd.DataFrame(
        [
            {
                "Run": verdict.pair.second + (" (contradictory)" if verdict.pair.second in doubtful else ""),
                "Verdict": _WORDS.get(verdict.word, verdict.word),
                "Difference": 100 * score.difference,
                "Low": 100 * score.low,
                "High": 100 * score.high,
                "Smallest detectable": 100 * (score.detectable_difference or math.nan),
                "Test": score.test,
                "p": score.adjusted_p_value,
                "Items": score.table.items,
                "Fixed": score.table.only_second,
                "Broken": score.table.only_first,
            }
            for verdict in verdicts
            if (score := verdict.pair.score) is not None
        ]
    )


def difference_figure(frame: pd.DataFrame, baseline: str) -> go.Figure:
    """Draw each difference of `verdicts_frame` with its interval, on a band of differences too small to detect."""
    frame = frame.assign(Run=frame["Run"].map(markup.safe))
    figure = px.scatter(
        frame,
        x="Difference",
        y="Run",
        color="Verdict",
        symbol="Verdict",
        error_x=frame["High"] - frame["Difference"],
        error_x_minus=frame["Difference"] - frame["Low"],
        color_discrete_map=_COLOURS,
        symbol_map=_MARKERS,
        category_orders={"Run": list(frame["Run"])},
        labels={"Difference": f"Difference from {markup.safe(baseline)} (percentage points)", "Run": ""},
        hover_data={"Difference": ":+.1f", "Verdict": False},
        height=110 + 30 * len(frame),
    )
    figure.update_traces(marker_size=12)
    figure.add_vline(x=0, line_width=1)
    for row, half in enumerate(reversed(frame["Smallest detectable"])):
        if not math.isnan(half):
            band = {"x0": -half, "x1": half, "y0": row - 0.4, "y1": row + 0.4, "line_width": 0, "layer": "below"}
            figure.add_shape(type="rect", fillcolor="rgba(128, 140, 150, 0.22)", **band)
    figure.update_yaxes(range=[-0.6, len(frame) - 0.4])
    legend = {"title_text": "", "orientation": "h", "y": 1, "yanchor": "bottom"}
    return figure.update_layout(legend=legend, margin={"t": 30, "b": 0})


# Curves


def _draw_curves(runs: Mapping[str, Run], known: Mapping[str, RunSummary]) -> None:
    st.header("Curves", anchor=False)
    lines, remarks = zip(*(load_line(name, run, known) for name, run in runs.items()), strict=True)
    drawn = [line for line in lines if line.rows]
    if not drawn:
        markup.note("No run here has metrics.")
        return
    draw_curves(drawn, key="compare_curves", name="compared")
    for name, remark in zip(runs, remarks, strict=True):
        if remark:
            markup.note(f"{name}: {remark}")
    if missing := [line.name for line in lines if not line.rows]:
        markup.note(f"Without metrics: {', '.join(missing)}")


# Figures and settings


def _draw_figures(compared: Comparison, runs: Mapping[str, Run], *, every: bool) -> None:
    frame = figures_frame(compared)
    _draw_frame(frame if every else frame[frame.nunique(axis=1) > 1], "Figures of the compared runs")
    for name, withheld in zip(compared.names, compared.withheld, strict=True):
        if withheld:
            markup.note(f"{name}: {' '.join(withheld)}")
    imported = {name: view for name, run in runs.items() if (view := run.foreign()) is not None}
    if imported:
        markup.note(
            f"Imported from other tools: {', '.join(imported)}. Their figures and scores are shown as the files state "
            "them, and were not recomputed. The tab Sources of the run page lists file and line of each figure."
        )
    if rows := [(name, *row) for name, view in imported.items() for row in foreign_run.score_rows(view)]:
        markup.table(["Run", "Score", "Value", "Checkpoint", "How", "Source", "Note"], rows, numbers=[2])


def _draw_settings(compared: Comparison, *, every: bool) -> None:
    frame = settings_frame(compared)
    shown = frame if every else frame.loc[frame.index.get_level_values("Kind").isin(["changed", "derived"])]
    if len(shown):
        _draw_frame(shown, "Settings of the compared runs")
        markup.note("Derived settings follow from changed ones, the machine or the code.")
    else:
        markup.note("No setting differs.")
    if hidden := len(frame) - len(shown):
        markup.note(f"{formats.quantity(hidden, 'setting')} hidden: equal, or not in every run.")


def _draw_frame(frame: pd.DataFrame, alt: str) -> None:
    st.dataframe(frame.map(lambda text: shorten(shorten_hash(text), _MAX_CELL)), alt=alt)


def figures_frame(compared: Comparison) -> pd.DataFrame:
    """Return grade, status and figures as text, with a column per run."""
    rows = {
        "grade": [label(GRADES, grade.name) for grade in compared.grades],
        "status": [label(STATUSES, status) if status else formats.NOTHING for status in compared.statuses],
    }
    for figures in zip(*compared.headlines, strict=True):
        rows[figures[0].name] = [_format_headline(figure) for figure in figures]
    return pd.DataFrame.from_dict(rows, orient="index", columns=list(compared.names)).rename_axis("Figure")


def _format_headline(figure: Headline) -> str:
    """Format a figure like the other pages: fractions as percentages."""
    if figure.unit != "fraction" or figure.value is None:
        return figure.as_text()
    text = formats.percent(figure.value)
    if figure.low is not None:
        text += f" ({formats.percent_range(figure.low, figure.high)})"
    return text + (f", n = {formats.count(figure.of)}" if figure.of is not None else "")


def settings_frame(compared: Comparison) -> pd.DataFrame:
    """Return all settings as text, changed ones first, then those that follow from them, the machine or the code."""
    diff = compared.settings_diff()
    rows: list[tuple[str, ComparedSetting]] = [(one.kind, one) for one in diff.by_kind()]
    rows += [("not in every run", one) for one in diff.unheld] + [("equal", one) for one in diff.equal]
    return pd.DataFrame(
        [[_format_value(value) for value in setting.values] for _, setting in rows],
        columns=list(compared.names),
        index=pd.MultiIndex.from_tuples([(kind, one.name) for kind, one in rows], names=["Kind", "Setting"]),
    )


def _format_value(value: object) -> str:
    return formats.NOTHING if value == ABSENT else strip_invisible(format_yaml(value))


def format_setting(value: object) -> str:
    """Format a setting as in YAML, a hash by its first characters, and a missing value as a dash."""
    return shorten_hash(_format_value(value))


def shorten_hash(text: str) -> str:
    """Return the first characters of a hash or commit, and any other text as it is."""
    return text[:12] + "…" if len(text) in {40, 64} and text.isalnum() else text


def _draw_export(compared: Comparison) -> None:
    tables: dict[str, Callable[[], pd.DataFrame]] = {
        "Figures": lambda: figures_frame(compared).reset_index(),
        "Settings": lambda: settings_frame(compared).reset_index(),
    }
    if any(pair.score is not None for pair in compared.pairs):
        tables["Differences in score"] = lambda: verdicts_frame(judge_pairs(compared))
        tables["Flipped items"] = lambda: pd.concat([flips_frame(pair) for pair in compared.pairs if pair.score])
    with st.popover("Tables as CSV", icon=":material/download:"):
        for title, make in tables.items():
            markup.download(title, lambda make=make: csv_text(make()), f"{title.lower()}.csv", mime="text/csv")


# Flipped items


@st.fragment
def _draw_flips(compared: Comparison, runs: Mapping[str, Run]) -> None:
    """Draw the items that only one run of a pair answered correctly, and both outputs to the selected one."""
    scored = {pair.second: (pair, pair.score.flips) for pair in compared.pairs if pair.score is not None}
    if not scored:
        return
    st.header("Items that flipped", anchor=False)
    if unchanged := [name for name, (_, flips) in scored.items() if not flips]:
        markup.note(f"No answers changed: {', '.join(unchanged)}.")
    flipped = [name for name in scored if name not in unchanged]
    if not flipped:
        return
    name = flipped[0]
    if len(flipped) > 1:
        name = st.selectbox("Run", flipped, key="flips", bind="query-params", width=420)
    pair, flips = scored[name]
    fixed = sum(flip.kind == "fixed" for flip in flips)
    markup.note(
        f"{name}: {formats.quantity(len(flips), 'item')} flipped, {fixed} fixed and {len(flips) - fixed} broken. "
        "Select a row to read both outputs."
    )
    frame = flips_frame(pair).drop(columns="Run").map(lambda text: glimpse(strip_invisible(text), _MAX_CELL))
    alt = f"Items that only {pair.first} or only {name} answered correctly"
    row = markup.choose_row(frame, key=f"flips of {pair.first} and {name}", alt=alt)
    _draw_outputs(pair, flips[row or 0], runs)


def _draw_outputs(pair: Pair, flip: Flip, runs: Mapping[str, Run]) -> None:
    texts = {f"Prompt of {flip.id}; expected answer: {flip.expected}": flip.prompt}
    for name, is_right in ((pair.first, flip.kind == "broken"), (pair.second, flip.kind == "fixed")):
        rows = runs[name].rows(layout.PREDICTIONS).values
        output = next((get_str(row, "output_text") for row in rows if get_str(row, "id") == flip.id), None)
        texts[f"{'✓' if is_right else '✕'} {name} is {'correct' if is_right else 'wrong'}"] = output or ""
    for place, (title, text) in zip([st.container(), *st.columns(2)], texts.items(), strict=True):
        with place:
            markup.note(title)
            st.code(strip_invisible(both_ends(text, _MAX_OUTPUT)), language=None, wrap_lines=True)


def flips_frame(pair: Pair) -> pd.DataFrame:
    """Return the items that only one run of a pair answered correctly, broken ones first."""
    rows = []
    for flip in pair.score.flips if pair.score else ():
        answers = ["no answer" if one is None else one for one in (flip.first_answer, flip.second_answer)]
        change = "✓ fixed" if flip.kind == "fixed" else "✕ broken"
        rows.append((pair.second, flip.id, change, flip.prompt, flip.expected, *answers))
    columns = ["Run", "Item", "Change", "Prompt", "Expected", "Answer of the baseline", "Answer of the run"]
    return pd.DataFrame(rows, columns=columns)
