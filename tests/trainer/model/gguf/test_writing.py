"""What is written is what llama.cpp's converter would write: names, types, bytes and keys."""

import json

import gguf
import gguf_files
import numpy as np
import pytest
from gguf_cases import CASES, NAMES, STATED, TEMPLATE, TEXT, divisors, folder_of, params_of, with_tokenizer

from schemas.problems import ProblemError
from trainer.model import gguf_tokenizer
from trainer.model.export import PlannedTensor, export, export_gguf, tensor_type
from trainer.model.gguf import read_gguf
from trainer.model.gguf_tokenizer import tokenizer_probes
from trainer.model.source import resolve


@pytest.mark.parametrize(("name", "form"), [*((name, "f16") for name in NAMES), ("llama", "q8_0"), ("gemma3", "q8_0")])
def test_a_model_is_written_as_the_converter_writes_it(name, form, tmp_path):
    folder = with_tokenizer(folder_of(name, tmp_path / "folder"))
    source = resolve(str(folder))
    export_gguf(tmp_path / "ours.gguf", params_of(source), source, form=form, end_token_id=1)
    extra = {"rope_freqs.weight": divisors()} if name == "llama-llama3" else {}
    converted = gguf_files.from_folder(folder, tmp_path / "theirs.gguf", metadata=STATED.get(name), tensors=extra)
    ours, theirs = read_gguf(tmp_path / "ours.gguf"), read_gguf(converted)
    assert set(ours.tensors) == set(theirs.tensors)
    for tensor, stored in theirs.tensors.items():
        value = stored.read()
        kind = "F32" if value.ndim == 1 or tensor.startswith("position") else "F16"
        if form == "q8_0" and kind == "F16" and value.shape[-1] % 32 == 0:
            kind = "Q8_0"
        assert (ours.tensors[tensor].kind, ours.tensors[tensor].shape) == (kind, value.shape), tensor
        number = gguf.GGMLQuantizationType[kind]
        np.testing.assert_array_equal(
            ours.tensors[tensor].read(), gguf.dequantize(gguf.quantize(value, number), number), err_msg=tensor
        )
    about = {key: value for key, value in theirs.metadata.items() if not key.startswith("general")}
    assert {key: ours.metadata.get(key, value) for key, value in about.items()} == about
    again = resolve(str(tmp_path / "ours.gguf"))
    assert again.tokenizer()(TEXT).input_ids == source.tokenizer()(TEXT).input_ids
    assert again.tokenizer().chat_template == TEMPLATE
    assert ours.metadata["tokenizer.ggml.eot_token_id"] == 1
    assert ours.metadata["general.file_type"] == {"f16": 1, "q8_0": 7}[form]


def refusal(folder, path):
    source = resolve(str(folder))
    with pytest.raises(ProblemError) as raised:
        export_gguf(path, params_of(source), source, form="f16")
    assert not list(path.parent.glob("*.gguf*"))
    assert not list(path.parent.glob(".*.tmp"))
    [problem] = raised.value.problems
    assert problem.next == "Export a Hugging Face folder: leave --gguf out."
    return problem.code, problem.what


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("mistral", "llama cannot state this model: layers.0.window is 6 and would be None; layers.1.window is 6"),
        (
            "gemma2",
            "gemma2 cannot state this model: query_scale is 0.22360679774997896 and would be 0.3535533905932738.",
        ),
    ],
)
def test_a_model_that_would_be_computed_otherwise_is_not_written(name, what, tmp_path):
    code, said = refusal(CASES / name, tmp_path / "m.gguf")
    assert code == "TP790"
    assert said.startswith(f"A GGUF of the architecture {what}")


def test_divisors_that_no_file_states_are_not_written(tmp_path):
    code, what = refusal(CASES / "llama-llama3", tmp_path / "m.gguf")
    assert code == "TP790"
    assert "rope_freqs.weight holds other divisors than those of Llama 3.1" in what


