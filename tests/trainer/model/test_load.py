"""Reading safetensors, with all their problems at once, and writing model folders, completely or not at all."""

import json
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from golden import CASES, FLOAT32, load_folder, shapes_of
from model_folders import model_folder
from refusals import catch_problem, catch_problems
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from tiny_models import split_over_eight

from trainer.model import export as exporting
from trainer.model.decoder import build, flatten, params_sha256
from trainer.model.export import export
from trainer.model.load import load_params, refuse_unusable_weights
from trainer.model.source import resolve

INDEX = "model.safetensors.index.json"


@pytest.fixture
def changed(tmp_path):
    """Return a function that copies a case and changes its tensors."""

    def copy(name: str, change=lambda tensors: None) -> Path:
        folder = shutil.copytree(CASES / name, tmp_path / name)
        if not (folder / INDEX).exists():
            tensors = load_file(folder / "model.safetensors")
            change(tensors)
            save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return folder

    return copy


def read_params(folder: Path, dtype="float32"):
    return load_folder(folder, params_dtype=dtype)[2]


def refusals(folder: Path) -> list[str]:
    return [problem.what for problem in catch_problems(lambda: read_params(folder))]


BUFFERS = {
    "gpt2": ("h.0.attn.bias", "h.1.attn.masked_bias"),
    "gemma": ("layers.0.self_attn.rotary_emb.inv_freq", "rotary_emb.inv_freq"),
}


@pytest.mark.parametrize(
    ("name", "prefix", "table"), [("gpt2", "transformer.", "wte.weight"), ("gemma", "model.", "embed_tokens.weight")]
)
def test_names_without_prefix_buffers_and_a_repeated_head_are_the_same_model(changed, name, prefix, table):
    def rename_tensors(tensors):
        bare = {key.removeprefix(prefix): value for key, value in tensors.items()}
        tensors.clear()
        tensors.update(
            bare | dict.fromkeys(BUFFERS[name], np.ones((1, 1, 4, 4), np.uint8)) | {"lm_head.weight": bare[table]}
        )

    assert params_sha256(read_params(changed(name, rename_tensors))) == params_sha256(read_params(CASES / name))


@pytest.mark.parametrize("stored", [np.float16, ml_dtypes.bfloat16, np.float64])
def test_every_source_dtype_is_read_and_rounded_once(changed, stored):
    def store(tensors):
        tensors.update({key: value.astype(stored) for key, value in tensors.items()})

    exact = load_file(CASES / "gpt2" / "model.safetensors")["transformer.wte.weight"]
    folder = changed("gpt2", store)
    for held in (jnp.float32, jnp.bfloat16):
        found = read_params(folder, held)["tokens.table"]
        assert found.dtype == held
        np.testing.assert_array_equal(found, exact.astype(stored).astype(held))


def test_each_device_gets_its_part():
    source = resolve(str(CASES / "gpt2"))
    shapes = shapes_of(source)
    wanted = {
        name: jax.ShapeDtypeStruct(shapes[name].shape, shapes[name].dtype, sharding=sharding)
        for name, sharding in split_over_eight(shapes).items()
    }
    split = load_params(source, wanted)
    assert split["positions.table"].sharding == wanted["positions.table"].sharding
    assert split["positions.table"].addressable_shards[0].data.shape == (6, 32)
    assert params_sha256(split) == params_sha256(read_params(CASES / "gpt2"))


def test_loaded_parameters_may_be_donated():
    params = read_params(CASES / "gpt2")
    before = params_sha256(params)
    halved = jax.jit(lambda tree: jax.tree.map(lambda x: x * 0.5, tree), donate_argnums=0)(params)
    assert all(value.is_deleted() for value in params.values())
    assert params_sha256(jax.tree.map(lambda x: x * 2.0, halved)) == before
    assert params_sha256(read_params(CASES / "gpt2")) == before


