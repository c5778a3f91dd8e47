"""The completions of a run by step and group: how many of the groups were solved, and one group as a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

Row = Mapping[str, Any]


@dataclass(frozen=True, kw_only=True)
class SolvedShares:
    """Of each written step the share of its groups by how many of their completions had the largest reward."""

    steps: tuple[int, ...]
    every_one: tuple[float, ...]
    some: tuple[float, ...]
    none: tuple[float, ...]


def table_of(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the completions as a table with the columns step, group, sample and reward; a missing reward is NaN."""
    names = ("step", "group", "sample", "reward")
    return pd.DataFrame([[row.get(name) for name in names] for row in rows], columns=list(names)).astype(
        {"reward": "float64"}
    )


def solved_shares(table: pd.DataFrame) -> SolvedShares:
    """Return how solved the groups of each step are; a completion counts as solved at the largest reward of the run."""
    most = table["reward"].max()
    solved = table.assign(solved=table["reward"] >= most - 1e-9).groupby(["step", "group"])["solved"].mean()
    of_steps = solved.groupby("step").agg(
        every_one=lambda shares: (shares == 1).mean(), none=lambda shares: (shares == 0).mean()
    )
    every_one, none = of_steps["every_one"], of_steps["none"]
    return SolvedShares(
        steps=tuple(int(step) for step in of_steps.index),
        every_one=tuple(every_one),
        some=tuple(1 - every_one - none),
        none=tuple(none),
    )


def group_table(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the completions of one group, the best first, with a column for each part of the reward."""
    ordered = sorted(rows, key=lambda row: (-float(row["advantage"]), row["sample"]))
    return pd.DataFrame(
        [
            {
                "advantage": row["advantage"],
                "reward": row["reward"],
                **row["rewards"],
                "completion": row["completion"],
                "tokens": len(row.get("token_ids") or ()) or None,
                "ended": "by itself" if row["finish_reason"] == "stop" else "cut",
                "learned": bool(row["is_used"]),
            }
            for row in ordered
        ]
    )
