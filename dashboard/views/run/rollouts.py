"""The Roll-outs tab: how many groups of completions are solved over the steps, and the completions of one group.

The URL has the step and the number of the selected group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.shared.parts import markup
from dashboard.shared.words import glimpse
from evidence.bundle.secrets import strip_invisible
from evidence.layout import ROLLOUTS
from evidence.run import Run
from schemas.formats import percent

Row = Mapping[str, Any]

_SHARES = {"all solved": "#2f8f63", "some solved": "#3d7ebf", "none solved": "#9aa6ae"}
"""Columns of `solved_shares` with their colors."""
_GROUP = "rollout"
_MAX_PROMPT = 300
_GROUP_COLUMNS: Mapping[str, Any] = {
    "Solved": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%.0f %%", width=120),
    "Mean reward": st.column_config.NumberColumn(format="%.2f"),
    "Prompt": st.column_config.TextColumn(width=600),
}
_COMPLETION_COLUMNS: Mapping[str, Any] = {
    "Advantage": st.column_config.NumberColumn(format="%+.2f", width=90),
    "Reward": st.column_config.NumberColumn(format="%.2f", width=80),
    "Completion": st.column_config.TextColumn(width="large"),
}


def draw_rollouts(run: Run) -> None:
    """Draw the share of solved groups over the steps, the groups, and the completions of the selected group."""
    rows = run.rows(ROLLOUTS).values
    if not rows:
        markup.empty("No completions", "This run recorded none, or has not got that far.")
        return
    groups = group_frame(rows)
    shares = solved_shares(groups)
    about = " ".join(
        f"Step {step:,}: {percent(shares.loc[step, 'all solved'])} of the groups are solved by every completion, "
        f"{percent(shares.loc[step, 'none solved'])} by none."
        for step in dict.fromkeys([shares.index[0], shares.index[-1]])
    )
    markup.note(about)
    if len(shares) > 1:
        st.area_chart(
            100 * shares,
            x_label="Step",
            y_label="Groups (%)",
            color=list(_SHARES.values()),
            stack=True,
            height=300,
            alt=f"Share of solved groups over the steps. {about}",
        )
    keys = [f"{step}-{group}" for step, group in zip(groups["Step"], groups["Group"], strict=True)]
    linked = st.query_params.get(_GROUP, "")
    place = keys.index(linked) if linked in keys else 0
    row = markup.choose_row(
        groups,
        key=f"rollout_groups {hash(tuple(keys))}",
        chosen=place,
        mode="single-row-required",
        column_config=_GROUP_COLUMNS,
        alt="Groups of completions, the last step first",
    )
    chosen = st.query_params[_GROUP] = keys[place if row is None else row]
    _draw_group([row for row in rows if f"{row['step']}-{row['group'] + 1}" == chosen])


def group_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return one row per group, the last step first. Solved completions have the largest reward of the run."""
    columns = {name.capitalize(): [row[name] for row in rows] for name in ("step", "group", "reward", "prompt")}
    frame = pd.DataFrame(columns)
    reward = frame["Reward"].astype("float64")
    frame = frame.assign(Group=frame["Group"] + 1, Reward=reward, Solved=100.0 * (reward >= reward.max() - 1e-9))
    groups = frame.groupby(["Step", "Group"], as_index=False).agg(
        **{"Solved": ("Solved", "mean"), "Mean reward": ("Reward", "mean"), "Prompt": ("Prompt", "first")}
    )
    groups["Prompt"] = [glimpse(strip_invisible(prompt), _MAX_PROMPT) for prompt in groups["Prompt"]]
    return groups.sort_values(["Step", "Group"], ascending=[False, True], ignore_index=True)


def solved_shares(groups: pd.DataFrame) -> pd.DataFrame:
    """Return for each step the share of groups, from 0 to 1, with all, some and none of their completions solved."""
    solved = groups.set_index("Step")["Solved"]
    kinds = {"all solved": solved == 100, "some solved": solved.between(0, 100, "neither"), "none solved": solved == 0}
    return pd.DataFrame(kinds).groupby(level="Step").mean()


def _draw_group(rows: Sequence[Row]) -> None:
    markup.note(f"Prompt: {glimpse(rows[0]['prompt'], 4000)}")
    remark = st.empty()
    if len({row["reward"] for row in rows}) == 1:
        with remark.container():
            markup.note("All completions have the same reward, so the model learns nothing from this group.")
    share = st.column_config.ProgressColumn(min_value=0.0, max_value=1.0, format="%.2f", width=90)
    columns = {**_COMPLETION_COLUMNS, **dict.fromkeys(rows[0]["rewards"], share)}
    st.dataframe(completion_frame(rows), hide_index=True, column_config=columns, alt="Completions")


def completion_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the completions of a group, the best first, with a column for each part of the reward."""
    return pd.DataFrame(
        [
            {
                "Advantage": row["advantage"],
                "Reward": row["reward"],
                **row["rewards"],
                "Completion": strip_invisible(row["completion"]),
                "Tokens": len(row.get("token_ids") or ()) or None,
                "Ended": "stop token" if row["finish_reason"] == "stop" else "token limit",
                "Trained on": bool(row["is_used"]),
            }
            for row in sorted(rows, key=lambda row: (-float(row["advantage"]), row["sample"]))
        ]
    )
