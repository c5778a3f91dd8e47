"""Many runs in one picture: a scatter and parallel coordinates, and the table in which a run is chosen and opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import streamlit as st

from dashboard import state
from dashboard.components import curves, markup
from dashboard.logic import relation
from dashboard.logic.numbers import NOTHING
from dashboard.logic.parallel import HEIGHT, parallel
from dashboard.logic.relation import Scale
from dashboard.logic.relation_svg import parallel_svg, scatter_svg
from evidence.index import RunSummary

_SYMBOLS = ("circle", "diamond", "square", "cross", "triangle-up", "x", "star", "pentagon")
_LOG_ACROSS, _LOG_UP = "log across", "log up"
_ROW_PIXELS = 36


def scatter(runs: Sequence[RunSummary]) -> None:
    """Draw any two figures or settings of the runs against each other; points can be chosen."""
    if not runs:
        markup.empty("No run matches", "Take a word or a condition out of the search.")
        return
    names = relation.names(runs)
    if len(names) < 2:
        markup.empty("Nothing to draw", "These runs state no figure and no setting that can be read.")
        return
    x, y = relation.first_axes(runs)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        x = _name("Across", names, x, key="across")
        y = _name("Up", names, y, key="up")
        groups = st.selectbox("Told apart by", names, index=None, key="apart", bind="query-params", width=260)
        logs = st.pills("Scale", [_LOG_ACROSS, _LOG_UP], selection_mode="multi", key="logs", bind="query-params")
        across, up = relation.scale(runs, x), relation.scale(runs, y)
        _export(
            runs,
            [x, y, *([groups] if groups else [])],
            lambda: scatter_svg(across, up, colour=curves.palette(1, "light")[0], title=f"{y} against {x}"),
            name="scatter",
        )
    figure = _figure(runs, across, up, relation.scale(runs, groups) if groups else None)
    if _LOG_ACROSS in logs and not across.words:
        figure.update_xaxes(type="log")
    if _LOG_UP in logs and not up.words:
        figure.update_yaxes(type="log")
    picked = st.plotly_chart(
        figure,
        key="scatter",
        on_select="rerun",
        selection_mode=("points", "box", "lasso"),
        config={"displaylogo": False, "toImageButtonOptions": {"format": "png", "scale": 2, "filename": "scatter"}},
        alt=f"Scatter of {y} against {x}, one point for each run",
    )
    chosen = [int(point["customdata"][0]) for point in picked["selection"]["points"]]
    _missing(runs, [across, up])
    _table(runs, [x, y, *([groups] if groups else [])], [index for index in chosen if index < len(runs)])


def parallels(runs: Sequence[RunSummary]) -> None:
    """Draw several figures and settings side by side, a line through them for each run."""
    if not runs:
        markup.empty("No run matches", "Take a word or a condition out of the search.")
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
    first, second, *_ = curves.palette(2)
    with chart:
        st.echarts_chart(
            parallel(scales, colour=first, chosen_colour=second, chosen=chosen),
            height=HEIGHT,
            key="parallel",
            alt=f"Parallel coordinates of {', '.join(names)}, one line for each run",
        )
        _missing(runs, scales)
        st.caption("Drag along an axis to see only the runs within; rows ticked below are drawn thick.")
    with place:
        _export(
            runs,
            names,
            lambda: parallel_svg(
                scales, colour=curves.palette(1, "light")[0], chosen=chosen, title=f"Runs by {', '.join(names)}"
            ),
            name="parallel",
        )


def _name(label: str, names: Sequence[str], first: str, *, key: str) -> str:
    index = names.index(first) if first in names else 0
    return st.selectbox(label, names, index=index, key=key, bind="query-params", width=260)


def _figure(runs: Sequence[RunSummary], x: Scale, y: Scale, groups: Scale | None) -> Any:
    """Return the Plotly figure; groups differ by colour and by symbol."""
    # Plotly weighs what all other pages together do, so only this picture loads it.
    import plotly.graph_objects as go

    shown = [index for index in range(len(runs)) if x.places[index] is not None and y.places[index] is not None]
    members: dict[str, list[int]] = {}
    for index in shown:
        members.setdefault("" if groups is None else str(groups.shown(index)), []).append(index)
    colours = curves.palette(len(members))
    figure = go.Figure()
    for number, group in enumerate(sorted(members)):
        figure.add_scatter(
            x=[x.shown(index) for index in members[group]],
            y=[y.shown(index) for index in members[group]],
            mode="markers",
            name=_plotly_text(group),
            customdata=[[index, _plotly_text(runs[index].path.name)] for index in members[group]],
            hovertemplate=f"%{{customdata[1]}}<br>{_plotly_text(x.name)}: %{{x}}<br>{_plotly_text(y.name)}: %{{y}}"
            "<extra></extra>",
            marker={"size": 9, "color": colours[number], "symbol": _SYMBOLS[number % len(_SYMBOLS)], "opacity": 0.8},
        )
    figure.update_layout(
        height=460,
        margin={"l": 60, "r": 20, "t": 30, "b": 50},
        xaxis_title=_plotly_text(x.name),
        yaxis_title=_plotly_text(y.name),
        showlegend=groups is not None,
        legend_title_text=_plotly_text(groups.name) if groups is not None else None,
    )
    return figure


def _plotly_text(text: str) -> str:
    """Return text that Plotly shows as it stands: it knows a few tags, and templates in percent signs."""
    return markup.safe(text).replace("%{", "%\u200b{")


def _missing(runs: Sequence[RunSummary], scales: Sequence[Scale]) -> None:
    gone = sum(any(scale.places[index] is None for scale in scales) for index in range(len(runs)))
    if gone:
        markup.note(
            f"{gone} of {markup.counted(len(runs), 'run')} do not state all of these and have gaps or no point."
        )


def _table(runs: Sequence[RunSummary], names: Sequence[str], picked: Sequence[int]) -> list[int]:
    """Draw the runs, or those picked in the chart, with what can be done; return the numbers of ticked ones."""
    shown = list(picked) or list(range(len(runs)))
    table = relation.table([runs[index] for index in shown], names)
    ticked = st.dataframe(
        table,
        hide_index=True,
        placeholder=NOTHING,
        key="related_runs",
        on_select="rerun",
        selection_mode="multi-row",
        column_config={name: _column(name, table[name].to_pylist()) for name in table.column_names},
        height=_ROW_PIXELS * (min(len(shown), 8) + 1) + 3,
        alt="The runs of the picture, one in a row",
    )
    chosen = [shown[row] for row in ticked["selection"]["rows"] if row < len(shown)]
    names_chosen = [runs[index].path.name for index in (chosen or picked)]
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Open", disabled=len(names_chosen) != 1, icon=":material/show_chart:", type="primary"):
            state.go(state.RUN, run=names_chosen[0])
        if st.button("Side by side", disabled=len(names_chosen) < 2, icon=":material/compare_arrows:"):
            state.go(state.COMPARE, runs=names_chosen)
        markup.note(f"{markup.counted(len(names_chosen), 'run')} chosen of {len(runs):,}.")
    return chosen


def _column(name: str, values: Sequence[str | float | None]) -> Any:
    stated = [value for value in values if value is not None]
    if name == "run" or any(isinstance(value, str) for value in stated):
        return st.column_config.TextColumn("Run" if name == "run" else name, pinned=name == "run")
    whole = all(float(value).is_integer() for value in stated)
    return st.column_config.NumberColumn(name, format="localized" if whole else "%.6g")


def _export(runs: Sequence[RunSummary], names: Sequence[str], svg: Callable[[], str], *, name: str) -> None:
    with st.popover("Export", icon=":material/download:"):
        st.download_button(
            "SVG, for print",
            data=svg,
            file_name=f"{name}.svg",
            mime="image/svg+xml",
            on_click="ignore",
            width="stretch",
        )
        st.download_button(
            "CSV",
            data=lambda: relation.relation_csv(runs, names),
            file_name=f"{name}.csv",
            mime="text/csv",
            on_click="ignore",
            width="stretch",
        )
        st.caption("PNG: the picture's own buttons, at its upper right, save it as it is shown.")
