"""The Runs page: find, sort, filter and group runs, and select them to open, compare, package or annotate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import pandas as pd
import streamlit as st

from dashboard.shared import reading, state
from dashboard.shared.parts import gate, markup, problems, progress, run_box
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.reading import browser_timezone
from dashboard.shared.tables import runs as tables
from dashboard.shared.tables.runs import RunTable
from dashboard.shared.words import GRADES, STATUSES, Tone, every_mark, label, plain
from evidence.index.index import check_paths
from evidence.index.summary import RunSummary
from evidence.notes import NotesEdit, change_notes
from evidence.report import report_as
from schemas.formats import NOTHING, quantity

_ADDRESS = "parameters of the last visit"
_SELECTED = "selected runs"
_GRID = "rows and number of the grid"
_CLICK = "runs_table_open"
_ROW_PIXELS = 36
_HEAD_PIXELS = 35
_FEW_ROWS = 10
_MAX_NAME_PIXELS = 360

_SEARCH_HELP = f"""Separate words and conditions by spaces. A run must match all:

- `status:failed` contains a word; `-status:failed` does not
- `grade:verified,consistent` contains one of them
- `model="my model"` is exactly this; `model=""` has no value
- `loss<1.2`, `steps>=100`; `started>2026-11-01` in UTC
- `score>60%` or `score>0.6`
- `optimizer.learning_rate<0.001` for any setting or figure

