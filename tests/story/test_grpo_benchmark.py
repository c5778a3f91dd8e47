"""What learning from rewards costs beside TRL: what was measured stands in a file."""

import json
import re
import sys
from pathlib import Path

import pytest

sys.path.append(BENCHMARKS := str(Path(__file__).parents[2] / "benchmarks"))
from learning_plot import LEFT, WIDTH, draw, format_table

sys.path.remove(BENCHMARKS)

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


def test_the_picture_of_learning_has_a_dot_for_each_arm_and_seed():
    def arm(one: float, every: float) -> dict[str, float]:
        return {"pass_1": one, "pass_1_low": one - 0.1, "pass_1_high": one + 0.1, "pass_4": every}

    seeds = {"0": {"start": arm(0.3, 0.8), "grpo": arm(0.4, 0.6)}, "1": {"start": arm(0.3, 0.8), "grpo": arm(0.6, 0.6)}}
    picture = draw({"answers": 4, "steps": 2, "held_out": 9, "seeds": seeds})
    places = [float(x) for x in re.findall(r'<circle cx="([\d.]+)"', picture)]
    assert [round((x - LEFT) / WIDTH, 3) for x in places[:4]] == [0.3, 0.3, 0.4, 0.6]
    assert len(places) == 8
    lines = re.findall(r'<path d="M([\d.]+) [\d.]+H([\d.]+)"', picture)
    assert [round((float(x) - LEFT) / WIDTH, 3) for x in lines[2]] == [0.3, 0.5]
    assert ">50.0</text>" in picture, "the mean of both seeds"
    assert "GRPO" in picture
    assert "shuffled" not in picture, "an arm that was not run is left out"


def test_picture_table_and_summary_are_of_the_stored_figures():
    results = Path(BENCHMARKS) / "results"
    document = json.loads((results / "grpo_learning.json").read_text())
    assert (results / "grpo_learning.svg").read_text() == draw(document)
    assert format_table(document) in (Path(BENCHMARKS).parent / "docs" / "rewards.md").read_text()
    for arm, gained in document["summary"].items():
        of = [found for found in document["seeds"].values() if arm in found]
        gains = [found[arm]["pass_1"] - found["start"]["pass_1"] for found in of]
        assert gained["pass_1_gain"] == pytest.approx(sum(gains) / len(gains))


def test_with_uneven_lengths_a_step_is_ahead_though_it_draws_more():
    loops = json.loads((Path(BENCHMARKS) / "results" / "grpo_uneven.json").read_text())["loops"]
    theirs, ours = loops["trl uneven"], loops["trainproof uneven"]
    assert (theirs["parameters"], theirs["prompt_tokens"]) == (ours["parameters"], ours["prompt_tokens"])
    assert ours["step_cpu_seconds"]["median"] < theirs["step_cpu_seconds"]["median"]
    tokens = [
        each["new_tokens_a_cpu_second"]["median"] * each["rollout_cpu_seconds"]["median"] for each in (theirs, ours)
    ]
    assert tokens[0] < tokens[1], "docs/decisions/throughput.md says that lengths were not equal"
