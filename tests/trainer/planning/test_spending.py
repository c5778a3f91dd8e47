"""What a compiled step says of donation and optimizer, and what a plan finds besides memory."""

from dataclasses import replace

import pytest

from evidence.targets import load_target
from trainer.config.tree import (
    BatchConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    PrecisionConfig,
)
from trainer.planning.changes import smaller_runs
from trainer.planning.compile.ahead import CompilerAnswer
from trainer.planning.compile.buffers import CompiledMemory
from trainer.planning.estimate.part import Part
from trainer.planning.estimator import with_step_read
from trainer.planning.plan import PlanOptions, plan_for
from trainer.planning.program_memory import ProgramMemory

MIB = 2**20
OCCUPIED = 64 * MIB
PARTS = tuple(
    Part(name=name, bytes=size * MIB, because="")
    for name, size in (("params", 100), ("opt_state", 200), ("batch", 1), ("logits", 50))
)


def step(**more) -> ProgramMemory:
    return ProgramMemory(
        name=more.pop("name", "train"),
        way="compiler",
        peak_bytes=400 * MIB,
        available_bytes=None,
        error_fraction=0.0,
        because="",
        seconds=1.0,
        parts=PARTS,
    )


def answered(*, arguments: int, aliased: int) -> CompilerAnswer:
    memory = CompiledMemory(
        peak_bytes=400 * MIB,
        allocated_bytes=400 * MIB,
        arguments_bytes=arguments * MIB + OCCUPIED,
        aliased_bytes=aliased * MIB + OCCUPIED,
        largest=(),
    )
    return CompilerAnswer(memory=memory, need_bytes=None, said="", seconds=1.0)


@pytest.mark.parametrize(
    ("arguments", "aliased", "fraction", "ratio"),
    [(301, 300, 1.0, 1.0), (301, 0, 0.0, 1.0), (301, 100, 1 / 3, 1.0), (106, 105, 0.35, 0.025)],
    ids=["as declared", "nothing donated", "parameters alone", "Adafactor in AdamW's place"],
)
def test_a_compiled_step_is_read(arguments, aliased, fraction, ratio):
    found = with_step_read(step(), answered(arguments=arguments, aliased=aliased), PARTS, occupied=OCCUPIED)
    assert found.aliased_fraction == pytest.approx(fraction)
    assert found.opt_state_ratio == pytest.approx(ratio)


def test_what_was_refused_or_is_no_step_is_not_read():
    refused = CompilerAnswer(memory=None, need_bytes=1, said="", seconds=1.0)
    assert with_step_read(step(), refused, PARTS, occupied=0) == step()
    other = step(name="decode")
    assert with_step_read(other, answered(arguments=301, aliased=300), PARTS, occupied=OCCUPIED) == other


TINY = Config(
    model=ModelConfig(name="tiny-gpt2"),
    data=DataConfig(max_length=128),
    batch=BatchConfig(microbatch_size=4),
    precision=PrecisionConfig(),
    limits=LimitsConfig(steps=1_000_000),
)


def codes(config: Config, target: str) -> dict[str, str]:
    plan = plan_for(config, load_target(target), PlanOptions(quick=True, advice=False))
    return {each["code"]: each["severity"] for each in plan["findings"]}


@pytest.mark.slow
def test_a_plan_finds_what_would_be_spent_badly():
    careless = replace(
        TINY,
        memory=MemoryConfig(donate=False),
        data=DataConfig(max_length=512, buckets=3),
        checkpoint=CheckpointConfig(save_every_steps=0),
    )
    found = codes(careless, "kaggle-t4x2")
    assert found["TP738"] == "warning", "the state is held twice"
    assert found["TP736"] == "warning", "most of a batch is padding"
    assert found["TP737"] == "note", "one program for each length"
    assert {"TP739", "TP740"}.isdisjoint(found), "the optimizer is the declared one, and both cards hold half"
    careful = replace(TINY, data=DataConfig(max_length=128, packing=True), mesh=MeshConfig(shard_params=False))
    assert {"TP736", "TP737", "TP738", "TP739", "TP740"}.isdisjoint(codes(careful, "kaggle-t4x2"))


@pytest.mark.slow
def test_a_quantised_base_is_worth_nothing_on_a_cpu_unless_layers_are_stacked():
    config = replace(TINY, method=MethodConfig(kind="lora", base="nf4"), memory=MemoryConfig(remat="layer"))
    card = load_target("kaggle-t4x2")
    assert "TP712" not in codes(config, "kaggle-t4x2")
    plan = plan_for(
        config, replace(card, platform="cpu", device_kinds=("AMD EPYC",)), PlanOptions(quick=True, advice=False)
    )
    [found] = [each for each in plan["findings"] if each["code"] == "TP712"]
    stacked = replace(config, memory=MemoryConfig(remat="layer", layers="scanned"))
    cpu = replace(card, platform="cpu", devices=1)
    assert not any(
        each["code"] == "TP712" for each in plan_for(stacked, cpu, PlanOptions(quick=True, advice=False))["findings"]
    )
    assert found == {
        "code": "TP712",
        "severity": "warning",
        "what": "method.base is nf4, and AMD EPYC is a CPU.",
        "why": "XLA dequantizes all kernels at once on CPUs: a 135 M model took 3.07 GiB with nf4 and "
        "2.94 GiB without.",
        "next": "Set memory.layers to scanned, which dequantizes one layer at a time, or remove method.base.",
    }


@pytest.mark.parametrize(
    ("stated", "length", "instead"),
    [("plain", 4096, "auto"), ("auto", 1024, "blockwise"), ("auto", 4096, None), ("blockwise", 4096, None)],
)
def test_advice_names_attention_in_blocks_where_scores_of_whole_rows_are_held(stated, length, instead):
    config = Config(
        model=ModelConfig(name="demo"),
        data=DataConfig(max_length=length),
        memory=MemoryConfig(attention=stated),
    )
    named = [setting for setting, _ in smaller_runs(config) if setting.startswith("memory.attention=")]
    assert named == ([f"memory.attention={instead}"] if instead else [])
