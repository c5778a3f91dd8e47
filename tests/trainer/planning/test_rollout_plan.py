"""Plans of runs that learn from rewards: what drawing needs and takes, and what of it would be spent badly."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest

from evidence.targets import load_target
from schemas.validate import check_value
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    LimitsConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    ObjectiveConfig,
    PrecisionConfig,
)
from trainer.loop.mesh import build_mesh
from trainer.loop.rollouts import rollout_programs
from trainer.loop.task import Task
from trainer.model.source import resolve_for_planning
from trainer.planning.estimate.part import total_bytes
from trainer.planning.estimate.programs import estimates
from trainer.planning.estimator import resident_bytes
from trainer.planning.plan import PlanOptions, plan_for
from trainer.planning.spending_rules import Band, RunFigures, findings
from trainproof.terminal.plans import time_lines

QWEN = Config(
    model=ModelConfig(name="Qwen/Qwen2.5-1.5B"),
    method=MethodConfig(kind="lora"),
    data=DataConfig(max_length=1024),
    objective=ObjectiveConfig(kind="grpo", rewards="exact", group_size=8, max_completion_tokens=512),
    batch=BatchConfig(microbatch_size=8),
    mesh=MeshConfig(shard_params=False),
    limits=LimitsConfig(steps=200),
)
MIB = 2**20


@pytest.fixture(autouse=True)
def _offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path))


def planned(config: Config, target: str) -> dict[str, Any]:
    plan = plan_for(config, load_target(target), PlanOptions(quick=True, advice=False))
    assert check_value("plan", plan, file="plan.json") == []
    return plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("target", "compute", "token_seconds", "sequences"),
    [
        # Weights and cache, read once a token: 1,543,714,304 + 9,232,384 parameters and 8 · 1,024 tokens of 14,336
        # numbers, 2 bytes each. At 320 and 819 GB/s; at 40 % of that.
        ("t4", "float16", 3_340_773_888 / 320e9 / 0.4, 8),
        ("kaggle-tpu-v5e-8", "bfloat16", 3_340_773_888 / 819e9 / 0.4, 64),
    ],
)
def test_a_known_model_is_planned_offline(target: str, compute: str, token_seconds: float, sequences: int):
    plan = planned(replace(QWEN, precision=PrecisionConfig(params=compute, compute=compute)), target)
    assert plan["verdict"] == "fits"
    assert [each["name"] for each in plan["programs"]] == ["start", "train", "rollout", "export"]
    parts = {part["name"]: part["bytes"] for part in plan["programs"][2]["parts"]}
    # 28 layers, 2 heads of 128, keys and values, 2 bytes; 8 completions of 1,024 tokens on each device.
    assert parts["key_value_cache"] == 28 * 2 * 128 * 2 * 2 * 8 * 1024 == 224 * MIB
    assert parts["opt_state"] > 0, "what the optimizer keeps is there meanwhile"
    time = plan["time"]
    drawn = time["rollout"]
    assert drawn["seconds"]["likely"] == pytest.approx(512 * token_seconds, rel=0.03)
    assert drawn["seconds"]["likely"] + drawn["update_seconds"]["likely"] == pytest.approx(
        time["step_seconds"]["likely"], rel=1e-3
    )
    assert 0.7 < drawn["fraction"] < 0.9
    assert f"{sequences} completions of 512 tokens at" in drawn["because"]
    assert f"  {drawn['because']}." in time_lines(plan)
    assert "TP736" not in {each["code"] for each in plan["findings"]}, "nobody knows yet how long completions are"


def test_updates_on_the_same_completions_share_their_time():
    config = replace(QWEN, precision=PrecisionConfig(params="float16", compute="float16"))
    twice = replace(config, objective=replace(QWEN.objective, updates_per_rollout=2))
    once, half = (planned(each, "t4")["time"]["rollout"] for each in (config, twice))
    assert half["seconds"]["likely"] == pytest.approx(once["seconds"]["likely"] / 2, rel=1e-3)
    assert half["update_seconds"] == once["update_seconds"]
    assert half["fraction"] < once["fraction"]


def test_a_divided_model_sends_its_weights_for_every_token():
    config = replace(QWEN, precision=PrecisionConfig(params="bfloat16", compute="bfloat16"))
    whole, divided = (
        planned(replace(config, mesh=MeshConfig(shard_params=each)), "kaggle-tpu-v5e-8") for each in (False, True)
    )
    assert divided["time"]["rollout"]["seconds"]["likely"] > whole["time"]["rollout"]["seconds"]["likely"]
    assert divided["programs"][2]["peak_bytes"] < whole["programs"][2]["peak_bytes"]


def test_the_guide_of_two_free_cards_is_told_what_its_own_figures_mean():
    """2 completions a prompt, 10,000 prompts of 100 to 150 s, a checkpoint every 500 steps, 40 to 50 hours stated."""
    guide = RunFigures(
        file="guide.yaml",
        steps=10_000,
        save_every_steps=500,
        step_seconds=Band(low=100, likely=125, high=150),
        run_seconds=Band(low=1e6, likely=1.25e6, high=1.5e6),
        sessions=29,
        hours_stated=45,
        group_size=2,
    )
    found = {each.code: each for each in findings(guide, load_target("kaggle-t4x2"))}
    assert found["TP731"].severity == "error"
    assert "every 500 steps, which takes 13.9 to 20.8 hours" in found["TP731"].what
    assert "278 to 417 hours in about 29 sessions" in found["TP732"].what
    assert "278 to 417 hours; kaggle-t4x2 has 30 a week" in found["TP733"].what
    assert "are 278 to 417 hours, not 45" in found["TP734"].what
    assert "only the order of the rewards matters" in found["TP748"].what
    sizes = {
        size: [
            each.what for each in findings(replace(guide, group_size=size), load_target("t4")) if each.code == "TP748"
        ]
        for size in (None, 3, 4)
    }
    assert sizes == {None: [], 3: ["objective.group_size is 3."], 4: []}
    unscaled = findings(replace(guide, group_scaled=False), load_target("t4"))
    assert "objective.group_size is 2." in {each.what for each in unscaled}


def test_a_plan_warns_of_two_completions_a_prompt():
    config = replace(
        QWEN,
        precision=PrecisionConfig(params="float16", compute="float16"),
        objective=replace(QWEN.objective, group_size=2),
    )
    assert "TP748" in {each["code"] for each in planned(config, "kaggle-t4x2")["findings"]}


@pytest.mark.slow
def test_the_sum_is_near_what_this_compiler_says():
    config = replace(
        QWEN,
        model=ModelConfig(name="demo", weights="random"),
        method=MethodConfig(),
        data=DataConfig(max_length=128),
        objective=replace(QWEN.objective, max_completion_tokens=64),
        batch=BatchConfig(microbatch_size=32),
    )
    task = Task.of(config, resolve_for_planning("demo", None), build_mesh(jax.devices("cpu")[:1]), platform="cpu")
    parts = estimates(task, platform="cpu")["rollout"]
    compiled = max(each.compile().peak_bytes or 0 for each in rollout_programs(task).values())
    assert total_bytes(parts) - resident_bytes("rollout", parts) == pytest.approx(compiled, rel=0.08)
