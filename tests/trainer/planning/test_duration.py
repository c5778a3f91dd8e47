"""The time of a step and of a session, against worked cases and properties."""

import shutil
from dataclasses import replace
from pathlib import Path
from statistics import median
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from configs import GEMMA, GEMMA_PARAMETERS, changed
from hypothesis import given
from hypothesis import strategies as st
from model_folders import row_file
from refusals import catch_problem
from whole_runs import rows

from evidence import layout
from evidence.targets import load_target
from trainer.config.load import load_config
from trainer.config.tree import Config, ModelConfig
from trainer.loop.programs import train_program
from trainer.loop.task import shapes_mesh
from trainer.planning import duration
from trainer.planning.duration import HOUR, Band, SessionPart, Work, exactly
from trainer.planning.memory import Estimator
from trainer.planning.plan import PlanOptions, plan_config
from trainer.planning.subject import Subject, read_subject
from trainer.runtime import this_machine
from trainproof.cli.plan import calibrate_plans, calibration_text

FULL = Path("submission_runs/demo-full")
TPU, T4X2 = load_target("tpu-v5e-1"), load_target("kaggle-t4x2")


@pytest.fixture(scope="module")
def demo() -> Subject:
    evaluation = {"eval_set": "eval_v2", "batch_size": 50, "max_new_tokens": 10}
    return read_subject(changed(Config(model=ModelConfig(name="demo")), evaluation=evaluation), T4X2)


def build_task(config: Config, target=TPU):
    return read_subject(config, target).task


def test_work_is_that_of_products_and_loops_count_their_rounds():
    left, right = jnp.ones((2, 3)), jnp.ones((3, 5), jnp.bfloat16)
    once = Work(flops=60, moved=6 * 4 + 15 * 2 + 10 * 4)

    def multiplied(a: Any, b: Any) -> Any:
        return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)

    def four(a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (carry + multiplied(a, b).sum(), None), 0.0, None, length=4)[0]

    assert duration.count_work(jax.make_jaxpr(multiplied)(left, right)) == once
    assert duration.count_work(jax.make_jaxpr(four)(left, right)) == Work(flops=240, moved=4 * once.moved)


@pytest.mark.slow(but=("full",))
@pytest.mark.parametrize(("kind", "operations"), [("full", 8), ("lora", 6)], ids=["full", "lora"])
def test_operations_for_each_parameter_and_token(kind, operations):
    """2 forward, 4 backward, 2 of which are of weights, 2 recomputed; attention scores are 2 % more at this length."""
    work = duration.step_work(build_task(changed(GEMMA, method={"kind": kind})))
    assert work.flops == pytest.approx(operations * GEMMA_PARAMETERS * 4 * 512, rel=0.06)


def test_recomputation_and_unpacking_are_not_useful():
    task = build_task(GEMMA)
    assert duration.useful_flops(task) == pytest.approx(6 * GEMMA_PARAMETERS * 4 * 512, rel=0.03)
    assert duration.useful_flops(task.changed(changed(GEMMA, memory={"remat": "none"}))) == duration.useful_flops(task)
    assert duration.ideal_seconds(task, TPU) == duration.useful_flops(task) / 197e12
    assert duration.ideal_seconds(task, replace(TPU, peak_flops={})) is None
    plain, coded = (
        duration.useful_flops(task.changed(changed(GEMMA, method={"kind": "lora", "base": base})))
        for base in ("plain", "nf4")
    )
    assert plain == coded < 0.8 * duration.useful_flops(task)


@pytest.mark.slow
def test_devices_share_the_work_of_a_compiled_step():
    tiny = changed(GEMMA, model={"name": "tiny-gpt2"}, batch={"microbatch_size": 3}, data={"max_length": 64})
    eight = build_task(tiny, load_target("kaggle-tpu-v5e-8"))
    program = train_program(eight)  # tiny-gpt2 has two layers, so nothing is extrapolated
    traced = duration.compiled_work(program.function.trace(*program.arguments, **program.settings).jaxpr, eight)
    assert duration.step_work(eight).flops == traced.flops


