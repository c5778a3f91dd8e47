"""The plan of a run from the programs that it calls, compiled once; and the model of a smoke run."""

import json
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import jax
import pytest
from commands import train_request
from configs import changed
from jax import monitoring
from model_folders import model_folder, row_file
from refusals import catch_problems
from tasks import inputs_of
from whole_runs import carried_out, errors_of, manifest_of, refusal

from evidence import layout
from evidence.compare.smoke import find_lineage, find_smoke_runs, run_stages
from evidence.grade import check_run
from evidence.index.summary import summarize
from evidence.registry import known_model_folder, published_models
from evidence.run import read_run
from evidence.targets import load_target
from schemas.validate import check_value
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.generate.decode import GroupPrograms
from trainer.loop.compilation import Program
from trainer.loop.programs import compiled_run
from trainer.model.families import spec_from_config
from trainer.model.source import describe_shrinking, known_source, shrink
from trainer.planning.memory import Estimator
from trainer.planning.plan import PlanOptions, compiled_plan, plan_config
from trainer.planning.subject import resolve_shape
from trainer.replay.recorded import ReplayRequest, read_recorded, replay_config
from trainer.runtime import Devices, choose_devices, this_machine

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
def test_each_program_is_compiled_once_and_planned_from(config, train, compiled):
    folder = train(changed(config, evaluation={"eval_set": "eval_v1"}))
    ours = ("draw", "start", "train_step", "decode")
    assert {name: compiled[f"jit({name})"] for name in ours} == dict.fromkeys(ours, 1)
    plan = plan_of_run(folder)
    methods = {each["name"]: each["method"] for each in plan["programs"]}
    estimated = dict.fromkeys(("save", "export"), "closed_form")
    assert methods == dict.fromkeys(("start", "train", "decode"), "compiler") | estimated
    assert plan["method"] == "compiler"
    # The process grew by more than the arrays of its largest program, and not by what another test had taken before.
    observed = manifest_of(folder)["result"]["observed_memory"]
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
    devices, rewarded, train, compiled, monkeypatch
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
    folder = train(changed(rewarded, mesh={"devices": devices}))
    assert {name: found[0][f"jit({name})"] for name in ROLLOUT} == ROLLOUT
    assert found[1] == found[3] == {f"jit({name})": count for name, count in ROLLOUT.items()}
    plan = plan_of_run(folder)
    [planned] = [each for each in plan["programs"] if each["name"] == "rollout"]
    assert planned["method"] == "compiler"
    assert {"opt_state", "key_value_cache"} <= {part["name"] for part in planned["parts"]}
    observed = manifest_of(folder)["result"]["observed_memory"]["parts"]
    assert [each["name"] for each in observed] == ["prepare", "start", "rollout", "train", "save"]


def test_what_is_far_too_large_is_refused_without_a_compiler(config, order_of, compiled, monkeypatch):
    on_memory(monkeypatch, 2**20)
    order = order_of(changed(config, memory={"remat": "none"}))
    code, text = refusal(order)
    assert not order.folder.exists()
    assert (code, sum(compiled.values())) == (3, 0)
    assert re.match(
        r"error TP710: tiny-gpt2: The run needs about .* on each device, but cpu has 1.0 MiB \(test\)", text
    )


@pytest.mark.slow
def test_a_compiled_run_that_does_not_fit_is_refused_before_its_weights_are_read(
    config, order_of, train, compiled, monkeypatch
):
    config = changed(config, memory={"remat": "none"})
    on_memory(monkeypatch, int(14.0 * 2**20))
    monkeypatch.setattr("trainer.run.initial_state", lambda *_: pytest.fail("weights were read"))
    code, text = refusal(order_of(config))
    assert (code, compiled["jit(train_step)"]) == (3, 1)
    assert "The run needs about 14.3 MiB on each device, but cpu has 14.0 MiB" in text
    monkeypatch.undo()
    on_memory(monkeypatch, int(15.4 * 2**20))
    plan = plan_of_run(train(config))
    assert (plan["verdict"], plan["method"]) == ("fits", "compiler")


@pytest.mark.slow
def test_what_is_forced_runs_and_says_so(config, train, monkeypatch):
    on_memory(monkeypatch, 2**20)
    folder = train(config, forced=True)
    plan = plan_of_run(folder)
    assert (plan["verdict"], plan["forced"], plan["method"]) == ("does_not_fit", True, "compiler")
    assert manifest_of(folder)["training"]["forced"] is True


@pytest.mark.parametrize(
    ("said", "code", "text"),
    [
        (TOO_LARGE, 3, "The run needs about 28.12 GiB on each device, but cpu has 15.75 GiB"),
        ("INTERNAL: Mosaic failed", 4, "TP711: tiny-gpt2: The compiler for cpu refused the run: INTERNAL: Mosaic"),
        ("RESOURCE_EXHAUSTED: no more tracks", 3, "The compiler for cpu found too little memory"),
    ],
)
@pytest.mark.parametrize("forced", [False, True])
def test_a_run_that_the_compiler_refuses_is_refused_even_if_forced(
    said, code, text, forced, config, order_of, monkeypatch
):
    """The first message is a TPU's; a CPU's compiler never says so."""
    monkeypatch.setattr(Program, "compile", Mock(side_effect=jax.errors.JaxRuntimeError(said)))
    order = order_of(config, forced=forced)
    found, words = refusal(order)
    assert (found, order.folder.exists()) == (code, False)
    assert text in words
    assert "--force" not in words


