"""Every configuration key has an effect: each is changed alone, and something that was built or measured must change.

The table covers the schema whole, so a new key without an effect fails here.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from commands import train_request
from model_folders import model_folder
from safetensors.numpy import load_file
from tasks import first_state_of, inputs_of, task_of
from whole_runs import carried_out, manifest_of, rows, saved_steps

from evidence import layout
from schemas.catalog import schema
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.evaluation import answers
from trainer.loop import compilation
from trainer.loop.compilation import training_group
from trainer.loop.optimizer import build_optimizer
from trainer.loop.programs import train_program
from trainer.loop.state import initial_state
from trainer.loop.task import Task
from trainer.model.decoder import params_sha256
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.model.stacks import unstack_layers
from trainer.objectives.data import Data
from trainer.run import RunRequest
from trainer.runtime import choose_devices

pytestmark = pytest.mark.slow

BASE = """
name: base
model: {name: tiny-gpt2}
data: {max_length: 96}
optimizer: {learning_rate: 0.01, warmup_steps: 1, weight_decay: 0.1, max_grad_norm: 0.5}
batch: {microbatch_size: 4}
memory: {loss_chunk_tokens: 128}
mesh: {device: cpu, devices: 1}
evaluation: {max_new_tokens: 4}
limits: {steps: 4}
"""


def configured(folder: Path, *settings: str) -> Config:
    path = folder / "config.yaml"
    path.write_text(BASE)
    return load_config(path, settings=settings)


Runs = Callable[[Config], Path]
Observe = Callable[[Config, Runs], Any]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return a function that trains a configuration, each one once, and returns the run's folder."""

    @cache
    def train(config: Config) -> Path:
        folder = tmp_path_factory.mktemp("runs") / "run"
        carried_out(RunRequest(config=config, folder=folder, command=["trainproof"]))
        return folder

    return train


@cache
def learned(config: Config, runs: Runs) -> str:
    """Return the hash of the parameters after three steps."""
    task, data = inputs_of(config)
    [state], frozen = initial_state(task)
    train_step = train_program(task).compile().call
    for step in range(3):
        state, _ = train_step(state, frozen, data.source.batch(step))
    return params_sha256(state.trained)


@cache
def compiled(config: Config) -> dict[str, Any]:
    """Return the manifest's group `training`, read back from the compiled step, and more of its properties."""
    task = task_of(config)
    [state], frozen = initial_state(task)
    program = train_program(task).compile()
    group = training_group(task, program, state, frozen, forced=False)
    return group | {
        "compute": compilation.compute_dtype(program.jaxpr),
        "params": sorted({str(value.dtype) for value in state.trained.values()}),
        "products": program.executable.as_text().count("__ynn_fusion"),
        "loops": str(program.jaxpr).count(" scan["),
        # 128 tokens are 32 positions of 4 sequences: the logits of one chunk.
        "chunk": f"f32[4,32,{task.model.source.spec.vocab}]" in str(program.jaxpr),
    }


def updates(config: Config, runs: Runs) -> list[float]:
    """Return a small matrix after three updates of the configured optimizer: no model needs to be compiled."""
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    params = {"matrix": jnp.asarray([[2.0, -4.0], [0.5, 1.0]])}
    opt_state = optimizer.init(params)
    for gradient in ([[1.0, -2.0], [0.1, 0.0]], [[-1.0, 0.5], [0.2, 0.3]], [[0.5, 0.5], [-0.1, 2.0]]):
        change, opt_state = optimizer.update({"matrix": jnp.asarray(gradient)}, opt_state, params)
        params = jax.tree.map(jnp.add, params, change)
    return params["matrix"].tolist()


def read_training(*path: str) -> Observe:
    return lambda config, runs: reduce(getitem, path, compiled(config))


def read_inputs(look: Callable[[Task, Data], Any]) -> Observe:
    return lambda config, runs: look(*inputs_of(config))


def read_run(look: Callable[[Path], Any]) -> Observe:
    return lambda config, runs: look(runs(config))


def read_rows(name: str, key: str) -> Observe:
    return read_run(lambda folder: [row.get(key) for row in rows(folder, name)])


def has_file(name: str) -> Observe:
    return read_run(lambda folder: (folder / name).exists())


def read_count(key: str) -> Observe:
    return read_inputs(lambda task, data: data.encoded.counts[key])


