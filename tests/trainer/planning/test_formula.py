"""The memory formula: exact state, worked terms, and its band against stored compilations."""

import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from configs import GEMMA, GEMMA_PARAMETERS, changed

from trainer.config.tree import Config, MethodConfig, PrecisionConfig
from trainer.data.answers import EvalShape
from trainer.loop.task import Task, shapes_mesh
from trainer.model.model import Model, build_model
from trainer.model.source import known_source
from trainer.objectives import build_objective
from trainer.planning.formula import FORMULA_ERROR, estimate, plain_bytes

sys.path.append(BENCHMARKS := str(Path(__file__).parents[3] / "benchmarks"))
from memory_estimate import rows, summary

sys.path.remove(BENCHMARKS)

TABLE = 256000 * 2048
ONE_ROW = changed(GEMMA, batch={"microbatch_size": 1})


@cache
def build_gemma(precision: PrecisionConfig, method: MethodConfig) -> Model:
    source = known_source("google/gemma-2b")
    assert source is not None
    return build_model(replace(ONE_ROW, precision=precision, method=method), source)


def build_task(config: Config, devices: int = 1) -> Task:
    model = build_gemma(config.precision, config.method)
    return Task(config=config, model=model, objective=build_objective(config), mesh=shapes_mesh(devices))


def parts(program: str = "train", devices: int = 1, platform: str = "tpu", asked=None, **groups) -> dict[str, int]:
    found = estimate(build_task(changed(ONE_ROW, **groups), devices), platform=platform, eval_shape=asked)
    return {part.name: part.bytes for part in found[program]}


def test_adamw_keeps_eight_bytes_per_parameter_and_adafactor_almost_none():
    adamw = parts(optimizer={"name": "adamw"})
    assert adamw["params"] == GEMMA_PARAMETERS * 4
    assert adamw["opt_state"] == pytest.approx(GEMMA_PARAMETERS * 8, rel=1e-6)
    assert parts()["opt_state"] < 0.01 * adamw["opt_state"]


def test_narrow_moments_count_their_codes_and_scales():
    """18 layers of 110,100,480 numbers in blocks of 256, 256,000 rows of 2,048, and 37 norms of 2,048."""
    kernels, norms = 18 * 110_100_480, 37 * 2048
    assert kernels + TABLE + norms == GEMMA_PARAMETERS
    kept = {state: parts(optimizer={"name": "adamw", "state": state})["opt_state"] for state in ("bfloat16", "int8")}
    assert kept["bfloat16"] == GEMMA_PARAMETERS * 4 + 8  # two counters
    assert kept["int8"] == 2 * (kernels + kernels // 256 * 4 + TABLE + 256_000 * 4 + norms * 4) + 8


@pytest.mark.parametrize(
    ("groups", "expected"),
    [({}, TABLE * 4), ({"batch": {"accumulation_steps": 4}}, GEMMA_PARAMETERS * 4), ({"memory": {"donate": False}}, 0)],
    ids=["only the largest array's", "accumulated in float32", "in the memory of the new state"],
)
def test_gradients(groups, expected):
    assert parts(**groups)["gradients"] == expected


def test_without_donation_the_state_counts_twice():
    kept = parts(memory={"donate": False})
    assert kept["second_state"] == kept["params"] + kept["opt_state"]


def test_eight_chips_hold_an_eighth_each():
    one, eight = parts("start"), parts("start", devices=8)
    assert eight == {name: size // 8 for name, size in one.items()}
    whole = parts("start", devices=8, mesh={"shard_params": False})
    assert whole == one


def test_an_evaluation_counts_its_cache_and_a_copy_of_wider_weights():
    """32 prompts of 128 tokens with 160 more: 18 layers, 1 key/value head of 256, keys and values of 2 bytes."""
    asked = EvalShape(prompts=100, longest_tokens=128)
    evaluation = {"batch_size": 32, "max_new_tokens": 160}
    found = parts("decode", asked=asked, evaluation=evaluation)
    assert found["key_value_cache"] == 32 * (128 + 160) * 18 * 2 * 256 * 2
    assert found["logits"] == 32 * 256_000 * 4
    assert found["weights_copy"] == 2 * GEMMA_PARAMETERS
    few = parts("decode", asked=EvalShape(prompts=4, longest_tokens=128), evaluation=evaluation)
    assert few["key_value_cache"] == found["key_value_cache"] // 8, "no more prompts than there are"


def test_saving_on_a_cpu_copies_the_state():
    state = parts("start", platform="cpu")
    assert parts("save", platform="cpu")["copy"] == state["params"] + state["opt_state"]
    assert "save" not in estimate(build_task(ONE_ROW), platform="tpu")


def test_a_quantised_base_is_exported_in_the_type_of_its_table():
    nf4 = changed(
        ONE_ROW, method={"kind": "lora", "base": "nf4"}, precision={"params": "bfloat16", "compute": "float32"}
    )
    assert plain_bytes(build_task(nf4)) == 2 * GEMMA_PARAMETERS


def test_more_recomputation_needs_less():
    large = {"data": {"max_length": 1024}, "batch": {"microbatch_size": 16}}
    needs = [sum(parts(memory={"remat": remat}, **large).values()) for remat in ("none", "dots", "layer")]
    assert needs == sorted(needs, reverse=True)
    assert needs[0] > 1.2 * needs[2]


def test_stored_compilations_lie_in_the_band():
    found = summary(list(rows(compiling=False)))
    assert found["cases"] >= 70
    assert found["median_error_fraction"] < 0.1
    assert found["outside_the_band"] <= 1
    assert found["lowest_error_fraction"] > -FORMULA_ERROR, "no need is estimated so low that it is called far below"
