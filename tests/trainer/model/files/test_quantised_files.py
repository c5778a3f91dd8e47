"""Files of bitsandbytes that cannot be read, each named; what is read is held against it in test_golden.py."""

import json
import shutil
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from schemas.problems import ProblemError
from trainer.model.decoder import abstract, flatten
from trainer.model.export import export
from trainer.model.load import load_params, refuse_unusable_weights
from trainer.model.source import resolve

CASES = Path(__file__).parents[3] / "cases" / "models"
WEIGHT = "model.layers.0.mlp.up_proj.weight"
STATE = f"{WEIGHT}.quant_state.bitsandbytes__nf4"


def changed(tmp_path, case, change):
    folder = tmp_path / "model"
    shutil.copytree(CASES / case, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return resolve(str(folder))


def wanted(source):
    return flatten(abstract(source.spec, params_dtype="float32", compute_dtype="float32", remat="none"))[1]


def refused(source):
    with pytest.raises(ProblemError) as refusal:
        refuse_unusable_weights(source, wanted(source))
    assert refusal.value.exit_code == 2
    return [(problem.code, problem.what) for problem in refusal.value.problems]


def with_state(**values):
    def change(tensors):
        state = json.loads(tensors[STATE].tobytes()) | values
        state = {key: value for key, value in state.items() if value is not None}
        tensors[STATE] = np.frombuffer(json.dumps(state).encode(), np.uint8)

    return change


def without(*names):
    def change(tensors):
        for name in names:
            del tensors[name]

    return change


def put(name, value):
    return lambda tensors: tensors.update({name: value})


SIZES = "32, 64, 128, 256, 512, 1024, 2048, 4096"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (with_state(blocksize=48), f"its blocksize is 48; {SIZES} are read"),
        (with_state(blocksize=None), f"its blocksize is None; {SIZES} are read"),
        (with_state(blocksize=128), "36 blocks need as many magnitudes, and 72 are there"),
        (with_state(quant_type="nf3"), "its quant_type is 'nf3'; nf4 and fp4 are read"),
        (with_state(dtype="int32"), "its dtype is 'int32'; float32, float16, bfloat16 are read"),
        (with_state(shape=None), "its shape is None"),
        (with_state(shape=[72, 60]), "its codes need 2,160 bytes, and 2,304 are there"),
        (with_state(nested_blocksize=0), "its nested_blocksize is 0"),
        (with_state(nested_blocksize=16), "5 nested magnitudes are needed, and 1 are there"),
        (with_state(nested_offset="x"), "its nested_offset is 'x'"),
        (without(f"{WEIGHT}.absmax"), "it has no absmax"),
        (without(f"{WEIGHT}.quant_map", f"{WEIGHT}.nested_absmax"), "it has no nested_absmax, quant_map"),
        (put(f"{WEIGHT}.quant_map", np.zeros(15, np.float32)), "its quant_map does not have 16 values"),
        (put(f"{WEIGHT}.absmax", np.zeros(72, np.float32)), "its absmax is not in 8 bits, although it is nested"),
        (put(STATE, np.frombuffer(b"{", np.uint8)), "its quant_state is not JSON"),
        (put(STATE, np.frombuffer(b"[]", np.uint8)), "its quant_state is not an object"),
    ],
)
def test_what_cannot_be_read_is_named(change, why, tmp_path):
    name = WEIGHT.removeprefix("model.")
    assert refused(changed(tmp_path, "llama-nf4", change)) == [
        ("TP043", f"{name} is quantised by bitsandbytes and cannot be read: {why}.")
    ]


def test_companions_without_their_weight_and_rows_without_a_magnitude_are_refused(tmp_path):
    name = WEIGHT.removeprefix("model.")
    found = refused(changed(tmp_path / "a", "llama-nf4", without(WEIGHT)))
    assert found == [("TP043", f"{name} is not in the files, although how it was quantised is.")]
    rows = "model.layers.0.mlp.up_proj.SCB"
    found = refused(changed(tmp_path / "b", "qwen3-int8", put(rows, np.ones(71, np.float32))))
    what = f"{name} is quantised by bitsandbytes and cannot be read: it is I8 of shape [72, 64] and has 71 magnitudes."
    assert found == [("TP043", what)]
    found = refused(changed(tmp_path / "c", "qwen3-int8", without(WEIGHT)))
    assert found == [("TP043", f"{name} is not in the files, although layers.0.mlp.up_proj.SCB is.")]


def test_codes_that_lie_in_another_type_are_the_same_bytes(tmp_path):
    def store_otherwise(tensors):
        tensors[WEIGHT] = tensors[WEIGHT].reshape(-1).view(ml_dtypes.bfloat16)

    source = changed(tmp_path, "llama-nf4", store_otherwise)
    own = load_params(source, wanted(source))
    plain = resolve(str(CASES / "llama-nf4"))
    assert all(np.array_equal(value, own[name]) for name, value in load_params(plain, wanted(plain)).items())


def test_a_gemma_3_with_images_is_its_text_model(tmp_path):
    folder = tmp_path / "gemma3"
    shutil.copytree(CASES / "gemma3", folder)
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text, "vision_config": {}}))
    tensors = load_file(folder / "model.safetensors")
    for prefix in ("language_model.model.", "model.language_model."):
        renamed = {prefix + name.removeprefix("model."): value for name, value in tensors.items()}
        renamed["vision_tower.encoder.weight"] = np.ones((2, 2), np.float32)
        save_file(renamed, folder / "model.safetensors")
        source, plain = resolve(str(folder)), resolve(str(CASES / "gemma3"))
        found, own = load_params(source, wanted(source)), load_params(plain, wanted(plain))
        assert all(np.array_equal(found[name], own[name]) for name in own)
    export(tmp_path / "text", found, source)
    exported = json.loads((tmp_path / "text" / "config.json").read_text())
    assert (exported["model_type"], exported["architectures"]) == ("gemma3_text", ["Gemma3ForCausalLM"])
    again = resolve(str(tmp_path / "text"))
    assert all(np.array_equal(value, own[name]) for name, value in load_params(again, wanted(again)).items())
