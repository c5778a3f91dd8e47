"""The predictions of a run: scores by group, a table with filters, and one answer compared with what was expected.

The address names the item whose answer is shown, so that it can be sent to someone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import streamlit as st

from dashboard.shared.charts import scores_figure
from dashboard.shared.parts import markup, plotted
from dashboard.shared.words.text import both_ends
from dashboard.views.run.logic import predictions_table
from schemas import formats
from schemas.formats import quantity
from schemas.reading import get_number, get_str

Row = Mapping[str, Any]

_ITEM = "item"
_WRITTEN, _LINKED = "item that was written into the address", "item of the link that was followed"
_LONGEST_ITEM = 200
"""Characters of an item's name that an address takes; those of other tools may be of any length."""
_ROW_PIXELS, _FEW_ROWS = 36, 11

_SCORES = (
    "Group",
    "Value",
    "Items",
    "Exact match",
    "95 % interval",
    "Form",
    "Untrained",
    "Lenient",
    "Untrained, lenient",
)
"""Titles of the scores by group."""

_COLUMNS: Mapping[str, Any] = {
    "id": st.column_config.TextColumn("Item", width=110, pinned=True),
    "outcome": st.column_config.TextColumn("Outcome", width=96),
    "form": st.column_config.TextColumn("Format", width=80, help="Whether the output has exactly the required format."),
    "prompt": st.column_config.TextColumn("Prompt", width=420),
    "expected": st.column_config.TextColumn("Expected", width=120),
    "got": st.column_config.TextColumn("Got", width=120),
    "tokens": st.column_config.NumberColumn("Tokens", width=70),
    "finish": st.column_config.TextColumn("Ended by", width=80),
    "section": st.column_config.TextColumn("Section"),
    "category": st.column_config.TextColumn("Category"),
    "difficulty": st.column_config.TextColumn("Difficulty"),
    "output": st.column_config.TextColumn("Output", width=420),
}


def section(rows: Sequence[Row], eval_summary: Row | None) -> None:
    """Draw the scores by group and the answers, filtered as the reader chose."""
    if not rows:
        markup.empty("No predictions", "This run was not evaluated, or has not got that far.")
        return
    if eval_summary is not None:
        _scores(eval_summary)
    shown = _filter(rows)
    said = f"{formats.count(len(shown))} of {formats.count(len(rows))} items."
    if not shown:
        markup.note(f"{said} Remove a filter.")
        return
    place = st.container()
    is_chosen = _table(_linked_first(_page(shown)))
    with place:
        hint = "The output of the chosen row is below the table." if is_chosen else "Choose a row to read its output."
        markup.note(f"{said} {hint}")


def over_steps(rows: Sequence[Row]) -> None:
    """Draw what the model answered during training, at the step that the reader chose; nothing if no item was asked."""
    steps = sorted({int(step) for row in rows if (step := get_number(row, "step")) is not None})
    if not steps:
        return
    st.html('<p class="tp-sub"><b>Answers during training</b></p>')
    step = steps[0]
    if len(steps) > 1:
        step = st.select_slider("After step", steps, value=steps[-1], key="after", bind="query-params")
    shown = [row for row in rows if row.get("step") == step]
    right = sum(row.get("correct") is True for row in shown)
    markup.note(f"After step {formats.count(step)}: {right} of {quantity(len(shown), 'item')} answered rightly.")
    table = predictions_table.table_with_outputs(shown)
    st.dataframe(
        table,
        hide_index=True,
        key="answers_over_steps",
        column_config={name: _COLUMNS[name] for name in table.column_names},
        height="content" if len(shown) <= _FEW_ROWS else _ROW_PIXELS * (_FEW_ROWS + 1),
        alt=f"Answers after step {step}, one in a row",
    )


def _linked_first(shown: Sequence[Row]) -> Sequence[Row]:
    """Return the rows with the item of a link first, since no grid scrolls to a row; a row chosen here stays put."""
    asked = st.query_params.get(_ITEM)
    if asked != st.session_state.get(_WRITTEN):
        st.session_state[_LINKED] = asked
    linked = st.session_state.get(_LINKED)
    return sorted(shown, key=lambda row: linked is None or row.get("id") != linked)


def _filter(rows: Sequence[Row]) -> list[Row]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        outcome = st.segmented_control(
            "Outcome",
            list(predictions_table.OUTCOMES),
            default="all",
            required=True,
            key="outcome",
            bind="query-params",
        )
        chosen = {
            name: st.multiselect(
                predictions_table.FILTERS[name], options, key=name, bind="query-params", placeholder="all", width=180
            )
            for name, options in predictions_table.groups(rows).items()
        }
        words = st.text_input("Search", key="find", bind="query-params", icon=":material/search:")
    return predictions_table.filter_rows(rows, outcome=outcome, groups=chosen, words=words or "")


