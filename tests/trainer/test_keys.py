"""Every configuration key has an effect: each is changed alone, and something that was built or measured must change.

The table covers the schema whole, so a new key without an effect fails here.
"""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from tasks import first_state_of, inputs_of, task_of

from evidence import layout
from schemas.catalog import schema
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.evaluation.answers import Sampler
from trainer.loop import effective
from trainer.loop.optimizer import build_optimizer
from trainer.loop.programs import train_program
from trainer.loop.record import training_group
from trainer.loop.state import initial_state
from trainer.loop.task import Task
from trainer.model.decoder import params_sha256
from trainer.model.export import export
from trainer.model.source import resolve
from trainer.objectives.data import Data
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run
from trainer.runtime import choose_devices
from trainproof.orders.train import TrainFlags, order_of

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


def params_after_three_steps(config: Config) -> str:
    """Return the hash of the parameters that three steps of the compiled program give."""
    task, data = inputs_of(config)
    [state], frozen = initial_state(task)
    train_step = train_program(task).compile().call
    for step in range(3):
        state, _ = train_step(state, frozen, data.source.batch(step))
    return params_sha256(state.trained)


def training(config: Config) -> dict[str, Any]:
    """Return the manifest's group `training` as read back from what was built."""
    task = task_of(config)
    [state], frozen = initial_state(task)
    program = train_program(task).compile()
    group = training_group(task, program, state, frozen, forced=False)
    dtypes = sorted({str(value.dtype) for value in state.trained.values()})
    return group | {
        "compute": effective.compute_dtype(program.jaxpr),
        "params": dtypes,
        "products": program.executable.as_text().count("__ynn_fusion"),
        "loops": str(program.jaxpr).count(" scan["),
        # 128 tokens are 32 positions of 4 sequences: the logits of one chunk.
        "chunk": f"f32[4,32,{task.model.source.spec.vocab}]" in str(program.jaxpr),
    }


def run_folder(config: Config, folder: Path) -> Path:
    order = RunRequest(config=config, folder=folder / "run", command=["trainproof"])
    with Watch() as watch:
        run(order, watch)
    return order.folder


def document(folder: Path, name: str) -> Any:
    return json.loads((folder / name).read_text())


def steps_saved(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / layout.CHECKPOINTS).iterdir() if path.name.isdecimal())


Observe = Callable[[Config, Path], Any]


def learned(config: Config, folder: Path) -> str:
    return params_after_three_steps(config)


def moved(config: Config, folder: Path) -> list[float]:
    """Return what three updates of the configured optimizer do to a small matrix: no model needs to be compiled."""
    optimizer = build_optimizer(config.optimizer, steps=config.limits.steps)
    params = {"matrix": jnp.asarray([[2.0, -4.0], [0.5, 1.0]])}
    opt_state = optimizer.init(params)
    for gradient in ([[1.0, -2.0], [0.1, 0.0]], [[-1.0, 0.5], [0.2, 0.3]], [[0.5, 0.5], [-0.1, 2.0]]):
        updates, opt_state = optimizer.update({"matrix": jnp.asarray(gradient)}, opt_state, params)
        params = jax.tree.map(jnp.add, params, updates)
    return params["matrix"].tolist()


def of_training(*path: str) -> Observe:
    def observe(config: Config, folder: Path) -> Any:
        value = training(config)
        for part in path:
            value = value[part]
        return value

    return observe


def of_run(look: Callable[[Path], Any]) -> Observe:
    return lambda config, folder: look(run_folder(config, folder))


def chosen_because(config: Config, folder: Path) -> str:
    return choose_devices(config.mesh.device, config.mesh.devices).chosen_because


def of_inputs(look: Callable[[Task, Data], Any]) -> Observe:
    return lambda config, folder: look(*inputs_of(config))


def adapters(task: Task, data: Data) -> dict[str, Any]:
    return {name: (lora.rank, lora.scale) for name, lora in task.model.adapters.items()}


def rows_of(name: str) -> Callable[[Path], list[Any]]:
    return lambda folder: [json.loads(line) for line in (folder / name).read_text().splitlines()]