def first_examples(folder: Path) -> int:
    return len(json.loads((folder / layout.FIRST_EXAMPLES).read_text())["examples"])


adapters = read_inputs(lambda task, data: {name: (lora.rank, lora.scale) for name, lora in task.model.adapters.items()})
losses = read_rows(layout.METRICS, "loss")
scoring = read_inputs(lambda task, data: data.scoring)
LORA = "method.kind=lora"
EVALUATED, DURING = "evaluation.eval_set=eval_v1", "evaluation.every_steps=4"
WHOLE, NUMERIC = "evaluation.answer=whole", "evaluation.compare=numeric"
PREFERENCE = ("objective.kind=dpo", "data.dataset=tests/cases/rows/preferences.jsonl")
PAIRS = "data.dataset=tests/cases/rows/pairs.jsonl"

# The key, its new value, what it changes, and the settings that both sides share.
EFFECTS: dict[str, tuple[Any, ...]] = {
    "mode": ("smoke", read_run(lambda folder: manifest_of(folder)["mode"])),
    "seed": ("1", learned),
    "model.name": ("demo", read_inputs(lambda task, data: task.model.source.spec.layers)),
    "data.dataset": ("tests/cases/rows/pairs.jsonl", read_inputs(lambda task, data: data.dataset.sha256)),
    "data.generated_rows": ("7", read_inputs(lambda task, data: len(data.encoded.encoded))),
    "data.max_length": ("112", read_training("sequence_length")),
    "data.packing": ("true", read_inputs(lambda task, data: len(data.source.rows(0)))),
    "data.buckets": ("2", read_inputs(lambda task, data: data.source.batch(0)["tokens"].shape)),
    "data.kind": ("text", read_count("supervised_tokens"), "data.dataset=tests/cases/rows/either.jsonl"),
    "data.supervise": ("all", read_count("supervised_tokens"), "data.dataset=tests/cases/rows/talks.jsonl"),
    "data.template": ("Q: {prompt}", read_count("prompt_tokens"), PAIRS),
    "data.system_prompt": ("Be brief.", read_count("prompt_tokens"), PAIRS),
    "data.shuffle": ("false", learned),
    "method.kind": ("lora", adapters),
    "method.rank": ("4", adapters, LORA),
    "method.alpha": ("4", adapters, LORA),
    "method.rslora": ("true", adapters, LORA),
    "method.dropout": ("0.5", learned, LORA),
    "method.base": ("int8", learned, LORA),
    "method.targets": ("attention.query", adapters, LORA),
    # At the first step the model is its own reference: the second loss is the first that follows from these.
    "objective.beta": ("0.5", losses, *PREFERENCE),
    "objective.label_smoothing": ("0.2", losses, *PREFERENCE),
    "optimizer.name": ("adafactor", read_training("optimizer", "name")),
    "optimizer.learning_rate": ("0.02", updates),
    "optimizer.schedule": ("constant", updates),
    "optimizer.warmup_steps": ("2", updates),
    "optimizer.final_learning_rate_fraction": ("0.5", updates),
    "optimizer.weight_decay": ("0.2", updates),
    "optimizer.beta1": ("0.5", updates),
    "optimizer.beta2": ("0.5", updates),
    "optimizer.epsilon": ("0.1", updates),
    "optimizer.state": ("int8", read_training("optimizer", "state")),
    "optimizer.max_nonfinite_steps": ("3", read_rows(layout.METRICS, "skipped_steps")),
    "optimizer.max_grad_norm": ("null", learned, "optimizer.epsilon=0.1"),
    "batch.microbatch_size": ("2", read_training("batch_size")),
    "batch.accumulation_steps": ("3", read_training("tokens_per_step")),
    "precision.params": ("bfloat16", read_training("params")),
    "precision.compute": ("bfloat16", read_training("compute")),
    "precision.cpu_isa": ("native", read_training("products")),
    "memory.remat": ("none", read_training("remat")),
    "memory.layers": ("scanned", read_training("layers")),
    "memory.attention": ("blockwise", read_training("attention")),
    "memory.loss_chunk_tokens": ("null", read_training("chunk")),
    "memory.mlp_chunk_tokens": ("64", read_training("loops")),
    "memory.donate": ("false", read_training("donation", "effective")),
    "mesh.device": (
        "auto",
        lambda config, runs: choose_devices(config.mesh.device, config.mesh.devices).chosen_because,
    ),
    "mesh.devices": ("2", read_training("mesh", "devices")),
    "mesh.shard_params": ("false", read_training("donation", "state_bytes"), "mesh.devices=4"),
    "checkpoint.save_every_steps": ("3", read_run(saved_steps)),
    "checkpoint.keep": ("3", read_run(saved_steps), "checkpoint.save_every_steps=1"),
    "recording.log_every_steps": ("3", read_rows(layout.METRICS, "step")),
    "recording.chain_every_steps": ("3", read_rows(layout.CHAIN, "step")),
    "recording.first_examples": ("1", read_run(first_examples)),
    "recording.system_every_seconds": ("null", has_file(layout.SYSTEM)),
    "recording.time_authority": ("http://127.0.0.1:9/nobody-is-there", has_file(layout.STAMPS)),
    "recording.params_mib": ("0", has_file(layout.TRAINED_PARAMS)),
    "recording.states_mib": ("0", has_file(layout.STATES)),
    "recording.phase": (f"code {'0' * 64} - a.yaml", read_run(lambda folder: manifest_of(folder).get("phase"))),
    "evaluation.eval_set": ("eval_v1", has_file(layout.EVAL_SUMMARY)),
    "evaluation.baseline": ("false", has_file(layout.BASELINE_PREDICTIONS), EVALUATED),
    "evaluation.max_new_tokens": ("3", read_rows(layout.PREDICTIONS, "output_tokens"), EVALUATED),
    "evaluation.answer": ("whole", scoring),
    "evaluation.answer_regex": ("#(.+)", scoring, "evaluation.answer=regex", "evaluation.answer_regex=(.+)"),
    "evaluation.compare": ("numeric", scoring, WHOLE),
    "evaluation.tolerance": ("0.01", scoring, WHOLE, NUMERIC),
    "evaluation.every_steps": ("2", read_rows(layout.ANSWERS_OVER_STEPS, "step"), EVALUATED, DURING),
    "evaluation.during_items": ("3", read_rows(layout.ANSWERS_OVER_STEPS, "id"), EVALUATED, DURING),
    "limits.steps": ("3", read_rows(layout.METRICS, "step")),
    "limits.max_minutes": ("1e-6", read_run(lambda folder: manifest_of(folder)["status"])),
}