Fields: {", ".join(tables.QUERY_FIELDS)}.
"""
_HIDDEN = {"run", "status", "note", "planned", "baseline", "memory", "problem", "archived"}
_DEFAULT_COLUMNS = [key for key in tables.FIELDS if key not in _HIDDEN]
_COLOURS: Mapping[Tone, Literal["green", "blue", "orange", "red", "gray"]] = {
    "good": "green",
    "fair": "blue",
    "poor": "orange",
    "bad": "red",
    "quiet": "gray",
}


def _columns(names: Sequence[str] = ()) -> dict[str, Any]:
    """Return the configuration of each column by its name in the search box; the first is as wide as these names."""
    make = st.column_config
    statuses = {label(STATUSES, word): sign.tone for word, sign in STATUSES.items()}
    grades = statuses | {label(GRADES, word): sign.tone for word, sign in GRADES.items()}

    def signs(title: str, tones: Mapping[str, Tone], help: str, width: int) -> Any:
        colours = [_COLOURS[tone] for tone in tones.values()]
        return make.MultiselectColumn(title, options=list(tones), color=colours, help=help, width=width)

    def text(title: str, width: int, help: str | None = None) -> Any:
        return make.TextColumn(title, help=help, width=width)

    def number(title: str, help: str, width: int = 84, format: str = "localized") -> Any:
        return make.NumberColumn(title, help=help, format=format, width=width)

    opens: Any = {"pinned": True, "alignment": "left", "type": "tertiary", "key": _CLICK}
    documents = "Run manifest, eval summary and logs: do they follow their schemas, and are they as the run wrote them?"
    differs = "Settings that differ from the run in Compared with, as before → now."
    reference = "The run that this one continues, else the previous run of the model, else the defaults."
    exact = "Exact match; empty for contradictory runs."
    width = min(_MAX_NAME_PIXELS, max([120, *(24 + 8 * len(name) for name in names)]))
    run = make.ButtonColumn("Run", help="Name of the run folder; a click opens the run.", width=width, **opens)
    columns: dict[str, Any] = {
        "grade": signs("Grade", grades, "Grade, or how an unfinished run ended.", 130),
        "evidence": signs("Evidence", every_mark(), documents, 110),
        "changed": text("Changed", 340, differs),
        "reference": text("Compared with", 140, reference),
        "score": make.ProgressColumn("Score", help=exact, format="%.1f %%", max_value=100, width=120),
        "interval": text("95 % interval", 110, "Interval of the score."),
        "loss": number("Last loss", "Loss of the last logged step.", 80, "%.4f"),
        "curve": make.LineChartColumn("Loss curve", help="Loss over the run.", width=100),
        "started": make.DatetimeColumn("Started", format="distance", timezone=str(browser_timezone()), width=110),
        "minutes": number("Duration", "From start to end.", 110),
        "tag": make.ListColumn("Tags", width=110),
        "mode": text("Mode", 62, "smoke or full."),
        "model": text("Model", 200),
        "device": text("Device", 110),
        "steps": number("Steps", "Optimizer steps completed.", 70),
        "tokens": number("Tokens", "Training tokens seen, without padding.", 90),
        "repeated": text("Reproduced", 140, "How much someone you trust reproduced."),
        "method": text("Method", 72, "Which parameters were trained."),
        "problems": number("Problems", "Errors and warnings."),
        "status": signs("Status", statuses, "Running, or how the run ended.", 126),
        "note": text("Note", 300),
        "planned": number("Planned", "Optimizer steps requested."),
        "memory": text("Peak memory", 220, "Peak memory with its scope."),
        "baseline": number("Baseline", "Score of the untrained model.", 90, "%.1f %%"),
        "problem": text("First problem", 420, "The worst problem."),
        "archived": text("Archived", 84),
    }
    for key, column in columns.items():
        if key in tables.QUERY_FIELDS and key != column["label"].lower():
            column["help"] = f"{column['help'] or ''} In a search: {key}.".lstrip()
    return {"run": run, **columns}


def page() -> None:
    """Draw the page."""
    summaries = reading.summaries()
    if not summaries:
        markup.heading("Runs")
        markup.empty(
            f"No runs in {state.root()} yet",
            "A run is a folder with settings, metrics, log, predictions and their hashes.",
            "A smoke run takes seconds on this machine and shows every page. It tests the pipeline, not the model.",
        )
        gate.smoke_button()
        return
    if summaries[0].path == state.root() and summaries[0].first_problem:
        markup.heading("Runs")
        problems.show([summaries[0].first_problem])
        return
    runs = reading.run_table(summaries)
    if state.has_arrived() and not st.query_params:  # The page was opened by a link without any.
        st.query_params.from_dict(st.session_state.get(_ADDRESS, {}))
    top = st.container()
    with st.container(horizontal=True, vertical_alignment="bottom", key="runs_toolbar"):
        search = st.text_input(
            "Search",
            key="q",
            bind="query-params",
            placeholder="gemma grade:consistent loss<1.2",
            icon=":material/search:",
            help=_SEARCH_HELP,
        )
        filters = _draw_filters(runs)
        columns, sort, is_descending, group, shows_archived = _draw_columns_and_order(runs)
    st.session_state[_ADDRESS] = {key: st.query_params.get_all(key) for key in st.query_params}
    names, complaints = runs.search(search or "", filters, archived=shows_archived)
    names = runs.sort(names, sort, descending=is_descending)
    hidden = 0 if shows_archived else sum(run.archived for run in summaries)
    with top:
        _draw_heading(summaries, hidden)
    for complaint in complaints:
        markup.note(complaint)
    if not names:
        hint = ["Archived runs are not searched; Columns and order has a switch for them."] if hidden else []
        markup.empty("No run matches", "Remove a word from the search, or clear the filters.", *hint)
        return
    if group:
        names = _draw_groups(runs, names, group)
    _draw_list(runs, names, columns)


def _draw_heading(summaries: Sequence[RunSummary], hidden: int) -> None:
    counts = Counter[str](run.grade for run in summaries)
    signs = "".join(
        f'<span title="{markup.safe(sign.meaning)}">{markup.safe(label(GRADES, name))} <b>{counts[name]:,}</b></span>'
        for name, sign in GRADES.items()
        if name in counts
    )
    text = f"{quantity(len(summaries), 'run')} in {markup.safe(state.root())}"
    if hidden:
        text += f" · {quantity(hidden, 'archived run')} not listed"
    markup.heading("Runs", lines=[text, f'<span class="tp-counts">{signs}</span>'])


# Search, filters, columns and order


def _draw_filters(runs: RunTable) -> dict[str, list[str]]:
    """Draw the filters, and return the accepted values by field."""
    choices = {key: runs.choices(key) for key in ("grade", "mode", "status", "tag")}
    choices["grade"].sort(key=list(GRADES).index)
    if not choices["tag"] and not st.session_state.get("tag"):
        del choices["tag"]
    # The URL has the filters before their widgets are drawn.
    chosen = {key: st.session_state.get(key, st.query_params.get_all(key)) for key in choices}
    count = sum(not set(chosen[key]).isdisjoint(choices[key]) for key in choices)
    with st.popover(f"Filters: {count}" if count else "Filters", icon=":material/filter_list:", key="runs_filters"):
        return {
            key: st.multiselect(
                key.capitalize(),
                _with_current(options, st.session_state.get(key, ())),
                key=key,
                bind="query-params",
                placeholder="all",
            )
            for key, options in choices.items()
        }


def _draw_columns_and_order(runs: RunTable) -> tuple[list[str], str | None, bool, str | None, bool]:
    """Draw the menu, and return columns, sort field, is descending, group field, shows archived runs."""
    others = (*runs.settings, *runs.figures)
    titles = {key: "Run" if key == "run" else column["label"] for key, column in _columns().items()}
    with st.popover("Columns and order", icon=":material/view_column:", key="runs_look"):
        columns = st.multiselect(
            "Columns, in this order",
            _with_current(
                [*(key for key in tables.FIELDS if key != "run"), *others], st.session_state.get("columns", ())
            ),
            default=_DEFAULT_COLUMNS,
            format_func=lambda key: titles.get(key, key),
            key="columns",
            bind="query-params",
            help="Type to search for a setting (optimizer.learning_rate) or a figure (last.grad_norm).",
        )
        sort = _select("Sort by", "sort", [*tables.QUERY_FIELDS, *others], "newest first", titles)
        order = st.segmented_control(
            "Order",
            ["ascending", "descending"],
            default="ascending",
            key="order",
            bind="query-params",
            required=True,
            disabled=sort is None,
            label_visibility="collapsed",
        )
        group = _select("Group by", "group", [*tables.GROUP_FIELDS, *runs.settings], "no groups", titles)
        archived = st.toggle("Show archived runs", key="archived", bind="query-params", help="Nothing was deleted.")
    return columns, sort, order == "descending", group, archived


def _select(title: str, key: str, options: Sequence[str], placeholder: str, titles: Mapping[str, str]) -> str | None:
    current = st.session_state.get(key)
    return st.selectbox(
        title,
        _with_current(options, [current] if current else []),
        index=None,
        format_func=lambda option: titles.get(option, option),
        filter_mode="contains",
        placeholder=placeholder,
        key=key,
        bind="query-params",
    )


def _with_current(options: Iterable[str], current: Iterable[str]) -> list[str]:
    """Return the options with the current values, which may no longer be among them."""
    return list(dict.fromkeys([*options, *current]))


def _draw_groups(runs: RunTable, names: Sequence[str], key: str) -> list[str]:
    """Draw a table of groups, and return the runs in the order of the groups."""
    groups, ordered = tables.group_runs(runs, names, key)
    make, title = st.column_config, _columns().get(key, {}).get("label", key)
    scores = {name: make.NumberColumn(format="%.1f %%") for name in ("Best score", "Mean score", "± score")}
    losses = {name: make.NumberColumn(format="%.4f") for name in ("Lowest last loss", "Mean last loss", "± loss")}
    newest = make.DatetimeColumn(format="YYYY-MM-DD HH:mm", timezone=str(browser_timezone()))
    st.dataframe(
        groups,
        column_config={"Group": title, "Newest": newest, **scores, **losses},
        hide_index=True,
        placeholder=NOTHING,
        key="runs_groups",
        alt=f"Groups of runs by {title}",
    )
    markup.note(
        "The list below is in the same order. Statistics use full runs (smoke runs if a group has no others) with the "
        "same evaluation set and objective, and skip contradictory runs. ± is the standard deviation."
    )
    return ordered


# The list


@st.fragment
def _draw_list(runs: RunTable, names: Sequence[str], columns: Sequence[str]) -> None:
    """Draw the table and its actions; a selection only reruns this part."""
    open_selected([name for name in selected_runs() if name in runs.by_name])

    keys = ["run", *columns]
    top, bottom = st.container(), st.container()
    shown = _current_page(names)
    with bottom:
        _draw_grid(list(shown), runs.display(shown, keys))
    selected = [name for name in selected_runs() if name in runs.by_name]
    with top, st.container(horizontal=True, vertical_alignment="center", key="runs_actions"):
        actions = st.empty()  # A slot, so that the buttons go even if another fragment runs right after this one.
        if selected:
            with actions.container(horizontal=True, vertical_alignment="center", width="content"):
                _draw_actions([runs.by_name[name] for name in selected])
                st.button("Clear selection", on_click=clear_selection, type="tertiary")
        text = f"{len(names):,} of {quantity(len(runs.summaries), 'run')}."
        elsewhere = len(set(selected) - set(names))
        chosen = f"{len(selected):,} selected{f' ({elsewhere:,} not listed)' if elsewhere else ''};"
        markup.note(f"{chosen if selected else 'Select rows to compare, package or tag runs.'} {text}")
    with st.container(horizontal=True, vertical_alignment="center", key="runs_tools"):
        markup.download("CSV", lambda: runs.csv(names, keys), "runs.csv", mime="text/csv", help="All listed runs.")
        folders = [runs.by_name[name].path for name in selected or names]
        markup.download(
            "Check report",
            lambda: report_as(check_paths(folders), ["json"]).encode("utf-8"),
            "check.json",
            mime="application/json",
            help="Grades and problems of the selected runs, or of all listed ones, as JSON.",
        )


def _current_page(names: Sequence[str]) -> Sequence[str]:
    """Draw the page numbers of a long list and return the runs of the current page."""
    size = tables.PAGE_ROWS
    count = -(-len(names) // size)
    if count == 1:
        return names
    with st.container(horizontal=True, vertical_alignment="center"):
        number = st.pagination(count, key="page", bind="query-params", width=48 * (min(count, 7) + 2))
        first = (min(max(1, number), count) - 1) * size
        shown = names[first : first + size]
        markup.note(
            f"{first + 1:,}–{first + len(shown):,} of {len(names):,}. Search and Sort by use all runs, a click on a "
            "column title only this page."
        )
    return shown


def _draw_grid(names: list[str], frame: pd.DataFrame) -> None:
    """Draw the table. A click on a name opens that run; selections survive a change of search, order or page."""
    before, (drawn, number) = selected_runs(), _drawn()
    # Rows are selected by position, so selected rows among other rows need another grid.
    if before and drawn != names:
        number += 1
    st.session_state[_GRID] = (names, number)
    is_long = len(names) > _FEW_ROWS
    height: int | Literal["content"] = _HEAD_PIXELS + _ROW_PIXELS * len(names) if is_long else "content"
    configured = _columns(names)
    for key in frame.columns.difference(list(configured)):
        is_number = tables.is_number(frame[key])
        make = st.column_config
        configured[key] = make.NumberColumn(plain(key), format="%.6g") if is_number else make.TextColumn(plain(key))
    with st.container(key="runs_table", height=height, border=False):
        st.dataframe(
            frame,
            column_config=configured,
            hide_index=True,
            row_height=_ROW_PIXELS,
            height="stretch" if is_long else "content",
            placeholder=NOTHING,
            on_select="rerun",
            selection_mode="multi-row",
            selection_default={"selection": {"rows": [place for place, name in enumerate(names) if name in before]}},
            key=f"runs_table {number}",
            alt="Runs, one per row",
        )
    click = st.session_state.get(_CLICK)
    if click is not None and click["row"] < len(names):
        state.go(state.RUN, run=names[click["row"]])
    st.session_state[_SELECTED] = selected_runs()


def _drawn() -> tuple[list[str], int]:
    """Return the run names in the table drawn last, and the number in its widget key."""
    drawn: tuple[list[str], int] = st.session_state.get(_GRID, ([], 0))
    return drawn


def selected_runs() -> list[str]:
    """Return the names of the selected runs, on this page and on others."""
    before: list[str] = st.session_state.get(_SELECTED, [])
    drawn, number = _drawn()
    grid = st.session_state.get(f"runs_table {number}")
    if grid is None:
        return list(before)
    here = [drawn[place] for place in grid["selection"]["rows"] if place < len(drawn)]
    return [*(name for name in before if name not in set(drawn)), *here]


def clear_selection() -> None:
    """Select no run."""
    drawn, number = _drawn()
    st.session_state[_SELECTED], st.session_state[_GRID] = [], (drawn, number + 1)


# Actions

_PAGES = {
    "open_selected": state.RUN,
    "compare_selected": state.COMPARE,
    "smoke_selected": state.COMPARE,
    "package_selected": state.PACKAGE,
}
"""Page of each button by its key."""


def open_selected(names: Sequence[str]) -> None:
    """Open the page whose button was pressed, unless the selected runs are gone."""
    key = next((key for key in _PAGES if st.session_state.get(key)), None)
    if key is not None and names:
        part = {"part": progress.TAB} if key == "smoke_selected" else {}
        state.go(_PAGES[key], **({"run": names[0]} if key == "open_selected" else {"runs": names}), **part)


def _draw_actions(selected: Sequence[RunSummary]) -> None:
    is_one = len(selected) == 1
    title, icon, key = ("Open", "show_chart", "open") if is_one else ("Compare", "compare_arrows", "compare")
    st.button(title, icon=f":material/{icon}:", type="primary", key=f"{key}_selected", shortcut="Ctrl+Enter")
    if is_one or {run.mode for run in selected} == {"smoke", "full"}:
        st.button(progress.TAB, icon=":material/science:", key="smoke_selected")
    st.button("Package", icon=":material/inventory_2:", key="package_selected")
    if not may_operate():
        return
    if st.button("Tags and note", icon=":material/sell:"):
        run_box.edit(selected)
    restore = all(run.archived for run in selected)
    verb, icon = ("Restore", "unarchive") if restore else ("Archive", "archive")

    def archive() -> None:
        changed = [run.path for run in selected if run.archived is restore]
        change_notes(changed, NotesEdit(archive=not restore), datetime.now(UTC))
        reading.look_again()
        clear_selection()

    about = "Archived runs are hidden, not deleted."
    gate.act(verb, archive, "The notes could not be saved", icon=f":material/{icon}:", help=about)


page()
