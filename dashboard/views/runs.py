"""The Runs page: find, sort, filter and group runs, and select them to open, compare, package or annotate."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import streamlit as st

from dashboard.shared.parts import launching, markup, notes_dialog, problems, smoke_card
from dashboard.shared.parts.gate import may_operate
from dashboard.shared.parts.run_box import name_pixels
from dashboard.shared.session import reading, state
from dashboard.shared.session.reading import reader_zone
from dashboard.shared.tables import runs as table
from dashboard.shared.tables.query import condition_text
from dashboard.shared.tables.runs import ListOptions, Row, RunList
from dashboard.shared.words.evidence import every_mark
from dashboard.shared.words.grades import GRADES, STATUSES, Tone, label
from dashboard.shared.words.text import findable, plain
from evidence.index.index import check_paths
from evidence.index.summary import RunSummary
from evidence.notes import NotesEdit, change_notes
from evidence.report import report_as
from schemas.formats import NOTHING, quantity
from schemas.problems import ProblemError

_ADDRESS = "parameters of the last visit"
_SELECTED, _GRID, _CLICK, _ARCHIVED = "selected runs", "rows and number of the grid", "runs_table_open", "last archived"
_JUST_DRAWN_SECONDS = 1.0
_ROW_PIXELS, _HEAD_PIXELS, _FEW_ROWS = 36, 35, 10

_SEARCH_HELP = f"""A run must have every word and meet every condition:

- `status:failed` contains this word; `-status:failed` does not
- `grade:verified,consistent` contains one of them
- `model="my model"` is exactly this; `model=""` has no value
- `loss<1.2`, `steps>=100`; `started>2026-11-01` in UTC
- `score>60%` or `score>0.6`
- `optimizer.learning_rate<0.001` for any setting or figure

Fields: {", ".join(table.QUERY_FIELDS)}.
"""


def page() -> None:
    """Draw the page."""
    summaries = reading.summaries()
    if not summaries:
        markup.heading("Runs")
        markup.empty(
            f"No runs in {state.root()} yet",
            "A run is a folder with settings, metrics, log, predictions and their hashes.",
            "A smoke test takes seconds on this machine and shows every page. It tests the pipeline, not the model.",
        )
        launching.smoke_button()
        _watch(summaries)
        return
    if summaries[0].path == state.root() and summaries[0].first_problem:
        markup.heading("Runs")
        problems.show([summaries[0].first_problem])
        return
    runs = reading.run_list(summaries)
    state.as_left(_ADDRESS)
    top = st.container()
    options = _toolbar(runs)
    state.leave(_ADDRESS)
    with top:
        _heading(runs, options)
        _watch(summaries)
    rows, complaints = table.select(runs, options)
    for complaint in complaints:
        markup.note(complaint)
    if not rows:
        hint = "Archived runs are not searched; Columns and order has a switch for them."
        archived = [hint] if runs.archived and not options.archived else []
        markup.empty("No run matches", "Remove a word from the search, or clear the filters.", *archived)
        return
    if options.group:
        rows = _groups(rows, options.group)
    _list(rows, options, runs)


def _heading(runs: RunList, options: ListOptions) -> None:
    counts = "".join(
        f'<span title="{markup.safe(GRADES[name].meaning)}">{markup.safe(label(GRADES, name))} <b>{number:,}</b></span>'
        for name in GRADES
        if (number := runs.grades.get(name))
    )
    text = f"{quantity(len(runs.rows), 'run')} in {markup.safe(state.root())}"
    if runs.archived and not options.archived:
        text += f" · {quantity(runs.archived, 'archived run')} not listed"
    markup.heading("Runs", lines=[text, f'<span class="tp-counts">{counts}</span>'])


# News


def _watch(shown: Sequence[RunSummary]) -> None:
    """Look at the folders every few seconds; the list is only drawn again on a click, to keep the reader's place."""
    if reading.is_whole():
        st.fragment(run_every=reading.seconds_to_next_look())(_show_news)(shown, drawn_at=time.monotonic())


def _show_news(shown: Sequence[RunSummary], *, drawn_at: float) -> None:
    if time.monotonic() - drawn_at < _JUST_DRAWN_SECONDS:
        return  # the page itself was just drawn
    now = reading.look_at_runs()
    if news := table.describe_news(shown, now):
        with st.container(horizontal=True, vertical_alignment="center", key="runs_news"):
            markup.draw_changed(f"{news}.") if table.outdated_runs(shown, now) else markup.note(f"{news}.")
            if st.button("Show", icon=":material/refresh:", type="tertiary"):
                st.rerun()