def test_everything_wrong_is_said_at_once(changed):
    def damage(tensors):
        del tensors["transformer.ln_f.bias"]
        del tensors["transformer.h.0.mlp.c_fc.bias"]
        tensors["score.weight"] = np.zeros((2, 32), np.float32)
        tensors["transformer.wpe.weight"] = tensors["transformer.wpe.weight"][:40]
        tensors["transformer.h.1.ln_1.weight"] = tensors["transformer.h.1.ln_1.weight"].astype(np.int8)
        tensors["lm_head.weight"] = tensors["transformer.wte.weight"] + 1

    folder = changed("gpt2", damage)
    problems = catch_problems(lambda: read_params(folder))
    assert {problem.code for problem in problems} == {"TP044"}
    assert [problem.what.removeprefix(f"{folder}: ") for problem in problems] == [
        "missing tensors: h.0.mlp.c_fc.bias, ln_f.bias.",
        "unexpected tensors: score.weight.",
        "tensors whose shape differs from config.json: wpe.weight [40, 32] instead of [48, 32].",
        "tensors of unsupported types (supported: F64, F32, F16, BF16): h.1.ln_1.weight I8.",
        "tied head that differs from the token table: lm_head.weight.",
    ]


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("held", ["float32", "bfloat16"])
def test_numbers_that_are_not_finite_are_refused(changed, number, held):
    def spoil(tensors):
        for name in ("transformer.wte.weight", "transformer.h.0.attn.c_attn.weight"):
            tensors[name] = tensors[name].astype(np.float64)
            tensors[name][1, 1] = number

    folder = changed("gpt2", spoil)
    problem = catch_problem(lambda: read_params(folder, held))
    assert problem.code == "TP043"
    assert problem.what.endswith(" are not finite: h.0.attn.c_attn.weight, wte.weight.")


def test_a_tensor_with_and_without_prefix_is_refused(changed):
    folder = changed("gpt2", lambda tensors: tensors.update({"wte.weight": tensors["transformer.wte.weight"]}))
    assert refusals(folder) == ["Tensors occur with and without the prefix 'transformer.': wte.weight."]


@pytest.mark.parametrize(
    ("place", "differing"),
    [
        (None, "lm_head.weight in model-00003-of-00003.safetensors"),
        (
            "model-00001-of-00003.safetensors",
            "lm_head.weight in model-00001-of-00003.safetensors, lm_head.weight in model-00003-of-00003.safetensors",
        ),
    ],
)
def test_index_must_list_each_tensor_in_its_file(changed, place, differing):
    folder = changed("gpt2-untied")
    index = json.loads((folder / INDEX).read_text())
    del index["weight_map"]["lm_head.weight"]
    index["weight_map"] |= {} if place is None else {"lm_head.weight": place}
    (folder / INDEX).write_text(json.dumps(index))
    assert refusals(folder) == [f"{INDEX} and the files differ in the place of tensors: {differing}."]


def test_tensor_in_two_files_is_refused(changed):
    folder = changed("gpt2-untied")
    first, last = (folder / f"model-0000{number}-of-00003.safetensors" for number in (1, 3))
    save_file(load_file(first) | {"lm_head.weight": load_file(last)["lm_head.weight"]}, first)
    assert refusals(folder) == [
        f"{INDEX} and the files differ in the place of tensors: lm_head.weight in {first.name}."
    ]


@pytest.mark.parametrize(
    ("damage", "what"),
    [
        (lambda path: path.unlink(), "does not exist in its folder; pytorch_model.bin is a pickle"),
        (lambda path: path.write_bytes(b""), "cannot be read: "),
        (lambda path: path.write_bytes(b"\xff" * 64), "cannot be read: "),
        (lambda path: path.write_bytes(b"\x02\x00\x00\x00\x00\x00\x00\x00{]"), "cannot be read: "),
        (lambda path: path.write_bytes(path.read_bytes()[:10_000]), "cannot be read: "),
    ],
    ids=["missing", "empty", "no header", "no JSON", "cut short"],
)
def test_a_missing_or_damaged_file_is_refused(changed, damage, what):
    folder = changed("gpt2")
    damage(folder / "model.safetensors")
    (folder / "pytorch_model.bin").write_bytes(b"")
    problem = catch_problem(lambda: read_params(folder))
    assert (problem.code, problem.file) == ("TP043", str(folder / "model.safetensors"))
    assert problem.what.startswith(f"model.safetensors {what}")


