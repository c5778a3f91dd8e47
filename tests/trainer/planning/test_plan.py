"""The plan: what is added up, what is refused, and in which words."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from schemas.problems.problem import ProblemError
from schemas.problems.render import as_text
from schemas.validate import check_value
from trainer.config.tree import Batch, Config, Data, Evaluation, Memory, Mesh, Model, Optimizer
from trainer.model.build import abstract
from trainer.model.files.source import resolve
from trainer.model.params import flatten
from trainer.planning.devices import Devices
from trainer.planning.estimate import Asked, Part, estimate, layer_bytes
from trainer.planning.plan import plan_run, refuse_what_does_not_fit

GIB = 2**30

GEMMA_2B = {
    "model_type": "gemma",
    "vocab_size": 256000,
    "hidden_size": 2048,
    "intermediate_size": 16384,
    "num_hidden_layers": 18,
    "num_attention_heads": 8,
    "num_key_value_heads": 1,
    "head_dim": 256,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-6,
    "hidden_act": "gelu_pytorch_tanh",
}


def chips(count: int = 1, memory_bytes: int | None = int(15.75 * GIB)) -> Devices:
    return Devices(
        requested="tpu",
        platform="tpu",
        kind="TPU v5 lite",
        chosen_because="test",
        memory_bytes=memory_bytes,
        memory_source="limit reported by the device",
        list=tuple(range(count)),
    )


@pytest.fixture(scope="module")
def gemma(tmp_path_factory: pytest.TempPathFactory):
    folder = tmp_path_factory.mktemp("gemma-2b")
    (folder / "config.json").write_text(json.dumps(GEMMA_2B))
    spec = resolve(str(folder)).spec
    _, shapes = flatten(abstract(spec, params_dtype="float32", compute_dtype="bfloat16", remat="layer"))
    return spec, shapes


def gemma_run(**groups) -> Config:
    base = Config(
        model=Model(name="gemma-2b"),
        data=Data(max_length=512),
        optimizer=Optimizer(name="adafactor", max_grad_norm=None),
        batch=Batch(microbatch_size=1),
        mesh=Mesh(device="tpu"),
    )
    return replace(base, **groups)


def parts(config: Config, gemma, devices: int = 1) -> dict[str, int]:
    spec, shapes = gemma
    return {part.name: part.bytes for part in estimate(config, spec, shapes, platform="tpu", devices=devices)}


def test_gemma_2b_has_its_known_number_of_parameters(gemma):
    assert parts(gemma_run(), gemma)["params"] == 2_506_172_416 * 4


def test_adamw_keeps_eight_bytes_per_parameter_and_adafactor_almost_none(gemma):
    adamw = parts(gemma_run(optimizer=Optimizer(name="adamw")), gemma)
    assert adamw["opt_state"] == pytest.approx(2_506_172_416 * 8, rel=1e-6)
    assert parts(gemma_run(), gemma)["opt_state"] < 0.01 * adamw["opt_state"]


def test_without_donation_the_state_counts_twice(gemma):
    kept = parts(gemma_run(memory=Memory(donate=False)), gemma)
    assert kept["second_state"] == kept["params"] + kept["opt_state"]


def test_clipping_holds_every_gradient_at_once(gemma):
    clipped = parts(gemma_run(optimizer=Optimizer(name="adafactor", max_grad_norm=1.0)), gemma)
    assert clipped["gradients"] == 2_506_172_416 * 4
    assert parts(gemma_run(), gemma)["gradients"] == 256000 * 2048 * 4


def test_eight_chips_hold_an_eighth_each(gemma):
    one, eight = parts(gemma_run(), gemma), parts(gemma_run(), gemma, devices=8)
    for name in ("params", "gradients"):
        assert eight[name] == one[name] // 8


def test_the_worked_example_of_a_layer():
    spec = replace(resolve("tiny-gpt2").spec, embed=2, heads=1, kv_heads=1, head_dim=2, mlp=4, gated_mlp=False)
    assert layer_bytes(spec, sequences=1, length=4, item=4) == 4 * (4 * 2 + 2 * 2 + 2 * 2 + 2 * 4) * 4 + 2 * 16 * 4


def test_a_plan_is_a_valid_document_whose_parts_add_up(gemma):
    spec, shapes = gemma
    plan = plan_run(gemma_run(), spec, shapes, chips(), forced=False)
    assert check_value("plan", plan, file="plan.json") == []
    assert sum(part["bytes"] for part in plan["parts"]) == plan["need_bytes"]
    assert plan["verdict"] == "fits"


def test_the_public_failure_is_refused_with_its_cure(gemma):
    """AdamW on one v5e chip without donation: the run that died on Kaggle. Donation and Adafactor are the cure."""
    spec, shapes = gemma
    config = gemma_run(optimizer=Optimizer(name="adamw"), memory=Memory(donate=False), data=Data(max_length=64))
    plan = plan_run(config, spec, shapes, chips(), forced=False)
    assert plan["verdict"] == "does_not_fit"
    assert [change["set"] for change in plan["changes"][:2]] == ["optimizer.name=adafactor", "memory.donate=true"]
    with pytest.raises(ProblemError) as caught:
        refuse_what_does_not_fit(plan, model="gemma-2b")
    assert caught.value.exit_code == 3
    assert as_text(caught.value.problems) == (
        "error TP710: gemma-2b: The run needs about 65.44 GiB on each device; TPU v5 lite has 15.75 GiB "
        "(limit reported by the device), so it is 49.69 GiB over.\n"
        "  Largest parts: second_state 28.01 GiB, opt_state 18.67 GiB, params 9.34 GiB, gradients 9.34 GiB.\n"
        "  Next: --set optimizer.name=adafactor saves 37.33 GiB; --set memory.donate=true saves 28.01 GiB; "
        "--set precision.params=bfloat16 saves 9.34 GiB; none is enough alone, so combine them. "
        "Or start it all the same with --force.\n"
    )


def test_what_is_forced_is_not_refused_but_recorded(gemma):
    spec, shapes = gemma
    plan = plan_run(gemma_run(optimizer=Optimizer(name="adamw")), spec, shapes, chips(), forced=True)
    refuse_what_does_not_fit(plan, model="gemma-2b")
    assert (plan["verdict"], plan["forced"]) == ("does_not_fit", True)


def test_without_a_known_memory_there_is_no_verdict(gemma):
    spec, shapes = gemma
    plan = plan_run(gemma_run(), spec, shapes, chips(memory_bytes=None), forced=False)
    assert (plan["verdict"], plan["available_bytes"]) == ("unknown", None)


def test_a_model_too_large_for_this_machine_is_refused_before_anything_is_made(tmp_path: Path):
    model = tmp_path / "huge"
    model.mkdir()
    (model / "config.json").write_text(json.dumps(GEMMA_2B | {"num_hidden_layers": 40}))
    for file in Path("trainer/model/tokenizer").glob("*.json"):
        (model / file.name).write_bytes(file.read_bytes())
    config = tmp_path / "config.yaml"
    config.write_text(f"model: {{name: {model}, weights: random}}\nmesh: {{devices: 1}}\n")
    command = [sys.executable, "-m", "trainproof", "train", "--config", str(config), "--output", str(tmp_path / "run")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert "error TP710" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()


def parts_of_demo(asked: Asked | None = None, **groups) -> dict[str, Part]:
    config = Config(model=Model(name="demo"), **groups)
    spec = resolve("demo").spec
    _, shapes = flatten(abstract(spec, params_dtype="float32", compute_dtype="float32", remat="layer"))
    return {part.name: part for part in estimate(config, spec, shapes, platform="cpu", devices=1, asked=asked)}


def test_an_evaluation_that_needs_more_than_a_step_decides():
    large = {"evaluation": Evaluation(batch_size=20000, max_new_tokens=256)}
    parts = parts_of_demo(Asked(prompts=20000, longest_tokens=30), **large)
    assert list(parts) == ["key_value_cache", "activations", "logits", "opt_state", "params"]
    assert parts["key_value_cache"].because == "evaluation: 20,000 prompts × 288 tokens × 1,024 numbers × 4 bytes"
    assert parts["key_value_cache"].bytes == 20000 * 288 * 1024 * 4
    by_compiler = 33_447 * 2**20
    assert sum(part.bytes for part in parts.values()) == pytest.approx(by_compiler, rel=0.1)


def test_no_more_prompts_are_counted_than_there_are():
    large = {"evaluation": Evaluation(batch_size=20000, max_new_tokens=256)}
    assert parts_of_demo(Asked(prompts=3, longest_tokens=30), **large) == parts_of_demo(**large)


def test_a_smaller_batch_of_prompts_is_named_where_the_evaluation_decides():
    spec = resolve("demo").spec
    _, shapes = flatten(abstract(spec, params_dtype="float32", compute_dtype="float32", remat="layer"))
    config = Config(model=Model(name="demo"), evaluation=Evaluation(batch_size=20000))
    asked = Asked(prompts=20000, longest_tokens=30)
    plan = plan_run(config, spec, shapes, chips(), forced=False, asked=asked)
    assert (plan["verdict"], sum(part["bytes"] for part in plan["parts"])) == ("does_not_fit", plan["need_bytes"])
    largest = plan["changes"][0]
    assert (largest["set"], largest["fits"]) == ("evaluation.batch_size=1", True)


def test_the_batch_of_many_microbatches_is_counted():
    part = parts_of_demo(batch=Batch(microbatch_size=2, accumulation_steps=100_000), data=Data(max_length=64))["batch"]
    assert (part.bytes, part.because) == (64_000_000, "12,800,000 tokens × 5 bytes")


def test_a_chunk_of_the_loss_has_a_position_of_each_sequence_at_least():
    memory = Memory(loss_chunk_tokens=4)
    logits = parts_of_demo(batch=Batch(microbatch_size=16), memory=memory)["logits"]
    assert logits.because == "16 tokens × 576 words × 4 bytes, three times"