def test_a_way_of_splitting_without_a_name_is_not_written(tmp_path):
    folder = with_tokenizer(folder_of("llama", tmp_path / "folder"), digits=False)
    code, what = refusal(folder, tmp_path / "m.gguf")
    names = "gpt-2, smollm, llama-bpe, llama3, llama-v3, qwen2, deepseek-r1-qwen, tekken"
    because = f"it splits texts as none of {names} does"
    assert (code, what) == ("TP099", f"The tokenizer cannot be written into a GGUF file: {because}.")


def with_added(folder, **flags):
    """Add a token with flags to the tokenizer of a folder, with a row of its own in the model's table."""
    file = folder / "tokenizer.json"
    tokenizer = json.loads(file.read_text())
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False} | flags
    tokenizer["added_tokens"].append({"id": 90, "content": "<think>", **flags})
    file.write_text(json.dumps(tokenizer))
    return folder


@pytest.mark.parametrize(
    ("flag", "does"),
    [
        ("lstrip", "takes the spaces before it"),
        ("rstrip", "takes the spaces behind it"),
        ("single_word", "is found as a single word only"),
    ],
)
def test_an_added_token_that_a_gguf_cannot_state_is_named(flag, does, tmp_path):
    folder = with_added(with_tokenizer(folder_of("llama", tmp_path / "folder")), **{flag: True})
    code, what = refusal(folder, tmp_path / "m.gguf")
    because = f"the token '<think>' {does} ({flag}), which a GGUF does not state"
    assert (code, what) == ("TP099", f"The tokenizer cannot be written into a GGUF file: {because}.")


def test_added_tokens_are_compared_in_texts_with_them(tmp_path, monkeypatch):
    folder = with_added(with_tokenizer(folder_of("llama", tmp_path / "folder")))
    source = resolve(str(folder))
    texts = tokenizer_probes(source.tokenizer())
    assert [token for token in ("<|end|>", "<|a|>", "<think>") if any(token in text for text in texts)] == [
        "<|end|>",
        "<|a|>",
        "<think>",
    ]
    export_gguf(tmp_path / "whole.gguf", params_of(source), source, form="f16")
    again = resolve(str(tmp_path / "whole.gguf")).tokenizer()
    assert [again(text).input_ids for text in texts] == [source.tokenizer()(text).input_ids for text in texts]
    # Where the kind of an added token were lost, the file would split it.
    monkeypatch.setattr(gguf_tokenizer, "USER_DEFINED", gguf_tokenizer.NORMAL)
    (tmp_path / "other").mkdir()
    code, what = refusal(folder, tmp_path / "other" / "m.gguf")
    assert code == "TP099"
    assert "'<think>a<think>b <think> c" in what


def test_chat_templates_with_names_are_kept(tmp_path):
    folder = with_tokenizer(folder_of("llama", tmp_path / "folder"))
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates" / "tool_use.jinja").write_text("{{ 'TOOLS ' }}")
    source = resolve(str(folder))
    export_gguf(tmp_path / "m.gguf", params_of(source), source, form="f16")
    stated = read_gguf(tmp_path / "m.gguf").metadata
    assert stated["tokenizer.chat_template"] == TEMPLATE
    assert stated["tokenizer.chat_template.tool_use"] == "{{ 'TOOLS ' }}"
    assert stated["tokenizer.chat_templates"] == ["tool_use"]
    both = {"default": TEMPLATE, "tool_use": "{{ 'TOOLS ' }}"}
    of_file = resolve(str(tmp_path / "m.gguf"))
    assert of_file.tokenizer().chat_template == both
    export(tmp_path / "again", params_of(source), of_file)
    assert resolve(str(tmp_path / "again")).tokenizer().chat_template == both


def test_numbers_beyond_f16_are_named():
    planned = PlannedTensor(name="a", shape=(1, 2), kind="F16", read=lambda: np.array([[1.0, 7e4]], np.float32))
    with pytest.raises(ProblemError) as raised:
        planned.stored()
    [problem] = raised.value.problems
    assert problem.what == "The tensor a holds 70,000, and the largest number of F16 is 65,504."
    assert tensor_type("a", (4, 48), "q8_0") == "F16"
