"""What learning from rewards costs beside TRL: what was measured stands in a file."""

import json
from pathlib import Path

import pytest

MEASURED = json.loads((Path(__file__).parents[2] / "benchmarks" / "results" / "grpo.json").read_text())
SIZES = ("tiny", "small")
PARTS = ("rollout", "update", "step")


def test_the_loops_do_the_same_work():
    assert set(MEASURED["loops"]) == {f"{who} {size}" for who in ("trl", "trainproof") for size in SIZES}
    assert MEASURED["step"] == {"prompts": 2, "group": 8, "prompt_tokens": 17, "new_tokens": 128}
    for size in SIZES:
        theirs, ours = (MEASURED["loops"][f"{who} {size}"] for who in ("trl", "trainproof"))
        assert theirs["parameters"] == ours["parameters"]
        assert theirs["prompt_tokens"] == ours["prompt_tokens"] == MEASURED["step"]["prompt_tokens"]
        assert theirs["devices"].startswith("1 threads")
        assert theirs["versions"]["trl"].startswith("1.16.")


@pytest.mark.parametrize("size", SIZES)
def test_figures_follow_from_each_other(size: str):
    tokens = MEASURED["step"]["prompts"] * MEASURED["step"]["group"] * MEASURED["step"]["new_tokens"]
    for who in ("trl", "trainproof"):
        loop = MEASURED["loops"][f"{who} {size}"]
        rolling, rate = loop["rollout_cpu_seconds"], loop["new_tokens_a_cpu_second"]
        assert rate["median"] == pytest.approx(tokens / rolling["median"], rel=1e-3)
        for part in PARTS:
            seconds = loop[f"{part}_cpu_seconds"]
            assert 0 < seconds["min"] <= seconds["median"] <= seconds["max"]
        assert loop["step_cpu_seconds"]["min"] > max(loop[f"{part}_cpu_seconds"]["min"] for part in PARTS[:2])


@pytest.mark.parametrize("size", SIZES)
def test_rolling_out_and_a_step_are_ahead_in_every_round(size: str):
    assert MEASURED["rounds"] >= 5
    for part in ("rollout", "step"):
        assert MEASURED["trl_over_trainproof"][size][part]["cpu"]["min"] > 1, part
