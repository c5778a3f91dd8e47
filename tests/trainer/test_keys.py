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
import pytest
from commands import train_request
from model_folders import model_folder, row_file
from refusals import catch_problems
from tasks import first_state_of, inputs_of, task_of
from whole_runs import carried_out, manifest_of, rows, saved_steps

from evidence import layout
from schemas.catalog import schema
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
def params_after_three_steps(config: Config) -> str:
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


def learned(config: Config, runs: Runs) -> str:
    return params_after_three_steps(config)


def updates(config: Config, runs: Runs) -> list[float]:
    """Return a small matrix after three updates of the configured optimizer: no model needs to be compiled."""
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    params = {"matrix": jnp.asarray([[2.0, -4.0], [0.5, 1.0]])}
    opt_state = optimizer.init(params)
    for gradient in ([[1.0, -2.0], [0.1, 0.0]], [[-1.0, 0.5], [0.2, 0.3]], [[0.5, 0.5], [-0.1, 2.0]]):
        change, opt_state = optimizer.update({"matrix": jnp.asarray(gradient)}, opt_state, params)
        params = jax.tree.map(jnp.add, params, change)
    return params["matrix"].tolist()


def in_training(*path: str) -> Observe:
    return lambda config, runs: reduce(getitem, path, compiled(config))


def in_inputs(look: Callable[[Task, Data], Any]) -> Observe:
    return lambda config, runs: look(*inputs_of(config))


def in_run(look: Callable[[Path], Any]) -> Observe:
    return lambda config, runs: look(runs(config))


def in_rows(name: str, key: str) -> Observe:
    return in_run(lambda folder: [row.get(key) for row in rows(folder, name)])


def has_file(name: str) -> Observe:
    return in_run(lambda folder: (folder / name).exists())


def in_counts(key: str) -> Observe:
    return in_inputs(lambda task, data: data.encoded.counts[key])


def chosen_because(config: Config, runs: Runs) -> str:
    return choose_devices(config.mesh.device, config.mesh.devices).chosen_because


def first_examples(folder: Path) -> int:
    return len(json.loads((folder / layout.FIRST_EXAMPLES).read_text())["examples"])


adapters = in_inputs(lambda task, data: {name: (lora.rank, lora.scale) for name, lora in task.model.adapters.items()})
LORA = "method.kind=lora"
PAIRS = "data.dataset=tests/cases/rows/pairs.jsonl"

