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

from schemas.problems import Problem, ProblemError
from trainer.model.decoder import abstract, flatten, params_sha256
from trainer.model.load import load_params
from trainer.model.source import resolve

CASES = Path(__file__).parents[3] / "cases" / "models"


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
    here = str(changed)

    def problem(what: str) -> Problem:
        return Problem(
            code="TP044",
            severity="error",
            file=here,
            what=f"{here}: {what}",
            why="Files and config.json must describe the same gpt2 model; nothing is left random.",
            next="Take config.json and safetensors from the same model.",
        )

    assert found.value.problems == (
        problem("2 tensors are not in the files: h.0.mlp.c_fc.bias, ln_f.bias."),
        problem("1 tensor is of no use to this model: score.weight."),
        problem("1 tensor is of another shape than config.json says: wpe.weight is [40, 32] and should be [48, 32]."),
        problem("1 tensor is of an element type that is not read (F64, F32, F16, BF16 are): h.1.ln_1.weight is I8."),
        problem("1 tensor is not equal to the token table, although config.json ties the head to it: lm_head.weight."),
    )


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
    assert found.value.exit_code == 2
    assert found.value.problems == (
        Problem(
            code="TP043",
            severity="error",
            file=str(changed),
            what=f"Tensors of {changed} hold numbers that are not finite: h.0.attn.c_attn.weight, wte.weight.",
            why="A model with one of them computes no loss; it was saved after it broke.",
            next="Download or export the model again as safetensors, or draw its parameters: `model.weights: random`.",
        ),
    )


def test_an_untied_head_must_be_there(folder):
    changed = folder("gemma")
    config = json.loads((changed / "config.json").read_text())
    (changed / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    assert refusal(changed) == [f"{changed}: 1 tensor is not in the files: lm_head.weight."]


def test_a_tensor_with_and_without_prefix(folder):
    changed = folder("gpt2")
    change(changed, lambda tensors: tensors.update({"wte.weight": tensors["transformer.wte.weight"]}))
    assert refusal(changed) == ["Tensors are there with and without 'transformer.' before their name: wte.weight."]


def test_no_files_or_only_pickled_ones(folder):
    changed = folder("gpt2")
    (changed / "model.safetensors").unlink()
    with pytest.raises(ProblemError) as found:
        load(changed)
    absent = Problem(
        code="TP043",
        severity="error",
        file=str(changed / "model.safetensors"),
        what="model.safetensors is not in the model's folder.",
        why="Parameters are read from safetensors files.",
        next="Download or export the model again as safetensors, or draw its parameters: `model.weights: random`.",
    )
    assert found.value.problems == (absent,)
    (changed / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(ProblemError) as found:
        load(changed)
    assert found.value.problems[0].why == ("Only pytorch_model.bin is there; that format can run code when it is read.")


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
        ("{", "model.safetensors.index.json cannot be read: JSONDecodeError."),
        ("[]", "model.safetensors.index.json cannot be read: TypeError."),
        ("{}", "model.safetensors.index.json cannot be read: KeyError."),
        ('{"weight_map": {"a": 1}}', "model.safetensors.index.json has no map from tensor to file name."),
        (
            '{"weight_map": {"a": "../secret", "b": "/etc/x", "c": "", "d": ".."}}',
            "model.safetensors.index.json names what cannot be a file beside it: '', '..', '../secret', '/etc/x'.",
        ),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors is not in the model's folder."),
        (
            '{"weight_map": {"a": "model-00001-of-00003.safetensors"}}',
            "model.safetensors.index.json names tensors that its files do not hold: a.",
        ),
    ],
)
def test_a_bad_index(folder, index, what):
    changed = folder("gpt2-untied")
    (changed / "model.safetensors.index.json").write_text(index)
    assert refusal(changed) == [what]
