"""The Predictions tab: scores by group, a table of answers with filters, and the selected answer in full.

The query parameters hold the filters and the id of the item whose answer is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.words import both_ends, glimpse
from evidence.bundle.secrets import strip_invisible
from schemas import formats
from schemas.formats import quantity
from schemas.reading import get_bool, get_number, get_path, get_str

Row = Mapping[str, Any]

GROUPS: Mapping[str, str] = {"section": "Section", "category": "Category", "difficulty": "Difficulty"}
"""Fields of an item by which scores are grouped, with their titles."""
FILTERS: Mapping[str, str] = {**GROUPS, "finish_reason": "Ended by"}
OUTCOMES: Mapping[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "right": lambda row: row.get("correct") is True,
    "wrong": lambda row: row.get("correct") is False,
    "wrong format": lambda row: row.get("format_ok") is False,
    "error": lambda row: row.get("error") is not None,
}

_LEVELS = {"easy": 1, "medium": 2, "hard": 3}
_WORDS = {True: "✓ right", False: "✕ wrong", None: "? unknown"}
_FORMATS = {True: "✓ ok", False: "✕ wrong", None: None}
_ORDER = {"! error": 0, "✕ wrong": 1, "? unknown": 2, "✓ right": 3}
_PAGE_ROWS = 1000  # rows sent to the browser at a time
_MAX_CELL = 300
_MAX_TEXT = 8_000
_ITEM = "item"  # query parameter with the shown item
_MAX_ITEM = 200  # longer ids are not put into the URL

_PERCENT = st.column_config.NumberColumn(format="%.1f %%")
_SCORE_COLUMNS: Mapping[str, Any] = {
    "Value": st.column_config.TextColumn(width=160),
    "Exact match": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%.1f %%", width=160),
    **dict.fromkeys(("Untrained", "Format", "Lenient", "Untrained, lenient"), _PERCENT),
}
_ANSWER_COLUMNS: Mapping[str, Any] = {
    "Item": st.column_config.TextColumn(width=110, pinned=True),
    "Format": st.column_config.TextColumn(help="Whether the output has exactly the required format."),
    "Prompt": st.column_config.TextColumn(width=420),
    "Output": st.column_config.TextColumn(width=420),
}


def draw_predictions(rows: Sequence[Row], eval_summary: Row | None) -> None:
    """Draw the scores by group and the answers that pass the filters."""
    if not rows:
        markup.empty("No predictions", "This run was not evaluated, or has not got that far.")
        return
    groups = group_values(rows)
    if eval_summary is not None:
        frame = score_frame(eval_summary)
        st.dataframe(frame, hide_index=True, width="content", column_config=_SCORE_COLUMNS, alt="Scores by group")
    shown = _filter(rows, groups)
    # Optional parts of a fragment have slots: if another fragment runs right after this one, Streamlit only removes
    # what a slot replaces.
    place, answers = st.container(), st.empty()
    is_chosen = False
    if shown:
        with answers.container():
            is_chosen = _answers(_page(shown))
    with place:
        hint = "The selected answer is shown below." if is_chosen else "Select a row to read its output."
        markup.note(f"{len(shown):,} of {quantity(len(rows), 'item')}. {hint if shown else 'Remove a filter.'}")


def draw_answers_over_steps(rows: Sequence[Row]) -> None:
    """Draw the answers that the model gave during training, at one step; nothing without any."""
    steps = sorted({int(step) for row in rows if (step := get_number(row, "step")) is not None})
    if not steps:
        return
    st.header("Answers during training", anchor=False)
    step = steps[0]
    if len(steps) > 1:
        step = st.select_slider("After step", steps, value=steps[-1], key="after", bind="query-params")
    shown = [row for row in rows if row.get("step") == step]
    right = sum(row.get("correct") is True for row in shown)
    markup.note(f"{right} of {quantity(len(shown), 'answer')} right after step {step:,}.")
    st.dataframe(
        answer_frame(shown).assign(Output=[_cell(get_str(row, "output_text")) or "" for row in shown]),
        hide_index=True,
        key="answers_over_steps",
        column_config=_ANSWER_COLUMNS,
        alt=f"Answers after step {step}",
    )


def score_frame(eval_summary: Row) -> pd.DataFrame:
    """Return the scores over all items and by group, in percent."""
    baseline = get_path(eval_summary, "baseline")
    found = [("All items", "", eval_summary.get("metrics"), get_path(baseline, "metrics"))]
    for field, title in GROUPS.items():
        groups, untrained = (get_path(one, "groups", field) for one in (eval_summary, baseline))
        values = sorted(groups or (), key=lambda name: (_LEVELS.get(name, 0), name))
        found += [(title, strip_invisible(one), groups[one], get_path(untrained, one)) for one in values]
    rows = [{"Group": title, "Value": value, **_score_row(*scores)} for title, value, *scores in found]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _score_row(metrics: Any, untrained: Any) -> dict[str, Any]:
    def percent(document: Any, name: str) -> float | None:
        value = get_number(document, name, "value")
        return None if value is None else 100 * value

    low, high = (get_number(metrics, "exact_match", "interval", end) for end in ("low", "high"))
    return {
        "Items": get_number(metrics, "exact_match", "n"),
        "Exact match": percent(metrics, "exact_match"),
        "95 % interval": None if low is None else formats.percent_range(low, high),
        "Untrained": percent(untrained, "exact_match"),
        "Format": percent(metrics, "format_compliance"),
        "Lenient": percent(metrics, "lenient_match"),
        "Untrained, lenient": percent(untrained, "lenient_match"),
    }


def group_values(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the values of each field of `FILTERS` that occur in the rows."""
    found = {name: sorted({row[name] for row in rows if isinstance(row.get(name), str)}) for name in FILTERS}
    return {name: values for name, values in found.items() if values}


