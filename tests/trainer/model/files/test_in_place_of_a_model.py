"""What people name as a model that is none: the folder above one, an adapter, a run, a file that was not fetched."""

from contextlib import ExitStack
from pathlib import Path

import pytest
from model_folders import model_folder

from schemas.problems import Problem, ProblemError
from trainer.model.load import open_file, open_tensors
from trainer.model.peft import read_adapter_config
from trainer.model.source import resolve

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 269060552\n"


def refusal(name: Path) -> Problem:
    with pytest.raises(ProblemError) as caught:
        resolve(str(name)).tokenizer()
    assert caught.value.exit_code == 2
    [found] = caught.value.problems
    return found


@pytest.mark.parametrize("below", ["snapshots/0123abc", "transformers/2b/1", "1", "a/b/c/d"])
def test_a_folder_above_a_model_names_the_one_below(below: str, tmp_path: Path):
    (tmp_path / "refs").mkdir()
    folder = model_folder(tmp_path / below)
    found = refusal(tmp_path)
    assert found.code == "TP040"
    assert found.what == f"{tmp_path} has no config.json; what it holds is a model in {folder}."
    assert found.next == "Name that folder."


def test_of_the_snapshots_of_a_cache_the_current_one_is_named(tmp_path: Path):
    folders = [model_folder(tmp_path / "snapshots" / commit) for commit in ("aaa", "bbb")]
    assert refusal(tmp_path).what.endswith(f"a model in {folders[0]}, {folders[1]}.")
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("bbb")
    assert refusal(tmp_path).what.endswith(f"a model in {folders[1]}.")


def test_an_adapter_names_its_model(tmp_path: Path):
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "me/tiny"}')
    found = refusal(tmp_path)
    assert found.what == f"{tmp_path} has no config.json; what it holds is a LoRA adapter of me/tiny."
    assert f"`trainproof merge me/tiny {tmp_path} --output merged`" in found.next
    (tmp_path / "adapter_config.json").write_text("{")
    assert "a LoRA adapter of its base model." in refusal(tmp_path).what


def test_a_run_names_its_export(tmp_path: Path):
    (tmp_path / "run_manifest.json").write_text("{}")
    (tmp_path / "adapter").mkdir()
    assert refusal(tmp_path).what == f"{tmp_path} has no config.json; what it holds is a run of trainproof."
    assert refusal(tmp_path).next == f"Write {tmp_path / 'export'}: `trainproof export {tmp_path}`."
    model_folder(tmp_path / "export")
    assert refusal(tmp_path).next == f"Name {tmp_path / 'export'}."


def test_shards_without_an_index_are_named(tmp_path: Path):
    for number in (1, 2):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").touch()
    with ExitStack() as stack, pytest.raises(ProblemError) as caught:
        open_tensors(tmp_path, family=resolve("tiny-gpt2").family, stack=stack)
    [found] = caught.value.problems
    assert found.what == (
        f"{tmp_path.name} holds model-00001-of-00002.safetensors and others, but no model.safetensors.index.json."
    )
    assert found.next == "Fetch model.safetensors.index.json from where the model is from."


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_description_that_was_not_fetched_is_named(name: str, tmp_path: Path):
    folder = model_folder(tmp_path / "model")
    (folder / name).write_text(POINTER)
    found = refusal(folder)
    assert found.what == f"{name} is a Git LFS pointer, not the file itself."
    assert (found.file, found.next) == (str(folder / name), "Fetch the file with `git lfs pull`.")


@pytest.mark.parametrize("name", ["model.safetensors", "model-00001-of-00002.safetensors", "adapter_model.safetensors"])
def test_weights_that_were_not_fetched_are_named(name: str, tmp_path: Path):
    (tmp_path / name).write_text(POINTER)
    with ExitStack() as stack, pytest.raises(ProblemError) as caught:
        open_file(tmp_path / name, stack)
    [found] = caught.value.problems
    assert found.what == f"{name} is a Git LFS pointer, not the file itself."
    assert found.next == "Fetch the file with `git lfs pull`."


def test_an_index_a_gguf_file_and_an_adapter_that_were_not_fetched_are_named(tmp_path: Path):
    for name in ("m.gguf", "model.safetensors.index.json", "adapter_config.json"):
        (tmp_path / name).write_text(POINTER)
    assert refusal(tmp_path / "m.gguf").what == "m.gguf is a Git LFS pointer, not the file itself."
    with ExitStack() as stack, pytest.raises(ProblemError, match=r"index\.json is a Git LFS pointer"):
        open_tensors(tmp_path, family=resolve("tiny-gpt2").family, stack=stack)
    with pytest.raises(ProblemError, match=r"adapter_config\.json is a Git LFS pointer"):
        read_adapter_config(tmp_path)


def test_a_damaged_adapter_is_not_advised_to_be_drawn(tmp_path: Path):
    (tmp_path / "adapter_model.safetensors").write_bytes(b"\x08")
    with ExitStack() as stack, pytest.raises(ProblemError) as caught:
        open_file(tmp_path / "adapter_model.safetensors", stack)
    assert caught.value.problems[0].next == "Download or export the adapter again."
