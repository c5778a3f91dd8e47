"""A plan for a machine that is not here: verdicts per program, time, advice, sizes; what is absent is named."""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from model_folders import llama_folder

from evidence.registry import published_models
from evidence.targets import load_target, targets
from schemas.problems import ProblemError
from schemas.validate import check_value
from trainer.config.load import load_config
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MemoryConfig,
    ModelConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.data.answers import EvalShape
from trainer.loop.programs import train_program
from trainer.loop.task import Task
from trainer.model.model import build_model
from trainer.model.source import known_source
from trainer.planning import estimator
from trainer.planning import plan as planning
from trainer.planning.advice import advice
from trainer.planning.compile.ahead import Compiler
from trainer.planning.compile.machines import V5E_1, machine_of
from trainer.planning.estimate.part import Part
from trainer.planning.estimate.programs import estimates
from trainer.planning.estimator import Estimator
from trainer.planning.plan import PlanOptions, asking_for, computable_changes, plan_for
from trainer.planning.program_memory import ProgramMemory, divided, verdict, worst
from trainer.planning.step_work import Work, ideal_seconds, shared_work, step_work, useful_flops, work_of
from trainer.planning.subject import subject_of

GIB = 2**30
QUICK = PlanOptions(quick=True)
GEMMA = Config(
    model=ModelConfig(name="google/gemma-2b"),
    data=DataConfig(max_length=512),
    batch=BatchConfig(microbatch_size=4),
    optimizer=OptimizerConfig(name="adafactor", max_grad_norm=None),
    precision=PrecisionConfig(compute="bfloat16"),
    limits=LimitsConfig(steps=200),
)


@pytest.fixture(autouse=True)
def no_answers_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> None:
        raise AssertionError("the hub was asked")

    monkeypatch.setattr("huggingface_hub.snapshot_download", refused)


@pytest.mark.parametrize(("name", "stated"), published_models().items())
def test_a_shipped_shape_has_as_many_parameters_as_its_page_states(name: str, stated: dict[str, Any]):
    source = known_source(name)
    assert source is not None
    model = build_model(Config(model=ModelConfig(name=name)), source)
    assert sum(math.prod(shape.shape) for shape in model.shapes.values()) == stated["parameters"]
    assert all(known_source(other) is not None for other in stated["same_shape"])
    assert stated["source"].startswith("config.json on huggingface.co/")


def test_a_plan_needs_no_network_and_no_login_and_follows_the_schema(no_network: None):
    config = replace(GEMMA, evaluation=EvaluationConfig(eval_set="eval_v2"))
    plan = plan_for(config, load_target("kaggle-tpu-v5e-8"), QUICK)
    assert check_value("plan", plan, file="plan.json") == []
    assert plan["verdict"] == "fits"
    assert [program["name"] for program in plan["programs"]] == ["start", "train", "decode", "export"]
    for program in plan["programs"]:
        assert sum(part["bytes"] for part in program["parts"]) == program["peak_bytes"]
    time = plan["time"]
    assert time["session_seconds"] == 9 * 3600
    assert "assumed" in time["tokens_source"]
    assert 0 < time["real_tokens"] < time["tokens"] == 8 * 4 * 512
    assert [part["name"] for part in time["session"]] == [
        "install",
        "compile",
        "load",
        "train",
        "save",
        "evaluate",
        "export",
    ]
    total = sum(part["seconds"]["likely"] for part in time["session"])
    assert time["hours"]["likely"] * 3600 == pytest.approx(total, rel=2e-3)
    assert plan["disk"]["need_bytes"] > 4 * 2_506_172_416


@pytest.mark.parametrize("name", ["t4", "kaggle-t4x2", "p100"])
def test_bfloat16_on_a_card_that_lacks_it_is_unsupported_and_named(name: str):
    plan = plan_for(GEMMA, load_target(name), QUICK)
    assert check_value("plan", plan, file="plan.json") == []
    assert (plan["verdict"], plan["programs"], plan["time"]) == ("unsupported", [], None)
    assert plan["findings"][0]["what"] == f"precision.compute is bfloat16, which {name} does not have."