# Search, filters, columns and order


def _toolbar(runs: RunList) -> ListOptions:
    with st.container(horizontal=True, vertical_alignment="bottom", key="runs_toolbar"):
        search = st.text_input(
            "Search",
            key="q",
            bind="query-params",
            placeholder="gemma grade:consistent loss<1.2",
            icon=":material/search:",
            help=_SEARCH_HELP,
        )
        filters = _filters(runs)
        options = _options(runs)
    return replace(options, search=search or "", filters=filters)


def _filters(runs: RunList) -> dict[str, list[str]]:
    choices: dict[str, Sequence[str]] = {
        "grade": [name for name in GRADES if name in runs.grades],
        "mode": runs.choices("mode"),
        "status": runs.choices("status"),
    }
    tags = runs.choices("tag")
    if tags or st.session_state.get("tag"):
        choices["tag"] = tags
    count = sum(_is_set(key, values) for key, values in choices.items())
    with st.popover(f"Filters: {count}" if count else "Filters", icon=":material/filter_list:", key="runs_filters"):
        return {
            key: st.multiselect(
                key.capitalize(),
                _with_current(values, st.session_state.get(key, ())),
                key=key,
                bind="query-params",
                placeholder="all",
            )
            for key, values in choices.items()
        }


def _is_set(key: str, values: Sequence[str]) -> bool:
    """Return whether a filter is set, in its widget or, before that is drawn, in the address."""
    if key in st.session_state:
        return bool(st.session_state[key])
    return not set(values).isdisjoint(st.query_params.get_all(key))


def _options(runs: RunList) -> ListOptions:
    names = (*runs.settings, *runs.figures)
    with st.popover("Columns and order", icon=":material/view_column:", key="runs_look"):
        fixed = [key for key in table.BY_KEY if key != "run"]
        columns = st.multiselect(
            "Columns, in this order",
            _with_current([*fixed, *names], st.session_state.get("columns", ())),
            default=list(table.DEFAULT_COLUMNS),
            key="columns",
            bind="query-params",
            help="Type to search for a setting (optimizer.learning_rate) or a figure (last.grad_norm).",
        )
        sort = _select("Sort by", "sort", [*table.QUERY_FIELDS, *findable(names)], "newest first")
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
        group = _select("Group by", "group", [*table.GROUP_FIELDS, *findable(runs.settings)], "no groups")
        archived = st.toggle("Show archived runs", key="archived", bind="query-params", help="Nothing was deleted.")
    shown = ("run", *columns)
    return ListOptions(archived=archived, columns=shown, sort=sort, descending=order == "descending", group=group)


def _select(title: str, key: str, options: Sequence[str], placeholder: str) -> str | None:
    current = st.session_state.get(key)
    return st.selectbox(
        title,
        _with_current(options, [current] if current else []),
        index=None,
        filter_mode="contains",
        placeholder=placeholder,
        key=key,
        bind="query-params",
    )


def _with_current(options: Iterable[str], current: Iterable[str]) -> list[str]:
    """Return the options with the current values, which may no longer be among them."""
    return list(dict.fromkeys([*options, *current]))


def _groups(rows: Sequence[Row], key: str) -> list[Row]:
    """Draw a table of groups, in which one can be selected to narrow the search, and return the rows in groups."""
    groups, ordered = table.group_rows(rows, key)
    title = table.column_of(key).title
    event = st.dataframe(
        groups.drop(columns="value"),
        column_config={
            "Group": title,
            "Newest": st.column_config.DatetimeColumn(format="YYYY-MM-DD HH:mm", timezone=str(reader_zone())),
        },
        hide_index=True,
        on_select="rerun",
        selection_mode="single-row",
        key="runs_groups",
        alt=f"Groups of runs by {title}",
    )
    markup.note(
        "Select a group to search for it. Means ± standard deviations are over full runs (smoke runs if there are no "
        "others) with the same evaluation set and objective, without contradictory ones."
    )
    if selected := event["selection"]["rows"]:
        condition = condition_text(key, groups["value"].iloc[selected[0]])
        search = st.query_params.get("q", "")
        if condition not in search:
            parameters = {name: st.query_params.get_all(name) for name in st.query_params}
            state.go(state.RUNS, **parameters | {"q": f"{search} {condition}".strip()})
    return ordered


# The list