EFFECTS: dict[str, tuple[list[str], Observe]] = {
    "mode": (["mode=smoke"], of_run(lambda folder: document(folder, layout.MANIFEST)["mode"])),
    "seed": (["seed=1"], learned),
    "model.name": (["model.name=demo"], of_inputs(lambda task, data: task.model.source.spec.layers)),
    "data.dataset": (
        ["data.dataset=tests/cases/rows/pairs.jsonl"],
        of_inputs(lambda task, data: data.dataset.sha256),
    ),
    "data.generated_rows": (["data.generated_rows=7"], of_inputs(lambda task, data: len(data.encoded.encoded))),
    "data.max_length": (["data.max_length=112"], of_training("sequence_length")),
    "data.packing": (["data.packing=true"], of_inputs(lambda task, data: len(data.source.rows(0)))),
    "data.buckets": (["data.buckets=2"], of_inputs(lambda task, data: data.source.batch(0)["tokens"].shape)),
    "data.kind": (
        ["data.kind=text", "data.dataset=tests/cases/rows/either.jsonl"],
        of_inputs(lambda task, data: data.encoded.counts["supervised_tokens"]),
    ),
    "data.supervise": (
        ["data.supervise=all", "data.dataset=tests/cases/rows/talks.jsonl"],
        of_inputs(lambda task, data: data.encoded.counts["supervised_tokens"]),
    ),
    "data.template": (
        ["data.template=Q: {prompt}", "data.dataset=tests/cases/rows/pairs.jsonl"],
        of_inputs(lambda task, data: data.encoded.counts["prompt_tokens"]),
    ),
    "data.shuffle": (["data.shuffle=false"], learned),
    "method.kind": (["method.kind=lora"], of_inputs(adapters)),
    "method.rank": (["method.rank=4", "method.kind=lora"], of_inputs(adapters)),
    "method.alpha": (["method.alpha=4", "method.kind=lora"], of_inputs(adapters)),
    "method.rslora": (["method.rslora=true", "method.kind=lora"], of_inputs(adapters)),
    "method.dropout": (["method.dropout=0.5", "method.kind=lora"], learned),
    "method.base": (["method.base=int8", "method.kind=lora"], learned),
    "method.targets": (["method.targets=attention.query", "method.kind=lora"], of_inputs(adapters)),
    "optimizer.name": (["optimizer.name=adafactor"], of_training("optimizer", "name")),
    "optimizer.learning_rate": (["optimizer.learning_rate=0.02"], moved),
    "optimizer.schedule": (["optimizer.schedule=constant"], moved),
    "optimizer.warmup_steps": (["optimizer.warmup_steps=2"], moved),
    "optimizer.final_learning_rate_fraction": (["optimizer.final_learning_rate_fraction=0.5"], moved),
    "optimizer.weight_decay": (["optimizer.weight_decay=0.2"], moved),
    "optimizer.beta1": (["optimizer.beta1=0.5"], moved),
    "optimizer.beta2": (["optimizer.beta2=0.5"], moved),
    "optimizer.epsilon": (["optimizer.epsilon=0.1"], moved),
    "optimizer.state": (["optimizer.state=int8"], of_training("optimizer", "state")),
    "optimizer.max_nonfinite_steps": (
        ["optimizer.max_nonfinite_steps=3"],
        of_run(lambda folder: [row.get("skipped_steps") for row in rows_of(layout.METRICS)(folder)]),
    ),
    "optimizer.max_grad_norm": (["optimizer.max_grad_norm=null", "optimizer.epsilon=0.1"], learned),
    "batch.microbatch_size": (["batch.microbatch_size=2"], of_training("batch_size")),
    "batch.accumulation_steps": (["batch.accumulation_steps=3"], of_training("tokens_per_step")),
    "precision.params": (["precision.params=bfloat16"], of_training("params")),
    "precision.compute": (["precision.compute=bfloat16"], of_training("compute")),
    "precision.cpu_isa": (["precision.cpu_isa=native"], of_training("products")),
    "memory.remat": (["memory.remat=none"], of_training("remat")),
    "memory.layers": (["memory.layers=scanned"], of_training("layers")),
    "memory.attention": (["memory.attention=blockwise"], of_training("attention")),
    "memory.loss_chunk_tokens": (["memory.loss_chunk_tokens=null"], of_training("chunk")),
    "memory.mlp_chunk_tokens": (["memory.mlp_chunk_tokens=64"], of_training("loops")),
    "memory.donate": (["memory.donate=false"], of_training("donation", "effective")),
    "mesh.device": (
        ["mesh.device=auto"],
        lambda config, folder: choose_devices(config.mesh.device, config.mesh.devices).chosen_because,
    ),
    "mesh.devices": (["mesh.devices=2"], of_training("mesh", "devices")),
    "checkpoint.save_every_steps": (["checkpoint.save_every_steps=3"], of_run(steps_saved)),
    "recording.log_every_steps": (
        ["recording.log_every_steps=3"],
        of_run(lambda folder: [row["step"] for row in rows_of(layout.METRICS)(folder)]),
    ),
    "recording.chain_every_steps": (
        ["recording.chain_every_steps=3"],
        of_run(lambda folder: [row["step"] for row in rows_of(layout.CHAIN)(folder)]),
    ),
    "recording.first_examples": (
        ["recording.first_examples=1"],
        of_run(lambda folder: len(document(folder, layout.FIRST_EXAMPLES)["examples"])),
    ),
    "recording.system_every_seconds": (
        ["recording.system_every_seconds=null"],
        of_run(lambda folder: (folder / layout.SYSTEM).exists()),
    ),
    "recording.time_authority": (
        ["recording.time_authority=http://127.0.0.1:9/nobody-is-there"],
        of_run(lambda folder: (folder / layout.STAMPS).exists()),
    ),
    "recording.params_mib": (
        ["recording.params_mib=0"],
        of_run(lambda folder: (folder / layout.TRAINED_PARAMS).exists()),
    ),
    "recording.states_mib": (
        ["recording.states_mib=0"],
        of_run(lambda folder: (folder / layout.STATES).exists()),
    ),
    "evaluation.eval_set": (
        ["evaluation.eval_set=eval_v1"],
        of_run(lambda folder: (folder / layout.EVAL_SUMMARY).exists()),
    ),
    "limits.steps": (["limits.steps=3"], of_run(lambda folder: len(rows_of(layout.METRICS)(folder)))),
    "limits.max_minutes": (
        ["limits.max_minutes=1e-6"],
        of_run(lambda folder: document(folder, layout.MANIFEST)["status"]),
    ),
}

