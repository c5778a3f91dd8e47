"""The time of a step and of a session, against worked cases and properties."""

import doctest
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence import layout
from evidence.targets import load_target
from trainer.config.load import load_config
from trainer.config.tree import (
    BatchConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.loop.programs import train_program
from trainer.loop.task import shapes_mesh
from trainer.planning import duration
from trainer.planning.duration import (
    COMPILE_LAYER,
    HASHING,
    HOUR,
    Band,
    CompileTime,
    SessionPart,
    Work,
    compile_part,
    compiled_work,
    count_work,
    evaluate_part,
    exactly,
    exchanged_bytes,
    ideal_seconds,
    save_part,
    sessions_needed,
    step_work,
    useful_flops,
    weeks_needed,
)
from trainer.planning.memory import Estimator
from trainer.planning.plan import PlanOptions, plan_config
from trainer.planning.subject import Subject, read_subject

FULL = Path("submission_runs/demo-full")
TPU, T4X2 = load_target("tpu-v5e-1"), load_target("kaggle-t4x2")
PARAMETERS = 2_506_172_416
GEMMA = Config(
    model=ModelConfig(name="google/gemma-2b"),
    data=DataConfig(max_length=512),
    batch=BatchConfig(microbatch_size=4),
    optimizer=OptimizerConfig(name="adafactor", max_grad_norm=None),
    precision=PrecisionConfig(compute="bfloat16"),
    limits=LimitsConfig(steps=200),
)


@pytest.fixture(scope="module")
def demo() -> Subject:
    evaluated = EvaluationConfig(eval_set="eval_v2", batch_size=50, max_new_tokens=10)
    return read_subject(Config(model=ModelConfig(name="demo"), evaluation=evaluated), T4X2)


def build_task(config: Config, target=TPU):
    return read_subject(config, target).task


def test_examples():
    assert doctest.testmod(duration).failed == 0


def test_work_is_that_of_products_and_loops_count_their_rounds():
    left, right = jnp.ones((2, 3)), jnp.ones((3, 5), jnp.bfloat16)
    once = Work(flops=60, moved=6 * 4 + 15 * 2 + 10 * 4)

    def multiplied(a: Any, b: Any) -> Any:
        return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)

    def four(a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (carry + multiplied(a, b).sum(), None), 0.0, None, length=4)[0]

    assert count_work(jax.make_jaxpr(multiplied)(left, right)) == once
    assert count_work(jax.make_jaxpr(four)(left, right)) == Work(flops=240, moved=4 * once.moved)


def test_a_step_has_eight_operations_for_each_parameter_and_token():
    """2 forward, 4 backward, 2 recomputed; attention scores are 2 % more at this length."""
    assert step_work(build_task(GEMMA)).flops == pytest.approx(8 * PARAMETERS * 4 * 512, rel=0.06)


@pytest.mark.slow
def test_beside_adapters_no_gradient_of_frozen_weights_is_counted():
    adapted = replace(GEMMA, method=replace(GEMMA.method, kind="lora"))
    assert step_work(build_task(adapted)).flops == pytest.approx(6 * PARAMETERS * 4 * 512, rel=0.06)


def test_recomputation_and_unpacking_are_not_useful():
    task = build_task(GEMMA)
    assert useful_flops(task) == pytest.approx(6 * PARAMETERS * 4 * 512, rel=0.03)
    assert useful_flops(task.changed(replace(GEMMA, memory=MemoryConfig(remat="none")))) == useful_flops(task)
    assert ideal_seconds(task, TPU) == useful_flops(task) / 197e12
    assert ideal_seconds(task, replace(TPU, peak_flops={})) is None
    adapted = [replace(GEMMA.method, kind="lora", base=base) for base in ("plain", "nf4")]
    plain, coded = (useful_flops(task.changed(replace(GEMMA, method=method))) for method in adapted)
    assert plain == coded < 0.8 * useful_flops(task)


@pytest.mark.slow
def test_the_scores_of_long_sequences_are_traffic():
    """Llama-3.2-1B, 8,192 tokens: 32 heads × 8,192² × 4 bytes are 8 GiB a layer, moved several times."""
    llama = replace(GEMMA, model=ModelConfig(name="meta-llama/Llama-3.2-1B"), batch=BatchConfig(microbatch_size=1))
    short, long = (
        step_work(build_task(replace(llama, data=DataConfig(max_length=length)))).moved for length in (1024, 8192)
    )
    assert 5 < long / (16 * 32 * 4 * 8192**2) < 9
    assert long > 16 * short


@pytest.mark.slow
def test_devices_share_the_work_of_a_compiled_step():
    tiny = replace(GEMMA, model=ModelConfig(name="tiny-gpt2"), batch=BatchConfig(microbatch_size=3))
    eight = build_task(replace(tiny, data=DataConfig(max_length=64)), load_target("kaggle-tpu-v5e-8"))
    program = train_program(eight)  # tiny-gpt2 has two layers, so nothing is extrapolated
    traced = compiled_work(program.function.trace(*program.arguments, **program.settings).jaxpr, eight)
    assert step_work(eight).flops == traced.flops


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


@pytest.mark.slow
def test_a_small_model_is_not_promised_steps_below_what_the_host_needs():
    config = load_config(Path("trainer/configs/demo.yaml"))
    for name in ("kaggle-tpu-v5e-8", "h200"):
        time = plan_config(config, load_target(name), PlanOptions(quick=True, advice=False))["time"]
        assert time["step_seconds"]["low"] >= 350e-6
        train = next(part for part in time["session"] if part["name"] == "train")
        assert train["seconds"]["low"] >= config.limits.steps * 350e-6


