"""The model of a smoke run: its own shape if that fits and is quick here, otherwise a small one."""

import json
from dataclasses import replace
from operator import attrgetter
from pathlib import Path

import pytest
from commands import train_request
from model_folders import model_folder
from refusals import catch_problems

from evidence.compare.smoke import find_lineage, find_smoke_runs, run_stages
from evidence.grade import check_run
from evidence.index.summary import summarize
from evidence.registry import known_model_folder
from evidence.run import read_run
from evidence.targets import load_target
from trainer.config.load import load_config
from trainer.model.families import spec_from_config
from trainer.model.source import describe_shrinking, known_source, shrink
from trainer.planning.subject import resolve_shape
from trainer.recorder.progress import Watch
from trainer.run import run

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
    order = train_request(config=large, smoke_steps=2, output=tmp_path / "smoke")
    assert run(order, Watch(quiet=True)) == 0
    smoke = read_run(tmp_path / "smoke")
    stages = run_stages(smoke)
    assert {stage.name: stage.state for stage in stages if stage.state != "passed"} == {"resume": "not exercised"}
    assert smoke.manifest is not None
    model = smoke.manifest["model"]
    assert (model["family"], model["weights"], model["dtypes"]["compute"]) == ("gemma", "random", "bfloat16")
    made = {each["size"]: (each["own"], each["made"]) for each in model["made_small"]}
    assert made == {"layers": (18, 2), "embed": (2048, 128), "mlp": (16384, 1024)}
    report = check_run(smoke)
    assert [finding for finding in report.findings if finding.severity == "error"] == []
    ours = summarize(smoke, report)
    full = replace(ours, mode="full", steps_planned=200, settings={**ours.settings, **settings_of_full(large)})
    assert find_lineage(ours, full) == "same but for size"
    assert find_smoke_runs(full, [ours]) == [ours]


def settings_of_full(path: Path) -> dict[str, object]:
    """Return the settings that the smoke run replaced, as a full run of the configuration states them."""
    stated = ("data.generated_rows", "batch.microbatch_size", "mesh.device", "limits.steps")
    return {"model.shape": "own", **{name: attrgetter(name)(load_config(path)) for name in stated}}


def test_an_absent_device_is_refused_where_a_flag_asks_for_it(large: Path):
    catch_problems(train_request, config=large, smoke_steps=2, device="tpu", exit_code=3)


def test_a_quick_model_is_rehearsed_itself(tmp_path: Path):
    config = train_request(config=Path("trainer/configs/demo.yaml"), smoke_steps=2, output=tmp_path / "s").config
    own = load_config(Path("trainer/configs/demo.yaml"))
    assert config.model == own.model
    assert (config.batch, config.data) == (own.batch, own.data)


def test_on_the_machine_that_it_is_for_a_large_model_is_rehearsed_itself(large: Path):
    config = load_config(large, settings=["model.shape=auto", "limits.steps=2"])
    assert resolve_shape(config, load_target("kaggle-tpu-v5e-8")).model.shape == "own"
    assert resolve_shape(config, load_target("kaggle-t4x2")).model.shape != "auto"


@pytest.mark.parametrize(
    "name",
    [
        *("google/gemma-2b", "google/gemma-2-2b", "google/gemma-3-1b-pt", "Qwen/Qwen2.5-0.5B", "Qwen/Qwen3-0.6B"),
        *("HuggingFaceTB/SmolLM3-3B", "meta-llama/Llama-3.2-1B", "meta-llama/Llama-3.2-3B"),
        *("HuggingFaceTB/SmolLM2-135M", "HuggingFaceTB/SmolLM2-360M"),
    ],
)
def test_what_is_made_small_keeps_its_kind(name: str):
    source = known_source(name)
    assert source is not None
    own, small = source.spec, shrink(source).spec
    kept = ("family", "vocab", "head_dim", "norm", "activation", "tied_head", "attention_bias", "max_positions")
    assert [getattr(small, field) for field in kept] == [getattr(own, field) for field in kept]
    assert set(small.blocks) == set(own.blocks)
    assert small.heads / small.kv_heads == own.heads / own.kv_heads
    assert (small.embed // small.heads, small.layers < own.layers) == (128 // small.heads, True)
    assert shrink(shrink(source)) == shrink(source)


def test_a_gpt2_made_small_is_as_wide_as_its_heads(large: Path):
    source = known_source("openai-community/gpt2")
    assert source is not None
    small = shrink(source)
    assert (small.spec.embed, small.spec.heads, small.spec.head_dim, small.spec.layers) == (128, 2, 64, 2)
    assert small.spec == spec_from_config(small.config)
    assert {each["size"]: each["made"] for each in describe_shrinking(small)}["mlp"] == 512