@pytest.mark.parametrize(
    ("index", "what"),
    [
        ("x", "cannot be read: JSONDecodeError: Expecting value: line 1 column 1 (char 0)."),
        ("[]", "cannot be read: it is not a JSON object."),
        ("{}", "has no weight_map from tensors to files."),
        ('{"weight_map": {"a": 1}}', "contains invalid file names: '1'."),
        (
            '{"weight_map": {"a": "../secret", "b": "/etc/x", "c": "", "d": ".."}}',
            "contains invalid file names: '', '..', '../secret', '/etc/x'.",
        ),
        ('{"weight_map": {"a": "gone.safetensors"}}', "gone.safetensors does not exist in its folder."),
    ],
)
def test_a_bad_index_is_refused(changed, index, what):
    folder = changed("gpt2-untied")
    (folder / INDEX).write_text(index)
    assert [each.removeprefix(f"{INDEX} ") for each in refusals(folder)] == [what]


WEIGHT = "model.layers.0.mlp.up_proj.weight"
STATE = f"{WEIGHT}.quant_state.bitsandbytes__nf4"


def change_state(**values):
    def change(tensors):
        state = json.loads(tensors[STATE].tobytes()) | values
        state = {key: value for key, value in state.items() if value is not None}
        tensors[STATE] = np.frombuffer(json.dumps(state).encode(), np.uint8)

    return change


def without(*names):
    return lambda tensors: [tensors.pop(name) for name in names]


def put(name, value):
    return lambda tensors: tensors.update({name: value})


FOUR_BIT = (
    (change_state(blocksize=48), "unsupported blocksize 48"),
    (change_state(blocksize=None), "unsupported blocksize None"),
    (change_state(blocksize=128), "absmax: 36 expected, 72 found"),
    (change_state(quant_type="nf3"), "unsupported quant_type 'nf3'"),
    (change_state(dtype="int32"), "unsupported dtype 'int32'"),
    (change_state(shape=None), "invalid shape None"),
    (change_state(shape=[72, 60]), "bytes of codes: 2,160 expected, 2,304 found"),
    (change_state(nested_blocksize=0), "invalid nested_blocksize 0"),
    (change_state(nested_blocksize=16), "nested_absmax: 5 expected, 1 found"),
    (change_state(nested_offset="x"), "invalid nested_offset 'x'"),
    (without(f"{WEIGHT}.absmax"), "absmax missing"),
    (without(f"{WEIGHT}.quant_map", f"{WEIGHT}.nested_absmax"), "nested_absmax, quant_map missing"),
    (put(f"{WEIGHT}.quant_map", np.zeros(15, np.float32)), "quant_map: 16 expected, 15 found"),
    (put(f"{WEIGHT}.absmax", np.zeros(72, np.float32)), "absmax is not stored in 8 bits"),
    (put(STATE, np.frombuffer(b"{", np.uint8)), "its quant_state is not a JSON object"),
    (put(STATE, np.frombuffer(b"[]", np.uint8)), "its quant_state is not a JSON object"),
    (without(WEIGHT), "the weight itself is missing"),
)
EIGHT_BIT = (
    (put("model.layers.0.mlp.up_proj.SCB", np.ones(71, np.float32)), "I8 codes of shape [72, 64] with 71"),
    (without(WEIGHT), "the weight itself is missing"),
)


@pytest.mark.parametrize(
    ("name", "change", "why"),
    [*(("llama-nf4", *each) for each in FOUR_BIT), *(("qwen3-int8", *each) for each in EIGHT_BIT)],
)
def test_a_damaged_weight_in_few_bits_is_refused(name, change, why, changed):
    source = resolve(str(changed(name, change)))
    problem = catch_problem(lambda: refuse_unusable_weights(source, shapes_of(source)))
    assert problem.code == "TP043"
    stated = f"{WEIGHT.removeprefix('model.')} was quantized by bitsandbytes and cannot be read: {why}"
    assert problem.what.startswith(stated)


def test_codes_that_lie_in_another_type_are_the_same_bytes(changed):
    def store_otherwise(tensors):
        tensors[WEIGHT] = tensors[WEIGHT].reshape(-1).view(ml_dtypes.bfloat16)

    found = read_params(changed("llama-nf4", store_otherwise))
    assert params_sha256(found) == params_sha256(read_params(CASES / "llama-nf4"))


