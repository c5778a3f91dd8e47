"""What a task resolves: stacked layers and attention, and the same training either way."""

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import jax
import numpy as np
import pytest
from model_folders import model_folder, row_file
from refusals import catch_problem
from replays import replay_run
from safetensors.numpy import load_file
from tasks import inputs_of, with_settings
from whole_runs import logged, manifest_of, rows

from evidence import layout
from evidence.targets import load_target
from trainer.config.tree import Config, ModelConfig
from trainer.loop.compilation import attention_kind, count_remat_blocks
from trainer.loop.programs import train_program
from trainer.loop.state import initial_state
from trainer.loop.task import Task, build_mesh, choose_attention
from trainer.model.source import resolve
from trainer.model.stacks import is_stack, unstack_layers
from trainer.planning.subject import read_subject
from trainer.replay.recorded import ReplayRequest, replay_config

LAYERS = 7
"""The fewest that `auto` stacks."""


@pytest.fixture(scope="module")
def seven(config, tmp_path_factory) -> Config:
    folder = tmp_path_factory.mktemp("model")
    items = ({"id": f"q{n}", "prompt": f"{n} + 1?", "expected": "2"} for n in range(1, 4))
    return with_settings(
        config,
        model={"name": str(model_folder(folder / "seven", config={"n_layer": LAYERS})), "weights": "random"},
        data={"max_length": 96},
        optimizer={"schedule": "constant", "weight_decay": 0.1},
        batch={"microbatch_size": 2},
        checkpoint={"save_every_steps": 2, "keep": 9},
        evaluation={"eval_set": row_file(folder / "items.jsonl", *items), "max_new_tokens": 3},
        limits={"steps": 4},
    )


def steps_done(config: Config, steps: int = 2) -> tuple[list[float], dict[str, np.ndarray]]:
    """Return the losses of some steps, and the trained parameters after them as single layers."""
    task, data = inputs_of(config)
    [state], frozen = initial_state(task)
    step, losses = train_program(task).compile(), []
    for number in range(steps):
        state, metrics = step.call(state, frozen, jax.device_put(data.source.batch(number)))
        losses.append(float(metrics.loss))
    return losses, {name: np.asarray(value, np.float32) for name, value in unstack_layers(state.trained).items()}


