"""HTML elements of the pages. Every text is escaped here and only here.

Text of runs is never passed to a Markdown command, because Streamlit's Markdown has links, colors, icons and formulas.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from html import escape
from typing import Any, Literal

import pandas as pd
import plotly.graph_objects as go
import streamlit as st

from dashboard.shared.charts.theme import Palette, palette
from dashboard.shared.tables.headline import HeadlineFigure
from dashboard.shared.words import UNKNOWN, Sign, date_and_time
from evidence.bundle.secrets import strip_invisible
from schemas.formats import count
from schemas.reading import get_number, get_objects

_CODE = re.compile("`([^`]+)`")
_WORD = 22  # longest cell of a table that is never wrapped, in characters


def safe(text: object) -> str:
    """Escape text for HTML and remove invisible characters."""
    return escape(strip_invisible(str(text)), quote=True)


def sign(signs: Mapping[str, Sign], word: str | None, beside: str = "") -> str:
    """Return a grade or a status as a label: symbol, word and further text, with the meaning on hover."""
    found, text = signs.get(word or "", UNKNOWN), f"{word or 'unknown'}{f' · {beside}' if beside else ''}"
    return (
        f'<span class="tp-sign tp-{found.tone}" title="{safe(found.meaning)}">'
        f'<span aria-hidden="true">{found.symbol}</span>{safe(text)}</span>'
    )


class Safe(str):
    """Escaped HTML, which `table` does not escape again."""

    __slots__ = ()


def words(text: str) -> Safe:
    """Return text as HTML, with parts in backticks as code."""
    return Safe(_CODE.sub(r"<code>\1</code>", safe(text)))


def link(text: str, address: str) -> Safe:
    """Return a link that opens in a new tab. The address must come from this program."""
    return Safe(f'<a href="{safe(address)}" target="_blank" rel="noopener noreferrer">{safe(text)}</a>')


def when(stated: str | None, zone: tzinfo) -> Safe:
    """Return a time in the user's zone, with UTC on hover; a dash for None."""
    return Safe(f'<span title="{safe(date_and_time(stated))} UTC">{safe(date_and_time(stated, zone))}</span>')


def heading(title: str, *, signs: str = "", lines: Sequence[str] = ()) -> None:
    """Draw the heading of a page. `signs` and `lines` must be escaped HTML."""
    below = "".join(f'<p class="tp-sub">{line}</p>' for line in lines if line)
    st.html(f'<div class="tp-head"><h1>{safe(title)}</h1>{signs}</div>{below}')


def step(number: int, title: str) -> None:
    """Draw the title of a numbered step."""
    st.html(f'<p class="tp-step"><b>{number}</b>{safe(title)}</p>')


def note(text: str) -> None:
    """Draw a line of small text."""
    st.html(f'<p class="tp-sub">{safe(text)}</p>')


def empty(title: str, *lines: str) -> None:
    """Draw a placeholder that explains why a section is empty."""
    st.html(f'<div class="tp-empty"><h2>{safe(title)}</h2>{"".join(f"<p>{safe(line)}</p>" for line in lines)}</div>')


def table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Iterable[int] = (),
    marked: Iterable[int] = (),
    quiet: Iterable[int] = (),
) -> None:
    """Draw a small table whose texts wrap; cells are text or `Safe` HTML.

    Columns in `numbers` are right-aligned, rows in `quiet` gray and in `marked` red, which their text must say too.
    """
    right = set(numbers)
    kinds = dict.fromkeys(marked, "tp-marked") | dict.fromkeys(quiet, "tp-dim")
    top = "".join(
        f'<th scope="col" class="{"tp-number" if index in right else ""}">{safe(text)}</th>'
        for index, text in enumerate(head)
    )
    body = ""
    for number, row in enumerate(rows):
        cells = "".join(_cell(cell, is_number=index in right) for index, cell in enumerate(row))
        body += f'<tr class="{kinds.get(number, "")}">{cells}</tr>'
    inside = f'<table class="tp-table"><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>'
    # Whoever uses a keyboard must be able to focus an element that scrolls, and hear what it is.
    st.html(f'<div class="tp-scroll" tabindex="0" role="group" aria-label="{safe(", ".join(head))}">{inside}</div>')


