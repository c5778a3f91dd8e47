"""The parts of a comparison: figures side by side, settings, what a smoke run proved, and the paired score."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import streamlit as st

from dashboard.shared.charts import foreign_run
from dashboard.shared.parts import markup
from dashboard.shared.words.text import shortened
from dashboard.views.compare.logic import tables
from evidence.compare.comparison import Comparison, Flip, Pair, ScoreDifference
from evidence.compare.settings import Setting
from evidence.records.foreign.view import ForeignRun

_LONGEST = 160
_MOST_FLIPS = 200
_SETTINGS_SHOWN = 15

Table = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The titles of a table's columns, and its rows."""


def export(compared: Comparison) -> None:
    """Draw the menu that gives the tables of a comparison as CSV."""
    with st.popover("Tables as CSV", icon=":material/download:"):
        _csv("Figures", lambda: tables.headlines(compared), name="figures")
        _csv("Settings", lambda: tables.settings(compared), name="settings")
        if any(pair.score is not None for pair in compared.pairs):
            _csv("Differences in score", lambda: tables.differences(compared), name="differences")


def headlines(compared: Comparison) -> None:
    """Draw the same figures of each run, one run in a column, and why one that a run states is not shown."""
    head, rows = tables.headlines(compared)
    markup.table(head, rows, numbers=range(1, len(head)))
    for name, withheld in zip(compared.names, compared.withheld, strict=True):
        if withheld:
            markup.note(f"{name}: {' '.join(withheld)}")


def of_other_tools(views: Mapping[str, ForeignRun]) -> None:
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
    told = compared.told()
    if told.differing:
        _settings(compared.names, told.differing[:_SETTINGS_SHOWN])
    else:
        markup.note("No setting that every run states differs." if told.unheld else "No setting differs.")
    if len(told.differing) > _SETTINGS_SHOWN:
        with st.expander(f"{len(told.differing) - _SETTINGS_SHOWN:,} more that differ"):
            _settings(compared.names, told.differing[_SETTINGS_SHOWN:])
    if told.unheld:
        _folded("Not stated by every run", compared.names, told.unheld)
    if told.equal:
        _folded("Equal settings", ["All runs"], told.equal)


@st.fragment
def _folded(title: str, names: Sequence[str], rows: Sequence[Setting]) -> None:
    folded = st.expander(f"{title}: {len(rows):,}", on_change="rerun")
    if folded.open:
        with folded:
            _settings(names, rows)


def scores(compared: Comparison, views: Mapping[str, ForeignRun]) -> None:
    """Draw the paired differences in score of the first run and each of the others, or why there are none.

    Args:
        compared: The runs.
        views: Those of them that other tools carried out, by name.
    """
    st.header("Differences in score", anchor=False)
    stated = [(pair, pair.score) for pair in compared.pairs if pair.score is not None]
    if stated:
        markup.table(*tables.differences(compared), numbers=[1, 5, 6, 7, 8, 9, 10])
    for pair in compared.pairs:
        if pair.score is None:
            markup.bullets(f"The scores of {pair.second} and {pair.first} cannot be compared:", pair.refused)
    if stated_scores := [(name, *row) for name, view in views.items() for row in foreign_run.score_rows(view)]:
        markup.note("Scores as files of other tools state them, not computed again here:")
        markup.table(["Run", "Score", "Value", "Checkpoint", "How", "Source", "Note"], stated_scores, numbers=[2])
    if stated:
        _flips(stated)


@st.fragment
def _flips(stated: Sequence[tuple[Pair, ScoreDifference]]) -> None:
    """Draw the items that only one run of a pair answered rightly: of one pair at a time, which the reader chooses."""
    st.header("Items that flipped", anchor=False)
    alike = [pair.second for pair, score in stated if not score.flips]
    if alike:
        markup.note(f"Every item was answered rightly by both or by neither: {', '.join(alike)}.")
    flipped = {pair.second: (pair, score.flips) for pair, score in stated if score.flips}
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
    else:
        chosen = next(iter(flipped), None)
    if chosen is not None:
        _flip_table(*flipped[chosen])


def _flip_table(pair: Pair, flips: Sequence[Flip]) -> None:
    markup.note(tables.flips_said(pair.second, flips))
    head = ["Item", "Change", "Prompt", "Expected", pair.first, pair.second]
    markup.table(head, [_flip(flip) for flip in flips[:_MOST_FLIPS]])
    if len(flips) > _MOST_FLIPS:
        markup.note(f"The first {_MOST_FLIPS} are shown; the CSV has all of them.")
    _csv("All as CSV", lambda: (head, [tables.flip(flip) for flip in flips]), name=f"flips {pair.second}")


def _flip(flip: Flip) -> Sequence[str]:
    """Return an item as a row: the answers are marked where they differ from what was expected."""
    item, change, prompt, expected, first, second = tables.flip(flip)
    return (
        item,
        change,
        shortened(prompt, _LONGEST),
        expected,
        markup.changes(expected, first) if flip.first_answer is not None else first,
        markup.changes(expected, second) if flip.second_answer is not None else second,
    )


def _settings(names: Sequence[str], rows: Sequence[Setting]) -> None:
    cells = [tables.setting(row, len(names)) for row in rows]
    markup.table(
        ["Setting", "Stated in", *names], [(name, place, *map(_short, values)) for name, place, *values in cells]
    )


def _short(text: str) -> str:
    return shortened(tables.shortened_hash(text), _LONGEST)


def _csv(label: str, table: Callable[[], Table], *, name: str) -> None:
    """Draw a button that gives a table as CSV; its titles and rows are made when it is pressed."""
    st.download_button(
        label,
        data=lambda: tables.as_csv(*table()),
        file_name=f"{name}.csv",
        mime="text/csv",
        icon=":material/download:",
        on_click="ignore",
        type="tertiary",
        key=f"csv {name}",
    )
