"""Replay of every method and objective is identical bit for bit, from the start and from a checkpoint.

One configuration is compiled again for the replay; the others use programs from the compilation cache.
"""

import pytest
from model_folders import row_file
from replays import record
from tasks import inputs_of

from evidence import layout
from trainer.config.load import load_config
from trainer.loop.programs import compiled_steps
from trainer.replay.recorded import read_recorded
from trainer.replay.repetition import RecordedStates, Repetition

pytestmark = pytest.mark.slow

BASE = """
name: method
model: {name: tiny-gpt2}
data: {max_length: 64}
optimizer: {learning_rate: 0.01}
batch: {microbatch_size: 2}
memory: {remat: none, loss_chunk_tokens: null}
mesh: {device: cpu, devices: 1}
checkpoint: {save_every_steps: 2, keep: 9}
recording: {chain_every_steps: 1}
evaluation: {eval_set: null}
limits: {steps: 4}
"""
UNCACHED = "full, bfloat16 with stochastic rounding, several devices, accumulation"
LORA, BFLOAT16 = "method.kind=lora method.rank=2", "precision.params=bfloat16"
SETTINGS = {
    "full, Adafactor, remat, chunks, buckets": (
        "data.max_length=128 data.buckets=2 optimizer.name=adafactor memory.remat=layer memory.loss_chunk_tokens=64"
    ),
    UNCACHED: (
        f"{BFLOAT16} precision.compute=bfloat16 mesh.devices=4 batch.microbatch_size=1 batch.accumulation_steps=2"
    ),
    "full, float16 with loss scale, packing, 8-bit moments": (
        "data.packing=true optimizer.state=int8 precision.compute=float16"
    ),
    "lora with dropout on nf4": f"{LORA} method.dropout=0.1 method.base=nf4 {BFLOAT16} memory.remat=layer",
    "lora on int8": f"{LORA} method.base=int8 {BFLOAT16} memory.remat=layer",
    "dpo with a reference, full, bfloat16 moments": "objective.kind=dpo optimizer.state=bfloat16",
    "dpo with lora": f"objective.kind=dpo {LORA}",
}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.compiles_anew if name == UNCACHED else ()) for name in SETTINGS]
)
def test_replay_is_identical(name, tmp_path):
    settings = SETTINGS[name].split()
    if "dpo" in name:
        pairs = [{"prompt": f"{n} + 1?", "chosen": f"It is {n + 1}.", "rejected": "I do not know."} for n in range(9)]
        settings.append(f"data.dataset={row_file(tmp_path / 'pairs.jsonl', *pairs)}")
    (tmp_path / "config.yaml").write_text(BASE)
    config = load_config(tmp_path / "config.yaml", settings=settings)
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
