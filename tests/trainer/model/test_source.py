"""Resolving names of models: built-in, folder, file or hub; every other name is refused with advice."""

import json
import os
import shutil
import subprocess
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gguf_files
import huggingface_hub
import numpy as np
import pytest
import tokenizers
from golden import CASES
from hub_server import COMMIT, hub_of
from huggingface_hub import errors
from model_folders import change_json, model_folder
from refusals import catch_problem
from tiny_models import random_model

from schemas.problems import Problem
from trainer.generate.api import load_model
from trainer.model.export import export
from trainer.model.load import load_params, open_safetensors
from trainer.model.peft import read_adapter_config
from trainer.model.source import BUILTIN_TOKENIZER as FOLDER
from trainer.model.source import local_models_only, resolve

TOKENS = 1 + max(token["id"] for token in json.loads((FOLDER / "tokenizer.json").read_text())["added_tokens"])
OFFLINE = (
    "Name a built-in model (demo, tiny-gpt2), a local folder with config.json, safetensors and tokenizer, "
    "or a GGUF file."
)


def refusal(name: str | Path, revision: str | None = None) -> Problem:
    return catch_problem(lambda: resolve(str(name), revision))


def load_refusal(name: Path) -> Problem:
    return catch_problem(lambda: resolve(str(name)).tokenizer())


@pytest.mark.parametrize("name", ["demo", "tiny-gpt2"])
def test_built_in_models_fit_their_tokenizer(name):
    source = resolve(name)
    assert (source.name, source.weights, source.revision) == (name, "builtin", None)
    tokenizer = source.tokenizer()
    assert (len(tokenizer), tokenizer.model_max_length) == (source.spec.vocab, sys.maxsize)
    config = json.loads((source.folder / "config.json").read_text())
    assert config["eos_token_id"] == tokenizer.eos_token_id
    assert config["pad_token_id"] == tokenizer.pad_token_id
    assert tokenizer.decode(tokenizer("2 + 2 = 4, ä\n")["input_ids"]) == "2 + 2 = 4, ä\n"


@pytest.mark.parametrize(
    "name", ["./models/nowhere", "", "~nobody/model", "a b", "a/b/c", "../demo", "owner/", "https://host/a/b"]
)
def test_an_impossible_name_is_refused(name):
    assert (refusal(name).code, refusal(name).file) == ("TP040", name)


def test_a_revision_needs_the_hub():
    problem = refusal("demo", "main")
    assert (problem.code, problem.what) == ("TP040", "model.revision is main, but demo is a built-in model.")
    assert refusal(CASES / "gemma", "main").what.endswith(" is a local folder.")


@pytest.mark.parametrize("content", [None, b"[1]", b"{", b"\xff\xfe{\x00", b"[" * 100_000])
def test_folders_without_a_good_config(content, tmp_path):
    file = tmp_path / "config.json"
    if content is not None:
        file.write_bytes(content)
    problem = refusal(tmp_path)
    assert (problem.code, problem.file, problem.next) == ("TP040", str(file), OFFLINE)
    assert problem.what.startswith("config.json cannot be read: ")


def test_without_network_the_real_client_is_refused_at_once():
    problem = refusal("google/gemma-2b", "main")
    assert problem.what == "google/gemma-2b at revision main is not on this machine and could not be downloaded."
    assert problem.next == f"{OFFLINE} Or try again with a connection."


