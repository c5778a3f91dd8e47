"""Runs whose equal layers are stacked: the same training as with layers apart, and nothing else on the disk."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file
from tasks import inputs_of
from whole_runs import carried_out, errors_of, logged, manifest_of, rows

from evidence import layout
from schemas.problems import ProblemError
from trainer.config.tree import (
    BatchConfig,
    CheckpointConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MemoryConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    ObjectiveConfig,
    OptimizerConfig,
    PrecisionConfig,
)
from trainer.loop.effective import rematerialised_blocks
from trainer.loop.programs import train_program
from trainer.loop.state import initial_state
from trainer.model.source import resolve
from trainer.model.stacks import is_stack, unstack_layers
from trainer.planning.formula import estimate, total_bytes
from trainer.replay.replay import ReplayRequest, replay

LAYERS = 7
"""The fewest that `auto` stacks."""


def model_folder(folder: Path, **other: Any) -> Path:
    """Make a model of seven equal layers, or one that is otherwise, to be drawn."""
    source = resolve("tiny-gpt2")
    shutil.copytree(source.tokenizer_folder, folder)
    described = json.loads((source.folder / "config.json").read_text()) | {"n_layer": LAYERS} | other
    (folder / "config.json").write_text(json.dumps(described))
    return folder


@pytest.fixture(scope="module")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Config:
    folder = model_folder(tmp_path_factory.mktemp("model") / "seven")
    pairs = [{"prompt": f"{n} + 1?", "chosen": str(n + 1), "rejected": "no"} for n in range(8)]
    (folder.parent / PAIRS).write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    items = folder.parent / "items.jsonl"
    items.write_text("".join(json.dumps({"id": f"q{n}", "prompt": f"{n} + 1?", "expected": "2"}) + "\n" for n in "123"))
    return Config(
        name="seven",
        model=ModelConfig(name=str(folder), weights="random"),
        data=DataConfig(max_length=96),
        optimizer=OptimizerConfig(learning_rate=1e-2, schedule="constant", weight_decay=0.1),
        batch=BatchConfig(microbatch_size=2),
        mesh=MeshConfig(device="cpu", devices=1),
        checkpoint=CheckpointConfig(save_every_steps=2, keep=9),
        evaluation=EvaluationConfig(eval_set=str(items), max_new_tokens=3),
        limits=LimitsConfig(steps=4),
    )


def laid(config: Config, layers: str) -> Config:
    return replace(config, memory=replace(config.memory, layers=layers))


def steps_done(config: Config, steps: int = 2) -> tuple[list[float], dict[str, np.ndarray]]:
    """Return the losses of some steps, and the trained parameters after them with layers apart."""
    task, data = inputs_of(config)
    states, frozen = initial_state(task)
    state, step, losses = states.pop(), train_program(task).compile(), []
    for number in range(steps):
        state, metrics = step.call(state, frozen, jax.device_put(data.source.batch(number)))
        losses.append(float(metrics.loss))
    return losses, {name: np.asarray(value, np.float32) for name, value in unstack_layers(state.trained).items()}


PAIRS = "pairs.jsonl"
LORA = {"method": MethodConfig(kind="lora", rank=2, dropout=0.2)}
HALF = PrecisionConfig(params="bfloat16", compute="bfloat16")
METHODS = {
    "full, accumulated": ({"batch": BatchConfig(microbatch_size=2, accumulation_steps=2)}, 1e-5),
    "adapters that drop inputs": (LORA, 1e-5),
    "preferences": (
        {"objective": ObjectiveConfig(kind="dpo"), "data": DataConfig(dataset=PAIRS, max_length=96)},
        1e-5,
    ),
    # Each layer of a stack is rounded by other random bits than by itself.
    "half precision": ({"precision": HALF}, 0.02),
    "a scaled loss": ({"precision": PrecisionConfig(compute="float16")}, 2e-3),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_a_stacked_step_does_what_a_step_with_layers_apart_does(name: str, seven: Config):
    changes, close = METHODS[name]
    config = replace(seven, **changes)
    if config.data.dataset == PAIRS:
        config = replace(config, data=replace(config.data, dataset=str(Path(config.model.name).parent / PAIRS)))
    (losses, params), (again, stacks) = (steps_done(laid(config, each)) for each in ("unrolled", "scanned"))
    assert again == pytest.approx(losses, rel=close)
    assert set(stacks) == set(params)
    if close < 1e-4:
        # Adam's first steps go by the sign of a gradient, which rounding may turn where it is near 0.
        off = {key: (np.abs(stacks[key] - value) > 1e-4).mean() for key, value in params.items()}
        assert max(off.values()) < 0.01, off


def test_auto_stacks_seven_layers_on_one_cpu_and_leaves_six_divided_ones_and_adafactor(seven: Config, tmp_path: Path):
    assert inputs_of(seven)[0].is_scanned
    fewer = replace(seven, model=replace(seven.model, name=str(model_folder(tmp_path / "six", n_layer=6))))
    divided = replace(seven, mesh=MeshConfig(device="cpu", devices=2))
    factored = replace(seven, optimizer=OptimizerConfig(name="adafactor"))
    assert not any(inputs_of(each)[0].is_scanned for each in (fewer, divided, factored))
    both = laid(replace(divided, optimizer=OptimizerConfig(name="adafactor")), "scanned")
    with pytest.raises(ProblemError) as refused:
        inputs_of(both)
    [problem] = refused.value.problems
    assert (problem.code, refused.value.exit_code) == ("TP706", 2)
    assert problem.what == "memory.layers is scanned and 2 devices share the work and optimizer.name is adafactor."
    assert problem.next == "Set memory.layers to auto, which unrolls the layers in this case."


@pytest.mark.parametrize("remat", ["layer", "none"])
def test_rematerialisation_inside_a_loop_is_read_back(remat: str, seven: Config):
    task, _ = inputs_of(replace(seven, memory=MemoryConfig(remat=remat)))
    program = train_program(task)
    jaxpr = program.function.trace(*program.arguments).jaxpr
    assert (rematerialised_blocks(jaxpr) > task.objective.rematerialised_blocks) == (remat == "layer")


@pytest.fixture(scope="module")
def run(seven: Config, tmp_path_factory: pytest.TempPathFactory) -> Path:
    from trainer.run import RunRequest

    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert carried_out(RunRequest(config=seven, folder=folder, command=["trainproof", "train"])) == 0
    return folder


@pytest.mark.slow
def test_what_was_used_is_stated_and_files_have_layers_apart(run: Path):
    manifest = manifest_of(run)
    assert manifest["training"]["layers"] == manifest["effective"]["memory"]["layers"] == "scanned"
    assert errors_of(run) == []
    names = load_file(run / layout.TRAINED_PARAMS)
    assert not any(map(is_stack, names))
    assert f"layers.{LAYERS - 1}.mlp.up.kernel" in names
    hashed = {entry["params_sha256"] for entry in rows(run, layout.CHAIN) if entry.get("params_sha256")}
    assert manifest["model"]["weights_sha256"] in hashed


@pytest.mark.slow
def test_a_continued_run_ends_in_the_same_bits(run: Path, seven: Config, order_of):
    first = order_of(replace(seven, limits=LimitsConfig(steps=2), evaluation=EvaluationConfig()), "first")
    assert carried_out(first) == 0
    second = order_of(seven, "second", resume=first.folder)
    assert carried_out(second) == 0
    assert rows(second.folder, layout.CHAIN)[-1]["state_sha256"] == rows(run, layout.CHAIN)[-1]["state_sha256"]
    assert logged(second.folder, "continued")[0]["level"] == "info"
    third = order_of(laid(seven, "unrolled"), "third", resume=first.folder)
    assert carried_out(third) == 0
    [told] = logged(third.folder, "continued")
    assert told["message"].endswith('computed otherwise: memory.layers was "auto", is "unrolled"')
    assert rows(third.folder)[-1]["loss"] == pytest.approx(rows(run)[-1]["loss"], rel=1e-4)


@pytest.mark.slow
def test_a_repetition_has_layers_as_they_lay(run: Path, tmp_path: Path):
    receipt, code = replay(ReplayRequest(folder=run, whole=True), lambda line: None, lambda event: None)
    assert (receipt["result"], code) == ("identical", 0)
    said = json.loads((run / layout.MANIFEST).read_text())
    other = shutil.copytree(run, tmp_path / "other")
    said["training"]["layers"] = said["effective"]["memory"]["layers"] = "unrolled"
    (other / layout.MANIFEST).write_text(json.dumps(said))
    receipt, code = replay(ReplayRequest(folder=other, whole=True), lambda line: None, lambda event: None)
    assert (receipt["result"], code) == ("different", 1)


LARGE = {"n_embd": 256, "n_head": 4, "n_layer": 12, "vocab_size": 4096, "n_positions": 256}
ACTIVATIONS = ("gelu_new", "gelu", "silu", "relu")


@pytest.mark.slow
@pytest.mark.parametrize(("remat", "activation"), [("layer", "gelu_new"), *(("none", each) for each in ACTIVATIONS)])
@pytest.mark.parametrize("method", [MethodConfig(), MethodConfig(kind="lora", rank=8)])
def test_what_is_summed_is_what_the_compiler_says(
    method: MethodConfig, remat: str, activation: str, seven: Config, tmp_path: Path
):
    """Measured with the shapes of SmolLM2-135M: 18 settings within 7 %, all but two within 2.5."""
    folder = model_folder(tmp_path / "large", activation_function=activation, **LARGE)
    large = replace(
        seven, model=ModelConfig(name=str(folder), weights="random"), method=method, evaluation=EvaluationConfig()
    )
    large = replace(
        large, data=DataConfig(max_length=128), memory=MemoryConfig(remat=remat), batch=BatchConfig(microbatch_size=4)
    )
    task, _ = inputs_of(large)
    said = train_program(task).compile().peak_bytes
    assert total_bytes(estimate(task, platform="cpu")["train"]) == pytest.approx(said, rel=0.1)
