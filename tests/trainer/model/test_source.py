"""A name becomes a model: built-in, folder or hub; every other name is an error that says what to do."""

import json
import shutil
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import gguf_files
import huggingface_hub
import pytest
import tokenizers
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from model_folders import model_folder

from schemas.catalog import MODELS
from schemas.problems import Problem, ProblemError
from trainer.model.decoder import abstract, flatten, parameter_count
from trainer.model.load import load_params, open_safetensors
from trainer.model.peft import read_adapter_config
from trainer.model.source import BUILTIN, local_models_only, resolve
from trainer.model.tokenizer import FOLDER

TOKENS = 1 + max(token["id"] for token in json.loads((FOLDER / "tokenizer.json").read_text())["added_tokens"])
CASES = Path(__file__).parents[2] / "cases" / "models"
OFFLINE = (
    "Name a built-in model (demo, tiny-gpt2), a local folder with config.json, safetensors and tokenizer, "
    "or a GGUF file."
)


def refusal(name, revision=None):
    with pytest.raises(ProblemError) as found:
        resolve(name, revision)
    assert found.value.exit_code == 2
    (problem,) = found.value.problems
    return problem


@pytest.mark.parametrize("name", ["demo", "tiny-gpt2"])
def test_built_in_models_fit_their_tokenizer(name):
    source = resolve(name)
    assert (source.name, source.weights, source.revision) == (name, "builtin", None)
    tokenizer = source.tokenizer()
    assert len(tokenizer) == source.spec.vocab
    config = json.loads((source.folder / "config.json").read_text())
    assert config["eos_token_id"] == tokenizer.eos_token_id
    assert config["pad_token_id"] == tokenizer.pad_token_id
    assert tokenizer.decode(tokenizer("2 + 2 = 4, ä\n")["input_ids"]) == "2 + 2 = 4, ä\n"


def test_sizes_of_the_built_in_models():
    def parameters(name: str) -> int:
        spec = resolve(name).spec
        return parameter_count(
            flatten(abstract(spec, params_dtype="float32", compute_dtype="float32", remat="none"))[1]
        )

    assert tuple(sorted(path.parent.name for path in BUILTIN.glob("*/config.json"))) == MODELS
    assert resolve("tiny-gpt2").spec.layers == 2
    assert parameters("tiny-gpt2") < 200_000
    assert 1_000_000 < parameters("demo") < 3_000_000


def test_a_tokenizer_says_nothing_of_lengths():
    """Which text is too long is told with its line; the tokenizer would print a second sentence about it."""
    assert resolve("tiny-gpt2").tokenizer().model_max_length == sys.maxsize


def test_a_local_folder():
    source = resolve(str(CASES / "gemma"))
    assert (source.weights, source.revision, source.folder) == ("pretrained", None, CASES / "gemma")
    assert source.family.model_type == "gemma"


@pytest.mark.parametrize(
    "name", ["./models/nowhere", "", "~nobody/model", "a b", "a/b/c", "../demo", "/", "owner/", "https://host/a/b"]
)
def test_a_name_that_can_be_nothing(name):
    assert (refusal(name).code, refusal(name).file) == ("TP040", name)


def test_a_revision_needs_the_hub():
    problem = refusal("demo", "main")
    assert (problem.code, problem.what) == ("TP040", "model.revision is main, but demo is a built-in model.")
    assert refusal(str(CASES / "gemma"), "main").what.endswith(" is a local folder.")


@pytest.mark.parametrize("content", [None, b"[1]", b"{", b"\xff\xfe{\x00", b"[" * 100_000])
def test_folders_without_a_good_config(content, tmp_path):
    file = tmp_path / "config.json"
    if content is not None:
        file.write_bytes(content)
    problem = refusal(str(tmp_path))
    assert (problem.code, problem.file, problem.next) == ("TP040", str(file), OFFLINE)
    assert problem.what.startswith(f"The config.json of {tmp_path} cannot be read: ")


def test_a_model_on_the_hub_is_named_by_its_commit(tmp_path, monkeypatch):
    snapshot = tmp_path / "0123abc"
    shutil.copytree(CASES / "gpt2", snapshot)
    asked = {}

    def fetch(name, **given):
        asked[name] = given
        return str(snapshot)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    source = resolve("owner/model", "v1.0")
    assert (source.name, source.revision, source.folder) == ("owner/model", "0123abc", snapshot)
    assert asked["owner/model"]["revision"] == "v1.0"
    assert {"config.json", "model.safetensors", "tokenizer*.json"} <= set(asked["owner/model"]["allow_patterns"])
    assert not any(pattern.endswith((".bin", ".py", "*")) for pattern in asked["owner/model"]["allow_patterns"])
    resolve("owner/model", "v1.0", with_weights=False)
    assert "config.json" in asked["owner/model"]["allow_patterns"]
    assert not any("safetensors" in pattern for pattern in asked["owner/model"]["allow_patterns"])


