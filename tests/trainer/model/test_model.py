"""Methods: what is trained and saved, that interruption changes no bit, and that merged equals unmerged."""

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tasks import inputs_of, task_of

from evidence import layout
from evidence.grade import check_run
from evidence.run import read_run
from schemas.problems import ProblemError
from schemas.render import render_text
from trainer.config.tree import (
    CheckpointConfig,
    Config,
    EvaluationConfig,
    LimitsConfig,
    MethodConfig,
    ModelConfig,
    PrecisionConfig,
)
from trainer.export_run import export_run
from trainer.loop.checkpoints import restored_state
from trainer.loop.programs import train_program
from trainer.loop.state import initial_params, start_program, state_shapes
from trainer.model.decoder import bind, params_sha256
from trainer.model.export import export
from trainer.model.lora import is_lora, lora_names
from trainer.model.model import _matches, build_model, combine
from trainer.model.peft import read_adapter
from trainer.model.source import resolve
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)
LORA = MethodConfig(kind="lora", rank=4, alpha=8.0, dropout=0.25, targets="attention.*,up")
EXACT = ("step", "tokens_seen", "loss", "learning_rate", "grad_norm")


@pytest.fixture
def low(config: Config) -> Config:
    """A run of adapters on a base in half precision, with a row for each of its steps."""
    constant = replace(config.optimizer, schedule="constant")
    return replace(config, method=LORA, precision=PrecisionConfig(params="bfloat16"), optimizer=constant)


def rows(folder: Path) -> list[list[float]]:
    found = [json.loads(line) for line in (folder / layout.METRICS).read_text().splitlines()]
    return [[row[key] for key in EXACT] for row in found]


def errors(folder: Path) -> list[str]:
    return [problem.what for problem in check_run(read_run(folder)).findings if problem.severity == "error"]


def refusal(work: Callable[[], object], exit_code: int = 2) -> str:
    with pytest.raises(ProblemError) as caught:
        work()
    assert caught.value.exit_code == exit_code
    return render_text(caught.value.problems)


def test_only_adapters_are_differentiated_updated_and_saved(low: Config):
    task = task_of(low)
    state = state_shapes(task)
    assert {name.rpartition(".")[2] for name in state.trained} == {"lora_a", "lora_b"}
    assert {str(value.dtype) for value in state.trained.values()} == {"float32"}
    assert {str(value.dtype) for value in task.model.frozen.values()} == {"bfloat16"}
    assert not any(is_lora(name) for name in task.model.frozen)
    trained = sum(value.size for value in state.trained.values())
    assert sum(leaf.size for leaf in jax.tree.leaves(state.opt_state)) == pytest.approx(2 * trained, abs=4)
    spec = task.model.source.spec
    assert trained == spec.layers * 4 * (4 * 2 * spec.embed + spec.embed + spec.mlp)


def test_a_step_changes_adapters_and_leaves_the_base(low: Config):
    task, data = inputs_of(low)
    params = initial_params(task)
    before = {name: np.asarray(value) for name, value in params.items()}
    trained = {name: value for name, value in params.items() if is_lora(name)}
    frozen = {name: value for name, value in params.items() if not is_lora(name)}
    state = start_program(task).compile().call(trained)
    after, _ = train_program(task).compile().call(state, frozen, data.source.batch(0))
    changed = {name for name, value in after.trained.items() if np.any(np.asarray(value) != before[name])}
    assert {name.rpartition(".")[2] for name in changed} >= {"lora_b"}
    for name, value in frozen.items():
        np.testing.assert_array_equal(np.asarray(value), before[name], err_msg=name)


