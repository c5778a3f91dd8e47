"""The plan of a run from the programs that it calls: compiled once, before a weight is read or a folder claimed."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
from configs import changed
from jax import monitoring
from model_folders import row_file
from tasks import inputs_of
from whole_runs import carried_out, errors_of, manifest_of, refusal

from evidence import layout
from schemas.validate import check_value
from trainer.config.tree import Config, MethodConfig
from trainer.generate.decode import GroupPrograms
from trainer.loop.compilation import Program
from trainer.loop.programs import compiled_run
from trainer.planning.memory import Estimator
from trainer.planning.plan import PlanOptions, compiled_plan, plan_config
from trainer.replay.recorded import ReplayRequest, read_recorded, replay_config
from trainer.run import RunRequest
from trainer.runtime import Devices, choose_devices, this_machine

Order = Callable[..., RunRequest]
COMPILED = "/jax/core/compile/backend_compile_duration"
TOO_LARGE = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. Used 28.12G of "
    "15.75G hbm. Exceeded hbm capacity by 12.37G."
)


@pytest.fixture
def compiled() -> Iterator[Counter]:
    """Count compilations by the names of functions."""
    jax.clear_caches()  # Another test of this process may have compiled the same.
    names: Counter[str] = Counter()

    def listen(event: str, seconds: float, **fields) -> None:
        if event == COMPILED:
            names[str(fields.get("fun_name"))] += 1

    monitoring.register_event_duration_secs_listener(listen)
    yield names
    monitoring.unregister_event_duration_listener(listen)


def plan_of_run(folder: Path) -> dict[str, Any]:
    plan = json.loads((folder / layout.PLAN).read_text())
    assert check_value("plan", plan, file="plan.json") == []
    return plan


def on_memory(monkeypatch, memory_bytes: int) -> None:
    """Let the devices of runs have so much memory each."""

    def smaller(requested: str, count: int | None) -> Devices:
        return replace(choose_devices(requested, count), memory_bytes=memory_bytes, memory_source="test")

    monkeypatch.setattr("trainer.run.choose_devices", smaller)


@pytest.mark.slow
def test_each_program_is_compiled_once_and_planned_from(config: Config, order_of: Order, compiled: Counter):
    order = order_of(changed(config, evaluation={"eval_set": "eval_v1"}))
    assert carried_out(order) == 0
    ours = ("draw", "start", "train_step", "decode")
    assert {name: compiled[f"jit({name})"] for name in ours} == dict.fromkeys(ours, 1)
    plan = plan_of_run(order.folder)
    methods = {each["name"]: each["method"] for each in plan["programs"]}
    assert methods == dict.fromkeys(("start", "train", "decode"), "compiler") | dict.fromkeys(
        ("save", "export"), "closed_form"
    )
    assert plan["method"] == "compiler"
    # The process grew by more than the arrays of its largest program, and not by what another test had taken before.
    observed = manifest_of(order.folder)["result"]["observed_memory"]
    assert observed["source"] == "process_growth"
    assert [each["name"] for each in observed["parts"]] == ["prepare", "start", "decode", "train", "save"]
    assert observed["bytes"] == max(each["bytes"] for each in observed["parts"])


ROLLOUT = {"first_tokens": 1, "further_tokens": 2, "take_rows": 1}


@pytest.fixture
def rewarded(config: Config, tmp_path: Path) -> Config:
    """Two steps of groups of four, each with prompts that end in one of two ways and are continued greedily."""
    rows = [{"prompt": f"What is {n}{'?!'[n % 2]}", "completion": f"It is {n}."} for n in range(8)]
    objective = {"kind": "grpo", "rewards": "exact", "group_size": 4, "max_completion_tokens": 8, "top_k": 1}
    data = {"dataset": row_file(tmp_path / "prompts.jsonl", *rows), "max_length": 48, "shuffle": False}
    return changed(config, data=data, objective=objective, batch={"microbatch_size": 8})


@pytest.mark.slow
@pytest.mark.parametrize("devices", [1, 2])
def test_what_draws_completions_is_compiled_before_the_first_step_and_planned_from(
    devices: int, rewarded: Config, order_of: Order, compiled: Counter, monkeypatch
):
    """The roll-outs of the run find the programs that the plan was made from, of half the rows too."""
    found, draw = [], GroupPrograms.draw

    def twice(self: GroupPrograms, *given: Any, **named: Any) -> Any:
        found.append(+compiled)
        first = draw(self, *given, **named)[0].written.tokens[0]
        halved = draw(replace(self, stop_token_id=first), *given, **named)
        found.append({name: count for name, count in compiled.items() if name.removeprefix("jit(")[:-1] in ROLLOUT})
        assert len({len(each.written.tokens) for each in halved}) == 2, "else half the rows never went on"
        return draw(self, *given, **named)

    monkeypatch.setattr(GroupPrograms, "draw", twice)
    monkeypatch.setattr("trainer.generate.decode.CHUNK_TOKENS", 2)
    order = order_of(changed(rewarded, mesh={"devices": devices}))
    assert carried_out(order) == 0
    assert {name: found[0][f"jit({name})"] for name in ROLLOUT} == ROLLOUT
    assert found[1] == found[3] == {f"jit({name})": count for name, count in ROLLOUT.items()}
    plan = plan_of_run(order.folder)
    [planned] = [each for each in plan["programs"] if each["name"] == "rollout"]
    assert planned["method"] == "compiler"
    assert {"opt_state", "key_value_cache"} <= {part["name"] for part in planned["parts"]}
    observed = manifest_of(order.folder)["result"]["observed_memory"]["parts"]
    assert [each["name"] for each in observed] == ["prepare", "start", "rollout", "train", "save"]


def test_what_is_far_too_large_is_refused_without_a_compiler(
    config: Config, order_of: Order, compiled: Counter, monkeypatch
):
    on_memory(monkeypatch, 2**20)
    order = order_of(changed(config, memory={"remat": "none"}))
    code, text = refusal(order)
    assert not order.folder.exists()
    assert (code, sum(compiled.values())) == (3, 0)
    assert "error TP710: tiny-gpt2: The run needs about" in text
    assert "on each device, but cpu has 1.0 MiB (test)" in text


@pytest.mark.slow
def test_a_compiled_run_that_does_not_fit_is_refused_before_its_weights_are_read(
    config: Config, order_of: Order, compiled: Counter, monkeypatch
):
    config = changed(config, memory={"remat": "none"})
    on_memory(monkeypatch, int(14.0 * 2**20))
    monkeypatch.setattr("trainer.run.initial_state", lambda *_: pytest.fail("weights were read"))
    code, text = refusal(order_of(config))
    assert (code, compiled["jit(train_step)"]) == (3, 1)
    assert "The run needs about 14.3 MiB on each device, but cpu has 14.0 MiB" in text
    monkeypatch.undo()
    on_memory(monkeypatch, int(15.4 * 2**20))
    order = order_of(config)
    assert carried_out(order) == 0
    plan = plan_of_run(order.folder)
    assert (plan["verdict"], plan["method"]) == ("fits", "compiler")


@pytest.mark.slow
def test_what_is_forced_runs_and_says_so(config: Config, order_of: Order, monkeypatch):
    on_memory(monkeypatch, 2**20)
    order = order_of(config, forced=True)
    assert carried_out(order) == 0
    plan = plan_of_run(order.folder)
    assert (plan["verdict"], plan["forced"], plan["method"]) == ("does_not_fit", True, "compiler")
    assert manifest_of(order.folder)["training"]["forced"] is True


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        (TOO_LARGE, 3, "The run needs about 28.12 GiB on each device, but cpu has 15.75 GiB"),
        (
            "INTERNAL: Mosaic failed",
            4,
            "error TP711: tiny-gpt2: The compiler for cpu refused the run: INTERNAL: Mosaic",
        ),
        ("RESOURCE_EXHAUSTED: no more tracks", 3, "The compiler for cpu found too little memory"),
    ],
)
@pytest.mark.parametrize("forced", [False, True])
def test_a_run_that_the_compiler_refuses_is_refused_even_if_forced(
    said: str, code: int, text: str, forced: bool, config: Config, order_of: Order, monkeypatch
):
    """The first message is a TPU's; a CPU's compiler never says so."""

    def refuse(self: Program) -> None:
        raise jax.errors.JaxRuntimeError(said)

    monkeypatch.setattr(Program, "compile", refuse)
    order = order_of(config, forced=forced)
    found, words = refusal(order)
    assert (found, order.folder.exists()) == (code, False)
    assert text in words
    assert "--force" not in words


def test_a_backend_that_reports_no_memory_is_planned_by_formula(config: Config):
    task, data = inputs_of(config)
    programs = compiled_run(task, data.source.lengths_in_use, eval_shape=None, resumed=True)
    silent = replace(programs.steps.longest, executable=Silent())
    compiled = {**programs.by_name, "train": (silent,)}
    estimator = Estimator(platform="cpu", available_bytes=None, compiled=compiled)
    found = {each.name: each for each in estimator.programs(task, None)}
    assert found["train"].method == "closed_form"
    assert found["train"].because.endswith("the device's compiler does not report the memory of a program")
    assert found["start"].because.endswith("the state comes from a checkpoint")


class Silent:
    """An executable of a backend without memory analysis."""

    def memory_analysis(self) -> None:
        return None


@pytest.mark.slow(but=("method0",))
@pytest.mark.parametrize("method", [MethodConfig(), MethodConfig(kind="lora"), MethodConfig(kind="lora", base="nf4")])
def test_a_plan_for_this_machine_is_that_of_the_run(method: MethodConfig, config: Config, monkeypatch, tmp_path: Path):
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path))
    evaluation = {"eval_set": "eval_v1", "batch_size": 2}
    buckets = changed(config, method=method, evaluation=evaluation, data={"max_length": 256, "buckets": 2})
    task, data = inputs_of(buckets)
    assert data.source.lengths_in_use == (128,), "else another step is planned"
    _, _, of_run = compiled_plan(task, data, choose_devices("cpu", 1), forced=False, resumed=False, say=print)
    options = PlanOptions(advice=False, exact=True)
    planned = plan_config(buckets, this_machine(buckets), options)
    for ours, theirs in zip(planned["programs"], of_run["programs"], strict=True):
        assert (ours["name"], ours["method"]) == (theirs["name"], theirs["method"])
        # The reports and the executable count a program's constants differently: some kilobytes.
        assert ours["peak_bytes"] == pytest.approx(theirs["peak_bytes"], abs=4096)
    assert planned["method"] == "compiler"
    # Answers are cached by the lowered program: nothing is compiled again.
    began = time.perf_counter()
    again = plan_config(replace(buckets, name="another"), this_machine(buckets), options)
    assert [each["seconds"] for each in again["programs"]] == [each["seconds"] for each in planned["programs"]]
    assert time.perf_counter() - began < 60


@pytest.mark.slow
def test_a_run_records_what_became_of_auto_remat_and_is_repeated_so(config: Config, order_of: Order):
    order = order_of(changed(config, memory={"remat": "auto"}))
    assert carried_out(order) == 0
    assert manifest_of(order.folder)["training"]["remat"] == "none"
    assert errors_of(order.folder) == []
    assert replay_config(read_recorded(order.folder), ReplayRequest(folder=order.folder)).memory.remat == "none"


@pytest.mark.slow
def test_auto_remat_takes_the_first_candidate_whose_compiled_step_fits(config: Config):
    auto = changed(config, memory={"remat": "auto", "layers": "scanned"}, batch={"microbatch_size": 32})
    task, data = inputs_of(auto)

    def planned(memory_bytes: int) -> tuple[str, int]:
        devices = replace(choose_devices("cpu", 1), memory_bytes=memory_bytes)
        found, _, plan = compiled_plan(task, data, devices, forced=True, resumed=False, say=print)
        assert found.declared == auto
        train = next(each for each in plan["programs"] if each["name"] == "train")
        return found.config.memory.remat, train["peak_bytes"]

    remat, need = planned(2**40)
    assert remat == "none"
    smaller, less = planned(int(0.95 * need))
    assert smaller in ("dots", "layer")
    assert less < need
