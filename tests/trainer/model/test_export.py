"""Model folders out: complete, read by others, never half there, never over something."""

import json
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest
from golden import FLOAT32, load_folder
from model_folders import model_folder
from refusals import catch_problem
from safetensors import safe_open

from trainer.model import export as exporting
from trainer.model.decoder import build, flatten, params_sha256
from trainer.model.export import export
from trainer.model.source import resolve


@pytest.fixture(scope="module")
def tiny():
    source = resolve("tiny-gpt2")
    return source, jax.jit(lambda: flatten(build(source.spec, key=jax.random.key(0), **FLOAT32))[1])()


def config_of(folder: Path) -> dict:
    return json.loads((folder / "config.json").read_text())


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
    assert config_of(tmp_path / "export")["dtype"] == "float32"


def test_float32_parameters_are_exported_in_bfloat16_when_asked_and_config_says_so(tiny, tmp_path):
    source, params = tiny
    export(tmp_path / "export", params, source, dtype="bfloat16")
    completed = {"architectures": ["GPT2LMHeadModel"], "dtype": "bfloat16"}
    assert config_of(tmp_path / "export") == config_of(source.folder) | completed
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
