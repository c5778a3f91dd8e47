"""Adapters that PEFT made: the same logits, the same files again, and refusals by name."""

import json
import shutil
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
import yaml
from model_folders import change_json
from our_adapters import METHODS, write
from refusals import catch_problem, catch_problems
from safetensors.numpy import load_file, save_file

from trainer.generate.api import load_model
from trainer.model.peft import merge_named, read_adapter, write_adapter
from trainer.model.source import resolve

CASES = Path(__file__).parents[2] / "cases"
ADAPTERS = CASES / "adapters"
MODELS = {"gpt2": "gpt2", "llama-rslora": "llama", "gemma2": "gemma2"}
GEMMA2 = CASES / "models" / "gemma2"


def merge(source, adapters: list[tuple[Path, float]], folder: Path, *, dtype: str) -> None:
    merge_named(source.name, [f"{path}={weight}" for path, weight in adapters], folder, dtype=dtype)


def base(name):
    return resolve(str(CASES / "models" / MODELS[name]))


def refused(folder, source):
    problems = catch_problems(lambda: read_adapter(folder, source))
    assert {problem.code for problem in problems} <= {"TP047", "TP043"}
    return [problem.what for problem in problems]


def copied(adapter, folder, **config):
    shutil.copytree(adapter, folder)
    change_json(folder / "adapter_config.json", **config)
    return folder


@pytest.mark.slow(but=("gpt2",))
@pytest.mark.parametrize("name", MODELS)
def test_logits_are_those_of_peft_before_and_after_merging(name, tmp_path):
    expected = np.load(ADAPTERS / name / "expected.npz")
    close = 1e-5 * np.abs(expected["logits"]).max()
    model = load_model(CASES / "models" / MODELS[name], adapter=ADAPTERS / name)
    np.testing.assert_allclose(model(expected["tokens"]), expected["logits"], rtol=0, atol=close)
    merge(base(name), [(ADAPTERS / name, 1.0)], tmp_path / "merged", dtype="float32")
    plain = load_model(tmp_path / "merged")
    np.testing.assert_allclose(plain(expected["tokens"]), expected["logits"], rtol=0, atol=close)


@pytest.mark.parametrize("name", ["gpt2", "gemma2"])
def test_an_adapter_that_is_written_again_is_what_peft_wrote(name, tmp_path):
    source = base(name)
    read = read_adapter(ADAPTERS / name, source)
    write_adapter(tmp_path / "again", read.params, read.loras, source)
    folders = (ADAPTERS / name, tmp_path / "again")
    first, second = (load_file(folder / "adapter_model.safetensors") for folder in folders)
    assert {key: value.tobytes() for key, value in first.items()} == {key: v.tobytes() for key, v in second.items()}
    theirs, ours = (json.loads((folder / "adapter_config.json").read_text()) for folder in folders)
    same = ("r", "lora_alpha", "bias", "fan_in_fan_out", "peft_type", "task_type", "use_rslora")
    assert {key: ours[key] for key in same} == {key: theirs[key] for key in same}
    assert read_adapter(tmp_path / "again", source).loras == read.loras


def test_several_adapters_are_merged_by_their_weights_and_a_tied_head_stays_tied(tmp_path):
    adapter = ADAPTERS / "gemma2"
    merge(base("gemma2"), [(adapter, 0.25), (adapter, 0.75)], tmp_path / "sum", dtype="float32")
    merge(base("gemma2"), [(adapter, 1.0)], tmp_path / "one", dtype="float32")
    merge(base("gemma2"), [(adapter, 1.0), (adapter, -1.0)], tmp_path / "none", dtype="float32")
    one, parts, none = (load_model(tmp_path / name).params for name in ("one", "sum", "none"))
    own = load_model(GEMMA2).params
    for name, value in one.items():
        np.testing.assert_allclose(parts[name], value, atol=1e-6)
        np.testing.assert_allclose(none[name], own[name], atol=1e-6)
    assert "lm_head.weight" not in load_file(tmp_path / "one" / "model.safetensors")


