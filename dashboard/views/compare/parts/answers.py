"""The items that only one run of a pair answered rightly, with both outputs whole beside each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.words.grades import Sign
from dashboard.shared.words.text import both_ends
from dashboard.views.compare.logic import tables
from dashboard.views.compare.parts.comparison import csv
from evidence import layout
from evidence.compare.scores import Comparison, Flip, Pair
from evidence.run import Run
from schemas.reading import get_str

_ON_A_PAGE = 10
_LONGEST = 20_000
_KINDS: Mapping[str, Sign] = {
    "broken": Sign(symbol="✕", tone="bad", meaning="Only the first run answered it rightly."),
    "fixed": Sign(symbol="✓", tone="good", meaning="Only this run answered it rightly."),
}


@st.fragment
def draw(compared: Comparison, runs: Mapping[str, Run]) -> None:
    """Draw the flipped items of one pair at a time, which the reader chooses; those that went wrong come first."""
    stated = [pair for pair in compared.pairs if pair.score is not None]
    if not stated:
        return
    st.header("Items that flipped", anchor=False)
    alike = [pair.second for pair in stated if pair.score is not None and not pair.score.flips]
    if alike:
        markup.note(f"Every item was answered rightly by both or by neither: {', '.join(alike)}.")
    flipped = {pair.second: (pair, pair.score.flips) for pair in stated if pair.score is not None and pair.score.flips}
    chosen = next(iter(flipped), None)
    if len(flipped) > 1:
        chosen = st.selectbox(
            "Against the first",
            list(flipped),
            index=None,
            key="flips",
            bind="query-params",
            placeholder=f"choose one of {len(flipped)} runs",
            width=420,
        )
    if chosen is not None:
        _flips(*flipped[chosen], runs)


def _flips(pair: Pair, flips: Sequence[Flip], runs: Mapping[str, Run]) -> None:
    pages = -(-len(flips) // _ON_A_PAGE)
    with st.container(horizontal=True, vertical_alignment="center"):
        markup.note(tables.flips_said(pair.second, flips))
        page = st.pagination(pages, key=f"flips of {pair.second}") if pages > 1 else 1
        csv("All as CSV", lambda: tables.flips(pair, flips), name=f"flips {pair.second}")
    outputs = [
        {get_str(row, "id"): get_str(row, "output_text") for row in runs[name].rows(layout.PREDICTIONS).values}
        for name in (pair.first, pair.second)
    ]
    for flip in flips[(page - 1) * _ON_A_PAGE : page * _ON_A_PAGE]:
        st.html(_item(pair, flip, [of_run.get(flip.id) for of_run in outputs]))


def _item(pair: Pair, flip: Flip, outputs: Sequence[str | None]) -> str:
    """Return an item: its question and expected answer, and below each other's run its whole output."""
    sides = (
        (pair.first, flip.first_answer, flip.kind == "broken"),
        (pair.second, flip.second_answer, flip.kind != "broken"),
    )
    columns = "".join(
        f"<div><p><b>{markup.safe(name)}</b> {'✓' if is_right else '✕'} {markup.safe(tables.answer_said(answer))}</p>"
        f'<pre tabindex="0" role="group" aria-label="Output of {markup.safe(name)}">{_integer(output)}</pre></div>'
        for (name, answer, is_right), output in zip(sides, outputs, strict=True)
    )
    return (
        f'<div class="tp-item"><p><b>{markup.safe(flip.id)}</b> {markup.sign(_KINDS, flip.kind)} '
        f"expected {markup.safe(flip.expected)}</p>"
        f'<p class="tp-prompt">{markup.safe(both_ends(flip.prompt, _LONGEST))}</p>'
        f'<div class="tp-two">{columns}</div></div>'
    )


def _integer(output: str | None) -> str:
    return markup.safe(both_ends(output or "", _LONGEST))
