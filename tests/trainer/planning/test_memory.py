"""Memory of programs: verdicts, the choice between compiler and formula, compiled train steps, and remat."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from configs import changed
from model_folders import llama_folder

from trainer.config.tree import Config, ModelConfig
from trainer.data.answers import EvalShape
from trainer.loop.task import Task, shapes_mesh
from trainer.model.source import resolve_for_planning
from trainer.planning import memory
from trainer.planning.compile.ahead import CompiledMemory, CompilerAnswer, CompilerError
from trainer.planning.compile.machines import V5E_1
from trainer.planning.formula import FORMULA_ERROR, Part, estimate, total_bytes
from trainer.planning.memory import Estimator, ProgramMemory, verdict

MIB = 2**20
CONFIG = changed(Config(model=ModelConfig(name="demo")), data={"max_length": 128}, batch={"microbatch_size": 4})


def build_task(config: Config, platform: str = "tpu") -> Task:
    source = resolve_for_planning(config.model.name, config.model.revision)
    return Task.of(config, source, shapes_mesh(1), platform=platform)


class Scripted:
    """Compiler whose answers are a multiple of the formula; it counts the programs."""

    def __init__(self, times: float = 1.0, error: str | None = None) -> None:
        self.times, self.error = times, error
        self.asked: list[str] = []

    def ask(self, program: str, config: Config, machine: Any, *, eval_shape: EvalShape | None) -> Any:
        self.asked.append(program)
        if self.error:
            raise CompilerError(self.error)
        estimates = estimate(build_task(config), platform="tpu", eval_shape=eval_shape)
        need = total_bytes(estimates.get(program.partition("_")[0], estimates["start"]))
        return CompilerAnswer(memory=None, peak_bytes=round(self.times * need), seconds=1.0)


def estimator(available: int | None, compiler: Any = None, **more: Any) -> Estimator:
    ask = (compiler or Scripted()).ask
    return Estimator(platform="tpu", available_bytes=available, machine=V5E_1, ask=ask, **more)


def program(programs: Iterable[ProgramMemory], name: str) -> ProgramMemory:
    return next(each for each in programs if each.name == name)


def test_verdicts_follow_from_the_band_and_a_compiler_refuses_what_is_above():
    by_formula = [verdict(need, 100, 0.08) for need in (92, 95, 108, 109)]
    assert by_formula == ["fits", "tight", "tight", "does_not_fit"]
    assert [verdict(need, 100, 0.08, "compiler") for need in (92, 95, 101)] == ["fits", "tight", "does_not_fit"]
    assert verdict(1, None, 0.08) == "unknown"


def test_parts_are_scaled_to_the_compiled_peak():
    parts = tuple(Part(name, size, "") for name, size in (("params", 60), ("logits", 30), ("x", 20)))
    assert [part.bytes for part in memory.split_peak(100, parts)] == [60, 24, 16]
    for peak in (101, 50, 61):
        assert sum(part.bytes for part in memory.split_peak(peak, parts)) == peak
    assert [part.name for part in memory.split_peak(70, parts[:1])] == ["params", "temporaries"]


@pytest.mark.parametrize(
    ("share", "exact", "compiled"),
    [(0.59, False, False), (0.61, False, True), (1.99, False, True), (2.01, False, False), (0.1, True, True)],
)
def test_the_formula_answers_far_from_the_limit(share: float, exact: bool, compiled: bool):
    need = total_bytes(estimate(build_task(CONFIG), platform="tpu")["train"])
    asking = estimator(round(need / share), exact=exact)
    train = program(asking.programs(build_task(CONFIG), None), "train")
    assert train.method == ("compiler" if compiled else "closed_form")
    assert train.error_fraction == (0.02 if compiled else FORMULA_ERROR)
    assert sum(part.bytes for part in train.parts) == train.peak_bytes


def test_a_compiler_without_an_answer_leaves_the_formula_with_the_reason():
    need = total_bytes(estimate(build_task(CONFIG), platform="tpu")["train"])
    scripted = Scripted(error="The compiler gave no answer within 1 s")
    train = program(estimator(need, scripted).programs(build_task(CONFIG), None), "train")
    assert train.method == "closed_form"
    assert train.because == "estimated by formula: The compiler gave no answer within 1 s"


def test_the_optimizer_state_is_resident_while_answers_are_generated():
    asked = EvalShape(prompts=8, longest_tokens=32)
    parts = estimate(build_task(CONFIG), platform="tpu", eval_shape=asked)["decode"]
    decode = program(estimator(None).programs(build_task(CONFIG), asked), "decode")
    opt_state = next(part.bytes for part in parts if part.name == "opt_state")
    assert decode.peak_bytes == total_bytes(parts) + opt_state


MEMORY = {"peak_bytes": 400 * MIB, "allocated_bytes": 400 * MIB, "largest": ()}


@pytest.mark.parametrize(
    ("arguments", "aliased", "fraction", "ratio"),
    [(301, 300, 1.0, 1.0), (301, 0, 0.0, 1.0), (301, 100, 1 / 3, 1.0), (106, 105, 0.35, 0.025)],
    ids=["as declared", "nothing donated", "parameters alone", "Adafactor instead of AdamW"],
)
def test_donation_and_optimizer_are_read_from_a_compiled_step(arguments, aliased, fraction, ratio):
    parts = tuple(
        Part(name, size * MIB, "") for name, size in (("params", 100), ("opt_state", 200), ("batch", 1), ("logits", 50))
    )
    compiled = CompiledMemory(**MEMORY, arguments_bytes=arguments * MIB, aliased_bytes=aliased * MIB)
    compiler = Scripted()
    compiler.ask = lambda *_, **__: CompilerAnswer(memory=compiled, peak_bytes=400 * MIB, seconds=1.0)  # type: ignore[method-assign]
    found = estimator(None, compiler).program("train", build_task(CONFIG), None, parts)
    assert (found.aliased_fraction, found.opt_state_ratio) == (pytest.approx(fraction), pytest.approx(ratio))


AUTO = changed(CONFIG, batch={"microbatch_size": 64}, memory={"remat": "auto"})


@pytest.mark.parametrize("kind", ["none", "dots", "layer"])
def test_auto_is_the_first_candidate_that_the_compiler_says_fits(kind: str):
    def need(remat: Any) -> int:
        task = build_task(changed(AUTO, memory={"remat": remat}))
        return total_bytes(estimate(task, platform="tpu")["train"])

    compiler = Scripted(times=1.5)
    found = estimator(round(1.5 * 1.03 * need(kind)), compiler, exact=True).resolve_remat(build_task(AUTO))
    assert found.config.memory.remat == kind
    assert found.declared == AUTO
    assert compiler.asked == ["train"] * min(1 + ("none", "dots", "layer").index(kind), 2), "layer is the last resort"


def test_auto_is_layer_without_a_known_memory_and_never_none_beside_a_quantised_base():
    assert estimator(None).resolve_remat(build_task(AUTO)).config.memory.remat == "layer"
    quantised = changed(AUTO, method={"kind": "lora", "base": "nf4"})
    assert estimator(10**15).resolve_remat(build_task(quantised)).config.memory.remat == "dots"
    declared = changed(AUTO, memory={"remat": "dots"})
    assert estimator(10**15).resolve_remat(build_task(declared)).config == declared


def test_a_cpu_plan_counts_reading_the_weights(tmp_path: Path):
    """SmolLM2-135M: 514 MiB of weights; reading took 1,438 MiB of the process, 450 MiB of which are not the run's."""
    smol = changed(CONFIG, model={"name": "HuggingFaceTB/SmolLM2-135M"}, method={"kind": "lora"})
    task = build_task(smol, "cpu")
    assert task.model.reads_weights
    reading = total_bytes(memory.reading_parts(task))
    assert (450 * MIB + memory.weights_kept_bytes(task) + reading) / MIB == pytest.approx(1438, rel=0.2)
    assert 450 * MIB + memory.weights_kept_bytes(task) + reading > 1438 * MIB
    start = Estimator(platform="cpu", available_bytes=None).programs(task, None)[0]
    assert (start.name, start.peak_bytes >= reading) == ("start", True)
    random = changed(smol, model={"name": llama_folder(tmp_path, layers=1), "weights": "random"})
    assert memory.weights_kept_bytes(build_task(random, "cpu")) == 0


def test_the_worst_verdict_decides_then_the_largest_need():
    programs = estimator(None).programs(build_task(CONFIG), None)
    small, large = sorted(programs, key=lambda each: each.peak_bytes)[:: len(programs) - 1]
    assert memory.deciding(programs) == large
    refused = replace(small, available_bytes=1, error_fraction=0.0)
    assert memory.deciding([*programs, refused]) == refused
