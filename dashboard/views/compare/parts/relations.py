"""Many runs in one picture: a scatter and parallel coordinates, and the table in which a run is chosen and opened."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from dashboard.shared.parts import markup, plotted
from dashboard.shared.parts.run_box import MOST_SIDE_BY_SIDE, SIDE_BY_SIDE, hold_side_by_side, name_pixels
from dashboard.shared.session import state
from dashboard.views.compare.logic import relation, scatter, scatter_figure
from dashboard.views.compare.logic.relation import Scale
from evidence.bundle.secrets import strip_invisible
from evidence.index.summary import RunSummary
from schemas.formats import NOTHING, quantity

_ROW_PIXELS, _FEW_ROWS = 36, 8


def draw_scatter(runs: Sequence[RunSummary]) -> None:
    """Draw any two figures or settings of the runs against each other; points can be chosen."""
    if not runs:
        markup.empty("No run matches", "Remove a word or a condition from the search.")
        return
    names = relation.names(runs)
    if len(names) < 2:
        markup.empty("Nothing to draw", "These runs state no figure and no setting that can be read.")
        return
    x, y = relation.first_axes(runs)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = _name("X axis", names, x, key="across")
        y = _name("Y axis", names, y, key="up")
        groups = st.selectbox(
            "Colour by", names, index=None, key="apart", bind="query-params", width=260, filter_mode="contains"
        )
        across, up = relation.scale(runs, x), relation.scale(runs, y)
        scales = {across: _scale("X scale", key="across_scale"), up: _scale("Y scale", key="up_scale")}
        columns = [x, y, *([groups] if groups else [])]
        _export(runs, columns, name="scatter")
    shown = scatter.scatter(
        across,
        up,
        relation.scale(runs, groups) if groups else None,
        logarithmic=frozenset(
            scale.name
            for scale, asked in scales.items()
            if asked == "log" or (asked == "auto" and scale.spans_a_decade)
        ),
        doubtful=[index for index, run in enumerate(runs) if run.grade == "contradictory"],
    )
    chosen = _points(runs, shown) if shown.members else []
    if not shown.members:
        markup.empty("No run has a point", f"No run states both {y} and {x} in a form that these axes can show.")
    _missing(runs, [across, up])
    if shown.beyond:
        one = len(shown.beyond) == 1
        markup.note(
            f"{quantity(len(shown.beyond), 'run')} {'has' if one else 'have'} no place on a logarithmic axis: "
            "a value is zero or below."
        )
    _table(runs, columns, chosen)


def _points(runs: Sequence[RunSummary], shown: scatter.Scatter) -> list[int]:
    """Draw the picture and return the numbers of the runs whose points are chosen."""
    is_score = shown.y.name == relation.SCORE
    picked = plotted.show(
        scatter_figure.draw(
            shown,
            [strip_invisible(run.path.name) for run in runs],
            _palette(len(shown.members)),
            plotted.colours(),
            [(run.score_low, run.score_high) for run in runs] if is_score else (),
        ),
        # What is chosen is kept by number, so that other points make another picture.
        key=f"scatter {hash((tuple(run.path.name for run in runs), shown.x.name, shown.y.name, shown.members))}",
        alt=f"Scatter of {shown.y.name} against {shown.x.name}, one point for each run",
        name="scatter",
        is_chosen_from=True,
    )
    has_means = bool(scatter.means(shown))
    said = "Bars with a line: mean ± standard deviation of the n runs of one value, whatever else differs. "
    st.caption(
        f"{said if has_means else ''}Click a point to choose a run, with Shift several; the frame among the tools "
        "takes all within. Drag to zoom. Double-click clears. The camera saves the picture as SVG."
    )
    return scatter_figure.runs_at(picked["selection"]["points"])


def draw_parallel(runs: Sequence[RunSummary]) -> None:
    """Draw several figures and settings side by side, a line through them for each run."""
    if not runs:
        markup.empty("No run matches", "Remove a word or a condition from the search.")
        return
    with st.container(horizontal=True, vertical_alignment="bottom"):
        names = st.multiselect(
            "Axes, from left to right",
            relation.names(runs),
            default=relation.first_scales(runs),
            key="axes",
            bind="query-params",
            max_selections=12,
        )
        scales = [relation.scale(runs, name) for name in names]
        place = st.empty()
    if len(scales) < 2:
        markup.empty("Choose two axes or more", "Any setting or figure of the runs can be one.")
        return
    chart = st.container()
    chosen = _table(runs, names, [])
    first, second, *_ = _palette(2)
    with chart:
        st.echarts_chart(
            relation.parallel_drawing(
                scales, colour=first, chosen_colour=second, chosen=chosen, words=plotted.colours().quiet
            ),
            height=relation.PARALLEL_HEIGHT,
            key="parallel",
            renderer="svg",
            alt=f"Parallel coordinates of {', '.join(names)}, one line for each run",
        )
        _missing(runs, scales)
        st.caption(
            "Drag along an axis to see only the runs within; rows ticked below are drawn thick. The arrow saves SVG."
        )
    with place:
        _export(runs, names, name="parallel")


def _palette(size: int) -> list[str]:
    colours = st.get_option(f"theme.{st.context.theme.type or 'light'}.chartCategoricalColors")
    return [colours[index % len(colours)] for index in range(size)]


def _name(label: str, names: Sequence[str], first: str, *, key: str) -> str:
    index = names.index(first) if first in names else 0
    return st.selectbox(label, names, index=index, key=key, bind="query-params", width=260, filter_mode="contains")


def _scale(label: str, *, key: str) -> str:
    return st.segmented_control(
        label,
        ["auto", "linear", "log"],
        default="auto",
        required=True,
        key=key,
        bind="query-params",
        help="auto: logarithmic where the largest value is ten times the smallest or more.",
    )


def _missing(runs: Sequence[RunSummary], scales: Sequence[Scale]) -> None:
    gone = sum(any(scale.places[index] is None for scale in scales) for index in range(len(runs)))
    if gone:
        markup.note(
            f"{gone:,} of {quantity(len(runs), 'run')} {'is' if gone == 1 else 'are'} incomplete: a value is missing."
        )


def _table(runs: Sequence[RunSummary], names: Sequence[str], picked: Sequence[int]) -> list[int]:
    """Draw the runs, or those picked in the chart, with what can be done; return the numbers of ticked ones."""
    shown = list(picked) or list(range(len(runs)))
    table = relation.table([runs[index] for index in shown], names)
    ticked = st.dataframe(
        table,
        hide_index=True,
        placeholder=NOTHING,
        # The grid knows what is ticked by its row number, so other runs make another grid.
        key=f"related_runs {hash(tuple(runs[index].path.name for index in shown))}",
        on_select="rerun",
        selection_mode="multi-row",
        column_config={name: _column(name, table[name].to_pylist()) for name in table.column_names},
        height="content" if len(shown) <= _FEW_ROWS else _ROW_PIXELS * (_FEW_ROWS + 1),
        alt="The runs of the picture, one in a row",
    )
    chosen = [shown[row] for row in ticked["selection"]["rows"] if row < len(shown)]
    names_chosen = [runs[index].path.name for index in (chosen or picked)]
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Open", disabled=len(names_chosen) != 1, icon=":material/show_chart:", type="primary"):
            state.go(state.RUN, run=names_chosen[0])
        st.button(
            SIDE_BY_SIDE,
            disabled=not 2 <= len(names_chosen) <= MOST_SIDE_BY_SIDE,
            icon=":material/compare_arrows:",
            help=f"For two to {MOST_SIDE_BY_SIDE} chosen runs.",
            on_click=hold_side_by_side,
            args=[names_chosen],
        )
        markup.note(f"{quantity(len(names_chosen), 'run')} chosen of {len(runs):,}.")
    return chosen


def _column(name: str, values: Sequence[str | float | None]) -> Any:
    stated = [value for value in values if value is not None]
    if name == "run":
        return st.column_config.TextColumn("Run", pinned=True, width=name_pixels())
    if any(isinstance(value, str) for value in stated):
        return st.column_config.TextColumn(name)
    whole = all(float(value).is_integer() for value in stated)
    return st.column_config.NumberColumn(name, format="localized" if whole else "%.6g")


def _export(runs: Sequence[RunSummary], names: Sequence[str], *, name: str) -> None:
    markup.download("CSV", lambda: relation.relation_csv(runs, names), f"{name}.csv", mime="text/csv")