# The errors keep what the client answered; which client that is differs between versions of the library.
RESPONSE = SimpleNamespace(headers={}, request=None)
FAILED = "owner/model at revision v9 could not be downloaded: "


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (errors.GatedRepoError("gated", response=RESPONSE), "The hub denies access to owner/model.", "Accept the"),
        (errors.RevisionNotFoundError("none", response=RESPONSE), "owner/model has no revision v9.", "Name a branch"),
        (errors.RepositoryNotFoundError("none", response=RESPONSE), "The hub has no model owner/model.", OFFLINE),
        (errors.HfHubHTTPError("503 Error\n", response=RESPONSE), f"{FAILED}HfHubHTTPError: 503 Error.", "Try again"),
        (OSError(28, "No space left"), f"{FAILED}OSError: [Errno 28] No space left.", "Try again"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_hub_may_answer(monkeypatch, error, what, fix):
    def answer(name, **given):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
    problem = refusal("owner/model", "v9")
    assert (problem.code, problem.file, problem.what) == ("TP045", "owner/model", what)
    assert problem.next.startswith(fix)


def write_tokenizer(folder, text):
    (folder / "tokenizer.json").write_text(text)


def add_a_token_far_away(folder):
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["5"] = 900
    write_tokenizer(folder, json.dumps(document))


WITHOUT_UNKNOWN = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "What": 1}, unk_token="[UNK]"))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda folder: change_json(folder / "config.json", vocab_size=97), "but the model has 97 tokens."),
        (add_a_token_far_away, f"gives '5' the id 900, but the model has {TOKENS} tokens."),
        (lambda folder: write_tokenizer(folder, WITHOUT_UNKNOWN.to_str()), "'[UNK]', which is not one of its tokens."),
        (lambda folder: (folder / "tokenizer.json").unlink(), " is missing: "),
        (lambda folder: write_tokenizer(folder, ""), " cannot be loaded: "),
        (lambda folder: write_tokenizer(folder, "{"), " cannot be loaded: "),
        (lambda folder: (folder / "tokenizer_config.json").write_text("[" * 100_000), " cannot be loaded: "),
    ],
)
def test_a_tokenizer_that_cannot_serve_its_model_is_refused(change, what, tmp_path):
    folder = model_folder(tmp_path / "m", config={"vocab_size": TOKENS})
    assert len(resolve(str(folder)).tokenizer()) == TOKENS
    change(folder)
    problem = load_refusal(folder)
    assert (problem.code, problem.file) == ("TP046", str(folder))
    assert what in problem.what


@pytest.mark.parametrize("asked", [True, False])
def test_a_name_of_another_author_is_downloaded_only_on_request(monkeypatch, asked: bool):
    allowed = []

    def fetch(name, *, local_files_only, **given):
        allowed.append(not local_files_only)
        raise errors.LocalEntryNotFoundError("no such file in the cache")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with local_models_only(unless=asked):
        problem = refusal("owner/model")
    assert allowed == [asked]
    assert problem.next.endswith("Or try again with a connection." if asked else "Or pass --fetch to download it.")
    assert resolve("tiny-gpt2").spec.layers == 2


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("model.safetensors", "weights without a config.json"),
        ("pytorch_model.bin", "a PyTorch pickle, which can run code when it is loaded"),
        ("m.onnx", "a compiled graph, which cannot be trained"),
        ("weights.npz", "NumPy arrays, as MLX saves models"),
    ],
)
def test_other_formats_are_named(file, kind, tmp_path):
    path = tmp_path / file
    path.write_bytes(b"\0" * 64)
    for name, what in ((path, f"{path} is {kind}."), (tmp_path, f"{tmp_path} has no config.json; it contains {kind}.")):
        problem = refusal(name)
        assert (problem.code, problem.file, problem.what) == ("TP040", str(name), what)


def test_a_gguf_file_is_found_by_its_name_and_alone_in_a_folder(tmp_path):
    path = gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf")
    for name in (str(path), str(tmp_path)):
        source = resolve(name)
        assert (source.name, source.folder, source.weights, source.spec.family) == (name, path, "pretrained", "llama")
    assert refusal(path, "main").what == f"model.revision is main, but {path} is a local file."
    shutil.copy(path, tmp_path / "other.gguf")
    problem = refusal(tmp_path)
    assert problem.what == f"{tmp_path} has no config.json; it contains 2 GGUF files (m.gguf, other.gguf)."
    assert problem.next == "Name one of the files."


@pytest.mark.parametrize("below", ["snapshots/bbb", "a/b/c/d"])
def test_a_folder_above_a_model_names_the_one_below(below: str, tmp_path: Path):
    """Of the snapshots in a cache the current one."""
    folder = model_folder(tmp_path / below)
    (tmp_path / "refs").mkdir()
    if folder.parent.name == "snapshots":
        model_folder(folder.with_name("aaa"))
        (tmp_path / "refs" / "main").write_text(folder.name)
    found, what = load_refusal(tmp_path), f"{tmp_path} has no config.json; it contains a model in {folder}."
    assert (found.code, found.what, found.next) == ("TP040", what, f"Name {folder}.")


