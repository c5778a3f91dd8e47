"""A run whose model is a GGUF file, and the GGUF file that is made of it."""

import json
from dataclasses import replace

import numpy as np
import pytest
from gguf_cases import TEXT, folder_of, params_of, with_tokenizer
from model_folders import row_file

from evidence.run.hashes import sha256_file
from schemas.problems.problem import ProblemError
from trainer.config.tree import Data, Method, Model
from trainer.export_run import export_run
from trainer.generate.agreement import NEW_TOKENS, equal_tokens
from trainer.generate.language_model import load_model
from trainer.model.files.export import export
from trainer.model.files.export_gguf import export_gguf
from trainer.model.files.source import resolve
from trainer.model.gguf.header import read_gguf
from trainer.model.params import params_sha256
from trainer.recorder.progress import Watch
from trainer.run import run


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    source = resolve(str(with_tokenizer(folder_of("llama", folder / "hf"))))
    export_gguf(folder / "base.gguf", params_of(source), source, form="f16")
    return folder / "base.gguf"


def test_adapters_are_trained_on_a_gguf_and_written_into_one(base, config, order_of, tmp_path):
    words = TEXT.split()
    rows = row_file(tmp_path / "rows.jsonl", *({"prompt": word, "completion": f" {word}"} for word in words))
    lora = replace(
        config,
        model=Model(name=str(base)),
        data=Data(dataset=rows, max_length=32),
        method=Method(kind="lora", rank=2),
    )
    order = order_of(lora)
    said = []
    assert run(order, Watch()) == 0
    manifest = json.loads((order.folder / "run_manifest.json").read_text())
    assert (manifest["model"]["name"], manifest["model"]["family"]) == (str(base), "llama")
    target = export_run(order.folder, None, Said(said), gguf="f16")
    assert target == order.folder / "gguf" / "run-f16.gguf"
    receipt = json.loads(target.with_suffix(".receipt.json").read_text())
    assert receipt["sha256"] == sha256_file(target)
    assert (receipt["file"], receipt["form"], receipt["step"], receipt["llama_cpp"]) == ("run-f16.gguf", "f16", 2, None)
    assert 0 < receipt["tokens_equal"] <= receipt["prompts"] * receipt["new_tokens"]
    assert 0 < receipt["largest_logit_difference"] < 0.01
    assert said[-1].endswith("llama.cpp was not asked, because llama-cpp-python is not installed")
    # The tokenizer is the base's to the letter, and only what adapters are on has changed.
    before, after = read_gguf(base), read_gguf(target)
    tokenizer = {key: value for key, value in before.metadata.items() if key.startswith("tokenizer.")}
    np.testing.assert_equal({key: after.metadata[key] for key in tokenizer}, tokenizer)
    changed = {name for name in before.tensors if (before.tensors[name].read() != after.tensors[name].read()).any()}
    assert changed
    assert all(name.startswith("blk.") and name.endswith(".weight") and "norm" not in name for name in changed)
    with pytest.raises(ProblemError) as raised:
        export_run(order.folder, None, Watch(), gguf="f16")
    assert raised.value.problems[0].what == f"{target} is there already."


class Said(Watch):
    """A watch that keeps what is said."""

    def __init__(self, lines):
        super().__init__()
        self.lines = lines

    def say(self, text):
        self.lines.append(text)


def test_a_gguf_has_the_hash_of_the_numbers_in_it(base, tmp_path):
    """The hash of first parameters is that of the dequantised numbers: a folder that holds them has the same."""
    params = load_model(base).params
    export(tmp_path / "folder", params, resolve(str(base)))
    assert params_sha256(load_model(tmp_path / "folder").params) == params_sha256(params)


def test_tokens_are_counted_up_to_the_first_that_is_another():
    assert equal_tokens([[5, 7, 8], [1, 2, 3]], [[5, 9, 8], [1, 2, 3]]) == 4
    assert NEW_TOKENS > 0
