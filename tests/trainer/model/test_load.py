"""Safetensors in: whatever is not exactly the model is refused, all of it at once."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec
from safetensors.numpy import load_file, save_file

from schemas.problems import ProblemError
from trainer.model.decoder import abstract, flatten, params_sha256
from trainer.model.export import export
from trainer.model.load import load_params, refuse_unusable_weights
from trainer.model.source import resolve

CASES = Path(__file__).parents[2] / "cases" / "models"


@pytest.fixture
def folder(tmp_path):
    """A copy of a golden model, to be changed."""

    def copy(name: str) -> Path:
        shutil.copytree(CASES / name, tmp_path / name)
        return tmp_path / name

    return copy


def wanted_by(source, dtype=jnp.float32):
    return flatten(abstract(source.spec, params_dtype=dtype, compute_dtype=jnp.float32, remat="none"))[1]


def load(folder: Path, dtype=jnp.float32):
    source = resolve(str(folder))
    return load_params(source, wanted_by(source, dtype))


def refusal(folder: Path) -> list[str]:
    with pytest.raises(ProblemError) as found:
        load(folder)
    assert found.value.exit_code == 2
    return [problem.what for problem in found.value.problems]


def change(folder: Path, edit) -> None:
    path = folder / "model.safetensors"
    tensors = load_file(path)
    edit(tensors)
    save_file(tensors, path, metadata={"format": "pt"})


def test_fused_and_transposed_tensors_land_where_they_belong():
    theirs = load_file(CASES / "gpt2" / "model.safetensors")
    ours = load(CASES / "gpt2")
    fused = theirs["transformer.h.1.attn.c_attn.weight"]
    for index, name in enumerate(("query", "key", "value")):
        np.testing.assert_array_equal(
            ours[f"layers.1.attention.{name}.kernel"], fused[:, 32 * index : 32 * (index + 1)]
        )
    theirs = load_file(CASES / "gemma" / "model.safetensors")
    ours = load(CASES / "gemma")
    np.testing.assert_array_equal(ours["layers.1.mlp.gate.kernel"], theirs["model.layers.1.mlp.gate_proj.weight"].T)
    assert list(ours) == sorted(ours)


@pytest.mark.parametrize("name", ["gpt2", "gemma"])
def test_names_without_prefix_buffers_and_a_repeated_head_are_the_same_model(folder, name):
    expected = params_sha256(load(CASES / name))
    changed = folder(name)
    prefix = {"gpt2": "transformer.", "gemma": "model."}[name]
    table = {"gpt2": "wte.weight", "gemma": "embed_tokens.weight"}[name]
    buffers = {
        "gpt2": {"h.0.attn.bias": np.ones((1, 1, 4, 4), np.uint8), "h.1.attn.masked_bias": np.array(-1e4, np.float32)},
        "gemma": {
            "layers.0.self_attn.rotary_emb.inv_freq": np.ones(8, np.float32),
            "rotary_emb.inv_freq": np.ones(8, np.float32),
        },
    }[name]

    def as_others_write_it(tensors):
        bare = {key.removeprefix(prefix): value for key, value in tensors.items()}
        tensors.clear()
        tensors.update(bare | buffers | {"lm_head.weight": bare[table]})

    change(changed, as_others_write_it)
    assert params_sha256(load(changed)) == expected


@pytest.mark.parametrize("stored", [np.float16, ml_dtypes.bfloat16, np.float64])
@pytest.mark.parametrize("held", [jnp.float32, jnp.bfloat16])
def test_every_source_dtype_is_read_and_rounded_once(folder, stored, held):
    changed = folder("gpt2")
    change(changed, lambda tensors: tensors.update({key: value.astype(stored) for key, value in tensors.items()}))
    exact = load_file(CASES / "gpt2" / "model.safetensors")["transformer.wte.weight"]
    got = load(changed, held)["tokens.table"]
    assert got.dtype == held
    np.testing.assert_array_equal(got, exact.astype(stored).astype(held))


def test_each_device_gets_its_part(folder):
    source = resolve(str(CASES / "gpt2"))
    mesh = jax.make_mesh((8,), ("shard",), axis_types=(jax.sharding.AxisType.Auto,))
    wanted = {
        name: jax.ShapeDtypeStruct(
            one.shape,
            one.dtype,
            sharding=NamedSharding(mesh, PartitionSpec("shard") if one.shape[0] % 8 == 0 else PartitionSpec()),
        )
        for name, one in wanted_by(source).items()
    }
    split = load_params(source, wanted)
    assert split["positions.table"].sharding == wanted["positions.table"].sharding
    assert split["positions.table"].addressable_shards[0].data.shape == (6, 32)
    assert params_sha256(split) == params_sha256(load(CASES / "gpt2"))


def test_loaded_parameters_may_be_donated():
    params = load(CASES / "gpt2")
    before = params_sha256(params)
    halved = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0.5, tree), donate_argnums=0)(params)
    assert all(value.is_deleted() for value in params.values())
    doubled = jax.tree.map(lambda x: x * 2.0, halved)
    assert params_sha256(doubled) == before
    assert params_sha256(load(CASES / "gpt2")) == before


def test_everything_wrong_is_said_at_once(folder):
    changed = folder("gpt2")

    def damage(tensors):
        del tensors["transformer.ln_f.bias"]
        del tensors["transformer.h.0.mlp.c_fc.bias"]
        tensors["score.weight"] = np.zeros((2, 32), np.float32)
        tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"][:40]
        tensors["transformer.h.1.ln_1.weight"] = tensors["transformer.h.1.ln_1.weight"].astype(np.int8)
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1

    change(changed, damage)
    with pytest.raises(ProblemError) as found:
        load(changed)
    assert {problem.code for problem in found.value.problems} == {"TP044"}
    assert [problem.what.removeprefix(f"{changed}: ") for problem in found.value.problems] == [
        "missing tensors: h.0.mlp.c_fc.bias, ln_f.bias.",
        "unexpected tensors: score.weight.",
        "tensors of another shape than config.json states: wpe.weight [40, 32] instead of [48, 32].",
        "tensors of unsupported types (supported: F64, F32, F16, BF16): h.1.ln_1.weight I8.",
        "tied head that differs from the token table: lm_head.weight.",
    ]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("held", [jnp.float32, jnp.bfloat16])
def test_numbers_that_are_not_finite_are_refused(folder, number, held):
    changed = folder("gpt2")

    def spoil(tensors):
        for name in ("transformer.wte.weight", "transformer.h.0.attn.c_attn.weight"):
            tensors[name] = tensors[name].astype(np.float64)
            tensors[name][1, 1] = number

    change(changed, spoil)
    with pytest.raises(ProblemError) as found:
        load(changed, held)
    [problem] = found.value.problems
    assert (found.value.exit_code, problem.code) == (2, "TP043")
    assert problem.what.endswith(" are not finite: h.0.attn.c_attn.weight, wte.weight.")


def test_an_untied_head_must_be_there(folder):
    changed = folder("gemma")
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    assert refusal(changed) == [f"{changed}: missing tensors: lm_head.weight."]


def test_a_tensor_with_and_without_prefix(folder):
    changed = folder("gpt2")
    change(changed, lambda tensors: tensors.update({"wte.weight": tensors["transformer.wte.weight"]}))
    assert refusal(changed) == ["Tensors occur with and without the prefix 'transformer.': wte.weight."]


def test_no_files_or_only_pickled_ones(folder):
    changed = folder("gpt2")
    (changed / "model.safetensors").unlink()
    with pytest.raises(ProblemError) as found:
        load(changed)
    [problem] = found.value.problems
    assert (problem.code, problem.file) == ("TP043", str(changed / "model.safetensors"))
    (changed / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ProblemError) as found:
        load(changed)
    assert found.value.problems[0].why == "pytorch_model.bin is a pickle, which can run code when it is read."


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "header too small"),
        (b"\xff" * 64, "header too large"),
        (b"\x02\x00\x00\x00\x00\x00\x00\x00{]", "invalid JSON in header"),
    ],
)
def test_a_damaged_file(folder, content, said):
    changed = folder("gpt2")
    (changed / "model.safetensors").write_bytes(content)
    (what,) = refusal(changed)
    assert what.startswith("model.safetensors cannot be read: ")
    assert said in what


def test_a_file_cut_short(folder):
    changed = folder("gpt2")
    whole = (changed / "model.safetensors").read_bytes()
    (changed / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    (what,) = refusal(changed)
    assert what.startswith("model.safetensors cannot be read: ")


@pytest.mark.parametrize(
    ("index", "what"),
    [
        ("{", "cannot be read: JSONDecodeError."),
        ("[]", "cannot be read: TypeError."),
        ("{}", "cannot be read: KeyError."),
        ('{"weight_map": {"a": 1}}', "does not map tensors to file names."),
        (
            '{"weight_map": {"a": "../secret", "b": "/etc/x", "c": "", "d": ".."}}',
            "contains invalid file names: '', '..', '../secret', '/etc/x'.",
        ),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors does not exist in the model's folder."),
        (
            '{"weight_map": {"a": "model-00001-of-00003.safetensors"}}',
            "lists tensors that its files do not contain: a.",
        ),
    ],
)
def test_a_bad_index(folder, index, what):
    changed = folder("gpt2-untied")
    (changed / "model.safetensors.index.json").write_text(index)
    assert [each.removeprefix("model.safetensors.index.json ") for each in refusal(changed)] == [what]


WEIGHT = "model.layers.0.mlp.up_proj.weight"
STATE = f"{WEIGHT}.quant_state.bitsandbytes__nf4"


def changed(tmp_path, case, change):
    folder = tmp_path / "model"
    shutil.copytree(CASES / case, folder)
    tensors = load_file(folder / "model.safetensors")
    change(tensors)
    save_file(tensors, folder / "model.safetensors")
    return resolve(str(folder))


def refused(source):
    with pytest.raises(ProblemError) as refusal:
        refuse_unusable_weights(source, wanted_by(source))
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


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (with_state(blocksize=48), "unsupported blocksize 48"),
        (with_state(blocksize=None), "unsupported blocksize None"),
        (with_state(blocksize=128), "absmax: 36 expected, 72 found"),
        (with_state(quant_type="nf3"), "unsupported quant_type 'nf3'"),
        (with_state(dtype="int32"), "unsupported dtype 'int32'"),
        (with_state(shape=None), "invalid shape None"),
        (with_state(shape=[72, 60]), "bytes of codes: 2,160 expected, 2,304 found"),
        (with_state(nested_blocksize=0), "invalid nested_blocksize 0"),
        (with_state(nested_blocksize=16), "nested_absmax: 5 expected, 1 found"),
        (with_state(nested_offset="x"), "invalid nested_offset 'x'"),
        (without(f"{WEIGHT}.absmax"), "absmax missing"),
        (without(f"{WEIGHT}.quant_map", f"{WEIGHT}.nested_absmax"), "nested_absmax, quant_map missing"),
        (put(f"{WEIGHT}.quant_map", np.zeros(15, np.float32)), "quant_map: 16 expected, 15 found"),
        (put(f"{WEIGHT}.absmax", np.zeros(72, np.float32)), "absmax is not stored in 8 bits"),
        (put(STATE, np.frombuffer(b"{", np.uint8)), "its quant_state is not a JSON object"),
        (put(STATE, np.frombuffer(b"[]", np.uint8)), "its quant_state is not a JSON object"),
        (without(WEIGHT), "the weight itself is missing"),
    ],
)
def test_a_damaged_four_bit_weight_is_refused(change, why, tmp_path):
    name = WEIGHT.removeprefix("model.")
    assert refused(changed(tmp_path, "llama-nf4", change)) == [
        ("TP043", f"{name} was quantised by bitsandbytes and cannot be read: {why}.")
    ]


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (put("model.layers.0.mlp.up_proj.SCB", np.ones(71, np.float32)), "I8 codes of shape [72, 64] with 71"),
        (without(WEIGHT), "the weight itself is missing"),
    ],
)
def test_a_damaged_eight_bit_weight_is_refused(change, why, tmp_path):
    [(code, what)] = refused(changed(tmp_path, "qwen3-int8", change))
    assert code == "TP043"
    assert why in what


def test_codes_that_lie_in_another_type_are_the_same_bytes(tmp_path):
    def store_otherwise(tensors):
        tensors[WEIGHT] = tensors[WEIGHT].reshape(-1).view(ml_dtypes.bfloat16)

    source = changed(tmp_path, "llama-nf4", store_otherwise)
    own = load_params(source, wanted_by(source))
    plain = resolve(str(CASES / "llama-nf4"))
    assert all(np.array_equal(value, own[name]) for name, value in load_params(plain, wanted_by(plain)).items())


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
        found, own = load_params(source, wanted_by(source)), load_params(plain, wanted_by(plain))
        assert all(np.array_equal(found[name], own[name]) for name in own)
    export(tmp_path / "text", found, source)
    exported = json.loads((tmp_path / "text" / "config.json").read_text())
    assert (exported["model_type"], exported["architectures"]) == ("gemma3_text", ["Gemma3ForCausalLM"])
    again = resolve(str(tmp_path / "text"))
    assert all(np.array_equal(value, own[name]) for name, value in load_params(again, wanted_by(again)).items())