METHODS = {
    "full, accumulated": ({"batch": {"accumulation_steps": 2}}, 1e-5),
    "adapters that drop inputs": ({"method": {"kind": "lora", "rank": 2, "dropout": 0.2}}, 1e-5),
    "preferences": ({"objective": {"kind": "dpo"}}, 1e-5),
    # Each layer of a stack is rounded by other random bits than by itself.
    "half precision": ({"precision": {"params": "bfloat16", "compute": "bfloat16"}}, 0.02),
    "a scaled loss": ({"precision": {"compute": "float16"}}, 2e-3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_stacked_step_equals_an_unrolled_one(name, seven, tmp_path):
    changes, close = METHODS[name]
    config = with_settings(seven, **changes)
    if config.objective.kind == "dpo":
        pairs = ({"prompt": f"{n} + 1?", "chosen": str(n + 1), "rejected": "no"} for n in range(8))
        config = with_settings(config, data={"dataset": row_file(tmp_path / "pairs.jsonl", *pairs)})
    (losses, params), (again, stacks) = (
        steps_done(with_settings(config, memory={"layers": each})) for each in ("unrolled", "scanned")
    )
    assert again == pytest.approx(losses, rel=close)
    assert set(stacks) == set(params)
    if close < 1e-4:
        # Adam's first steps go by the sign of a gradient, which rounding may turn where it is near 0.
        off = {key: (np.abs(stacks[key] - value) > 1e-4).mean() for key, value in params.items()}
        assert max(off.values()) < 0.01, off


def test_auto_stacks_seven_layers_on_one_cpu_but_not_six_sharded_or_adafactor(seven, tmp_path):
    assert inputs_of(seven)[0].is_scanned
    six = str(model_folder(tmp_path / "six", config={"n_layer": 6}))
    fewer = with_settings(seven, model={"name": six})
    divided = with_settings(seven, mesh={"devices": 2})
    factored = with_settings(seven, optimizer={"name": "adafactor"})
    assert not any(inputs_of(each)[0].is_scanned for each in (fewer, divided, factored))
    both = with_settings(divided, optimizer={"name": "adafactor"}, memory={"layers": "scanned"})
    problem = catch_problem(inputs_of, both)
    assert problem.code == "TP706"
    assert problem.what == "memory.layers is scanned and 2 devices share the work and optimizer.name is adafactor."


@pytest.mark.parametrize("remat", ["layer", "none"])
def test_rematerialisation_inside_a_loop_is_read_back(remat, seven):
    task, _ = inputs_of(with_settings(seven, memory={"remat": remat}))
    program = train_program(task)
    jaxpr = program.function.trace(*program.arguments).jaxpr
    assert (count_remat_blocks(jaxpr) > task.objective.rematerialised_blocks) == (remat == "layer")


@pytest.fixture
def run(seven, finished) -> Path:
    return finished(seven)


@pytest.mark.slow
def test_a_continued_run_ends_in_the_same_bits(run, seven, train):
    names = load_file(run / layout.TRAINED_PARAMS)
    assert f"layers.{LAYERS - 1}.mlp.up.kernel" in names
    assert not any(map(is_stack, names)), "files have layers apart"
    first = train(with_settings(seven, limits={"steps": 2}, evaluation={"eval_set": None}), "first")
    second = train(seven, "second", resume=first)
    assert rows(second, layout.CHAIN)[-1]["state_sha256"] == rows(run, layout.CHAIN)[-1]["state_sha256"]
    assert logged(second, "continued")[0]["level"] == "info"
    third = train(with_settings(seven, memory={"layers": "unrolled"}), "third", resume=first)
    [said] = logged(third, "continued")
    assert said["message"].endswith('changed settings: memory.layers "auto" → "unrolled"')
    assert rows(third)[-1]["loss"] == pytest.approx(rows(run)[-1]["loss"], rel=1e-4)


@pytest.mark.slow
def test_a_replay_has_the_layers_of_the_run(run, tmp_path):
    other = shutil.copytree(run, tmp_path / "other")
    manifest = manifest_of(other)
    manifest["training"]["layers"] = manifest["effective"]["memory"]["layers"] = "unrolled"
    (other / layout.MANIFEST).write_text(json.dumps(manifest))
    assert [replay_run(folder, whole=True)[0]["result"] for folder in (run, other)] == ["identical", "different"]


def with_attention(attention: str = "auto", *, layers: str = "auto", length: int = 64, **groups) -> Config:
    memory, config = {"attention": attention, "layers": layers}, Config(model=ModelConfig(name="tiny-gpt2"))
    return with_settings(config, data={"max_length": length}, memory=memory, **groups)


def test_auto_takes_what_the_device_has_from_a_length_on():
    def chosen(platform: str | None) -> list[str]:
        return [choose_attention(with_attention(length=each), platform=platform) for each in (1023, 1024, 2047, 2048)]

    assert chosen("tpu") == ["plain", "splash", "splash", "splash"]
    assert chosen("gpu") == ["plain", "plain", "plain", "blockwise"]
    assert chosen("cpu") == chosen(None) == ["plain"] * 4
    assert choose_attention(with_attention(length=4096, layers="scanned"), platform="tpu") == "blockwise"
    assert choose_attention(with_attention("blockwise"), platform="cpu") == "blockwise"
    assert choose_attention(with_attention("blockwise"), platform=None) == "plain", "answers are made with a cache"


def test_splash_is_refused_where_it_does_not_work():
    config = with_attention("splash", layers="scanned", precision={"compute": "float16"})
    problem = catch_problem(read_subject, config, load_target("t4"))
    assert (problem.code, problem.pointer) == ("TP707", "/memory/attention")
    reasons = ("the device is a GPU", "precision.compute is float16", "memory.layers is scanned")
    assert all(f" and {reason}" in problem.what for reason in reasons)


@pytest.mark.parametrize(("kind", "platform"), [("plain", "cpu"), ("blockwise", "cpu"), ("splash", "tpu")])
def test_the_traced_step_shows_which_it_is(kind, platform):
    task = Task.of(with_attention(kind), resolve("tiny-gpt2"), build_mesh(jax.devices("cpu")[:1]), platform=platform)
    program = train_program(task)
    assert attention_kind(program.function.trace(*program.arguments).jaxpr) == kind == task.attention
    assert task.changed(with_attention("plain")).attention == "plain"


def test_a_replay_attends_as_the_run_did_and_earlier_runs_were_plain(tmp_path):
    def repeated(memory: dict[str, str]) -> str:
        manifest = {"effective": {"memory": memory}, "devices": {"count": 1}}
        run = SimpleNamespace(manifest=manifest, config=with_attention())
        return replay_config(run, ReplayRequest(folder=tmp_path)).memory.attention

    assert (repeated({}), repeated({"attention": "blockwise"})) == ("plain", "blockwise")