def test_without_network_the_real_client_is_refused_at_once():
    problem = refusal("google/gemma-2b", "main")
    assert problem.what == "google/gemma-2b at revision main is not on this machine and could not be downloaded."
    assert problem.next == f"{OFFLINE} Or try again with a connection."


# The errors keep what the client answered; which client that is differs between versions of the library.
RESPONSE = SimpleNamespace(headers={}, request=None)


def unreachable(name, **given):
    raise LocalEntryNotFoundError("no such file in the cache")


@pytest.mark.parametrize(
    ("error", "what", "fix"),
    [
        (GatedRepoError("gated", response=RESPONSE), "The hub denies access to owner/model.", "Accept the terms"),
        (RevisionNotFoundError("none", response=RESPONSE), "owner/model has no revision v9.", "Name a branch"),
        (RepositoryNotFoundError("none", response=RESPONSE), "The hub has no model owner/model.", OFFLINE),
        (
            HfHubHTTPError("503 Server Error\nmore", response=RESPONSE),
            "owner/model at revision v9 could not be downloaded.",
            "Try again",
        ),
        (OSError(28, "No space left"), "owner/model at revision v9 could not be downloaded.", "Try again"),
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


def model_with_tokenizer(folder: Path, **config) -> Path:
    base = json.loads((CASES / "gpt2" / "config.json").read_text())
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(base | config))
    for path in FOLDER.glob("*.json"):
        shutil.copy(path, folder)
    return folder


def tokenizer_refusal(folder: Path) -> Problem:
    with pytest.raises(ProblemError) as found:
        resolve(str(folder)).tokenizer()
    assert found.value.exit_code == 2
    return found.value.problems[0]


def test_a_tokenizer_with_more_tokens_than_the_model(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=97)
    problem = tokenizer_refusal(folder)
    assert (problem.code, problem.file) == ("TP046", str(folder))
    assert problem.what.endswith(f"gives '</answer>' the id {TOKENS - 1}, but the model has 97 tokens.")


def test_a_tokenizer_with_a_gap_in_its_ids(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["5"] = 900
    (folder / "tokenizer.json").write_text(json.dumps(document))
    assert tokenizer_refusal(folder).what.endswith(f"gives '5' the id 900, but the model has {TOKENS} tokens.")


def test_a_tokenizer_without_the_token_for_unknown_words(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "What": 1}, unk_token="[UNK]"))
    own.save(str(folder / "tokenizer.json"))
    assert "replaces unknown words by '[UNK]'" in tokenizer_refusal(folder).what


