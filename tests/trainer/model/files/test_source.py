"""A name becomes a model: built-in, folder or hub; every other name is an error that says what to do."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

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

from schemas.catalog import MODELS
from schemas.problems import Problem, ProblemError
from trainer.model.decoder import abstract, flatten, parameter_count
from trainer.model.source import BUILTIN, local_models_only, resolve
from trainer.model.tokenizer import FOLDER

TOKENS = 1 + max(token["id"] for token in json.loads((FOLDER / "tokenizer.json").read_text())["added_tokens"])
CASES = Path(__file__).parents[3] / "cases" / "models"
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


def test_a_name_near_a_built_in_one(monkeypatch):
    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    assert refusal("dmo") == Problem(
        code="TP045",
        severity="error",
        file="dmo",
        what="dmo is not on this machine and could not be fetched.",
        why="It is not in the local cache, and the hub cannot be reached or is switched off (HF_HUB_OFFLINE).",
        next=f"Did you mean demo? {OFFLINE} Or try again with a connection.",
    )


def test_a_name_that_can_be_nothing():
    assert refusal("./models/nowhere") == Problem(
        code="TP040",
        severity="error",
        file="./models/nowhere",
        what="There is no model ./models/nowhere.",
        why="It is not built in, not on this machine, and not written like a hub name (owner/model).",
        next=OFFLINE,
    )
    for name in (
        "",
        "~nobody-of-this-name/model",
        "a b",
        "a/b/c",
        "../demo",
        "/",
        "owner/",
        "https://host/owner/model",
    ):
        assert refusal(name).code == "TP040", name


def test_a_revision_needs_the_hub():
    assert refusal("demo", "main") == Problem(
        code="TP040",
        severity="error",
        file="demo",
        what="Revision main was asked for, but demo is a built-in model.",
        why="Only models on the hub have revisions.",
        next="Leave model.revision out, or name a model on the hub.",
    )
    folder = CASES / "gemma"
    assert refusal(str(folder), "main").what == f"Revision main was asked for, but {folder} is a local folder."


def test_folders_without_a_good_config(tmp_path):
    file = tmp_path / "config.json"
    assert refusal(str(tmp_path)) == Problem(
        code="TP040",
        severity="error",
        file=str(file),
        what=f"The config.json of {tmp_path} cannot be read: "
        f"FileNotFoundError: [Errno 2] No such file or directory: '{file}'.",
        why="It says what the model is: family, sizes, activation.",
        next=OFFLINE,
    )
    file.write_text("[1]")
    assert refusal(str(tmp_path)).what == f"The config.json of {tmp_path} is not a JSON object."
    file.write_text("{")
    assert refusal(str(tmp_path)).what.startswith(f"The config.json of {tmp_path} cannot be read: JSONDecodeError: ")
    file.write_bytes(b"\xff\xfe{\x00")
    assert refusal(str(tmp_path)).what.startswith(f"The config.json of {tmp_path} cannot be read: UnicodeDecodeError: ")
    file.write_text('{"model_type": "mamba"}')
    assert refusal(str(tmp_path)).code == "TP041"


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
    assert problem.what == "google/gemma-2b at revision main is not on this machine and could not be fetched."
    assert problem.next == f"{OFFLINE} Or try again with a connection."


# The errors keep what the client answered; which client that is differs between versions of the library.
RESPONSE = SimpleNamespace(headers={}, request=None)


def unreachable(name, **given):
    raise LocalEntryNotFoundError("no such file in the cache")


@pytest.mark.parametrize(
    ("error", "what", "why", "advice"),
    [
        (
            GatedRepoError("gated", response=RESPONSE),
            "The hub does not give owner/model to you.",
            "Its owner asks everyone to accept terms first.",
            "Accept them on the page of owner/model, log in with `hf auth login`, and try again.",
        ),
        (
            RevisionNotFoundError("none", response=RESPONSE),
            "owner/model has no revision v9.",
            "The hub knows the model.",
            "Name a branch, tag or commit from the model's page, or leave model.revision out.",
        ),
        (
            RepositoryNotFoundError("none", response=RESPONSE),
            "The hub has no model owner/model.",
            "It does not exist, or it is private and you are not logged in.",
            f"{OFFLINE} Or check the name on the hub; for a private model log in with `hf auth login`.",
        ),
        (
            HfHubHTTPError("503 Server Error\nmore", response=RESPONSE),
            "Fetching owner/model at revision v9 failed.",
            "HfHubHTTPError: 503 Server Error",
            "Try again, or download owner/model by other means and name its folder.",
        ),
        (
            OSError(28, "No space left on device"),
            "Fetching owner/model at revision v9 failed.",
            "OSError: [Errno 28] No space left on device",
            "Try again, or download owner/model by other means and name its folder.",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_the_hub_may_answer(monkeypatch, error, what, why, advice):
    def answer(name, **given):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", answer)
    assert refusal("owner/model", "v9") == Problem(
        code="TP045", severity="error", file="owner/model", what=what, why=why, next=advice
    )


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
    assert tokenizer_refusal(folder) == Problem(
        code="TP046",
        severity="error",
        file=str(folder),
        what=f"The tokenizer of {folder} gives '</answer>' the id {TOKENS - 1}; its config.json says 97 tokens.",
        why="Ids are counted from 0; the model has no row for 97 and beyond.",
        next=f"Put the tokenizer that {folder} was trained with into its folder (tokenizer.json and "
        "tokenizer_config.json).",
    )


def test_a_tokenizer_without_the_token_for_unknown_words(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    own = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<eos>": 0, "What": 1}, unk_token="[UNK]"))
    own.save(str(folder / "tokenizer.json"))
    problem = tokenizer_refusal(folder)
    assert (problem.code, problem.what, problem.why) == (
        "TP046",
        f"The tokenizer of {folder} takes what it does not know for '[UNK]', and has no such token.",
        "The first unknown word would end the run.",
    )


def test_a_folder_without_tokenizer(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    assert len(resolve(str(folder)).tokenizer()) == TOKENS
    (folder / "tokenizer.json").unlink()
    problem = tokenizer_refusal(folder)
    assert problem.what == (
        f"The tokenizer of {folder} is missing: there is none of tokenizer.json, tokenizer.model, vocab.json."
    )
    assert problem.why == "The tokens are in these files."


def test_a_tokenizer_with_a_gap_in_its_ids(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    document = json.loads((folder / "tokenizer.json").read_text())
    document["model"]["vocab"]["5"] = 900
    (folder / "tokenizer.json").write_text(json.dumps(document))
    assert tokenizer_refusal(folder).what == (
        f"The tokenizer of {folder} gives '5' the id 900; its config.json says {TOKENS} tokens."
    )


@pytest.mark.parametrize("content", ["[]", "[" * 100_000])
def test_a_tokenizer_config_that_is_no_object(tmp_path, content):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    (folder / "tokenizer_config.json").write_text(content)
    assert tokenizer_refusal(folder).what.startswith(f"The tokenizer of {folder} cannot be loaded: ")


def test_a_config_of_endless_lists(tmp_path):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    (folder / "config.json").write_text("[" * 100_000)
    with pytest.raises(ProblemError) as found:
        resolve(str(folder))
    assert found.value.problems[0].what.startswith(
        f"The config.json of {folder} cannot be read: RecursionError: maximum recursion depth exceeded"
    )


@pytest.mark.parametrize("content", ["{", '{"model": 1}', ""])
def test_a_tokenizer_that_cannot_be_loaded(tmp_path, content):
    folder = model_with_tokenizer(tmp_path / "m", vocab_size=TOKENS)
    (folder / "tokenizer.json").write_text(content)
    problem = tokenizer_refusal(folder)
    assert problem.what.startswith(f"The tokenizer of {folder} cannot be loaded: ")
    assert problem.why == "transformers reads tokenizer.json, or the family's own files."


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
    if not asked:
        assert (problem.what, problem.why, problem.next) == (
            "owner/model is not on this machine.",
            "A run names it that somebody else may have written, so the hub was not asked.",
            f"{OFFLINE} Or have it fetched with --fetch.",
        )
    assert resolve("tiny-gpt2").spec.layers == 2
