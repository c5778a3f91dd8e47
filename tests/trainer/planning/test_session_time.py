"""What the time of a run goes to besides its steps, against worked cases and what a run of ours wrote down."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from evidence import layout
from evidence.targets import load_target
from trainer.config.load import load_config
from trainer.config.tree import CheckpointConfig, Config, EvaluationConfig, LimitsConfig, MeshConfig, ModelConfig
from trainer.loop.mesh import shapes_mesh
from trainer.planning.calibration import Measured
from trainer.planning.duration.session import evaluate_part
from trainer.planning.program_memory import ProgramMemory
from trainer.planning.session_time import (
    COMPILE_A_LAYER,
    HASHED,
    CompileTime,
    answers_part,
    compile_part,
    load_part,
    save_part,
)
from trainer.planning.spending_rules import Band, exactly
from trainer.planning.subject import Subject, subject_of

FULL = Path("submission_runs/demo-full")


@pytest.fixture(scope="module")
def demo() -> Subject:
    evaluated = EvaluationConfig(eval_set="eval_v2", batch_size=50, max_new_tokens=10)
    return subject_of(Config(model=ModelConfig(name="demo"), evaluation=evaluated), load_target("kaggle-t4x2"))


def compiled(name: str, seconds: float | None) -> ProgramMemory:
    return ProgramMemory(
        name=name,
        way="compiler",
        peak_bytes=1,
        available_bytes=None,
        error_fraction=0.0,
        because="",
        seconds=seconds,
        parts=(),
    )


def test_entries_of_the_chain_are_counted_as_a_run_writes_them():
    config = load_config(FULL / "config.yaml")
    written = [json.loads(line) for line in (FULL / layout.CHAIN).read_text().splitlines()]
    part = save_part(config, 10**9, beside=False)
    assert f"; {len(written)} entries of the chain hashed at 1.1 GB/s" in part.because
    without = save_part(config, 0, beside=False)
    assert without.seconds == exactly(0.0)
    assert part.seconds.likely > len(written) * 10**9 / HASHED.likely


def test_beside_the_devices_a_state_costs_its_copy_and_the_last_one_all():
    """20 GB, 100 steps, an entry every 10 and saved every 25: 13 entries of 5 s, one of 67 s and 18 s more."""
    config = Config(
        model=ModelConfig(name="demo"), limits=LimitsConfig(steps=100), checkpoint=CheckpointConfig(save_every_steps=25)
    )
    part = save_part(config, 20 * 10**9, beside=True)
    assert part.seconds.likely == pytest.approx(13 * 5 + 20e9 / 300e6 + 20e9 / 1.1e9)
    assert "; 13 entries of the chain copied at 4 GB/s" in part.because
    in_place = save_part(config, 20 * 10**9, beside=False)
    assert in_place.seconds.likely == pytest.approx(4 * 20e9 / 300e6 + 13 * 20e9 / 1.1e9)


def test_what_was_compiled_is_counted_exactly_and_other_programs_in_proportion(demo: Subject):
    layers = demo.task.model.source.spec.layers
    took = [compiled("start", 1.0), compiled("train", 10.0), compiled("decode", 4.0), compiled("export", 9.0)]
    for kept, words in (
        (2, "a cold start: 17.5 s, 2 of 3 programs compiled before"),
        (3, "a warm start: 17.5 s, 3 of 3"),
    ):
        part = compile_part(demo.task, took, took=CompileTime(17.5, programs=3, kept=kept))
        assert part.seconds == exactly(17.5)
        assert part.because.startswith(words)
    assert compile_part(demo.task, took).seconds == COMPILE_A_LAYER.times(layers).times(1.5)
    unknown = [replace(each, seconds=None) for each in took]
    assert compile_part(demo.task, unknown).seconds == COMPILE_A_LAYER.times(layers).times(1.5)
    assert compile_part(demo.task, unknown[:2]).seconds == COMPILE_A_LAYER.times(layers)


def test_measured_runs_say_how_long_a_layer_takes_to_compile(demo: Subject):
    one = Measured(run="a", device="Tesla T4", step_ratio=1.0, memory_ratio=None, method=None)
    runs = [replace(one, layer_compile_seconds=each) for each in (0.5, 0.4, 0.8, None)]
    layers = demo.task.model.source.spec.layers
    found = compile_part(demo.task, [compiled("train", None)], measured=runs).seconds
    assert found == Band(low=0.2, likely=0.5, high=1.6).times(layers)


def test_rows_are_encoded_before_the_first_step(demo: Subject):
    part = load_part(replace(demo, rows=1_000_000))
    assert part.because == "1,000,000 rows × 0.25 ms to encode"
    assert part.seconds.likely == pytest.approx(250)


def test_prompts_are_read_batch_by_batch():
    part = evaluate_part(
        prompts=100, batch_size=32, tokens=160, token_seconds=exactly(0.02), reading_seconds=exactly(0.5), times=2
    )
    assert part.seconds.likely == pytest.approx(2 * 4 * (160 * 0.02 + 0.5))
    assert part.because.endswith(", and 0.5 s to read the prompts of each")


def test_cards_share_the_prompts_and_each_reads_the_parameters_that_it_holds(demo: Subject):
    bound = replace(load_target("kaggle-t4x2"), memory_bandwidth=1e6, peak_flops={"float32": 1e15})
    repeated = demo.changed(replace(demo.task.config, mesh=MeshConfig(shard_params=False)))
    both = [answers_part(each, bound).seconds.likely for each in (demo, repeated)]
    assert both[1] == pytest.approx(2 * both[0])
    # Where arithmetic decides, both read half of a batch's prompts each.
    computing = replace(bound, memory_bandwidth=1e30, peak_flops={"float32": 1.0})
    one = replace(repeated, task=replace(repeated.task, mesh=shapes_mesh(1)))
    reading = [answers_part(each, computing).seconds.likely for each in (one, demo, repeated)]
    assert reading == pytest.approx([reading[0], reading[0] / 2, reading[0] / 2], rel=1e-3)