def _page(shown: Sequence[Row]) -> Sequence[Row]:
    """Return the rows of the page that the reader is on; few rows are one page and need no way to turn it."""
    size = predictions_table.PAGE_ROWS
    if len(shown) <= size:
        return shown
    number = st.pagination(-(-len(shown) // size), default=(_place(shown) or 0) // size + 1, key="page")
    return shown[(number - 1) * size : number * size]


def _place(rows: Sequence[Row]) -> int | None:
    """Return which row is of the item that the address names; None where none of these is."""
    asked = st.query_params.get(_ITEM)
    return next((place for place, row in enumerate(rows) if asked is not None and row.get("id") == asked), None)


def _table(shown: Sequence[Row]) -> bool:
    """Draw the rows and the answer that is chosen, and have the address name it; return whether one is."""
    table = predictions_table.table(shown)
    items = [get_str(row, "id") for row in shown]
    asked = _place(shown)
    picked = st.dataframe(
        table,
        hide_index=True,
        # The grid knows what is chosen by its row number, so other rows make another grid.
        key=f"predictions_table {hash(tuple(items))}",
        on_select="rerun",
        selection_mode="single-row",
        selection_default={"selection": {"rows": [] if asked is None else [asked]}},
        column_config={name: _COLUMNS[name] for name in table.column_names},
        height="content" if len(shown) <= _FEW_ROWS else _ROW_PIXELS * (_FEW_ROWS + 1),
        alt="Predictions, one in a row",
    )
    chosen = next(iter(picked["selection"]["rows"]), None)
    if chosen is not None:
        _prediction(shown[chosen])
    item = "" if chosen is None else items[chosen] or ""
    if item.isprintable() and 0 < len(item) <= _LONGEST_ITEM:
        st.query_params[_ITEM] = item
    elif asked is not None:
        del st.query_params[_ITEM]
    st.session_state[_WRITTEN] = st.query_params.get(_ITEM)
    return chosen is not None


def _scores(eval_summary: Row) -> None:
    """Draw the score of each group; a click on a dot filters the answers below."""
    scores, colours = predictions_table.scores_of(eval_summary), plotted.colours()
    overall = scores.pop("", [])
    for score in overall:
        st.html(f'<p class="tp-answer">{markup.safe(predictions_table.headline(score))}</p>')
    columns = st.columns(len(scores)) if scores else []
    for column, (group, some) in zip(columns, scores.items(), strict=True):
        chosen = st.session_state.get(group) or st.query_params.get_all(group)
        picture = scores_figure.draw(some, colours, overall=overall[0].value if overall else None, chosen=chosen)
        with column:
            title = predictions_table.FILTERS[group]
            st.html(f'<p class="tp-sub"><b>{title}</b>, exact match</p>')
            plotted.show(
                picture,
                key=f"scores by {group}",
                alt=f"{title}: {scores_figure.describe(some)}",
                clicked=partial(_click, group),
            )
    if scores:
        untrained = (
            ", ○ untrained" if any(one.untrained is not None for some in scores.values() for one in some) else ""
        )
        markup.note(
            f"● this run with its 95 % interval{untrained}, dashed: all items. Beside a name: its items. "
            "A click on a dot filters."
        )
    with st.expander("The same as a table, with form and lenient scores", type="compact"):
        markup.table(_SCORES, predictions_table.score_rows(eval_summary), numbers=range(2, 9))


def _click(group: str) -> None:
    """Filter by the dot that was clicked; a second click on it filters no more."""
    points = st.session_state[f"scores by {group}"]["selection"]["points"]
    if points:
        value = points[0]["customdata"]
        st.session_state[group] = [] if st.session_state.get(group) == [value] else [value]


def _prediction(row: Row) -> None:
    """Draw one answer: expected and got letter by letter, then prompt and output whole."""
    expected, got = get_str(row, "expected") or "", get_str(row, "extracted_answer")
    with st.container(border=True):
        if got is None:
            markup.note(f"{get_str(row, 'id')}: expected {expected}; no answer was found in the output.")
        else:
            markup.table(
                ["Item", "Expected", "Got", "From expected to got"],
                [(get_str(row, "id") or "", expected, got, markup.changes(expected, got))],
            )
        left, right = st.columns(2)
        with left:
            st.caption("Prompt")
            st.code(both_ends(get_str(row, "prompt") or "", 4000), language=None, wrap_lines=True)
        with right:
            st.caption("Output; the answer that was read is underlined")
            kinds = {"tag": "tp-dim", "answer": "tp-on", "": ""}
            pieces = "".join(
                f'<span class="{kinds[kind]}">{markup.safe(text)}</span>'
                for kind, text in predictions_table.parts_of_output(row)
            )
            st.html(f'<p class="tp-tokens">{pieces}</p>')