# The key, its new value, what it changes, and the settings that both sides share.
EFFECTS: dict[str, tuple[Any, ...]] = {
    "mode": ("smoke", in_run(lambda folder: manifest_of(folder)["mode"])),
    "seed": ("1", learned),
    "model.name": ("demo", in_inputs(lambda task, data: task.model.source.spec.layers)),
    "data.dataset": ("tests/cases/rows/pairs.jsonl", in_inputs(lambda task, data: data.dataset.sha256)),
    "data.generated_rows": ("7", in_inputs(lambda task, data: len(data.encoded.encoded))),
    "data.max_length": ("112", in_training("sequence_length")),
    "data.packing": ("true", in_inputs(lambda task, data: len(data.source.rows(0)))),
    "data.buckets": ("2", in_inputs(lambda task, data: data.source.batch(0)["tokens"].shape)),
    "data.kind": ("text", in_counts("supervised_tokens"), "data.dataset=tests/cases/rows/either.jsonl"),
    "data.supervise": ("all", in_counts("supervised_tokens"), "data.dataset=tests/cases/rows/talks.jsonl"),
    "data.template": ("Q: {prompt}", in_counts("prompt_tokens"), PAIRS),
    "data.system_prompt": ("Be brief.", in_counts("prompt_tokens"), PAIRS),
    "data.shuffle": ("false", learned),
    "method.kind": ("lora", adapters),
    "method.rank": ("4", adapters, LORA),
    "method.alpha": ("4", adapters, LORA),
    "method.rslora": ("true", adapters, LORA),
    "method.dropout": ("0.5", learned, LORA),
    "method.base": ("int8", learned, LORA),
    "method.targets": ("attention.query", adapters, LORA),
    "optimizer.name": ("adafactor", in_training("optimizer", "name")),
    "optimizer.learning_rate": ("0.02", updates),
    "optimizer.schedule": ("constant", updates),
    "optimizer.warmup_steps": ("2", updates),
    "optimizer.final_learning_rate_fraction": ("0.5", updates),
    "optimizer.weight_decay": ("0.2", updates),
    "optimizer.beta1": ("0.5", updates),
    "optimizer.beta2": ("0.5", updates),
    "optimizer.epsilon": ("0.1", updates),
    "optimizer.state": ("int8", in_training("optimizer", "state")),
    "optimizer.max_nonfinite_steps": ("3", in_rows(layout.METRICS, "skipped_steps")),
    "optimizer.max_grad_norm": ("null", learned, "optimizer.epsilon=0.1"),
    "batch.microbatch_size": ("2", in_training("batch_size")),
    "batch.accumulation_steps": ("3", in_training("tokens_per_step")),
    "precision.params": ("bfloat16", in_training("params")),
    "precision.compute": ("bfloat16", in_training("compute")),
    "precision.cpu_isa": ("native", in_training("products")),
    "memory.remat": ("none", in_training("remat")),
    "memory.layers": ("scanned", in_training("layers")),
    "memory.attention": ("blockwise", in_training("attention")),
    "memory.loss_chunk_tokens": ("null", in_training("chunk")),
    "memory.mlp_chunk_tokens": ("64", in_training("loops")),
    "memory.donate": ("false", in_training("donation", "effective")),
    "mesh.device": ("auto", chosen_because),
    "mesh.devices": ("2", in_training("mesh", "devices")),
    "checkpoint.save_every_steps": ("3", in_run(saved_steps)),
    "recording.log_every_steps": ("3", in_rows(layout.METRICS, "step")),
    "recording.chain_every_steps": ("3", in_rows(layout.CHAIN, "step")),
    "recording.first_examples": ("1", in_run(first_examples)),
    "recording.system_every_seconds": ("null", has_file(layout.SYSTEM)),
    "recording.time_authority": ("http://127.0.0.1:9/nobody-is-there", has_file(layout.STAMPS)),
    "recording.params_mib": ("0", has_file(layout.TRAINED_PARAMS)),
    "recording.states_mib": ("0", has_file(layout.STATES)),
    "evaluation.eval_set": ("eval_v1", has_file(layout.EVAL_SUMMARY)),
    "limits.steps": ("3", in_rows(layout.METRICS, "step")),
    "limits.max_minutes": ("1e-6", in_run(lambda folder: manifest_of(folder)["status"])),
}