# Keys whose effect another test shows, here or in test_reward_run.py, test_run.py, test_continued.py and loop/.
ELSEWHERE = {
    "model": "shape revision weights",
    "method": "adapter",
    "checkpoint": "keep_best",
    "objective": "kind rewards loss_type epsilon_low epsilon_high kl_beta scale_rewards temperature top_k top_p "
    "group_size updates_per_rollout mask_truncated max_completion_tokens stop_when_flat",
    "evaluation": "batch_size samples temperature top_k top_p stop",
}


def test_every_key_is_tested():
    elsewhere = [f"{group}.{key}" for group, keys in ELSEWHERE.items() for key in keys.split()]
    found = set()
    for name, value in schema("train_config")["properties"].items():
        children = value.get("properties")
        found |= {f"{name}.{key}" for key in children} if children else {name}
    assert found == {"schema_version", "name", *EFFECTS, *elsewhere}


@pytest.mark.parametrize("key", EFFECTS)
def test_a_key_has_an_effect(key, tmp_path, runs):
    value, observe, *shared = EFFECTS[key]
    before, after = configured(tmp_path, *shared), configured(tmp_path, *shared, f"{key}={value}")
    assert observe(after, runs) != observe(before, runs)


def test_the_name_begins_the_run_id(tmp_path):
    (tmp_path / "c.yaml").write_text(BASE)
    order = train_request(config=tmp_path / "c.yaml", settings=["name=mine"])
    assert order.folder.name.startswith("mine-")


def test_random_weights_are_drawn_for_a_model_that_has_files(tmp_path):
    other = first_state_of(configured(tmp_path, "seed=5"))
    export(tmp_path / "model", other.trained, resolve("tiny-gpt2"))
    name = f"model.name={tmp_path / 'model'}"
    kept, drawn = configured(tmp_path, name), configured(tmp_path, name, "model.weights=random")
    assert (task_of(kept).model.origin, task_of(drawn).model.origin) == ("pretrained", "random")
    of_other, of_kept, of_drawn = (
        params_sha256(state.trained) for state in (other, first_state_of(kept), first_state_of(drawn))
    )
    assert of_kept == of_other != of_drawn