def choose_row(
    frame: pd.DataFrame, *, key: str, chosen: int | None = None, is_required: bool = False, **look: Any
) -> int | None:
    """Draw a table and return the position of the selected row, at first `chosen`, or None.

    A selection is a position, so other rows need another key.
    """
    event = st.dataframe(
        frame,
        hide_index=True,
        key=key,
        on_select="rerun",
        selection_mode="single-row-required" if is_required else "single-row",
        selection_default={"selection": {"rows": [] if chosen is None else [chosen]}},
        **look,
    )
    return next((row for row in event["selection"]["rows"] if row < len(frame)), None)


def bullets(title: str, lines: Iterable[str]) -> None:
    """Draw a title and a list, whose items may contain code in backticks."""
    items = "".join(f"<li>{words(line)}</li>" for line in lines)
    st.html(f'<p class="tp-sub"><b>{safe(title)}</b></p><ul class="tp-list">{items}</ul>')


def _cell(text: str, *, is_number: bool) -> str:
    if isinstance(text, Safe):
        return f"<td>{text}</td>"
    kind = "tp-number" if is_number else "tp-word" if len(text) <= _WORD else ""
    return f'<td class="{kind}">{safe(text)}</td>'


def download(label: str, data: Any, name: str, *, mime: str | None = None, **more: Any) -> None:
    """Draw a download button. A function as `data` is called when the button is pressed."""
    shared: Any = {"icon": ":material/download:", "on_click": "ignore"} | more
    st.download_button(label, data=data, file_name=name, mime=mime, **shared)


def figures(found: Iterable[HeadlineFigure]) -> None:
    """Draw main figures side by side, as many as fit into a row."""
    with st.container(horizontal=True, gap="small"):
        for one in found:
            with st.container(border=True, width="stretch", height="stretch", gap=None):
                st.metric(one.label, one.value)
                if one.detail:
                    note(one.detail)


_SHOWN_TOKENS = 1000  # tokens shown at each end of a long example; the answer is often at its end


def show_examples(examples: Iterable[Mapping[str, Any]]) -> None:
    """Draw examples of a `first_examples.json` below a legend."""
    st.html(
        '<p class="tp-sub"><span class="tp-on tp-key">underlined</span> '
        "Supervised: the model is trained to predict this token. "
        '<span class="tp-key">plain</span> Context only. Line breaks are shown as ↵.</p>'
    )
    for example in examples:
        tokens = get_objects(example, "tokens")
        supervised = sum(token.get("supervised") is True for token in tokens)
        cut = ", truncated to the sequence length" if example.get("truncated") is True else ""
        shown, more = "".join(map(_token, tokens[:_SHOWN_TOKENS])), ""
        if (left_out := len(tokens) - 2 * _SHOWN_TOKENS) > 0:
            shown += f"\n<i>… {left_out:,} tokens omitted …</i>\n"
            more = f"; the first and last {_SHOWN_TOKENS:,} are shown"
        shown += "".join(map(_token, tokens[max(_SHOWN_TOKENS, len(tokens) - _SHOWN_TOKENS) :]))
        row = count(get_number(example, "row"))
        note(f"Row {row}: {len(tokens):,} tokens, {supervised:,} supervised{cut}{more}")
        st.html(f'<p class="tp-tokens">{shown}</p>')


def _token(token: Mapping[str, Any]) -> str:
    text = safe(token.get("text", "")).replace("\n", "<i>↵</i>\n")
    on = token.get("supervised") is True
    kind = "supervised" if on else "context"
    return f'<span class="{"tp-on" if on else ""}" title="id {safe(token.get("id", "?"))}, {kind}">{text}</span>'


def colours() -> Palette:
    """Return the colours of the user's theme."""
    return palette(st.context.theme.type)


def show_figure(
    figure: go.Figure,
    *,
    key: str,
    alt: str,
    name: str = "",
    on_box: Callable[[], None] | None = None,
    saved_as: Literal["svg", "png"] = "svg",
) -> None:
    """Draw a figure with its own template; `alt` describes it for screen readers.

    The saved file has the name `name`, by default the key. `on_box` is called when a box is drawn with the mouse, which
    is then in the session state under `key`.
    """
    config = {
        "displaylogo": False,
        "modeBarButtons": [["toImage"]],
        "toImageButtonOptions": {"format": saved_as, "filename": name or key, "scale": 2 if saved_as == "png" else 1},
    }
    select: Any = {} if on_box is None else {"on_select": on_box, "selection_mode": "box"}
    st.plotly_chart(figure, theme=None, key=key, alt=alt, width="stretch", config=config, **select)