# Keys whose effect another test shows, here or in test_reward_run.py, test_run.py, test_continued.py and loop/.
ELSEWHERE = {
    "model": "shape revision weights",
    "mesh": "shard_params",
    "checkpoint": "keep keep_best",
    "objective": "kind beta label_smoothing rewards loss_type epsilon_low epsilon_high kl_beta scale_rewards "
    "temperature top_k top_p group_size updates_per_rollout mask_truncated max_completion_tokens stop_when_flat",
    "evaluation": "baseline max_new_tokens batch_size answer answer_regex compare tolerance every_steps "
    "during_items samples temperature top_k top_p stop",
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


def test_the_objective_decides_what_a_row_is(tmp_path):
    problems = catch_problems(lambda: inputs_of(configured(tmp_path, "objective.kind=dpo")))
    assert {problem.code for problem in problems} == {"TP018"}


def test_the_settings_of_a_preference(tmp_path):
    """At the first step the model is its own reference: the second loss is the first that follows from them."""
    pairs = row_file(
        tmp_path / "pairs.jsonl", *({"prompt": f"{n}?", "chosen": f"It is {n}.", "rejected": "No."} for n in range(4))
    )
    shared = ("objective.kind=dpo", "optimizer.warmup_steps=0", f"data.dataset={pairs}")

    def second_loss(*settings: str) -> float:
        task, data = inputs_of(configured(tmp_path, *shared, *settings))
        [state], frozen = initial_state(task)
        train_step = train_program(task).compile().call
        for step in range(2):
            state, metrics = train_step(state, frozen, data.source.batch(step))
        return float(metrics.loss)

    assert len({second_loss(), second_loss("objective.beta=0.5"), second_loss("objective.label_smoothing=0.2")}) == 3


@pytest.mark.parametrize("remat", ["layer", "dots", "none"])
@pytest.mark.parametrize("chunk", [1024, 128, None])
def test_remat_is_read_back_with_and_without_loss_chunks(remat, chunk, tmp_path):
    """The block of the only layer is told from that of the loss, which has none where one chunk holds everything."""
    folder = model_folder(tmp_path / "one-layer", config={"n_layer": 1})
    settings = [f"model.name={folder}", "model.weights=random", f"memory.remat={remat}"]
    task = task_of(configured(tmp_path, *settings, f"memory.loss_chunk_tokens={json.dumps(chunk)}"))
    program = train_program(task)
    traced = program.function.trace(*program.arguments).jaxpr
    assert compilation.remat_kind(traced, besides=task.objective.rematerialised_blocks) == remat


def test_sharding_splits_the_state(tmp_path):
    split, whole = (
        compiled(configured(tmp_path, "mesh.devices=4", f"mesh.shard_params={each}")) for each in ("true", "false")
    )
    assert split["mesh"] == {"devices": 4, "shard_params": True}
    assert whole["mesh"] == {"devices": 4, "shard_params": False}
    assert split["donation"]["state_bytes"] < 0.3 * whole["donation"]["state_bytes"]
    assert split["donation"]["effective"]


def test_devices_share_a_batch_and_learn_the_same(tmp_path, runs):
    """Four devices with a microbatch of 1 take the same rows as one device with 4, so they must end alike."""
    alone, together = (
        [row["loss"] for row in rows(runs(configured(tmp_path, *settings)))]
        for settings in ((), ("mesh.devices=4", "batch.microbatch_size=1"))
    )
    assert together == pytest.approx(alone, rel=1e-5)


def test_only_the_newest_checkpoints_are_kept(tmp_path, runs):
    config = configured(tmp_path, "checkpoint.save_every_steps=1", "checkpoint.keep=2")
    assert saved_steps(runs(config)) == ["3", "4"]


def test_the_reader_of_answers(tmp_path):
    outputs = ["<answer>4</answer>", "4", "4.02", "Four: 4 apples"]

    def right(*settings: str) -> list[str]:
        scoring = inputs_of(configured(tmp_path, *settings))[1].scoring
        return [text for text in outputs if scoring.verdict(text, "stop", ["4"])["correct"]]

    assert right() == outputs[:1]
    assert right("evaluation.answer=whole") == outputs[1:2]
    assert right("evaluation.answer=regex", r"evaluation.answer_regex=^\w+: (\d)") == outputs[3:]
    assert right("evaluation.answer=whole", "evaluation.compare=numeric") == outputs[1:2]
    near = ["evaluation.answer=whole", "evaluation.compare=numeric", "evaluation.tolerance=0.01"]
    assert right(*near) == outputs[1:3]


def test_evaluation_during_training(tmp_path, runs):
    def asked(*settings: str) -> list[tuple[int, str]]:
        shared = ("evaluation.eval_set=eval_v1", "evaluation.baseline=false")
        made = runs(configured(tmp_path, *shared, *settings))
        return [(row["step"], row["id"]) for row in rows(made, layout.ANSWERS_OVER_STEPS)]

    often, few = asked("evaluation.every_steps=2"), asked("evaluation.every_steps=4", "evaluation.during_items=3")
    assert ({step for step, _ in often}, len(often)) == ({2, 4}, 2 * 32)
    assert ({step for step, _ in few}, len(few)) == ({4}, 3)


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


@pytest.mark.parametrize("baseline", [True, False])
def test_the_evaluation(baseline, tmp_path, runs, monkeypatch):
    asked, real = [], answers.generate

    def watched(*positional, **options):
        asked.append(options["batch_size"])
        return real(*positional, **options)

    monkeypatch.setattr(answers, "generate", watched)
    settings = ("evaluation.eval_set=eval_v1", "evaluation.max_new_tokens=3", "evaluation.batch_size=17")
    folder = runs(configured(tmp_path, *settings, f"evaluation.baseline={str(baseline).lower()}"))
    assert asked == [17] * (1 + baseline)
    assert max(row["output_tokens"] for row in rows(folder, layout.PREDICTIONS)) == 3
    summary = json.loads((folder / layout.EVAL_SUMMARY).read_text())
    assert (summary["baseline"] is not None) == baseline
    assert (folder / layout.BASELINE_PREDICTIONS).exists() == baseline