def test_an_adapter_and_a_run_are_named(tmp_path: Path):
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "me/tiny"}')
    found = load_refusal(tmp_path)
    assert found.what == f"{tmp_path} has no config.json; it contains a LoRA adapter of me/tiny."
    assert f"`trainproof export me/tiny --merge {tmp_path} --output merged`" in found.next
    (tmp_path / "run_manifest.json").write_text("{}")
    (tmp_path / "adapter").mkdir()
    found = load_refusal(tmp_path)
    assert found.what == f"{tmp_path} has no config.json; it contains a run of trainproof."
    assert found.next == f"Run `trainproof export {tmp_path}`, then name {tmp_path / 'export'}."
    model_folder(tmp_path / "export")
    assert load_refusal(tmp_path).next == f"Name {tmp_path / 'export'}."


def open_weights(path: Path) -> None:
    with ExitStack() as stack:
        open_safetensors(path, stack)


def test_shards_without_an_index_are_named(tmp_path: Path):
    for number in (1, 2):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").touch()
    problem = catch_problem(lambda: open_weights(tmp_path / "model.safetensors"))
    assert "contains model-00001-of-00002.safetensors, but no model.safetensors.index.json" in problem.what


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 269060552\n"
DESCRIPTIONS = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
WEIGHTS = ("model.safetensors", "model-00001-of-00002.safetensors", "adapter_model.safetensors")
READERS = {
    **dict.fromkeys(DESCRIPTIONS, lambda path: resolve(str(path.parent)).tokenizer()),
    **dict.fromkeys(WEIGHTS, open_weights),
    "m.gguf": lambda path: resolve(str(path)),
    "model.safetensors.index.json": lambda path: load_params(replace(resolve("tiny-gpt2"), folder=path.parent), {}),
    "adapter_config.json": lambda path: read_adapter_config(path.parent),
}


@pytest.mark.parametrize("name", READERS)
def test_a_file_that_was_not_fetched_is_named(name: str, tmp_path: Path):
    path = model_folder(tmp_path / "model") / name
    path.write_text(POINTER)
    problem = catch_problem(lambda: READERS[name](path))
    assert problem.what == f"{name} is a Git LFS pointer, not the file itself."
    assert (problem.file, problem.next) == (str(path), "Fetch the file with `git lfs pull`.")


# A server on this machine that speaks the hub's protocol, asked by a process of its own.
SCRIPT = """
import json
from trainer.generate.api import load_model
from trainer.model.source import resolve
from schemas.problems import ProblemError

source = resolve("owner/tiny", "main", with_weights=False)
described = sorted(path.name for path in source.folder.iterdir())
found = {"revision": source.revision, "described": described, "vocabulary": len(source.tokenizer().get_vocab())}
found["logits"] = float(load_model("owner/tiny")([[1, 2, 3]]).sum())
try:
    resolve("owner/other")
except ProblemError as error:
    found["other"] = error.problems[0].what
print(json.dumps(found | {"whole": sorted(path.name for path in resolve("owner/tiny").folder.iterdir())}))
"""


@pytest.mark.slow
def test_a_model_on_the_hub_is_loaded_and_without_weights_only_its_descriptions_are_fetched(tmp_path):
    repository, bare = tmp_path / "repository", resolve(str(model_folder(tmp_path / "bare")))
    export(repository, random_model(bare.spec)[1], bare, shard_bytes=200_000)
    shards = sorted(path.name for path in repository.glob("model*"))
    assert len(shards) > 2  # with the index
    descriptions = sorted({path.name for path in repository.iterdir()} - {*shards})
    (repository / "pytorch_model.bin").write_bytes(b"never fetched")
    (repository / "modeling_tiny.py").write_text("raise SystemExit")
    with hub_of("owner/tiny", repository) as hub:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("HF_")}
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env=environment | {"HF_ENDPOINT": hub.address, "HF_HOME": str(tmp_path / "cache"), "JAX_PLATFORMS": "cpu"},
            cwd=Path(__file__).parents[3],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    got = json.loads(done.stdout.splitlines()[-1])
    weights = [file for file in hub.fetched if "safetensors" in file]
    assert sorted(hub.fetched[: hub.fetched.index(weights[0])]) == got["described"] == descriptions
    assert got["revision"] == COMMIT
    assert sorted(weights) == shards
    assert not {"pytorch_model.bin", "modeling_tiny.py"} & set(got["whole"])
    assert got["other"] == "The hub has no model owner/other."
    assert got["vocabulary"] == bare.spec.vocab
    np.testing.assert_allclose(got["logits"], float(load_model(repository)([[1, 2, 3]]).sum()), rtol=1e-5)