@pytest.mark.slow
def test_what_does_not_fit_comes_with_sets_that_do():
    config = replace(
        GEMMA,
        optimizer=OptimizerConfig(name="adamw"),
        memory=MemoryConfig(donate=False),
        precision=PrecisionConfig(params="bfloat16", compute="bfloat16"),
    )
    plan = plan_for(config, load_target("tpu-v5e-1"), QUICK)
    assert plan["verdict"] == "does_not_fit"
    fitting = [each["set"] for each in plan["advice"] if each["verdict"] == "fits"]
    assert ["optimizer.name=adafactor"] in fitting
    # Donation costs nothing and stays; smaller chunks of the loss would free something, and are not needed.
    assert ["memory.donate=true", "optimizer.name=adafactor"] in fitting
    assert all(each["need_bytes"] + each["frees_bytes"] == plan["need_bytes"] for each in plan["advice"])
    assert check_value("plan", plan, file="plan.json") == []


@pytest.mark.slow
def test_advice_passes_over_what_cannot_be_built():
    """Adapters on a float16 base fit; without the adapters that base cannot learn, and no such run is planned."""
    config = replace(
        GEMMA,
        batch=BatchConfig(microbatch_size=8),
        optimizer=OptimizerConfig(name="adamw"),
        precision=PrecisionConfig(compute="float16"),
        evaluation=EvaluationConfig(eval_set="eval_v2", batch_size=100),
    )
    plan = plan_for(config, load_target("t4"), QUICK)
    [fitting] = [each for each in plan["advice"] if each["verdict"] == "fits"]
    assert fitting["set"] == ["method.kind=lora", "precision.params=float16"]
    assert fitting["costs"].endswith("; frozen weights are rounded to 3 to 4 decimal digits")


class Stricter:
    """Asks a compiler that needs twenty times as much of microbatches above 8 as the sums say."""

    def __init__(self, sums: Estimator) -> None:
        self.sums = sums

    def quick(self) -> Estimator:
        return self.sums

    def brief(self) -> "Stricter":
        return self

    def open_ended(self) -> "Stricter":
        return self

    def programs(self, task: Task, asked: EvalShape | None) -> list[ProgramMemory]:
        answers = self.sums.programs(task, asked)
        if task.config.batch.microbatch_size <= 8:
            return answers
        return [replace(each, peak_bytes=20 * each.peak_bytes) for each in answers]


def test_where_a_compiler_refuses_a_microbatch_a_smaller_one_is_advised():
    halved = PrecisionConfig(params="bfloat16", compute="bfloat16")
    config = replace(GEMMA, batch=BatchConfig(microbatch_size=128), precision=halved)
    target = load_target("tpu-v5e-1")
    subject = subject_of(config, target, say=lambda line: None)
    with asking_for(target, subject, QUICK) as sums:
        need = max(each.peak_bytes for each in sums.programs(subject.task, subject.asked))
        changes = partial(computable_changes, target)
        found = advice(subject, Stricter(sums), need_bytes=need, say=lambda line: None, changes=changes)
    sizes = [each.changes[-1].config.batch.microbatch_size for each in found if each.verdict in ("fits", "tight")]
    assert sizes
    assert max(sizes) <= 8


def test_advice_for_what_is_tight_frees_something():
    config = replace(GEMMA, batch=BatchConfig(microbatch_size=24))
    plan = plan_for(config, load_target("tpu-v5e-1"), QUICK)
    assert plan["verdict"] == "tight"
    assert "evaluation.batch_size=1" not in str(plan["advice"])
    assert plan["advice"]
    assert all(each["frees_bytes"] >= 0.01 * plan["need_bytes"] for each in plan["advice"])


