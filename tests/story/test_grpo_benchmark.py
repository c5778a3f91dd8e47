"""Stored results of GRPO: its cost beside TRL, and what it learns beside its controls."""

import json
import sys
from pathlib import Path

import pytest

from evidence.hashes import sha256_file

sys.path.append(BENCHMARKS := str(Path(__file__).parents[2] / "benchmarks"))
from grpo_learning import format_table, summarize

sys.path.remove(BENCHMARKS)

MEASURED = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "grpo.json").read_text())
SIZES = ("tiny", "small")


@pytest.mark.parametrize("size", SIZES)
def test_the_loops_do_the_same_work_and_ours_is_ahead_in_every_round(size: str):
    assert MEASURED["rounds"] >= 5
    assert MEASURED["step"] == {"prompts": 2, "group": 8, "prompt_tokens": 17, "new_tokens": 128}
    theirs, ours = (MEASURED["loops"][f"{who} {size}"] for who in ("trl", "trainproof"))
    assert theirs["parameters"] == ours["parameters"]
    assert theirs["prompt_tokens"] == ours["prompt_tokens"] == MEASURED["step"]["prompt_tokens"]
    assert theirs["devices"].startswith("1 threads")
    assert theirs["versions"]["trl"].startswith("1.16.")
    for part in ("rollout", "step"):
        assert MEASURED["trl_over_trainproof"][size][part]["cpu"]["min"] > 1, part


def test_gains_are_paired_by_item_with_intervals():
    start = {"right": "0088", "greedy_right": "0001"}
    seeds = {
        "0": {"grpo": {"cpu_seconds": 2.0, "right": "00gg", "greedy_right": "0011"}},
        "1": {"grpo": {"cpu_seconds": 4.0, "right": "44cc", "greedy_right": "1111"}},
    }
    found = summarize(start, seeds)
    assert (found["start"]["pass_1"], found["start"]["pass_16"], found["start"]["greedy"]) == (0.25, 0.5, 0.25)
    # Items gain 0, 0, 1/2 and 1/2 under one seed; all gain 1/4 under the other.
    half = 1.96 * (1 / 12) ** 0.5 / 2
    assert found["grpo"]["gains"] == [(0.25, pytest.approx(half)), (0.25, 0.0)]
    assert (found["grpo"]["greedy_gain"], found["grpo"]["cpu_seconds"]) == (0.5, 3.0)


def test_the_learning_results_are_consistent_and_in_the_documentation():
    document = json.loads((Path(BENCHMARKS) / "results" / "grpo_learning.json").read_text())
    summary = document["summary"]
    assert json.loads(json.dumps(summarize(document["start"], document["seeds"]))) == summary
    assert format_table(summary) in (Path(BENCHMARKS).parent / "docs" / "guides" / "rewards.md").read_text()
    for (gain, half), arms in zip(summary["grpo"]["gains"], document["seeds"].values(), strict=True):
        assert gain - half > 0.1
        assert arms["grpo"]["cpu_seconds"] < 150
    assert summary["memorised"]["gain"] < summary["grpo"]["gain"] / 2
    weights = Path(BENCHMARKS).parent / "trainer" / "configs" / "countdown_start" / "model.safetensors"
    assert document["start_sha256"] == sha256_file(weights)
