"""The tables of a comparison: figures side by side, settings, scores of other tools; and each as CSV."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import streamlit as st

from dashboard.shared.charts import foreign_run
from dashboard.shared.parts import markup, plotted
from dashboard.shared.words.grades import GRADES
from dashboard.shared.words.text import shorten
from dashboard.views.compare.logic import strip, tables
from evidence.compare.scores import Comparison, PairVerdict, judge_pairs
from evidence.compare.settings import ComparedSetting
from evidence.imports.run import ImportedRun

_LONGEST = 160
_SETTINGS_SHOWN = 15

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The titles of a table's columns, and its rows."""


_SOUND = {"verified", "consistent", "measured"}
_MOST_CHIPS = 8


def draw_verdicts(compared: Comparison) -> None:
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
    found = judge_pairs(compared)
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


def export(compared: Comparison) -> None:
    """Draw the menu that gives the tables of a comparison as CSV."""
    with st.popover("Tables as CSV", icon=":material/download:"):
        csv("Figures", lambda: tables.headlines(compared), name="figures")
        csv("Settings", lambda: tables.settings(compared), name="settings")
        if any(pair.score is not None for pair in compared.pairs):
            csv("Differences in score", lambda: tables.differences(compared), name="differences")


def headlines(compared: Comparison) -> None:
    """Draw the same figures of each run, one run in a column, and why one that a run states is not shown."""
    st.header("Figures", anchor=False)
    head, rows = tables.headlines(compared)
    markup.table(head, rows, numbers=range(1, len(head)))
    for name, withheld in zip(compared.names, compared.withheld, strict=True):
        if withheld:
            markup.note(f"{name}: {' '.join(withheld)}")


def of_other_tools(views: Mapping[str, ImportedRun]) -> None:
    """Say where the figures of other tools' runs come from, by the names of the runs; nothing for none."""
    if views:
        whose = "is another tool's run: its" if len(views) == 1 else "are runs of other tools: their"
        markup.note(
            f"{', '.join(views)} {whose} figures are as the files state them. Sources, on the page of such a run, has "
            "the file and line of each, and its settings. No score of it was computed again here."
        )


def settings(compared: Comparison) -> None:
    """Draw the settings that differ, what was most likely changed on purpose first; all others are folded."""
    st.header("Settings that differ", anchor=False)
    told = compared.settings_diff()
    changed = [setting for setting in told.differing if setting.source != "effective"]
    derived = [setting for setting in told.differing if setting.source == "effective"]
    if changed:
        _settings(compared.names, changed[:_SETTINGS_SHOWN])
    else:
        markup.note("No setting that every run states differs." if told.unheld else "No setting differs.")
    folded = {
        "More that differ": changed[_SETTINGS_SHOWN:],
        "Derived from them, from the machine and the code": derived,
        "Not stated by every run": told.unheld,
    }
    for title, rows in folded.items():
        if rows:
            _draw_folded(title, compared.names, rows)
    if told.equal:
        _draw_folded("Equal settings", ["All runs"], told.equal)


@st.fragment
def _draw_folded(title: str, names: Sequence[str], rows: Sequence[ComparedSetting]) -> None:
    folded = st.expander(f"{title}: {len(rows):,}", on_change="rerun")
    if folded.open:
        with folded:
            _settings(names, rows)


def scores_of_other_tools(views: Mapping[str, ImportedRun]) -> None:
    """Draw the scores that files of other tools' runs state, by the names of the runs; nothing for none."""
    if rows := [(name, *row) for name, view in views.items() for row in foreign_run.score_rows(view)]:
        markup.note("Scores as files of other tools state them, not computed again here:")
        markup.table(["Run", "Score", "Value", "Checkpoint", "How", "Source", "Note"], rows, numbers=[2])


def _settings(names: Sequence[str], rows: Sequence[ComparedSetting]) -> None:
    cells = [tables.setting(row, len(names)) for row in rows]
    markup.table(
        ["Setting", "Stated in", *names], [(name, place, *map(_short, values)) for name, place, *values in cells]
    )


def _short(text: str) -> str:
    return shorten(tables.shortened_hash(text), _LONGEST)


def csv(label: str, table: Callable[[], Table], *, name: str) -> None:
    """Draw a button that gives a table as CSV; its titles and rows are made when it is pressed."""
    markup.download(
        label, lambda: tables.as_csv(*table()), f"{name}.csv", mime="text/csv", type="tertiary", key=f"csv {name}"
    )