@pytest.mark.slow
def test_an_interrupted_run_ends_as_an_uninterrupted_one_with_dropout_too(
    low: Config, order_of: Callable[..., RunRequest]
):
    whole = replace(
        low,
        limits=LimitsConfig(steps=4),
        checkpoint=CheckpointConfig(save_every_steps=2),
        evaluation=EvaluationConfig(eval_set="eval_v1"),
    )
    whole = replace(whole, evaluation=replace(whole.evaluation, max_new_tokens=4, baseline=False))
    first = order_of(replace(whole, limits=LimitsConfig(steps=2), evaluation=EvaluationConfig()), "first")
    rest = order_of(whole, "rest", resume=first.folder)
    requests = [order_of(whole, "whole"), first, rest]
    assert [run(request, QUIET) for request in requests] == [0, 0, 0]
    assert rows(first.folder) + rows(rest.folder) == rows(requests[0].folder)
    assert errors(rest.folder) == []
    manifest = json.loads((rest.folder / layout.MANIFEST).read_text())
    assert manifest["effective"]["method"] == {
        "kind": "lora",
        "rank": 4,
        "alpha": 8.0,
        "rslora": False,
        "dropout": 0.25,
        "targets": "attention.*,up",
        "base": "plain",
    }
    assert manifest["model"]["dtypes"] == {"params": "bfloat16", "trained": "float32", "compute": "float32"}
    assert manifest["model"]["trainable_parameters"] < manifest["model"]["parameters"] / 4
    saved = sum(path.stat().st_size for path in (rest.folder / layout.CHECKPOINTS / "4").rglob("*"))
    assert saved < 2 * manifest["model"]["parameters"]  # the base alone has as many bytes

    # What is exported computes what the run's own model computes.
    task = task_of(whole)
    [state], frozen = restored_state(rest.folder, task)
    tokens = jnp.asarray([[5, 6, 7, 8, 9]], jnp.int32)

    def logits(graphdef, params):
        decoder = bind(graphdef, params)
        return np.asarray(decoder.logits(decoder.hidden(tokens)))

    own = logits(task.model.graphdef, combine(state.trained, frozen))
    source = resolve(str(export_run(rest.folder, None, QUIET)))
    plain = task_of(replace(low, method=MethodConfig(), model=ModelConfig(name=source.name)))
    np.testing.assert_allclose(logits(plain.model.graphdef, initial_params(plain)), own, atol=0.03)
    adapter = read_adapter(export_run(rest.folder, None, QUIET, adapter=True), task.model.source)
    for name, lora in task.model.adapters.items():
        ours, theirs = (
            [np.asarray(params[each]) for each in lora_names(name)] for params in (state.trained, adapter.params)
        )
        moved, read = lora.scale * ours[0] @ ours[1], adapter.loras[name].scale * theirs[0] @ theirs[1]
        np.testing.assert_allclose(read, moved, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_a_checkpoint_beside_another_base_is_refused(low: Config, order_of: Callable[..., RunRequest], tmp_path: Path):
    for number, name in enumerate(("model", "other/model")):
        plain = task_of(replace(low, method=MethodConfig(), seed=number))
        export(tmp_path / name, initial_params(plain), plain.model.source)
    mine = replace(low, model=ModelConfig(name=str(tmp_path / "model")))
    first = order_of(mine, "first")
    assert run(first, QUIET) == 0
    other = replace(mine, model=ModelConfig(name=str(tmp_path / "other/model")), limits=LimitsConfig(steps=3))
    rest = order_of(other, "rest", resume=first.folder)
    name = other.model.name
    stated = json.loads((first.folder / layout.MANIFEST).read_text())["model"]["frozen_sha256"]
    found = params_sha256(initial_params(plain))  # of the loop's last, whose files lie in the other folder
    assert refusal(lambda: run(rest, QUIET), exit_code=3) == (
        f"error TP055: {first.folder}: The frozen parameters of {name} have the SHA-256 {found}; the checkpoint was "
        f"trained with {stated}.\n"
        "  The checkpoint contains only what was trained on top of its base model.\n"
        "  Next: Pass the original base model, or start again.\n"
    )
    higher = replace(mine, method=replace(LORA, rank=5, alpha=9.0), limits=LimitsConfig(steps=3))
    text = refusal(lambda: run(order_of(higher, "higher", resume=first.folder), QUIET))
    assert text.startswith(
        f"error TP052: {first.folder / layout.CONFIG} at method.rank: method.rank is 5; the run to resume has 4.\n"
    )
    assert text.count("error") == 1
    said: list[str] = []
    request = ReplayRequest(folder=first.folder, model=name)
    assert refusal(lambda: replay(request, said.append, said.append), exit_code=3) == (
        f"error TP765: {first.folder} at /model: The weights of the base model here have the SHA-256 {found}; the run "
        f"used {stated}.\n"
        "  With another base model every number differs, which would prove nothing.\n"
        f"  Next: Download {mine.model.name} and pass its folder with --model.\n"
    )
    assert not [line for line in said if "compiling" in line], "before anything is computed"


@pytest.mark.parametrize(
    ("targets", "expected"),
    [
        ("all", {"query", "key", "value", "out", "up", "down"}),
        ("attention.query", {"query"}),
        ("c_attn", {"query", "key", "value"}),
        ("*.mlp.*", {"up", "down"}),
        ("layers.1.attention.out, down", {"out", "down"}),
    ],
)
def test_targets_are_names_or_patterns_of_ours_or_of_the_files(targets: str, expected: set[str], low: Config):
    adapters = task_of(replace(low, method=replace(LORA, targets=targets))).model.adapters
    assert {name.rpartition(".")[2] for name in adapters} == expected
    assert ("layers.0.attention.out" in adapters) == (targets == "all")
    assert len({lora.number for lora in adapters.values()}) == len(adapters)


def test_a_target_that_matches_no_projection_is_refused(low: Config):
    with pytest.raises(ProblemError) as caught:
        task_of(replace(low, method=replace(LORA, targets="q_proj,quary")))
    assert {(problem.code, problem.pointer) for problem in caught.value.problems} == {("TP067", "/method/targets")}
    assert [problem.next for problem in caught.value.problems] == ["Did you mean c_proj?", "Did you mean query?"]


def test_rslora_divides_by_the_root_of_the_rank(low: Config):
    adapters = task_of(replace(low, method=replace(LORA, rslora=True))).model.adapters
    assert {lora.scale for lora in adapters.values()} == {8.0 / 4**0.5}


@pytest.mark.slow(but=("nf4",))
@pytest.mark.parametrize("base", ["nf4", "int8"])
def test_a_base_in_few_bits_is_trained_beside_resumed_and_exported(
    base: str, low: Config, order_of: Callable[..., RunRequest]
):
    whole = replace(low, method=replace(LORA, base=base), limits=LimitsConfig(steps=3))
    first = order_of(replace(whole, limits=LimitsConfig(steps=1)), "first")
    rest = order_of(whole, "rest", resume=first.folder)
    requests = [order_of(whole, "whole"), first, rest]
    assert [run(request, QUIET) for request in requests] == [0, 0, 0]
    assert rows(first.folder) + rows(rest.folder) == rows(requests[0].folder)
    assert errors(rest.folder) == []
    model = json.loads((rest.folder / layout.MANIFEST).read_text())["model"]
    assert model["dtypes"]["params"] == "bfloat16"
    plain = task_of(replace(low, method=MethodConfig()))
    assert model["parameters"] - model["trainable_parameters"] == sum(each.size for each in plain.model.shapes.values())
    assert (export_run(rest.folder, None, QUIET) / "model.safetensors").is_file()


def test_settings_of_adapters_are_refused_where_everything_is_trained(low: Config):
    with pytest.raises(ProblemError) as caught:
        task_of(replace(low, method=MethodConfig(rank=4, base="nf4")))
    assert [(problem.code, problem.pointer) for problem in caught.value.problems] == [
        ("TP069", "/method/rank"),
        ("TP069", "/method/base"),
    ]


# PEFT prints this count of trained parameters for rank 8 on Qwen2.5-VL-3B: 18,576,384 of 3,773,199,360. The language
# model is supported; projections of the vision tower are matched by name and counted by shape (its config.json).
RANK = 8
TARGETS = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
TEXT = {
    "model_type": "qwen2",
    "hidden_size": 2048,
    "intermediate_size": 11008,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "max_position_embeddings": 128000,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1000000.0,
    "tie_word_embeddings": True,
    "hidden_act": "silu",
}
DEPTH, WIDTH, MLP, PATCH, MERGED = 32, 1280, 3420, 3 * 2 * 14 * 14, 4 * 1280


def vision_tower() -> dict[str, tuple[int, ...]]:
    """Shapes of the tower's parameters by name, kernels as `[outputs inputs]`."""
    block = {
        "attn.qkv": (3 * WIDTH, WIDTH),
        "attn.proj": (WIDTH, WIDTH),
        "mlp.gate_proj": (MLP, WIDTH),
        "mlp.up_proj": (MLP, WIDTH),
        "mlp.down_proj": (WIDTH, MLP),
    }
    linears = {f"visual.blocks.{layer}.{name}": shape for layer in range(DEPTH) for name, shape in block.items()}
    linears |= {"visual.merger.mlp.0": (MERGED, MERGED), "visual.merger.mlp.2": (TEXT["hidden_size"], MERGED)}
    norms = [f"visual.blocks.{layer}.norm{number}" for layer in range(DEPTH) for number in (1, 2)]
    return (
        {f"{name}.weight": shape for name, shape in linears.items()}
        | {f"{name}.bias": shape[:1] for name, shape in linears.items()}
        | {f"{name}.weight": (WIDTH,) for name in [*norms, "visual.merger.ln_q"]}
        | {"visual.patch_embed.proj.weight": (WIDTH, PATCH)}
    )


@pytest.fixture(scope="module")
def text_model(tmp_path_factory: pytest.TempPathFactory):
    folder: Path = tmp_path_factory.mktemp("qwen")
    (folder / "config.json").write_text(json.dumps(TEXT))
    method = MethodConfig(kind="lora", rank=RANK, targets=TARGETS)
    return build_model(Config(model=ModelConfig(name=str(folder)), method=method), resolve(str(folder)))


def test_the_printed_count_of_trained_parameters(text_model):
    tower = vision_tower()
    base = sum(shape.size for shape in text_model.base.values()) + sum(map(prod, tower.values()))
    assert base == 3_754_622_976
    targets = TARGETS.split(",")
    modules = {name.removesuffix(".weight"): shape for name, shape in tower.items() if len(shape) == 2}
    matched = {name: shape for name, shape in modules.items() if any(_matches(each, (name,)) for each in targets)}
    # By the end of their names the tower's MLPs are matched too; its attention has other names.
    assert {name.partition(".mlp.")[2] for name in matched} == {"gate_proj", "up_proj", "down_proj"}
    in_tower = sum(RANK * sum(shape) for shape in matched.values())
    assert in_tower == 3_609_600
    in_text = sum(shape.size for shape in text_model.trained.values())
    assert in_text + in_tower == 18_576_384
    assert base + in_text + in_tower == 3_773_199_360


METHOD_KILLS = Path(__file__).parents[2] / "support" / "method_kills.py"
KILLED_METHODS = ("full", "lora", "nf4", "int8", "float16")


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    command = [sys.executable, str(METHOD_KILLS), str(tmp_path_factory.mktemp("methods")), *KILLED_METHODS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("method", KILLED_METHODS)
def test_a_killed_run_that_is_continued_ends_with_the_same_bits(method: str, outcomes: dict[str, Any]):
    outcome = outcomes[method]
    assert (outcome["ended"], outcome["exits"]) == (-9, [0, 0])
    whole, joined = outcome["rows"]
    assert [row[0] for row in whole] == list(range(1, 9))
    assert joined == whole
    assert outcome["states"][0] == outcome["states"][1]
    assert (whole[0][-1] is not None) == (method == "float16")