@pytest.mark.parametrize("shared", [("memory.layers=scanned",), ("mesh.devices=2",), ()])
def test_training_starts_from_the_adapter_of_another_run(shared, tmp_path, runs):
    folder = runs(configured(tmp_path, LORA, "limits.steps=2"))
    given = f"method.adapter={folder / layout.TRAINED_PARAMS}"
    trained = load_file(folder / layout.TRAINED_PARAMS)
    state = first_state_of(configured(tmp_path, LORA, given, "seed=3", *shared))
    found = {name: np.asarray(value) for name, value in unstack_layers(state.trained).items()}
    assert {name: value.tobytes() for name, value in found.items()} == {
        name: value.tobytes() for name, value in trained.items()
    }
    small = first_state_of(configured(tmp_path, LORA, given, "model.shape=small"))  # no adapter fits it
    assert {name.rpartition(".")[2] for name in small.trained} == {name.rpartition(".")[2] for name in trained}
    for settings, says in (
        (["method.alpha=4"], "another scale"),
        (["method.rank=4", "method.alpha=8"], "do not match"),
        (["objective.kind=dpo", "data.dataset=tests/cases/rows/preferences.jsonl"], "objective.kind is dpo"),
        (["method.adapter=absent"], "absent"),
    ):
        config = configured(tmp_path, LORA, given, *settings)
        with pytest.raises(ProblemError) as raised:
            initial_state(inputs_of(config)[0])
        assert (raised.value.exit_code, says in str(raised.value)) == (2, True), raised.value


@pytest.mark.parametrize("remat", ["layer", "dots", "none"])
@pytest.mark.parametrize(("loss", "mlp"), [(1024, None), (128, 64), (None, None)])
def test_remat_is_read_back_whatever_is_computed_in_chunks(remat, loss, mlp, tmp_path):
    """The block of the only layer differs from that of the loss, which has none if one chunk holds everything."""
    folder = model_folder(tmp_path / "one-layer", config={"n_layer": 1})
    chunks = [f"memory.loss_chunk_tokens={json.dumps(loss)}", f"memory.mlp_chunk_tokens={json.dumps(mlp)}"]
    settings = [f"model.name={folder}", "model.weights=random", f"memory.remat={remat}", *chunks]
    task = task_of(configured(tmp_path, *settings))
    program = train_program(task)
    traced = program.function.trace(*program.arguments).jaxpr
    assert compilation.remat_kind(traced, besides=task.objective.rematerialised_blocks) == remat


def test_devices_share_a_batch_and_learn_the_same(tmp_path, runs):
    """Four devices with a microbatch of 1 take the same rows as one device with 4, so they must end alike."""
    alone, together = configured(tmp_path), configured(tmp_path, "mesh.devices=4", "batch.microbatch_size=1")
    assert losses(together, runs) == pytest.approx(losses(alone, runs), rel=1e-5)


def test_how_answers_are_drawn(tmp_path):
    task, data = inputs_of(configured(tmp_path, "evaluation.eval_set=eval_v1"))
    params = first_state_of(task.config).trained
    [item, *_] = data.items.file.rows

    def texts(**settings: Any) -> list[str]:
        of = replace(task.config.evaluation, max_new_tokens=12, batch_size=4, **settings)
        sampler = replace(answers.Sampler.for_task(task, data), settings=of)
        [found] = sampler.answer(params, {item["id"]: data.items.prompts[0]})
        return [sampler.decode_answer(each.tokens) for each in found]

    assert len(texts()) == 1
    drawn = texts(samples=4)
    assert len(set(drawn)) == 4
    assert set(texts(samples=4, top_k=1)) == set(texts())
    assert texts(samples=4, temperature=3.0) != drawn != texts(samples=4, top_p=0.5)
    [stop] = drawn[0][3:4]
    assert texts(samples=4, stop=stop)[0] == drawn[0][: drawn[0].index(stop) + 1]


def test_so_many_items_are_answered_together(tmp_path, monkeypatch):
    asked, real = [], answers.generate

    def watched(*positional, **options):
        asked.append(options["batch_size"])
        return real(*positional, **options)

    monkeypatch.setattr(answers, "generate", watched)
    config = configured(tmp_path, EVALUATED, "evaluation.batch_size=17", "limits.steps=1")
    carried_out(RunRequest(config=config, folder=tmp_path / "run", command=["trainproof"]))
    assert asked == [17, 17]  # the baseline, and the trained model