ELSEWHERE = {
    "schema_version": "one value so far",
    "objective.kind": "test_the_objective_decides_what_a_row_is",
    "objective.beta": "test_the_settings_of_a_preference",
    "objective.label_smoothing": "test_the_settings_of_a_preference",
    "objective.rewards": "test_it_learns_what_is_rewarded",
    "objective.loss_type": "test_what_a_loss_is_made_of",
    "objective.epsilon_low": "test_what_a_loss_is_made_of",
    "objective.epsilon_high": "test_what_a_loss_is_made_of",
    "objective.kl_beta": "test_what_a_loss_is_made_of",
    "objective.scale_rewards": "test_what_a_draw_is_made_of",
    "objective.group_size": "test_settings_that_cannot_be_meant",
    "objective.updates_per_rollout": "test_it_is_continued_and_repeated_bit_for_bit",
    "objective.mask_truncated": "test_what_is_masked_and_what_counts_in_a_group",
    "objective.max_completion_tokens": "test_a_prompt_without_room_is_named_with_its_line",
    "objective.temperature": "test_what_a_draw_is_made_of",
    "objective.top_k": "test_what_a_draw_is_made_of",
    "objective.top_p": "test_what_a_draw_is_made_of",
    "objective.stop_when_flat": "test_groups_without_spread_are_left_out_and_stop_a_run_that_is_to_stop",
    "objective.headroom_items": "test_what_there_is_to_gain_is_measured_once_and_changes_nothing",
    "name": "test_the_name_begins_the_run_id",
    "model.shape": "test_a_smoke_run_of_a_model_too_large_for_here_passes_every_stage_and_pairs_with_it",
    "model.revision": "test_a_revision_is_refused_where_there_is_none",
    "model.weights": "test_random_weights_are_drawn_for_a_model_that_has_files",
    "mesh.shard_params": "test_sharding_splits_the_state",
    "checkpoint.keep": "test_only_the_newest_checkpoints_are_kept",
    "evaluation.baseline": "test_the_evaluation",
    "evaluation.answer": "test_the_reader_of_answers",
    "evaluation.answer_regex": "test_the_reader_of_answers",
    "evaluation.compare": "test_the_reader_of_answers",
    "evaluation.tolerance": "test_the_reader_of_answers",
    "evaluation.max_new_tokens": "test_the_evaluation",
    "evaluation.batch_size": "test_the_evaluation",
    "evaluation.every_steps": "test_what_is_measured_in_training",
    "evaluation.during_items": "test_what_is_measured_in_training",
    "checkpoint.keep_best": "test_the_best_checkpoint_stays_beside_the_newest",
    "evaluation.samples": "test_how_answers_are_drawn",
    "evaluation.temperature": "test_how_answers_are_drawn",
    "evaluation.top_k": "test_how_answers_are_drawn",
    "evaluation.top_p": "test_how_answers_are_drawn",
    "evaluation.stop": "test_how_answers_are_drawn",
}


