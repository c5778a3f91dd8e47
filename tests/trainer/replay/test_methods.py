"""Replay of every method and objective is identical bit for bit, and the committed run is reproduced."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from model_folders import row_file
from replays import record
from tasks import inputs_of
from whole_runs import rows

from evidence import layout
from evidence.grade import check_run
from evidence.rewards import logged_rollout_steps
from evidence.run import read_run
from trainer.config.load import load_config
from trainer.loop.programs import compiled_steps
from trainer.recorder.environment import NATIVE, request_level, select_level
from trainer.replay.recorded import read_recorded
from trainer.replay.repetition import RecordedStates, Repetition

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


@pytest.mark.slow
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


ROOT = Path(__file__).parents[3]
SMOKE = ROOT / "submission_runs" / "demo-smoke"


def test_the_grpo_run_has_no_findings():
    run = read_run(ROOT / "submission_runs" / "countdown-grpo")
    report = check_run(run)
    assert (report.grade.name, report.findings) == ("consistent", ())
    assert run.manifest["environment"]["processor"]["compiled_for"] == "x86-64-v3"
    assert {row["step"] for row in rows(run.path, layout.ROLLOUTS)} == set(logged_rollout_steps(150, 1))


@pytest.mark.slow
def test_the_smoke_run_is_reproduced(tmp_path, monkeypatch):
    monkeypatch.delenv("XLA_FLAGS")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    command = [sys.executable, "-m", "trainproof", "replay", str(SMOKE), "--all", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if sys.version_info >= (3, 12):
        # `make newest` has newer packages than the run, which may round differently.
        assert (done.returncode, "TP761" in done.stderr) == (3, True), done.stderr
        return
    assert done.returncode == 0, done.stderr
    receipt = json.loads(done.stdout)
    there = json.loads((SMOKE / layout.MANIFEST).read_text())["environment"].get("processor", {})
    request_level("x86-64-v3")
    if there.get("compiled_for") == select_level("x86-64-v3").name != NATIVE:
        assert receipt["result"] == "identical"
    elif receipt["result"] != "identical":
        assert receipt["said"].endswith("within tolerance (another processor).")
