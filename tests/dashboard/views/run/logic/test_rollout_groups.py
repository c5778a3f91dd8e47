"""Groups of completions over the steps, by hand; and the page that draws them."""

import json
from pathlib import Path

import pytest
from pages import Open, said
from synthetic import write_run

from dashboard.shared.session import state
from dashboard.views.run.logic import rollout_groups
from evidence import layout

REWARDS = {1: [[0, 0], [1, 0], [0, 0], [0, 0]], 9: [[1, 1], [1, 1], [0, 1], [0, 0]]}


def rows() -> list[dict]:
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


def test_shares_of_groups_by_how_many_of_their_completions_are_solved():
    shares = rollout_groups.solved_shares(rollout_groups.table_of(rows()))
    assert shares.steps == (1, 9)
    assert shares.every_one == pytest.approx((0.0, 0.5))
    assert shares.some == pytest.approx((0.25, 0.25))
    assert shares.none == pytest.approx((0.75, 0.25))


def test_a_completion_without_a_reward_is_not_solved():
    given = rows()
    given[0]["reward"] = None
    assert rollout_groups.solved_shares(rollout_groups.table_of(given)).none[0] == pytest.approx(0.75)


def test_a_group_has_its_best_completion_first():
    group = [row for row in rows() if row["step"] == 9 and row["group"] == 2]
    table = rollout_groups.group_table(group)
    assert list(table["completion"]) == ["text 1", "text 0"]
    assert list(table["exact"]) == [1.0, 0.0]
    assert list(table["ended"]) == ["by itself"] * 2


def test_the_page_shows_the_last_step_and_what_a_flat_group_teaches(opened: Open, root: Path):
    folder = write_run(root, "alpha")
    (folder / layout.ROLLOUTS).write_text("".join(json.dumps(row) + "\n" for row in rows()))
    page = opened(state.RUN, run="alpha", view="Roll-outs")
    text = said(page)
    assert "Of the groups of step 1: 0.0 % wholly solved, 75.0 % not at all" in text
    assert "Prompt: prompt 0" in text
    assert "nothing is learned from it" in text
