"""What stands above everything else of a comparison: each run against the first, in a picture and in words."""

from __future__ import annotations

from collections.abc import Collection

import streamlit as st

from dashboard.shared.parts import markup, plotted
from dashboard.shared.words.grades import GRADES
from dashboard.views.compare.logic import strip, tables
from evidence.compare.comparison import Comparison
from evidence.compare.verdict import PairVerdict, verdicts

_SOUND = {"verified", "consistent", "measured"}
_MOST_CHIPS = 8


def draw(compared: Comparison) -> None:
    """Draw what is wrong with a run, the differences in score, and beside each what it cost and what was changed."""
    graded = list(zip(compared.names, compared.grades, strict=True))
    doubts = "".join(
        f'<p class="tp-sub">{markup.safe(name)} {markup.sign(GRADES, grade.name)} {markup.safe(grade.reasons[0])}</p>'
        for name, grade in graded
        if grade.name not in _SOUND and grade.reasons
    )
    if doubts:
        st.html(doubts)
    doubtful = {name for name, grade in graded if grade.name == "contradictory"}
    found = verdicts(compared)
    items = f'<ul class="tp-verdicts">{"".join(_item(verdict, doubtful) for verdict in found)}</ul>'
    if not any(verdict.pair.score for verdict in found):
        st.html(items)
        return
    left, right = st.columns([3, 2], gap="large")
    with left:
        picture = strip.draw(found, plotted.colours(), doubtful=doubtful)
        plotted.show(picture, key="difference_in_score", alt=strip.describe(found))
    with right:
        st.html(items)


def _item(verdict: PairVerdict, doubtful: Collection[str]) -> str:
    """Return a verdict in words: of the score, why it is not one, loss, time and memory, and what was changed."""
    lines = [markup.words(tables.score_said(verdict)), markup.safe(tables.costs_said(verdict))]
    if verdict.sameness:
        lines.append(f"<b>{markup.safe(verdict.sameness)}.</b>")
    said = map(tables.change_said, verdict.changed[:_MOST_CHIPS])
    chips = [f'<span class="tp-chip">{markup.safe(change)}</span>' for change in said]
    if left := len(verdict.changed) - len(chips):
        chips.append(f'<span class="tp-dim">and {left:,} more, below</span>')
    head = f"<b>{markup.safe(verdict.pair.second)}</b> {markup.sign(strip.WORDS, verdict.word)}"
    if verdict.pair.second in doubtful:
        head += f" {markup.sign(GRADES, 'contradictory')}"
    return f"<li>{head}{''.join(f'<p>{line}</p>' for line in lines if line)}{''.join(chips)}</li>"
