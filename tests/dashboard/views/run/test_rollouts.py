"""The Roll-outs tab: solved groups over the steps, and the completions of one group."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pages import Open, said
from synthetic import write_run

from dashboard.shared import state
from dashboard.views.run import rollouts
from evidence.layout import ROLLOUTS

REWARDS = {1: [[0, 0], [1, 0], [0, 0], [0, 0]], 9: [[1, 1], [1, 1], [0, 1], [0, 0]]}


def rows() -> list[dict[str, Any]]:
    return [
        {
            "step": step,
            "group": group,
            "sample": sample,
            "row": group,
            "prompt": f"prompt {group}",
            "completion": f"text {sample}",
            "token_ids": [1, 2],
            "finish_reason": "stop",
            "rewards": {"exact": float(reward)},
            "reward": float(reward),
            "advantage": reward - sum(rewards) / 2,
            "is_used": len(set(rewards)) > 1,
        }
        for step, groups in REWARDS.items()
        for group, rewards in enumerate(groups)
        for sample, reward in enumerate(rewards)
    ]


def test_groups_are_listed_from_the_last_step_with_the_share_of_solved_completions() -> None:
    frame = rollouts.group_frame(rows())
    assert frame[["Step", "Group", "Solved"]].to_numpy().tolist() == [
        [9, 1, 100], [9, 2, 100], [9, 3, 50], [9, 4, 0], [1, 1, 0], [1, 2, 50], [1, 3, 0], [1, 4, 0],
    ]  # fmt: skip
    shares = rollouts.solved_shares(frame)
    assert list(shares.index) == [1, 9]
    assert shares["all solved"].tolist() == pytest.approx([0.0, 0.5])
    assert shares["some solved"].tolist() == pytest.approx([0.25, 0.25])
    assert shares["none solved"].tolist() == pytest.approx([0.75, 0.25])


def test_the_selected_group_has_its_best_completion_first_and_a_link(opened: Open, root: Path) -> None:
    folder = write_run(root, "alpha")
    (folder / ROLLOUTS).write_text("".join(json.dumps(row) + "\n" for row in rows()))
    app = opened(state.RUN, run="alpha", view="Roll-outs")
    assert app.query_params["rollout"] == "9-1"
    assert "Step 1: 0.0 % of the groups are solved by every completion, 75.0 % by none." in said(app)
    assert "Prompt: prompt 0" in said(app)
    assert "the model learns nothing from this group" in said(app)
    app = opened(state.RUN, run="alpha", view="Roll-outs", rollout="9-3")
    completions = app.dataframe[-1].value
    assert completions[["Completion", "exact", "Ended"]].to_numpy().tolist() == [
        ["text 1", 1.0, "stop token"],
        ["text 0", 0.0, "stop token"],
    ]