def keys_of_the_schema() -> set[str]:
    found = set()
    for name, value in schema("train_config")["properties"].items():
        children = value.get("properties")
        found |= {f"{name}.{key}" for key in children} if children else {name}
    return found


def test_every_key_is_tested():
    assert keys_of_the_schema() == {*EFFECTS, *ELSEWHERE}


@cache
def base_value(observe: Observe, folder: Path, settings: tuple[str, ...]) -> Any:
    folder.mkdir()
    return observe(configured(folder, *settings), folder)


@pytest.mark.slow
@pytest.mark.parametrize("key", EFFECTS)
def test_a_key_has_an_effect(key: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory):
    settings, observe = EFFECTS[key]
    # The last settings of a row hold for both sides; the first is the change.
    change, same = settings[:1], settings[1:]
    folder = tmp_path_factory.getbasetemp() / f"base{abs(hash((observe, *same)))}"
    assert observe(configured(tmp_path, *same, *change), tmp_path) != base_value(observe, folder, tuple(same))


def test_the_name_begins_the_run_id(tmp_path: Path):
    (tmp_path / "c.yaml").write_text(BASE)
    order = order_of(TrainFlags(config=tmp_path / "c.yaml", settings=["name=mine"]))
    assert order.folder.name.startswith("mine-")


def test_a_revision_is_refused_where_there_is_none(tmp_path: Path):
    with pytest.raises(ProblemError) as caught:
        inputs_of(configured(tmp_path, "model.revision=main"))
    assert caught.value.problems[0].what == "model.revision is main, but tiny-gpt2 is a built-in model."


def test_random_weights_are_drawn_for_a_model_that_has_files(tmp_path: Path):
    other = first_state_of(configured(tmp_path, "seed=5"))
    export(tmp_path / "model", other.trained, resolve("tiny-gpt2"))
    name = f"model.name={tmp_path / 'model'}"
    kept, drawn = configured(tmp_path, name), configured(tmp_path, name, "model.weights=random")
    assert (task_of(kept).model.origin, task_of(drawn).model.origin) == ("pretrained", "random")
    of_other, of_kept, of_drawn = (
        params_sha256(state.trained) for state in (other, first_state_of(kept), first_state_of(drawn))
    )
    assert of_kept == of_other != of_drawn


def test_the_objective_decides_what_a_row_is(tmp_path: Path):
    with pytest.raises(ProblemError) as caught:
        inputs_of(configured(tmp_path, "objective.kind=dpo"))
    assert {problem.code for problem in caught.value.problems} == {"TP018"}


def test_the_settings_of_a_preference(tmp_path: Path):
    """At the first step the model is its own reference: the second loss is the first that follows from them."""
    rows = [{"prompt": f"{n}?", "chosen": f"It is {n}.", "rejected": "No."} for n in range(4)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    def second_loss(*settings: str) -> float:
        pairs = f"data.dataset={tmp_path / 'pairs.jsonl'}"
        task, data = inputs_of(configured(tmp_path, "objective.kind=dpo", "optimizer.warmup_steps=0", pairs, *settings))
        [state], frozen = initial_state(task)
        train_step = train_program(task).compile().call
        for step in range(2):
            state, metrics = train_step(state, frozen, data.source.batch(step))
        return float(metrics.loss)

    assert len({second_loss(), second_loss("objective.beta=0.5"), second_loss("objective.label_smoothing=0.2")}) == 3


def test_pretrained_weights_of_a_built_in_model_are_refused(tmp_path: Path):
    with pytest.raises(ProblemError) as caught:
        inputs_of(configured(tmp_path, "model.weights=pretrained"))
    assert caught.value.problems[0].what == (
        "model.weights is pretrained, but the built-in model tiny-gpt2 has no weights."
    )


@pytest.mark.parametrize("remat", ["layer", "dots", "none"])
@pytest.mark.parametrize("chunk", [1024, 128, None])
def test_remat_is_read_back_whether_or_not_the_loss_is_taken_in_chunks(remat: str, chunk: int | None, tmp_path: Path):
    """One layer: its block must not be taken for that of the loss, which has none where one chunk holds everything."""
    source = resolve("tiny-gpt2")
    folder = Path(shutil.copytree(source.tokenizer_folder, tmp_path / "one-layer"))
    described = json.loads((source.folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"n_layer": 1}))
    settings = [f"model.name={folder}", "model.weights=random", f"memory.remat={remat}"]
    config = configured(tmp_path, *settings, f"memory.loss_chunk_tokens={json.dumps(chunk)}")
    assert training(config)["remat"] == remat


