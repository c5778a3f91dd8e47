"""Model folders out: complete, read by others, never half there, never over something."""

import json
import os
import shutil
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from schemas.problems import ProblemError
from trainer.model import export as exporting
from trainer.model.decoder import abstract, build, flatten, params_sha256
from trainer.model.export import export
from trainer.model.families import TensorLink
from trainer.model.load import load_params
from trainer.model.source import resolve

CASES = Path(__file__).parents[2] / "cases" / "models"


@pytest.fixture(scope="module")
def tiny():
    source = resolve("tiny-gpt2")
    choices = {"params_dtype": jnp.float32, "compute_dtype": jnp.float32, "remat": "none"}
    return source, jax.jit(lambda: flatten(build(source.spec, key=jax.random.key(0), **choices))[1])()


def test_a_built_in_model_becomes_a_folder_that_works_alone(tiny, tmp_path):
    source, params = tiny
    export(tmp_path / "export", params, source)
    names = sorted(path.name for path in (tmp_path / "export").iterdir())
    assert names == [
        "config.json",
        "model.safetensors",
        "special_tokens_map.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert [path.name for path in tmp_path.iterdir()] == ["export"]
    again = resolve(str(tmp_path / "export"))
    assert again.spec == source.spec
    wanted = abstract(again.spec, params_dtype=jnp.float32, compute_dtype=jnp.float32, remat="none")
    assert params_sha256(load_params(again, flatten(wanted)[1])) == params_sha256(params)
    text = "What is 38 + 47?"
    assert again.tokenizer()(text)["input_ids"] == source.tokenizer()(text)["input_ids"]


def test_chat_templates_with_names_are_copied(tmp_path):
    folder = shutil.copytree(CASES / "llama", tmp_path / "model")
    for path in resolve("tiny-gpt2").tokenizer_folder.glob("*.json"):
        shutil.copy(path, folder)
    templates = {"chat_template.jinja": "{{ 'plain' }}", "additional_chat_templates/tool_use.jinja": "{{ 'tools' }}"}
    (folder / "additional_chat_templates").mkdir()
    for name, text in templates.items():
        (folder / name).write_text(text)
    source = resolve(str(folder))
    export(tmp_path / "export", load_params(source, shapes_in(source, "float32")), source)
    assert {name: (tmp_path / "export" / name).read_text() for name in templates} == templates


def shapes_in(source, dtype):
    return flatten(abstract(source.spec, params_dtype=dtype, compute_dtype=dtype, remat="none"))[1]


def test_parameters_of_several_types_are_refused(tiny, tmp_path):
    source, params = tiny
    mixed = params | {"final_norm.scale": params["final_norm.scale"].astype(jnp.bfloat16)}
    with pytest.raises(ProblemError, match="several element types: bfloat16, float32"):
        export(tmp_path / "export", mixed, source)
    assert list(tmp_path.iterdir()) == []
    export(tmp_path / "export", mixed, source, dtype="float32")
    assert json.loads((tmp_path / "export" / "config.json").read_text())["dtype"] == "float32"


def test_config_is_the_old_one_completed(tiny, tmp_path):
    source, params = tiny
    rounded = {name: value.astype(jnp.bfloat16) for name, value in params.items()}
    export(tmp_path / "export", rounded, source)
    before = json.loads((source.folder / "config.json").read_text())
    after = json.loads((tmp_path / "export" / "config.json").read_text())
    assert after == before | {"architectures": ["GPT2LMHeadModel"], "dtype": "bfloat16"}
    with safe_open(tmp_path / "export" / "model.safetensors", framework="numpy") as file:
        assert file.metadata() == {"format": "pt"}
        assert {file.get_slice(name).get_dtype() for name in file.keys()} == {"BF16"}  # noqa: SIM118


def test_several_files_hold_each_tensor_once(tiny, tmp_path):
    source, params = tiny
    export(tmp_path / "export", params, source, shard_bytes=150_000)
    index = json.loads((tmp_path / "export" / "model.safetensors.index.json").read_text())
    shards = sorted(path.name for path in (tmp_path / "export").glob("*.safetensors"))
    assert shards == [f"model-{number:05d}-of-{len(shards):05d}.safetensors" for number in range(1, len(shards) + 1)]
    assert len(shards) == 5
    held = {name: shard for shard in shards for name in load_file(tmp_path / "export" / shard)}
    assert index["weight_map"] == held
    assert index["metadata"] == {"total_size": sum(value.nbytes for value in params.values())}


@pytest.mark.parametrize(
    ("sizes", "room", "expected"),
    [
        ([3, 3, 3], 7, [[3, 3], [3]]),
        ([3, 4], 7, [[3, 4]]),
        ([9, 1, 1], 7, [[9], [1, 1]]),
        ([1, 9, 1], 7, [[1], [9], [1]]),
    ],
)
def test_tensors_are_divided_into_files(sizes, room, expected, tmp_path):
    params = {str(index): jnp.zeros((size,), jnp.int8) for index, size in enumerate(sizes)}
    links = tuple(TensorLink(tensor=name, params=(name,)) for name in params)
    exporting.write_weights(tmp_path, params, links, "int8", room, lambda: None)
    files = [load_file(path) for path in sorted(tmp_path.glob("*.safetensors"))]
    assert [[value.size for _, value in sorted(file.items())] for file in files] == expected


def test_an_empty_folder_is_taken_and_a_full_one_is_not(tiny, tmp_path):
    source, params = tiny
    (tmp_path / "export").mkdir()
    export(tmp_path / "export", params, source)
    before = (tmp_path / "export" / "config.json").stat().st_mtime_ns
    with pytest.raises(ProblemError) as refusal:
        export(tmp_path / "export", params, source)
    assert refusal.value.exit_code == 2
    [problem] = refusal.value.problems
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


@pytest.mark.parametrize(("umask", "of_folder", "of_files"), [(0o022, 0o755, 0o644), (0o077, 0o700, 0o600)])
def test_the_umask_decides_who_may_read(tiny, tmp_path, umask, of_folder, of_files):
    source, params = tiny
    before = os.umask(umask)
    try:
        export(tmp_path / "export", params, source)
    finally:
        os.umask(before)
    assert (tmp_path / "export").stat().st_mode & 0o777 == of_folder
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "export").iterdir()} == {of_files}


def test_float32_parameters_are_exported_in_bfloat16_when_asked(tmp_path):
    source = resolve(str(CASES / "qwen3"))
    shapes = {dtype: shapes_in(source, dtype) for dtype in ("float32", "bfloat16")}
    params = load_params(source, shapes["float32"])
    export(tmp_path / "rounded", params, source, dtype="bfloat16")
    rounded = load_params(resolve(str(tmp_path / "rounded")), shapes["bfloat16"])
    assert json.loads((tmp_path / "rounded" / "config.json").read_text())["dtype"] == "bfloat16"
    assert (tmp_path / "rounded" / "model.safetensors").stat().st_size < 0.6 * (
        CASES / "qwen3" / "model.safetensors"
    ).stat().st_size
    assert all(jnp.array_equal(rounded[name], params[name].astype(jnp.bfloat16)) for name in params)
