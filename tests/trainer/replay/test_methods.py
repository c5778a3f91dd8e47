"""Replay of every method and objective is identical bit for bit, from the start and from a checkpoint.

One configuration is compiled again for the replay; the others use programs from the compilation cache.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from replays import record
from tasks import inputs_of

from evidence import layout
from trainer.config.tree import (
    BatchConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PrecisionConfig,
    RecordingConfig,
)
from trainer.loop.programs import compiled_steps
from trainer.replay.recorded import read_recorded
from trainer.replay.repetition import RecordedStates, Repetition

pytestmark = pytest.mark.slow

BASE = Config(
    name="method",
    model=ModelConfig(name="tiny-gpt2"),
    data=DataConfig(max_length=64),
    optimizer=OptimizerConfig(learning_rate=1e-2),
    batch=BatchConfig(microbatch_size=2),
    memory=MemoryConfig(remat="none", loss_chunk_tokens=None),
    mesh=MeshConfig(device="cpu", devices=1),
    checkpoint=CheckpointConfig(save_every_steps=2, keep=9),
    recording=RecordingConfig(chain_every_steps=1),
    evaluation=EvaluationConfig(eval_set=None),
    limits=LimitsConfig(steps=4),
)

CONFIGS = {
    "full, Adafactor, remat, chunks, buckets": replace(
        BASE,
        data=DataConfig(max_length=128, buckets=2),
        optimizer=OptimizerConfig(name="adafactor", learning_rate=1e-2),
        memory=MemoryConfig(remat="layer", loss_chunk_tokens=64),
    ),
    "full, bfloat16 with stochastic rounding, several devices, accumulation": replace(
        BASE,
        precision=PrecisionConfig(params="bfloat16", compute="bfloat16"),
        mesh=MeshConfig(device="cpu", devices=4),
        batch=BatchConfig(microbatch_size=1, accumulation_steps=2),
    ),
    "full, float16 with loss scale, packing, 8-bit moments": replace(
        BASE,
        data=DataConfig(max_length=64, packing=True),
        optimizer=OptimizerConfig(learning_rate=1e-2, state="int8"),
        precision=PrecisionConfig(compute="float16"),
    ),
    "lora with dropout on nf4": replace(
        BASE,
        method=MethodConfig(kind="lora", rank=2, dropout=0.1, base="nf4"),
        precision=PrecisionConfig(params="bfloat16"),
        memory=MemoryConfig(remat="layer", loss_chunk_tokens=None),
    ),
    "lora on int8": replace(
        BASE,
        method=MethodConfig(kind="lora", rank=2, base="int8"),
        precision=PrecisionConfig(params="bfloat16"),
        memory=MemoryConfig(remat="layer", loss_chunk_tokens=None),
    ),
    "dpo with a reference, full, bfloat16 moments": replace(
        BASE,
        objective=ObjectiveConfig(kind="dpo"),
        optimizer=OptimizerConfig(learning_rate=1e-2, state="bfloat16"),
    ),
    "dpo with lora": replace(BASE, objective=ObjectiveConfig(kind="dpo"), method=MethodConfig(kind="lora", rank=2)),
}


def write_pairs(config: Config, folder: Path) -> Config:
    if config.objective.kind != "dpo":
        return config
    path = folder / "pairs.jsonl"
    pairs = [{"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}.", "rejected": "I do not know."} for n in range(9)]
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return replace(config, data=replace(config.data, dataset=str(path)))


UNCACHED = "full, bfloat16 with stochastic rounding, several devices, accumulation"


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.compiles_anew if name == UNCACHED else ()) for name in CONFIGS]
)
def test_replay_is_identical(name: str, tmp_path: Path):
    config = write_pairs(CONFIGS[name], tmp_path)
    found = read_recorded(record(config, tmp_path / "run"))
    task, data = inputs_of(config)
    states = RecordedStates(run=found, task=task)
    repetition = Repetition(states=states, data=data, steps=compiled_steps(task, data.source.lengths_in_use))
    assert [each.last_step for each in found.segments] == [1, 2, 3, 4]
    # From the start to the end, then the third segment again from its checkpoint.
    results = [each for segment in found.segments for each in repetition.repeat(segment)]
    assert [(each.verdict, each.difference) for each in results] == [("identical", "")] * 4
    again = list(repetition.repeat(found.segments[2]))
    assert [(each.segment.number, each.verdict) for each in again] == [(2, "identical")]
    assert states.warnings == []
    assert (tmp_path / "run" / layout.CHECKPOINTS / "2").is_dir()