@given(st.floats(1e-9, 1e6))
def test_a_step_is_never_promised_faster_than_its_floor(floor: float):
    band = duration._band(floor)
    assert floor < band.low <= band.likely <= band.high
    assert band.low >= duration.HOST_STEP_SECONDS


def test_published_steps_are_in_the_band_or_slower():
    """TPU v3-8: GPT-J-6B at 5,000 tokens/s (37 % of peak) is inside, LLaMA-7B at 975 (8 %) is slower."""
    peak = 123e12 / 2
    gptj, llama = (duration._band(6 * size * 2048 / 8 / peak) for size in (6.05e9, 6.74e9))
    assert gptj.low < 2048 / 5000 < gptj.high
    assert llama.high < 2048 / 975


def test_one_device_receives_nothing_and_dividing_a_frozen_model_takes_the_link_longer(demo: Subject):
    task = demo.task
    for divided in (True, False):
        meshes = [replace(task, mesh=shapes_mesh(devices)) for devices in (1, 2, 4, 8)]
        received = [duration.exchanged_bytes(each, divided=divided) for each in meshes]
        assert [0, *sorted(received[1:])] == received
    adapted = demo.changed(changed(task.config, method={"kind": "lora"})).task
    assert duration.exchanged_bytes(adapted, divided=True) > 10 * duration.exchanged_bytes(adapted, divided=False)


def test_a_calibrated_step_takes_the_measured_ratio(demo: Subject):
    train = Estimator(platform="gpu", available_bytes=None).programs(demo.task, None)[1]
    plain = duration.predict_step(demo.task, T4X2, train)
    slower = duration.predict_step(demo.task, T4X2, train, step_ratio=3.0).update
    ratios = [each / plain.update.likely for each in (slower.low, slower.likely, slower.high)]
    assert ratios == pytest.approx([2.7, 3, 3.3])
    unknown = replace(T4X2, peak_flops={})
    assert duration.predict_step(demo.task, unknown, train).band is None
    assert duration.predict_step(demo.task, unknown, train, step_ratio=3.0).band is not None


def test_the_entries_of_a_run_are_counted_as_it_writes_them():
    config = load_config(FULL / "config.yaml")
    written = len((FULL / layout.CHAIN).read_text().splitlines())
    part = duration.save_part(config, 10**9, asynchronous=False)
    assert part.because.endswith(f", hash {written}")
    assert part.seconds.likely > written * 10**9 / duration.HASHING.likely
    assert duration.save_part(config, 0, asynchronous=False).seconds == exactly(0.0)


def test_asynchronous_saving_costs_a_copy_of_each_state_and_the_last_one_in_full():
    """20 GB, 100 steps, hashed every 10 and saved every 25: 13 copies of 5 s, one of 67 s and 18 s more."""
    config = changed(Config(model=ModelConfig(name="demo")), limits={"steps": 100}, checkpoint={"save_every_steps": 25})
    seconds = [duration.save_part(config, 20 * 10**9, asynchronous=each).seconds.likely for each in (True, False)]
    assert seconds == [
        pytest.approx(13 * 5 + 20e9 / 300e6 + 20e9 / 1.1e9),
        pytest.approx(4 * 20e9 / 300e6 + 13 * 20e9 / 1.1e9),
    ]


def test_compilation_is_measured_or_predicted_by_layers(demo: Subject):
    kept = [SimpleNamespace(seconds=seconds, is_kept=True) for seconds in (10, 5, 2.5)]
    took = duration.compile_part(demo.task, [], kept)
    assert (took.seconds, took.because) == (exactly(17.5), "3 of 3 programs from the compilation cache")
    programs = Estimator(platform="gpu", available_bytes=None).programs(demo.task, demo.eval_shape)
    layers = demo.task.model.source.spec.layers
    assert duration.compile_part(demo.task, programs, []).seconds == duration.COMPILE_LAYER.times(1.5 * layers)