@pytest.mark.slow
def test_the_largest_microbatch_fits_and_one_more_does_not():
    wish = PlanOptions(quick=True, max_batch=True, advice=False)
    target = load_target("tpu-v5e-1")
    most = plan_for(GEMMA, target, wish)["max_batch"]
    summed = PlanOptions(quick=True, advice=False)
    at = [
        plan_for(replace(GEMMA, batch=BatchConfig(microbatch_size=size)), target, summed)["verdict"]
        for size in (most["microbatch_size"], most["microbatch_size"] + 1)
    ]
    assert at[0] == "fits"
    assert at[1] != "fits"


def test_full_fine_tuning_of_nine_billion_parameters_fits_on_eight_chips():
    """Its decoding compiles to 6.79 GiB of 15.75; the copy of all weights on every chip would be 17.2 alone."""
    nine = replace(GEMMA, model=ModelConfig(name="google/gemma-2-9b"), data=DataConfig(max_length=1024))
    evaluated = replace(nine, batch=BatchConfig(microbatch_size=1), evaluation=EvaluationConfig(eval_set="eval_v2"))
    assert plan_for(evaluated, load_target("kaggle-tpu-v5e-8"), QUICK)["verdict"] == "fits"


def test_a_grid_has_a_cell_for_each_size_and_needs_grow_with_both():
    odd = replace(GEMMA, batch=BatchConfig(microbatch_size=3), data=DataConfig(max_length=640))
    table = plan_for(odd, load_target("tpu-v5e-1"), PlanOptions(quick=True, grid=True, advice=False))["grid"]
    assert table["microbatch_sizes"] == [1, 2, 3, 4, 8, 16, 32, 64, 128]
    assert table["max_lengths"] == [128, 256, 512, 640, 1024, 2048, 4096]
    needs = {(cell["max_length"], cell["microbatch_size"]): cell["need_bytes"] for cell in table["cells"]}
    assert len(needs) == len(table["microbatch_sizes"]) * len(table["max_lengths"])
    for length in table["max_lengths"]:
        row = [needs[length, size] for size in table["microbatch_sizes"]]
        assert row == sorted(row)


def test_the_configurations_own_size_is_a_cell_of_its_grid():
    own = replace(GEMMA, batch=BatchConfig(microbatch_size=200), data=replace(GEMMA.data, max_length=192))
    plan = plan_for(own, load_target("tpu-v5e-1"), PlanOptions(quick=True, grid=True, advice=False))
    [cell] = [cell for cell in plan["grid"]["cells"] if (cell["microbatch_size"], cell["max_length"]) == (200, 192)]
    assert cell["need_bytes"] == plan["need_bytes"]


def test_more_devices_than_there_are_and_a_length_beyond_the_model_are_refused():
    with pytest.raises(ProblemError) as refused:
        subject_of(replace(GEMMA, mesh=replace(GEMMA.mesh, devices=3)), load_target("t4"))
    assert (refused.value.exit_code, refused.value.problems[0].code) == (3, "TP702")
    with pytest.raises(ProblemError) as refused:
        subject_of(replace(GEMMA, data=DataConfig(max_length=9000)), load_target("t4"))
    assert (refused.value.exit_code, refused.value.problems[0].code) == (2, "TP061")


def test_without_a_compiler_the_sums_answer_and_say_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainer.planning.compile.machines.has_compiler", lambda platform: False)
    plan = plan_for(GEMMA, load_target("tpu-v5e-1"), PlanOptions(advice=False))
    assert {program["method"] for program in plan["programs"]} == {"closed_form"}
    assert "the TPU compiler is not installed (pip install 'trainproof[plan]')" in plan["programs"][0]["because"]