@st.fragment
def _list(rows: Sequence[Row], options: ListOptions, runs: RunList) -> None:
    """Draw the table and its actions; a selection only draws this part again."""
    follow([name for name in selected_runs() if name in runs.by_name])
    columns = [table.column_of(key, rows) for key in options.columns]
    constant: list[str] = []
    if options.columns == ("run", *table.DEFAULT_COLUMNS):
        columns, constant = table.split_constant_columns(rows, columns)
    top, bottom = st.container(), st.container()
    shown = _page(rows)
    with bottom:
        _grid(shown, columns)
    selected = [runs.by_name[name] for name in selected_runs() if name in runs.by_name]
    with top, st.container(horizontal=True, vertical_alignment="center", key="runs_actions"):
        if selected:
            _actions(selected)
        _counts(selected, rows, len(runs.rows), constant)
    with st.container(horizontal=True, vertical_alignment="center", key="runs_tools"):
        markup.download(
            "CSV", lambda: table.as_csv(rows, columns), "runs.csv", mime="text/csv", help="All listed runs."
        )
        folders = [row.summary.path for row in selected or rows]
        markup.download(
            "Check report",
            lambda: report_as(check_paths(folders), ["json"]).encode("utf-8"),
            "check.json",
            mime="application/json",
            help="Grades and problems of the selected runs, or of all listed ones, as JSON.",
        )


