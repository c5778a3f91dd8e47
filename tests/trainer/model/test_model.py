"""Methods: what is trained and saved, that interruption changes no bit, and that merged equals unmerged."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from refusals import catch_problems
from tasks import inputs_of, task_of, with_settings
from tiny_models import logits
from whole_runs import errors_of, manifest_of, refusal, rows

from evidence import layout
from trainer.config.tree import Config, MethodConfig, ModelConfig
from trainer.export_run import export_run
from trainer.loop.checkpoints import restored_state
from trainer.loop.programs import train_program
from trainer.loop.state import initial_params, start_program
from trainer.model.decoder import params_sha256
from trainer.model.export import export
from trainer.model.layers import is_lora, lora_names
from trainer.model.model import build_model, combine
from trainer.model.peft import read_adapter
from trainer.model.source import known_source
from trainer.recorder.progress import Watch

QUIET = Watch(quiet=True)
LORA = MethodConfig(kind="lora", rank=4, alpha=8.0, dropout=0.25, targets="attention.*,up")
EXACT = ("step", "tokens_seen", "loss", "learning_rate", "grad_norm")


@pytest.fixture
def low(config: Config) -> Config:
    """A run of adapters on a base in half precision, with a row for each of its steps."""
    constant = with_settings(config, precision={"params": "bfloat16"}, optimizer={"schedule": "constant"})
    return replace(constant, method=LORA)


def exact_rows(*folders: Path) -> list[list[float]]:
    return [[row[key] for key in EXACT] for folder in folders for row in rows(folder)]


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
def test_what_is_exported_of_a_run_computes_what_its_own_model_computes(low: Config, train: Callable[..., Path]):
    asking = {"eval_set": "eval_v1", "max_new_tokens": 4, "baseline": False}
    run = train(with_settings(low, evaluation=asking))
    assert errors_of(run) == []
    manifest = manifest_of(run)
    assert manifest["effective"]["method"] == vars(LORA) | {"base": "plain"}
    assert manifest["model"]["dtypes"] == {"params": "bfloat16", "trained": "float32", "compute": "float32"}
    assert manifest["model"]["trainable_parameters"] < manifest["model"]["parameters"] / 4
    saved = sum(path.stat().st_size for path in (run / layout.CHECKPOINTS / "2").rglob("*"))
    assert saved < 2 * manifest["model"]["parameters"]  # the base alone has as many bytes

    task, tokens = task_of(low), [[5, 6, 7, 8, 9]]
    [state], frozen = restored_state(run, task)
    own = logits(task.model.graphdef, combine(state.trained, frozen), tokens)
    exported = {"name": str(export_run(run, None, QUIET))}
    plain = task_of(with_settings(replace(low, method=MethodConfig()), model=exported))
    np.testing.assert_allclose(logits(plain.model.graphdef, initial_params(plain), tokens), own, atol=0.03)
    adapter = read_adapter(export_run(run, None, QUIET, adapter=True), task.model.source)
    for name, lora in task.model.adapters.items():
        ours, theirs = (
            [np.asarray(params[each]) for each in lora_names(name)] for params in (state.trained, adapter.params)
        )
        moved, read = lora.scale * ours[0] @ ours[1], adapter.loras[name].scale * theirs[0] @ theirs[1]
        np.testing.assert_allclose(read, moved, atol=1e-7, err_msg=name)


@pytest.mark.slow
def test_a_checkpoint_beside_another_base_is_refused(low, train, order_of, tmp_path):
    for number, name in enumerate(("model", "other/model")):
        plain = task_of(replace(low, method=MethodConfig(), seed=number))
        export(tmp_path / name, initial_params(plain), plain.model.source)
    mine = with_settings(low, model={"name": str(tmp_path / "model")})
    first = train(mine, "first")
    name = str(tmp_path / "other/model")
    other = with_settings(mine, model={"name": name}, limits={"steps": 3})
    found = params_sha256(initial_params(plain))  # of the loop's last, whose files lie in the other folder
    code, text = refusal(order_of(other, "rest", resume=first))
    what = f"error TP055: {first}: The frozen parameters of {name} have the SHA-256 {found}; the checkpoint was trained"
    assert (code, text.partition("\n")[0]) == (3, f"{what} with {manifest_of(first)['model']['frozen_sha256']}.")


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
    adapters = task_of(with_settings(low, method={"targets": targets})).model.adapters
    assert {name.rpartition(".")[2] for name in adapters} == expected
    assert ("layers.0.attention.out" in adapters) == (targets == "all")
    assert len({lora.number for lora in adapters.values()}) == len(adapters)


def test_a_target_that_matches_no_projection_is_refused(low: Config):
    problems = catch_problems(lambda: task_of(with_settings(low, method={"targets": "q_proj,quary"})))
    assert {(problem.code, problem.pointer) for problem in problems} == {("TP067", "/method/targets")}
    assert [problem.next for problem in problems] == ["Did you mean c_proj?", "Did you mean query?"]


@pytest.mark.slow(but=("nf4",))
@pytest.mark.parametrize("base", ["nf4", "int8"])
def test_a_base_in_few_bits_is_trained_beside_resumed_and_exported(base: str, low: Config, train: Callable[..., Path]):
    config = with_settings(low, method={"base": base}, limits={"steps": 3})
    whole, first = train(config, "whole"), train(with_settings(config, limits={"steps": 1}), "first")
    rest = train(config, "rest", resume=first)
    assert exact_rows(first, rest) == exact_rows(whole)
    assert errors_of(rest) == []
    model = manifest_of(rest)["model"]
    assert model["dtypes"]["params"] == "bfloat16"
    plain = task_of(replace(low, method=MethodConfig()))
    assert model["parameters"] - model["trainable_parameters"] == sum(each.size for each in plain.model.shapes.values())
    assert (export_run(rest, None, QUIET) / "model.safetensors").is_file()


def test_the_count_of_trained_parameters_is_that_which_peft_prints():
    """PEFT prints 18,576,384 for rank 8 on Qwen2.5-VL-3B, whose language model alone is supported.

    By their names it also trains the three projections of 1,280 and 3,420 numbers in each of 32 layers of the vision
    tower. The language model has the sizes of Qwen2.5-3B.
    """
    targets = "q_proj,k_proj,v_proj,o_proj,gate_proj,up_proj,down_proj"
    name = "Qwen/Qwen2.5-3B"
    config = Config(model=ModelConfig(name=name), method=MethodConfig(kind="lora", rank=8, targets=targets))
    model = build_model(config, known_source(name))
    assert sum(shape.size for shape in model.base.values()) == 3_085_938_688
    in_tower = 32 * 3 * 8 * (1280 + 3420)
    assert sum(shape.size for shape in model.trained.values()) + in_tower == 18_576_384