@pytest.mark.parametrize("prefix", ["language_model.model.", "model.language_model."])
def test_a_gemma_3_with_images_is_its_text_model(prefix, changed, tmp_path):
    def add_images(tensors):
        renamed = {prefix + name.removeprefix("model."): value for name, value in tensors.items()}
        tensors.clear()
        tensors.update(renamed | {"vision_tower.encoder.weight": np.ones((2, 2), np.float32)})

    folder = changed("gemma3", add_images)
    text = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text, "vision_config": {}}))
    found, expected = read_params(folder), params_sha256(read_params(CASES / "gemma3"))
    assert params_sha256(found) == expected
    export(tmp_path / "text", found, resolve(str(folder)))
    exported = json.loads((tmp_path / "text" / "config.json").read_text())
    assert (exported["model_type"], exported["architectures"]) == ("gemma3_text", ["Gemma3ForCausalLM"])
    assert params_sha256(read_params(tmp_path / "text")) == expected


# Model folders out


@pytest.fixture(scope="module")
def tiny():
    source = resolve("tiny-gpt2")
    return source, jax.jit(lambda: flatten(build(source.spec, key=jax.random.key(0), **FLOAT32))[1])()


def test_a_built_in_model_becomes_a_folder_that_works_alone(tiny, tmp_path):
    source, params = tiny
    export(tmp_path / "export", params, source)
    descriptions = ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    names = sorted(path.name for path in (tmp_path / "export").iterdir())
    assert names == ["config.json", "model.safetensors", *descriptions]
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    again, _, read = load_folder(tmp_path / "export")
    assert again.spec == source.spec
    assert params_sha256(read) == params_sha256(params)
    text = "What is 38 + 47?"
    assert again.tokenizer()(text)["input_ids"] == source.tokenizer()(text)["input_ids"]


def test_chat_templates_with_names_are_copied(tiny, tmp_path):
    folder = model_folder(tmp_path / "model")
    templates = {"chat_template.jinja": "{{ 'plain' }}", "additional_chat_templates/tool_use.jinja": "{{ 'tools' }}"}
    (folder / "additional_chat_templates").mkdir()
    for name, text in templates.items():
        (folder / name).write_text(text)
    export(tmp_path / "export", tiny[1], resolve(str(folder)))
    assert {name: (tmp_path / "export" / name).read_text() for name in templates} == templates


def test_parameters_of_several_types_are_refused(tiny, tmp_path):
    source, params = tiny
    mixed = params | {"final_norm.scale": params["final_norm.scale"].astype(jnp.bfloat16)}
    problem = catch_problem(lambda: export(tmp_path / "export", mixed, source))
    assert "several element types: bfloat16, float32" in problem.what
    assert list(tmp_path.iterdir()) == []
    export(tmp_path / "export", mixed, source, dtype="float32")
    assert json.loads((tmp_path / "export" / "config.json").read_text())["dtype"] == "float32"


def test_float32_parameters_are_exported_in_bfloat16_when_asked_and_config_says_so(tiny, tmp_path):
    source, params = tiny
    export(tmp_path / "export", params, source, dtype="bfloat16")
    theirs, ours = (json.loads((folder / "config.json").read_text()) for folder in (source.folder, tmp_path / "export"))
    assert ours == theirs | {"architectures": ["GPT2LMHeadModel"], "dtype": "bfloat16"}
    with safe_open(tmp_path / "export" / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"BF16"}  # noqa: SIM118
    _, _, rounded = load_folder(tmp_path / "export", params_dtype="bfloat16")
    assert all(jnp.array_equal(rounded[name], params[name].astype(jnp.bfloat16)) for name in params)


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tiny, tmp_path):
    source, params = tiny
    (tmp_path / "export").mkdir()
    export(tmp_path / "export", params, source)
    before = (tmp_path / "export" / "config.json").stat().st_mtime_ns
    problem = catch_problem(lambda: export(tmp_path / "export", params, source))
    assert (problem.code, problem.what) == ("TP048", f"{tmp_path / 'export'} is not empty.")
    assert (tmp_path / "export" / "config.json").stat().st_mtime_ns == before


def test_a_failure_leaves_nothing_behind(tiny, tmp_path, monkeypatch):
    source, params = tiny

    def full_disk(path: Path, value: object) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(exporting, "write_json", full_disk)
    with pytest.raises(OSError, match="No space left on device"):
        export(tmp_path / "export", params, source)
    assert list(tmp_path.iterdir()) == []