def test_a_folder_without_tokenizer(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    assert len(resolve(str(folder)).tokenizer()) == TOKENS
    (folder / "tokenizer.json").unlink()
    assert tokenizer_refusal(folder).what.startswith(f"The tokenizer of {folder} is missing: ")


@pytest.mark.parametrize(
    ("file", "content"),
    [
        *(("tokenizer_config.json", content) for content in ("[]", "[" * 100_000)),
        *(("tokenizer.json", content) for content in ("{", '{"model": 1}', "")),
    ],
)
def test_a_damaged_tokenizer(tmp_path, file, content):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    (folder / file).write_text(content)
    assert tokenizer_refusal(folder).what.startswith(f"The tokenizer of {folder} cannot be loaded: ")


@pytest.mark.parametrize("asked", [True, False])
def test_a_name_that_a_stranger_wrote_is_only_looked_for_here_unless_asked(monkeypatch, asked: bool):
    allowed = []

    def fetch(name, *, local_files_only, **given):
        allowed.append(not local_files_only)
        raise LocalEntryNotFoundError("no such file in the cache")

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
    for name, what in (
        (str(path), f"{path} is {kind}."),
        (str(tmp_path), f"{tmp_path} has no config.json; it contains {kind}."),
    ):
        problem = refusal(name)
        assert (problem.code, problem.file, problem.what) == ("TP040", name, what)


def test_a_gguf_file_is_found_by_its_name_and_alone_in_a_folder(tmp_path):
    path = gguf_files.from_folder(CASES / "llama", tmp_path / "m.gguf")
    for name in (str(path), str(tmp_path)):
        source = resolve(name)
        assert (source.name, source.folder, source.weights, source.spec.family) == (name, path, "pretrained", "llama")
    assert refusal(str(path), "main").what == f"model.revision is main, but {path} is a local file."
    shutil.copy(path, tmp_path / "other.gguf")
    problem = refusal(str(tmp_path))
    assert problem.what == f"{tmp_path} has no config.json; it contains 2 GGUF files (m.gguf, other.gguf)."
    assert problem.next == "Name one of the files."


POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:ab\nsize 269060552\n"


def load_refusal(name: Path) -> Problem:
    with pytest.raises(ProblemError) as caught:
        resolve(str(name)).tokenizer()
    assert caught.value.exit_code == 2
    [found] = caught.value.problems
    return found


@pytest.mark.parametrize("below", ["snapshots/0123abc", "transformers/2b/1", "1", "a/b/c/d"])
def test_a_folder_above_a_model_names_the_one_below(below: str, tmp_path: Path):
    (tmp_path / "refs").mkdir()
    folder = model_folder(tmp_path / below)
    found = load_refusal(tmp_path)
    assert found.code == "TP040"
    assert found.what == f"{tmp_path} has no config.json; it contains a model in {folder}."
    assert found.next == f"Name {folder}."


def test_of_the_snapshots_of_a_cache_the_current_one_is_named(tmp_path: Path):
    folders = [model_folder(tmp_path / "snapshots" / commit) for commit in ("aaa", "bbb")]
    assert load_refusal(tmp_path).what.endswith(f"a model in {folders[0]}, {folders[1]}.")
    (tmp_path / "refs").mkdir()
    (tmp_path / "refs" / "main").write_text("bbb")
    assert load_refusal(tmp_path).what.endswith(f"a model in {folders[1]}.")


def test_an_adapter_names_its_model(tmp_path: Path):
    (tmp_path / "adapter_model.safetensors").touch()
    (tmp_path / "adapter_config.json").write_text('{"peft_type": "LORA", "base_model_name_or_path": "me/tiny"}')
    found = load_refusal(tmp_path)
    assert found.what == f"{tmp_path} has no config.json; it contains a LoRA adapter of me/tiny."
    assert f"`trainproof export me/tiny --merge {tmp_path} --output merged`" in found.next
    (tmp_path / "adapter_config.json").write_text("{")
    assert "a LoRA adapter of its base model." in load_refusal(tmp_path).what


def test_a_run_names_its_export(tmp_path: Path):
    (tmp_path / "run_manifest.json").write_text("{}")
    (tmp_path / "adapter").mkdir()
    assert load_refusal(tmp_path).what == f"{tmp_path} has no config.json; it contains a run of trainproof."
    assert load_refusal(tmp_path).next == f"Run `trainproof export {tmp_path}`, then name {tmp_path / 'export'}."
    model_folder(tmp_path / "export")
    assert load_refusal(tmp_path).next == f"Name {tmp_path / 'export'}."


def test_shards_without_an_index_are_named(tmp_path: Path):
    for number in (1, 2):
        (tmp_path / f"model-0000{number}-of-00002.safetensors").touch()
    with ExitStack() as stack, pytest.raises(ProblemError) as caught:
        open_safetensors(tmp_path / "model.safetensors", stack)
    [found] = caught.value.problems
    assert "contains model-00001-of-00002.safetensors, but no model.safetensors.index.json" in found.what


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_a_description_that_was_not_fetched_is_named(name: str, tmp_path: Path):
    folder = model_folder(tmp_path / "model")
    (folder / name).write_text(POINTER)
    found = load_refusal(folder)
    assert found.what == f"{name} is a Git LFS pointer, not the file itself."
    assert (found.file, found.next) == (str(folder / name), "Fetch the file with `git lfs pull`.")


@pytest.mark.parametrize("name", ["model.safetensors", "model-00001-of-00002.safetensors", "adapter_model.safetensors"])
def test_weights_that_were_not_fetched_are_named(name: str, tmp_path: Path):
    (tmp_path / name).write_text(POINTER)
    with ExitStack() as stack, pytest.raises(ProblemError) as caught:
        open_safetensors(tmp_path / name, stack)
    [found] = caught.value.problems
    assert found.what == f"{name} is a Git LFS pointer, not the file itself."
    assert found.next == "Fetch the file with `git lfs pull`."


def test_an_index_a_gguf_file_and_an_adapter_that_were_not_fetched_are_named(tmp_path: Path):
    for name in ("m.gguf", "model.safetensors.index.json", "adapter_config.json"):
        (tmp_path / name).write_text(POINTER)
    assert load_refusal(tmp_path / "m.gguf").what == "m.gguf is a Git LFS pointer, not the file itself."
    source = replace(resolve("tiny-gpt2"), folder=tmp_path)
    with pytest.raises(ProblemError, match=r"index\.json is a Git LFS pointer"):
        load_params(source, {})
    with pytest.raises(ProblemError, match=r"adapter_config\.json is a Git LFS pointer"):
        read_adapter_config(tmp_path)