def _page(rows: Sequence[Row]) -> Sequence[Row]:
    """Draw the page numbers of a long list and return the rows of the current page."""
    size = table.PAGE_ROWS
    count = -(-len(rows) // size)
    if count == 1:
        return rows
    with st.container(horizontal=True, vertical_alignment="center"):
        number = st.pagination(count, key="page", bind="query-params", width=48 * (min(count, 7) + 2))
        first = (min(max(1, number), count) - 1) * size
        shown = rows[first : first + size]
        markup.note(
            f"{first + 1:,}–{first + len(shown):,} of {len(rows):,}. Search and Sort by use all runs, a click on a "
            "column title only this page."
        )
    return shown


def _grid(rows: Sequence[Row], columns: Sequence[table.Column]) -> None:
    """Draw the table. A click on a name opens that run; selections survive a change of search, order or page."""
    names = [row.name for row in rows]
    before = selected_runs()
    is_long = len(rows) > _FEW_ROWS
    height: int | Literal["content"] = _HEAD_PIXELS + _ROW_PIXELS * len(rows) if is_long else "content"
    with st.container(key="runs_table", height=height, border=False):
        st.dataframe(
            table.frame(rows, columns),
            column_config={column.key: _column_config(column) for column in columns},
            hide_index=True,
            row_height=_ROW_PIXELS,
            height="stretch" if is_long else "content",
            placeholder=NOTHING,
            on_select="rerun",
            selection_mode="multi-row",
            selection_default={"selection": {"rows": [place for place, name in enumerate(names) if name in before]}},
            key=_grid_key(names, before),
            alt="Runs, one per row",
        )
    click = st.session_state.get(_CLICK)
    if click is not None and click["row"] < len(rows):
        state.go(state.RUN, run=names[click["row"]])
    st.session_state[_SELECTED] = selected_runs()


def _grid_key(names: Sequence[str], selected: Sequence[str]) -> str:
    """Return the key of the grid, a new one if rows are selected and other rows are drawn: it selects by position."""
    drawn, number = _drawn()
    if selected and drawn != names:
        number += 1
    st.session_state[_GRID] = (list(names), number)
    return f"runs_table {number}"


def _drawn() -> tuple[list[str], int]:
    """Return the names in the grid that was drawn last, and its number."""
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
    st.session_state[_SELECTED] = []
    st.session_state[_GRID] = (drawn, number + 1)


_COLOURS: Mapping[Tone, Literal["green", "blue", "orange", "red", "gray"]] = {
    "good": "green",
    "fair": "blue",
    "poor": "orange",
    "bad": "red",
    "quiet": "gray",
}
_FORMATS: Mapping[table.Kind, str] = {
    "count": "localized",
    "loss": "%.4f",
    "number": "%.6g",
    "percent": "%.1f %%",
    "minutes": "%.1f min",
}


def _column_config(column: table.Column) -> Any:
    shared: Any = {"label": column.title, "help": plain(column.meaning), "width": column.width}
    make = st.column_config
    if column.key == "run":
        shared["width"] = name_pixels()
        return make.ButtonColumn(**shared, pinned=True, alignment="left", type="tertiary", key=_CLICK)
    if column.key == "evidence":
        marks = every_mark()
        return make.MultiselectColumn(**shared, options=list(marks), color=[_COLOURS[tone] for tone in marks.values()])
    if column.key in {"grade", "status"}:
        signs = {**STATUSES, **(GRADES if column.key == "grade" else {})}
        colours = [_COLOURS[sign.tone] for sign in signs.values()]
        return make.MultiselectColumn(**shared, options=[label(signs, word) for word in signs], color=colours)
    match column.kind:
        case "progress":
            return make.ProgressColumn(**shared, min_value=0, max_value=100, format="%.1f %%")
        case "time":
            return make.DatetimeColumn(**shared, format="distance", timezone=str(reader_zone()))
        case "utc":
            return make.DatetimeColumn(**shared, format="YYYY-MM-DD HH:mm", timezone="UTC")
        case "line":
            return make.LineChartColumn(**shared)
        case "labels":
            return make.ListColumn(**shared)
        case "text":
            return make.TextColumn(**shared)
    return make.NumberColumn(**shared, format=_FORMATS[column.kind])


# Actions

_PAGES = {
    "open_selected": state.RUN,
    "compare_selected": state.COMPARE,
    "smoke_selected": state.COMPARE,
    "package_selected": state.PACKAGE,
}
"""Page of each button by its key."""
_KEY = "Ctrl+Enter"


def follow(names: Sequence[str]) -> None:
    """Open the page whose button was pressed, unless the selected runs are gone."""
    key = next((key for key in _PAGES if st.session_state.get(key)), None)
    if key is not None and names:
        part = {"part": smoke_card.TAB} if key == "smoke_selected" else {}
        state.go(_PAGES[key], **({"run": names[0]} if key == "open_selected" else {"runs": names}), **part)


def _actions(selected: Sequence[Row]) -> None:
    if len(selected) == 1:
        st.button("Open", icon=":material/show_chart:", type="primary", key="open_selected", shortcut=_KEY)
    else:
        st.button(
            "Compare", icon=":material/compare_arrows:", type="primary", key="compare_selected", shortcut="Ctrl+Enter"
        )
    if len(selected) == 1 or {row.get("mode") for row in selected} == {"smoke", "full"}:
        st.button(smoke_card.TAB, icon=":material/science:", key="smoke_selected")
    st.button("Package", icon=":material/inventory_2:", key="package_selected")
    if not may_operate():
        return
    if st.button("Tags and note", icon=":material/sell:"):
        notes_dialog.edit([row.summary for row in selected])
    restore = all(row.summary.archived for row in selected)
    icon = ":material/unarchive:" if restore else ":material/archive:"
    if st.button("Restore" if restore else "Archive", icon=icon, help="Archived runs are hidden, not deleted."):
        folders = tuple(row.summary.path for row in selected if row.summary.archived is restore)
        if _archive(folders, archive=not restore):
            st.session_state[_ARCHIVED] = (folders, not restore)
            clear_selection()
            st.rerun()


def _counts(selected: Sequence[Row], listed: Sequence[Row], total: int, constant: Sequence[str]) -> None:
    text = f"{len(listed):,} of {quantity(total, 'run')}."
    if constant:
        verb = "is" if len(constant) == 1 else "are"
        text += f" {', '.join(constant)[:1].upper()}{', '.join(constant)[1:]} {verb} the same for all."
    archived: tuple[tuple[Path, ...], bool] | None = st.session_state.get(_ARCHIVED)
    if selected:
        st.session_state.pop(_ARCHIVED, None)
        elsewhere = len({row.name for row in selected} - {row.name for row in listed})
        more = f", {elsewhere:,} of them not in this list" if elsewhere else ""
        st.button("Clear selection", on_click=clear_selection, type="tertiary")
        markup.note(f"{len(selected):,} selected{more}; {text}")
    elif archived is not None:
        folders, is_archived = archived
        markup.note(f"{quantity(len(folders), 'run')} {'archived' if is_archived else 'restored'}; {text}")
        if st.button("Undo", icon=":material/undo:", type="tertiary") and _archive(folders, archive=not is_archived):
            del st.session_state[_ARCHIVED]
            st.rerun()
    else:
        markup.note(f"Select rows to compare, package or tag runs. {text}")


def _archive(folders: Sequence[Path], *, archive: bool) -> bool:
    """Archive or restore runs, or show why that failed and return False."""
    try:
        change_notes(folders, NotesEdit(archive=archive), datetime.now(UTC))
    except ProblemError as error:
        problems.show(error.problems)
        return False
    reading.look_again()
    return True


page()