def test_one_device_receives_nothing_and_dividing_a_frozen_model_takes_the_link_longer(demo: Subject):
    task = demo.task
    received = [
        exchanged_bytes(replace(task, mesh=shapes_mesh(devices)), divided=divided)
        for divided in (True, False)
        for devices in (1, 2, 4, 8)
    ]
    assert received[0] == received[4] == 0
    assert received[:4] == sorted(received[:4])
    assert received[4:] == sorted(received[4:])
    adapted = demo.changed(replace(task.config, method=replace(task.config.method, kind="lora"))).task
    assert exchanged_bytes(adapted, divided=True) > 10 * exchanged_bytes(adapted, divided=False)


def test_a_calibrated_step_takes_the_measured_ratio(demo: Subject):
    train = Estimator(platform="gpu", available_bytes=None).programs(demo.task, None)[1]
    plain = duration.predict_step(demo.task, T4X2, train)
    slower = duration.predict_step(demo.task, T4X2, train, step_ratio=3.0)
    assert plain.update is not None
    assert slower.update == Band(
        low=pytest.approx(2.7 * plain.update.likely),
        likely=pytest.approx(3 * plain.update.likely),
        high=pytest.approx(3.3 * plain.update.likely),
    )
    unknown = replace(T4X2, peak_flops={})
    assert duration.predict_step(demo.task, unknown, train).band is None
    assert duration.predict_step(demo.task, unknown, train, step_ratio=3.0).band is not None


def test_the_entries_of_a_run_are_counted_as_it_writes_them():
    config = load_config(FULL / "config.yaml")
    written = len((FULL / layout.CHAIN).read_text().splitlines())
    part = save_part(config, 10**9, asynchronous=False)
    assert part.because.endswith(f", {written} hashed")
    assert part.seconds.likely > written * 10**9 / HASHING.likely
    assert save_part(config, 0, asynchronous=False).seconds == exactly(0.0)


def test_asynchronous_saving_costs_a_copy_of_each_state_and_the_last_one_in_full():
    """20 GB, 100 steps, hashed every 10 and saved every 25: 13 copies of 5 s, one of 67 s and 18 s more."""
    config = Config(
        model=ModelConfig(name="demo"), limits=LimitsConfig(steps=100), checkpoint=CheckpointConfig(save_every_steps=25)
    )
    seconds = [save_part(config, 20 * 10**9, asynchronous=each).seconds.likely for each in (True, False)]
    assert seconds == [
        pytest.approx(13 * 5 + 20e9 / 300e6 + 20e9 / 1.1e9),
        pytest.approx(4 * 20e9 / 300e6 + 13 * 20e9 / 1.1e9),
    ]


def test_compilation_is_measured_or_predicted_by_layers(demo: Subject):
    took = compile_part(demo.task, [], CompileTime(17.5, programs=3, cached=3))
    assert (took.seconds, took.because) == (exactly(17.5), "warm start: 3 of 3 programs from the cache")
    programs = Estimator(platform="gpu", available_bytes=None).programs(demo.task, demo.eval_shape)
    layers = demo.task.model.source.spec.layers
    assert compile_part(demo.task, programs, None).seconds == COMPILE_LAYER.times(1.5 * layers)


def test_devices_share_the_prompts_and_each_reads_its_parameters(demo: Subject):
    bound = replace(T4X2, memory_bandwidth=1e6, peak_flops={"float32": 1e15})
    replicated = demo.changed(replace(demo.task.config, mesh=MeshConfig(shard_params=False)))
    both = [evaluate_part(each, each.eval_shape, bound).seconds.likely for each in (demo, replicated)]
    assert both[1] == pytest.approx(2 * both[0])
    computing = replace(bound, memory_bandwidth=1e30, peak_flops={"float32": 1.0})
    one = replace(replicated, task=replace(replicated.task, mesh=shapes_mesh(1)))
    reading = [evaluate_part(each, each.eval_shape, computing).seconds.likely for each in (one, demo, replicated)]
    assert reading == pytest.approx([reading[0], reading[0] / 2, reading[0] / 2], rel=1e-3)


def test_evaluations_during_training_are_counted(demo: Subject):
    """100 steps, every 20 of them 40 items in batches of 50: 5 batches more."""
    config = demo.task.config
    often = replace(config.evaluation, every_steps=20, during_items=40)
    parts = [
        evaluate_part(demo.changed(replace(config, evaluation=each)), demo.eval_shape, T4X2)
        for each in (config.evaluation, often)
    ]
    first, second = (int(part.because.partition(" ")[0]) for part in parts)
    assert second - first == 5


def test_the_guide_of_the_seeds():
    """40 to 50 hours on two T4s, in sessions of 12 hours and weeks of 30: four to five sessions, two weeks."""
    begin = SessionPart("install", exactly(0.25 * HOUR), "")
    work = SessionPart("train", Band(low=40 * HOUR, likely=45 * HOUR, high=50 * HOUR), "")
    assert sessions_needed([begin, work], 12 * HOUR) == (4, 4, 5)
    assert weeks_needed([begin, work], session_seconds=12 * HOUR, week_seconds=30 * HOUR) == 2


def test_a_session_that_is_filled_by_its_start_is_never_enough():
    begin = SessionPart("load", exactly(9 * HOUR), "")
    work = SessionPart("train", exactly(60), "")
    assert sessions_needed([begin, work], 9 * HOUR) == (None, None, None)
    assert weeks_needed([begin, work], session_seconds=9 * HOUR, week_seconds=20 * HOUR) is None