def test_a_compiler_that_gives_no_answer_leaves_the_sum_with_its_reason(monkeypatch: pytest.MonkeyPatch):
    def silent(self: Compiler, question: object, *, limit_seconds: float) -> None:
        raise estimator.CompilerError("The compiler gave no answer: ended after 1 s")

    monkeypatch.setattr(Compiler, "ask", silent)
    monkeypatch.setattr(planning, "machine_of", lambda target, devices: V5E_1)
    plan = plan_for(replace(GEMMA, model=ModelConfig(name="demo")), load_target("tpu-v5e-1"), PlanOptions(advice=False))
    assert plan["programs"][1]["method"] == "closed_form"
    assert plan["programs"][1]["because"] == "added up: The compiler gave no answer: ended after 1 s"


def test_every_target_has_a_compiler_that_can_be_described(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("trainer.planning.compile.machines.has_compiler", lambda platform: True)
    for target in targets().values():
        machine = machine_of(target, devices=target.devices)
        assert machine is not None
        assert machine.order()["platform"] == target.platform


def test_verdicts_follow_from_the_band_and_the_compiler_refuses_what_is_above():
    assert [verdict(need, 100, 0.08) for need in (92, 95, 108, 109)] == ["fits", "tight", "tight", "does_not_fit"]
    assert [verdict(need, 100, 0.08, "compiler") for need in (92, 95, 101)] == ["fits", "tight", "does_not_fit"]
    assert worst(["fits", "tight", "unknown"]) == "tight"


def test_parts_are_divided_so_that_they_add_up_to_the_compiled_peak():
    parts = tuple(Part(name=name, bytes=size, because="") for name, size in (("params", 60), ("logits", 30), ("x", 20)))
    assert [part.bytes for part in divided(100, parts)] == [60, 24, 16]
    assert [part.bytes for part in divided(50, parts)] == [50]
    assert sum(part.bytes for part in divided(101, parts)) == 101


def test_work_is_that_of_products_and_loops_count_as_often_as_they_run():
    left, right = jnp.ones((2, 3)), jnp.ones((3, 5), jnp.bfloat16)
    once = Work(flops=60, moved=6 * 4 + 15 * 2 + 10 * 4)

    def multiplied(a: Any, b: Any) -> Any:
        return jax.lax.dot_general(a, b, (((1,), (0,)), ((), ())), preferred_element_type=jnp.float32)

    assert work_of(jax.make_jaxpr(multiplied)(left, right)) == once

    def four(a: Any, b: Any) -> Any:
        return jax.lax.scan(lambda carry, _: (carry + multiplied(a, b).sum(), None), 0.0, None, length=4)[0]

    assert work_of(jax.make_jaxpr(four)(left, right)) == Work(flops=240, moved=4 * once.moved)


def test_the_operations_of_a_step_are_eight_for_each_parameter_and_token():
    subject = subject_of(GEMMA, load_target("tpu-v5e-1"))
    # 2 forward, 4 backward, 2 recomputed; scores of attention are 2 % more at this length, and the head is not
    # computed again by its own layer.
    assert step_work(subject.task).flops == pytest.approx(8 * 2_506_172_416 * 4 * 512, rel=0.06)


@pytest.mark.slow
def test_beside_adapters_no_gradient_of_the_frozen_weights_is_counted():
    adapted = replace(GEMMA, method=replace(GEMMA.method, kind="lora"))
    flops = step_work(subject_of(adapted, load_target("tpu-v5e-1")).task).flops
    # 2 forward, 2 backward, 2 recomputed, and what rank 8 adds.
    assert flops == pytest.approx(6 * 2_506_172_416 * 4 * 512, rel=0.06)


def test_what_is_computed_again_is_not_useful():
    tpu, task = load_target("tpu-v5e-1"), subject_of(GEMMA, load_target("tpu-v5e-1")).task
    assert useful_flops(task) == pytest.approx(6 * 2_506_172_416 * 4 * 512, rel=0.03)
    assert useful_flops(task.changed(replace(GEMMA, memory=MemoryConfig(remat="none")))) == useful_flops(task)
    assert ideal_seconds(task, tpu) == useful_flops(task) / 197e12
    assert ideal_seconds(task, replace(tpu, peak_flops={})) is None
    adapted = [replace(GEMMA.method, kind="lora", base=base) for base in ("plain", "nf4")]
    plain, coded = (useful_flops(task.changed(replace(GEMMA, method=method))) for method in adapted)
    assert plain == coded < 0.8 * useful_flops(task)


@pytest.mark.slow
def test_the_scores_of_long_sequences_are_traffic():
    """Llama-3.2-1B, 8,192 tokens: 32 heads × 8,192² × 4 bytes are 8 GiB a layer, written and read several times."""
    llama = replace(GEMMA, model=ModelConfig(name="meta-llama/Llama-3.2-1B"), batch=BatchConfig(microbatch_size=1))
    short, long = (replace(llama, data=DataConfig(max_length=length)) for length in (1024, 8192))
    scores = 16 * 32 * 4 * 8192**2
    moved = step_work(subject_of(long, load_target("tpu-v5e-1")).task).moved
    assert 5 * scores < moved < 9 * scores
    assert moved > 16 * step_work(subject_of(short, load_target("tpu-v5e-1")).task).moved


@pytest.mark.slow
def test_every_device_computes_as_much_as_one_alone_and_the_step_is_traced_once_for_all(
    monkeypatch: pytest.MonkeyPatch,
):
    config = replace(
        GEMMA, model=ModelConfig(name="tiny-gpt2"), batch=BatchConfig(microbatch_size=3), data=DataConfig(max_length=64)
    )
    eight = subject_of(config, load_target("kaggle-tpu-v5e-8")).task
    program = train_program(eight)  # tiny-gpt2 has two layers: nothing is drawn out
    traced = shared_work(program.function.trace(*program.arguments, **program.settings).jaxpr, eight)
    assert step_work(eight).flops == traced.flops
    assert step_work(eight).moved == pytest.approx(traced.moved, rel=0.1)
    monkeypatch.setattr("trainer.planning.step_work.train_program", None)
    assert step_work(subject_of(config, load_target("tpu-v5e-1")).task).flops == traced.flops


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    with Compiler() as process:
        yield process


@pytest.mark.compiler("tpu")
def test_few_layers_beside_occupied_memory_say_what_the_whole_says(compiler: Compiler, tmp_path: Path):
    target = load_target("tpu-v5e-1")
    llama = ModelConfig(name=llama_folder(tmp_path, layers=7), weights="random")
    precision = PrecisionConfig(params="bfloat16", compute="bfloat16")
    config = replace(GEMMA, model=llama, data=DataConfig(max_length=256), precision=precision)
    subject = subject_of(config, target)
    few = Estimator(platform="tpu", available_bytes=target.memory_bytes, machine=V5E_1, compiler=compiler)
    for name in ("start", "train"):
        parts = estimates(subject.task, platform="tpu")[name]
        part = few.program(name, subject.task, None, parts)
        whole = replace(few, exact=True).program(name, subject.task, None, parts)
        assert (part.way, whole.way) == ("extrapolated", "compiler")
        assert abs(part.peak_bytes - whole.peak_bytes) <= part.error_fraction * whole.peak_bytes


@pytest.mark.slow
def test_a_small_model_is_not_promised_steps_below_what_starting_one_takes():
    """Before, 2,800 steps of the demo were to take 0.5 s on eight chips: 0.2 ms each, less than the host needs."""
    config = load_config(Path("trainer/configs/demo.yaml"))
    for name, least in (("kaggle-tpu-v5e-8", 350e-6 + 150e-6), ("h200", 350e-6)):
        time = plan_for(config, load_target(name), PlanOptions(quick=True, advice=False))["time"]
        assert time["step_seconds"]["low"] >= least
        assert "dispatch decides" in time["because"]
        train = next(part for part in time["session"] if part["name"] == "train")
        assert train["seconds"]["low"] >= config.limits.steps * least