def filter_rows(rows: Sequence[Row], *, outcome: str, groups: Mapping[str, Sequence[str]], words: str) -> list[Row]:
    """Return the rows with this outcome, a chosen value of each field and all words, wrong answers first."""
    fields = ("id", "prompt", "expected", "output_text", "extracted_answer")
    found = []
    for row in rows:
        text = " ".join(get_str(row, name) or "" for name in fields).lower() if words else ""
        is_chosen = all(not chosen or row.get(group) in chosen for group, chosen in groups.items())
        if is_chosen and OUTCOMES[outcome](row) and all(word in text for word in words.lower().split()):
            found.append(row)
    return sorted(found, key=lambda row: _ORDER[_outcome(row)])


def _filter(rows: Sequence[Row], groups: Mapping[str, Sequence[str]]) -> list[Row]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        outcome = st.segmented_control(
            "Outcome", list(OUTCOMES), default="all", required=True, key="outcome", bind="query-params"
        )
        chosen = {
            name: st.multiselect(FILTERS[name], options, key=name, bind="query-params", placeholder="all", width=180)
            for name, options in groups.items()
        }
        words = st.text_input("Search", key="find", bind="query-params", icon=":material/search:")
    return filter_rows(rows, outcome=outcome, groups=chosen, words=words or "")


def answer_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows as a table with shortened texts, without columns that are empty in every row."""
    frame = pd.DataFrame(
        [
            {
                "Item": _cell(get_str(row, "id")),
                "Outcome": _outcome(row),
                "Format": _FORMATS[get_bool(row, "format_ok")],
                "Prompt": _cell(get_str(row, "prompt")),
                "Expected": _cell(_expected_answers(row)),
                "Got": _cell(get_str(row, "extracted_answer")),
                "Tokens": get_number(row, "output_tokens"),
                **{title: _cell(get_str(row, name)) for name, title in FILTERS.items()},
            }
            for row in rows
        ]
    )
    return frame.dropna(axis="columns", how="all")


def _cell(text: str | None) -> str | None:
    return glimpse(strip_invisible(text), _MAX_CELL) if text else None


def _outcome(row: Row) -> str:
    return "! error" if row.get("error") is not None else _WORDS[get_bool(row, "correct")]


def _expected_answers(row: Row) -> str:
    """Return every answer that counts as right, joined by `or`."""
    others = row.get("also_expected")
    return " or ".join(map(str, [get_str(row, "expected") or "", *(others if isinstance(others, list) else [])]))


def _page(shown: Sequence[Row]) -> Sequence[Row]:
    """Return one page of the rows; a link to an item opens its page."""
    if len(shown) <= _PAGE_ROWS:
        return shown
    pages = -(-len(shown) // _PAGE_ROWS)
    number = st.pagination(pages, default=(_linked_row(shown) or 0) // _PAGE_ROWS + 1, key="page")
    return shown[(number - 1) * _PAGE_ROWS : number * _PAGE_ROWS]


def _linked_row(rows: Sequence[Row]) -> int | None:
    """Return the number of the row with the item in the URL, or None."""
    item = st.query_params.get(_ITEM)
    return next((number for number, row in enumerate(rows) if item is not None and row.get("id") == item), None)


def _answers(shown: Sequence[Row]) -> bool:
    """Draw the answers and the selected one below, put its item into the URL, and return whether one is."""
    items = [get_str(row, "id") or "" for row in shown]
    linked = _linked_row(shown)
    key, frame = f"predictions_table {hash(tuple(items))}", answer_frame(shown)
    chosen = markup.choose_row(frame, key=key, chosen=linked, column_config=_ANSWER_COLUMNS, alt="Answers")
    answer = st.empty()
    if chosen is not None:
        with answer.container(border=True):
            _answer(shown[chosen])
    item = "" if chosen is None else items[chosen]
    if item.isprintable() and 0 < len(item) <= _MAX_ITEM:
        st.query_params[_ITEM] = item
    elif linked is not None:
        del st.query_params[_ITEM]
    return chosen is not None


def _answer(row: Row) -> None:
    texts = [both_ends(get_str(row, name) or "", _MAX_TEXT) for name in ("id", "expected", "extracted_answer")]
    if row.get("extracted_answer") is None:
        texts[-1] = "no answer in the output"
    markup.table(["Item", "Expected", "Extracted answer"], [texts])
    left, right = st.columns(2)
    with left:
        st.caption("Prompt")
        st.code(both_ends(get_str(row, "prompt") or "", _MAX_TEXT), language=None, wrap_lines=True)
    with right:
        st.caption("Output, with the answer underlined")
        before, answer, after = map(markup.safe, split_at_answer(row))
        st.html(f'<p class="tp-tokens">{before}<span class="tp-on">{answer}</span>{after}</p>')


def split_at_answer(row: Row) -> tuple[str, str, str]:
    """Split an output into the text before the answer, the answer, and the text after it; "" if it has no answer.

    Keys and passwords are masked. Only the beginning and the end of a long output are kept.

    >>> split_at_answer({"output_text": "<answer>4</answer>", "extracted_answer": "4"})
    ('<answer>', '4', '</answer>')
    """
    text, answer = both_ends(get_str(row, "output_text") or "", _MAX_TEXT), get_str(row, "extracted_answer")
    return text.rpartition(answer) if answer else ("", "", text)