def test_sharding_splits_the_state(tmp_path: Path):
    shared = {}
    for split in ("true", "false"):
        config = configured(tmp_path, "mesh.devices=4", f"mesh.shard_params={split}")
        shared[split] = training(config)
    assert shared["true"]["mesh"] == {"devices": 4, "shard_params": True}
    assert shared["false"]["mesh"] == {"devices": 4, "shard_params": False}
    assert shared["true"]["donation"]["state_bytes"] < 0.3 * shared["false"]["donation"]["state_bytes"]
    assert shared["true"]["donation"]["effective"]


def test_devices_share_a_batch_and_learn_the_same(tmp_path: Path):
    """Four devices with a microbatch of 1 take the same rows as one device with 4, so they must end alike."""

    def loss(*settings: str) -> list[float]:
        folder = tmp_path / "-".join(settings).replace("=", "")
        folder.mkdir()
        rows = rows_of(layout.METRICS)(run_folder(configured(folder, *settings), folder))
        return [row["loss"] for row in rows]

    alone = loss("mesh.devices=1", "batch.microbatch_size=4")
    together = loss("mesh.devices=4", "batch.microbatch_size=1")
    assert together == pytest.approx(alone, rel=1e-5)


def test_only_the_newest_checkpoints_are_kept(tmp_path: Path):
    config = configured(tmp_path, "checkpoint.save_every_steps=1", "checkpoint.keep=2")
    assert steps_saved(run_folder(config, tmp_path)) == ["3", "4"]


def test_the_reader_of_answers(tmp_path: Path):
    """Each setting alone makes another of four outputs right."""
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


def test_what_is_measured_in_training(tmp_path: Path):
    def asked(*settings: str) -> list[tuple[int, str]]:
        folder = tmp_path / "-".join(settings).replace("=", "")
        folder.mkdir()
        made = run_folder(
            configured(folder, "evaluation.eval_set=eval_v1", "evaluation.baseline=false", *settings), folder
        )
        return [(row["step"], row["id"]) for row in rows_of(layout.ANSWERS_OVER_STEPS)(made)]

    often, few = asked("evaluation.every_steps=2"), asked("evaluation.every_steps=4", "evaluation.during_items=3")
    assert ({step for step, _ in often}, len(often)) == ({2, 4}, 2 * 32)
    assert ({step for step, _ in few}, len(few)) == ({4}, 3)


def test_how_answers_are_drawn(tmp_path: Path):
    """Each setting alone changes what an untrained model writes."""
    task, data = inputs_of(configured(tmp_path, "evaluation.eval_set=eval_v1"))
    params = first_state_of(task.config).trained
    [item, *_] = data.items.file.rows

    def texts(**settings: Any) -> list[str]:
        of = replace(task.config.evaluation, max_new_tokens=12, batch_size=4, **settings)
        sampler = replace(
            Sampler.for_task(task, form=data.form, scoring=data.scoring, tokenizer=data.tokenizer), settings=of
        )
        [answers] = sampler.answer(params, {item["id"]: data.items.prompts[0]})
        return [sampler.decode_answer(each.tokens) for each in answers]

    assert len(texts()) == 1
    drawn = texts(samples=4)
    assert len(set(drawn)) == 4
    assert set(texts(samples=4, top_k=1)) == set(texts())
    assert texts(samples=4, temperature=3.0) != drawn != texts(samples=4, top_p=0.5)
    [stop] = drawn[0][3:4]
    assert texts(samples=4, stop=stop)[0] == drawn[0][: drawn[0].index(stop) + 1]


@pytest.mark.parametrize("baseline", [True, False])
def test_the_evaluation(baseline: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    import trainer.evaluation.answers as module

    asked = []
    real = module.generate

    def watched(*positional, **options):
        asked.append(options)
        return real(*positional, **options)

    monkeypatch.setattr(module, "generate", watched)
    config = configured(
        tmp_path,
        "evaluation.eval_set=eval_v1",
        "evaluation.max_new_tokens=3",
        "evaluation.batch_size=17",
        f"evaluation.baseline={str(baseline).lower()}",
    )
    folder = run_folder(config, tmp_path)
    assert len(asked) == 1 + baseline
    assert {options["batch_size"] for options in asked} == {17}
    assert max(row["output_tokens"] for row in rows_of(layout.PREDICTIONS)(folder)) == 3
    assert (document(folder, layout.EVAL_SUMMARY)["baseline"] is not None) == baseline
    assert (folder / layout.BASELINE_PREDICTIONS).exists() == baseline