def test_devices_share_the_prompts_and_each_reads_its_parameters(demo: Subject):
    bound = replace(T4X2, memory_bandwidth=1e6, peak_flops={"float32": 1e15})
    replicated = demo.changed(changed(demo.task.config, mesh={"shard_params": False}))
    both = [duration.evaluate_part(each, each.eval_shape, bound).seconds.likely for each in (demo, replicated)]
    assert both[1] == pytest.approx(2 * both[0])
    computing = replace(bound, memory_bandwidth=1e30, peak_flops={"float32": 1.0})
    one = replace(replicated, task=replace(replicated.task, mesh=shapes_mesh(1)))
    first, *others = (
        duration.evaluate_part(each, each.eval_shape, computing).seconds.likely for each in (one, demo, replicated)
    )
    assert others == pytest.approx([first / 2, first / 2], rel=1e-3)


def test_evaluations_during_training_are_counted(demo: Subject):
    """100 steps, every 20 of them 40 items in batches of 50: 5 batches more."""
    config = demo.task.config
    often = changed(config, evaluation={"every_steps": 20, "during_items": 40})
    parts = [duration.evaluate_part(demo.changed(each), demo.eval_shape, T4X2) for each in (config, often)]
    first, second = (int(part.because.partition(" ")[0]) for part in parts)
    assert second - first == 5


@pytest.mark.parametrize(
    ("begin", "work", "session", "week", "sessions", "weeks"),
    [
        # 40 to 50 hours on two T4s, in sessions of 12 hours and weeks of 30: four to five sessions, two weeks.
        (0.25, (40, 45, 50), 12, 30, [4, 4, 5], 2),
        # A session that is filled by its start is never enough.
        (9, (1, 1, 1), 9, 20, [None, None, None], None),
    ],
)
def test_sessions_and_weeks_by_hand(begin, work, session, week, sessions, weeks):
    low, likely, high = (hours * HOUR for hours in work)
    parts = [
        SessionPart("install", exactly(begin * HOUR), ""),
        SessionPart("train", Band(low=low, likely=likely, high=high), ""),
    ]
    assert duration.sessions_needed(parts, session * HOUR) == sessions
    assert duration.weeks_needed(parts, session_seconds=session * HOUR, week_seconds=week * HOUR) == weeks


MEASURED = changed(
    Config(model=ModelConfig(name="tiny-gpt2")),
    data={"max_length": 64},
    batch={"microbatch_size": 2},
    mesh={"device": "cpu", "devices": 1},
    limits={"steps": 6},
)


def likely_step(config: Config, ratio: float | None) -> float | None:
    plan = plan_config(config, this_machine(config), PlanOptions(quick=True, advice=False, step_ratio=ratio))
    return None if plan["time"] is None else plan["time"]["step_seconds"]["likely"]


@pytest.mark.slow
def test_a_measured_run_gives_plans_of_its_device_a_time(finished):
    measured = finished(MEASURED)
    assert likely_step(MEASURED, None) is None, "the speed of this CPU is unknown"
    used, skipped = calibrate_plans([measured.parent], this_machine(MEASURED))
    assert [each.run for each in used] == ["run"]
    assert "run on " in calibration_text(used, skipped)
    ratio = used[0].step_ratio
    same, longer = (likely_step(each, ratio) for each in (MEASURED, changed(MEASURED, batch={"microbatch_size": 4})))
    assert same == pytest.approx(median(row["step_seconds"] for row in rows(measured)[1:]), rel=1e-3)
    assert 1.9 < longer / same < 2.2, "twice the tokens are twice the operations, or a little more"
    assert catch_problem(calibrate_plans, [measured], load_target("t4")).code == "TP747"


@pytest.mark.slow
def test_a_contradictory_run_is_not_used(finished, tmp_path):
    edited = shutil.copytree(finished(MEASURED), tmp_path / "edited")
    *others, last = rows(edited)
    row_file(edited / layout.METRICS, *others, last | {"step_seconds": 9.0})
    assert duration.calibrate_from_run(edited).startswith("its grade is contradictory: ")
    assert "its grade is contradictory" in catch_problem(calibrate_plans, [edited]).what
