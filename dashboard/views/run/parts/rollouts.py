"""What a run drew to learn from: how many prompts it solves over the steps, and each group side by side.

The address names step and group, so that a group can be sent to someone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import plotly.graph_objects as go
import streamlit as st

from dashboard.shared.charts.plan_figures import Palette, new_figure
from dashboard.shared.parts import markup, plotted
from dashboard.views.run.logic import rollout_groups
from dashboard.views.run.logic.rollout_groups import SolvedShares
from evidence.layout import ROLLOUTS
from evidence.run import Run
from schemas.formats import percent

Row = Mapping[str, Any]

_STEP, _GROUP = "rollout_step", "rollout_group"


def section(run: Run) -> None:
    """Draw the groups over the steps, and the completions of the group that the reader chose."""
    rows = run.rows(ROLLOUTS).values
    if not rows:
        markup.empty("No completions", "This run wrote none down, or has not got that far.")
        return
    table = rollout_groups.table_of(rows)
    shares = rollout_groups.solved_shares(table)
    markup.note(_sentence(shares))
    colours = plotted.colours()
    plotted.show(
        _picture(shares, colours),
        key="rollout_groups",
        alt="Share of the groups of each written step whose completions were all, partly or never solved.",
    )
    _browser(rows, shares.steps)


def _sentence(shares: SolvedShares) -> str:
    """Return how the groups changed from the first written step to the last, in a sentence."""
    ends = [
        f"{percent(shares.every_one[place])} wholly solved, {percent(shares.none[place])} not at all"
        for place in (0, -1)
    ]
    if len(shares.steps) == 1:
        return f"Of the groups of step {shares.steps[0]:,}: {ends[0]}."
    return f"Of the groups of step {shares.steps[0]:,}: {ends[0]}; of step {shares.steps[-1]:,}: {ends[1]}."


def _picture(shares: SolvedShares, colours: Palette) -> go.Figure:
    """Return the shares of groups as bands over the steps; only the middle one teaches anything."""
    picture = new_figure(colours, height=240)
    bands = (
        ("all completions solved", shares.every_one, colours.tones["good"]),
        ("some: what is learned from", shares.some, colours.tones["fair"]),
        ("none", shares.none, colours.line),
    )
    for name, values, colour in bands:
        picture.add_trace(
            go.Scatter(
                x=list(shares.steps),
                y=[100 * value for value in values],
                name=name,
                stackgroup="groups",
                mode="lines+markers" if len(shares.steps) == 1 else "lines",
                line={"width": 0.5, "color": colour},
                fillcolor=colour,
                hovertemplate=f"{name}: %{{y:.0f}} %<extra>step %{{x}}</extra>",
            )
        )
    picture.update_layout(
        showlegend=True,
        legend={"orientation": "h", "y": 1.14, "x": 0},
        margin={"l": 8, "r": 8, "t": 36, "b": 8},
        xaxis={"title": {"text": "step"}},
        yaxis={"range": [0, 100], "ticksuffix": " %", "title": {"text": "groups"}},
    )
    return picture


def _browser(rows: Sequence[Row], steps: Sequence[int]) -> None:
    """Draw the choice of step and group, and the completions of that group."""
    with st.container(horizontal=True, vertical_alignment="bottom"):
        step = st.select_slider("Step", list(steps), value=steps[-1], key=_STEP) if len(steps) > 1 else steps[0]
        of_step = [row for row in rows if row["step"] == step]
        groups = sorted({int(row["group"]) for row in of_step})
        prompts = {group: next(row["prompt"] for row in of_step if row["group"] == group) for group in groups}
        group = st.selectbox(
            "Group", groups, format_func=lambda number: f"{number + 1}: {prompts[number][:80]}", key=_GROUP
        )
    chosen = [row for row in of_step if row["group"] == group]
    markup.note(f"Prompt: {chosen[0]['prompt']}")
    if len({row["reward"] for row in chosen}) == 1:
        markup.note("All completions of this group are worth the same, so nothing is learned from it.")
    table = rollout_groups.group_table(chosen)
    parts = {
        name: st.column_config.ProgressColumn(name, min_value=0.0, max_value=1.0, format="%.2f", width=90)
        for name in chosen[0]["rewards"]
    }
    st.dataframe(
        table,
        hide_index=True,
        width="stretch",
        column_config={
            "advantage": st.column_config.NumberColumn("Advantage", format="%+.2f", width=90),
            "reward": st.column_config.NumberColumn("Reward", format="%.2f", width=80),
            **parts,
            "completion": st.column_config.TextColumn("Completion", width="large"),
            "tokens": st.column_config.NumberColumn("Tokens", width=70),
            "ended": st.column_config.TextColumn("Ended", width=80),
            "learned": st.column_config.CheckboxColumn("Learned from", width=90),
        },
    )