@pytest.mark.parametrize(
    ("key", "value"), yaml.safe_load((ADAPTERS / "refused_options.yaml").read_text("utf-8"))["refused"]
)
def test_invalid_and_unsupported_options_are_refused_by_name(key, value, tmp_path):
    [what] = refused(copied(ADAPTERS / "gemma2", tmp_path / "adapter", **{key: value}), base("gemma2"))
    assert what.startswith(f"`{key}` is {json.dumps(value)}, which is ")


def test_an_adapter_of_another_base_is_refused(tmp_path):
    found = refused(ADAPTERS / "gemma2", base("llama-rslora"))
    assert found[0].startswith("4 tensors belong to no module of")
    found = refused(ADAPTERS / "gpt2", resolve(str(CASES / "models" / "gpt2-untied")))
    assert found[0].startswith("8 tensors have another shape than")
    assert "[3, 32] instead of [3, 24]" in found[0]


def test_another_rank_half_an_adapter_and_damaged_files_are_refused(tmp_path):
    source = base("gemma2")
    assert "another shape" in refused(copied(ADAPTERS / "gemma2", tmp_path / "a", r=3), source)[0]
    folder = copied(ADAPTERS / "gemma2", tmp_path / "b")
    tensors = load_file(folder / "adapter_model.safetensors")
    tensors.pop(next(name for name in tensors if "lora_A" in name))
    save_file(tensors, folder / "adapter_model.safetensors")
    assert "lack the other matrix of their module" in refused(folder, source)[0]
    (folder / "adapter_model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    assert "adapter_model.safetensors cannot be read" in refused(folder, source)[0]
    (folder / "adapter_config.json").write_text("{")
    assert refused(folder, source)[0].startswith("adapter_config.json cannot be read: JSONDecodeError: Expecting ")
    assert refused(tmp_path / "nowhere", source) == ["adapter_config.json cannot be read: No such file or directory."]


def test_merging_as_on_the_command_line(tmp_path):
    adapter = ADAPTERS / "gemma2"
    shutil.copytree(adapter, tmp_path / "one=0.5")
    half, whole = tmp_path / "half", tmp_path / "whole"
    merge_named(str(GEMMA2), [f"{adapter}=0.5"], half, dtype="bfloat16")
    # A folder of the whole name comes before a weight.
    merge_named(str(GEMMA2), [str(tmp_path / "one=0.5")], whole)
    configs = [json.loads((folder / "config.json").read_text()) for folder in (half, whole)]
    assert [config["dtype"] for config in configs] == ["bfloat16", "float32"]
    name = "layers.0.attention.query.kernel"
    own, moved_half, moved = (load_model(folder).params[name] for folder in (GEMMA2, half, whole))
    np.testing.assert_allclose(moved_half - own, (moved - own) / 2, atol=0.02)


@pytest.mark.parametrize(
    ("adapter", "dtype", "what"),
    [
        ("a=b", None, "The weight of a is 'b', which is not a number."),
        ("a=inf", None, "The weight of a is 'inf', which is not a number."),
        ("a", "int8", "A model cannot be written in the element type 'int8'."),
    ],
)
def test_invalid_merges_are_refused(adapter, dtype, what, tmp_path):
    problem = catch_problem(lambda: merge_named(str(GEMMA2), [adapter], tmp_path / "out", dtype=dtype))
    assert (problem.code, problem.what) == ("TP066", what)
    assert not (tmp_path / "out").exists()


TIED = CASES / "tied_adapter"
"""A tied model, an adapter that PEFT 0.21.2 made with `modules_to_save: [embed_tokens]`, and PEFT's logits."""

TOKENS = [[5, 17, 44, 2, 9, 61, 33, 12]]
TABLE, HEAD = "model.embed_tokens.weight", "lm_head.weight"
IN_ADAPTER = "base_model.model."


def weights(folder, name="model"):
    return load_file(folder / f"{name}.safetensors")


@pytest.fixture(scope="module")
def tables():
    """The tied model's table, and the one that the adapter saves."""
    saved = weights(TIED / "adapter", "adapter_model")[IN_ADAPTER + TABLE]
    return weights(TIED / "model")[TABLE], saved


def test_a_token_table_that_is_saved_beside_a_tied_head_unties_them_as_in_peft(tables, tmp_path):
    expected = np.load(TIED / "peft_0_21_2.npy")
    merge_named(str(TIED / "model"), [str(TIED / "adapter")], tmp_path / "merged")
    for model in (load_model(TIED / "model", adapter=TIED / "adapter"), load_model(tmp_path / "merged")):
        np.testing.assert_allclose(model(TOKENS), expected, rtol=0, atol=1e-5 * np.abs(expected).max())
    assert json.loads((tmp_path / "merged" / "config.json").read_text())["tie_word_embeddings"] is False
    written = weights(tmp_path / "merged")
    np.testing.assert_array_equal((written[HEAD], written[TABLE]), tables)


@pytest.mark.parametrize("saved", ["head", "both", "tied"])
def test_the_tables_that_an_adapter_saves_are_those_of_the_merged_model(saved, tables, tmp_path):
    base, trained = tables
    config = {
        "head": {"modules_to_save": ["lm_head"]},
        "both": {"modules_to_save": ["lm_head", "embed_tokens"]},
        "tied": {"ensure_weight_tying": True},
    }
    adapter = copied(TIED / "adapter", tmp_path / "adapter", **config[saved])
    tensors = weights(adapter, "adapter_model")
    if saved != "tied":
        tensors[IN_ADAPTER + HEAD] = trained
    if saved == "head":
        del tensors[IN_ADAPTER + TABLE]
    save_file(tensors, adapter / "adapter_model.safetensors", metadata={"format": "pt"})
    merge_named(str(TIED / "model"), [str(adapter)], tmp_path / "merged")
    written = weights(tmp_path / "merged")
    np.testing.assert_array_equal(written[TABLE], base if saved == "head" else trained)
    assert (HEAD in written) is (saved != "tied")
    np.testing.assert_array_equal(written.get(HEAD, written[TABLE]), trained)
    with_adapter, merged = load_model(TIED / "model", adapter=adapter), load_model(tmp_path / "merged")
    np.testing.assert_allclose(with_adapter(TOKENS), merged(TOKENS), rtol=0, atol=1e-6)


def test_an_adapter_that_unties_and_one_that_does_not_are_merged_into_one_model(tables, tmp_path):
    tied = copied(TIED / "adapter", tmp_path / "tied", ensure_weight_tying=True)
    merge(resolve(str(TIED / "model")), [(tied, 0.5), (TIED / "adapter", 0.25)], tmp_path / "merged", dtype="float32")
    base, trained = tables
    written = weights(tmp_path / "merged")
    np.testing.assert_allclose(written[TABLE], base + 0.75 * (trained - base), atol=1e-6)
    np.testing.assert_allclose(written[HEAD], base + 0.5 * (trained - base), atol=1e-6)


OURS = CASES / "our_adapters"
LOADED = json.loads((OURS / "versions.json").read_text())["adapters"]


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_peft_computes_what_we_compute(name, tmp_path):
    write(name, tmp_path / "adapter")
    content = (tmp_path / "adapter" / "adapter_model.safetensors").read_bytes()
    assert sha256(content).hexdigest() == LOADED[name]["adapter_sha256"], "PEFT loaded another adapter: make it anew"
    assert LOADED[name]["largest_change"] > 0.05
    expected = np.load(OURS / "expected.npz")
    logits = load_model(CASES / "models" / name, adapter=tmp_path / "adapter")(expected[f"{name}.tokens"])
    largest = np.abs(expected[f"{name}.logits"]).max()
    np.testing.assert_allclose(logits, expected[f"{name}.logits"], rtol=0, atol=1e-5 * largest)