def test_a_backend_that_reports_no_memory_is_planned_by_formula(config):
    task, data = inputs_of(config)
    programs = compiled_run(task, data.source.lengths_in_use, eval_shape=None, resumed=True)
    silent = replace(programs.steps.longest, executable=SimpleNamespace(memory_analysis=lambda: None))
    compiled = {**programs.by_name, "train": (silent,)}
    estimator = Estimator(platform="cpu", available_bytes=None, compiled=compiled)
    found = {each.name: each for each in estimator.programs(task, None)}
    assert found["train"].method == "closed_form"
    assert found["train"].because.endswith("the device's compiler does not report the memory of a program")
    assert found["start"].because.endswith("the state comes from a checkpoint")


@pytest.mark.slow(but=("method0",))
@pytest.mark.parametrize("method", [{}, {"kind": "lora"}, {"kind": "lora", "base": "nf4"}])
def test_a_plan_for_this_machine_is_that_of_the_run(method, config, monkeypatch, tmp_path):
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
    again = plan_config(replace(buckets, name="another"), this_machine(buckets), options)
    assert [each["seconds"] for each in again["programs"]] == [each["seconds"] for each in planned["programs"]]


@pytest.mark.slow
def test_a_run_records_what_became_of_auto_remat_and_is_repeated_so(config, train):
    folder = train(changed(config, memory={"remat": "auto"}))
    assert manifest_of(folder)["training"]["remat"] == "none"
    assert replay_config(read_recorded(folder), ReplayRequest(folder=folder)).memory.remat == "none"


@pytest.mark.slow
def test_auto_remat_takes_the_first_candidate_whose_compiled_step_fits(config):
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


LARGE = """
name: gemma
model: {{name: {model}}}
data: {{dataset: dev-reasoning-v2, generated_rows: 5000, max_length: 128, packing: true}}
optimizer: {{name: adafactor, learning_rate: 1.0e-4}}
batch: {{microbatch_size: 256}}
precision: {{params: bfloat16, compute: bfloat16}}
mesh: {{device: tpu}}
evaluation: {{eval_set: eval_v1}}
limits: {{steps: 200}}
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one for a TPU of a model of Gemma-2B's shape: a tokenizer is here, weights are not."""
    folder = tmp_path_factory.mktemp("gemma")
    model = model_folder(folder / "model")
    described = json.loads((known_model_folder("google/gemma-2b") / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(described | {"vocab_size": 2048}))
    (folder / "config.yaml").write_text(LARGE.format(model=model))
    return folder / "config.yaml"


@pytest.mark.slow
def test_a_smoke_run_of_a_model_too_large_for_here_passes_every_stage_and_pairs_with_it(large: Path, tmp_path: Path):
    assert carried_out(train_request(config=large, smoke_steps=2, output=tmp_path / "smoke")) == 0
    smoke = read_run(tmp_path / "smoke")
    stages = run_stages(smoke)
    assert {stage.name: stage.state for stage in stages if stage.state != "passed"} == {"resume": "not exercised"}
    model = smoke.manifest["model"]
    assert (model["family"], model["weights"], model["dtypes"]["compute"]) == ("gemma", "random", "bfloat16")
    made = {each["size"]: (each["own"], each["made"]) for each in model["made_small"]}
    assert made == {"layers": (18, 2), "embed": (2048, 128), "mlp": (16384, 1024)}
    assert errors_of(smoke.path) == []
    ours = summarize(smoke, check_run(smoke))
    # What the smoke run replaced, as a full run of the configuration states it.
    stated = ("data.generated_rows", "batch.microbatch_size", "mesh.device", "limits.steps")
    settings = ours.settings | {name: attrgetter(name)(load_config(large)) for name in stated} | {"model.shape": "own"}
    full = replace(ours, mode="full", steps_planned=200, settings=settings)
    assert find_lineage(ours, full) == "same but for size"
    assert find_smoke_runs(full, [ours]) == [ours]


def test_a_quick_model_is_rehearsed_itself(tmp_path: Path):
    config = train_request(config=Path("trainer/configs/demo.yaml"), smoke_steps=2, output=tmp_path / "s").config
    own = load_config(Path("trainer/configs/demo.yaml"))
    assert (config.model, config.batch, config.data) == (own.model, own.batch, own.data)


def test_on_the_machine_that_it_is_for_a_large_model_is_rehearsed_itself(large: Path):
    catch_problems(train_request, config=large, smoke_steps=2, device="tpu", exit_code=3)  # no such machine here
    config = load_config(large, settings=["model.shape=auto", "limits.steps=2"])
    assert resolve_shape(config, load_target("kaggle-tpu-v5e-8")).model.shape == "own"
    assert resolve_shape(config, load_target("kaggle-t4x2")).model.shape != "auto"


@pytest.mark.parametrize("name", [name for name in published_models() if "gpt2" not in name])
def test_what_is_made_small_keeps_its_kind(name: str):
    source = known_source(name)
    own, small = source.spec, shrink(source).spec
    kept = ("family", "vocab", "head_dim", "norm", "activation", "tied_head", "attention_bias", "max_positions")
    assert [getattr(small, field) for field in kept] == [getattr(own, field) for field in kept]
    assert set(small.blocks) == set(own.blocks)
    assert small.heads / small.kv_heads == own.heads / own.kv_heads
    assert (small.embed // small.heads, small.layers < own.layers) == (128 // small.heads, True)
    assert shrink(shrink(source)) == shrink(source)


def test_a_gpt2_made_small_is_as_wide_as_its_heads():
    small = shrink(known_source("openai-community/gpt2"))
    assert (small.spec.embed, small.spec.heads, small.spec.head_dim, small.spec.layers) == (128, 2, 64, 2)
    assert small.spec == spec_from_config(small.config)
    assert {each["size"]: each["made"] for each in describe_shrinking(small)}["mlp"] == 512
