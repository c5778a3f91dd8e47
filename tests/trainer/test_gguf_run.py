"""A run whose model is a GGUF file, and the GGUF file that is made of it."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from gguf_cases import TEXT, folder_of, params_of, with_tokenizer
from model_folders import row_file

from evidence.hashes import sha256_file
from evidence.index.index import check_document
from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.tree import (
    BatchConfig,
    Config,
    DataConfig,
    EvaluationConfig,
    LimitsConfig,
    MeshConfig,
    MethodConfig,
    ModelConfig,
    OptimizerConfig,
)
from trainer.evaluation.challenge import ChallengeRequest, challenge_run
from trainer.evaluation.late import evaluate_run
from trainer.evaluation.recorded import read_config
from trainer.export_run import NEW_TOKENS, equal_tokens, export_run
from trainer.generate.api import load_model
from trainer.model.files.export import export
from trainer.model.files.export_gguf import export_gguf
from trainer.model.files.source import resolve
from trainer.model.gguf.header import read_gguf
from trainer.model.params import params_sha256
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay
from trainer.run import RunRequest, run

QUIET = Watch(quiet=True)


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    folder = tmp_path_factory.mktemp("base")
    source = resolve(str(with_tokenizer(folder_of("llama", folder / "hf"))))
    params = params_of(source)
    export_gguf(folder / "base.gguf", params, source, form="f16")
    other = {name: value * np.float32(0.5) for name, value in params.items()}
    export_gguf(folder / "other.gguf", other, source, form="f16")
    return folder / "base.gguf"


@pytest.fixture(scope="module")
def trained(base):
    """A run of two steps on the file, evaluated."""
    words = TEXT.split()
    folder = base.parent
    items = [{"id": str(n), "prompt": f"{words[n]} {words[n + 1]}", "expected": words[n]} for n in range(3)]
    config = Config(
        name="test",
        model=ModelConfig(name=str(base)),
        data=DataConfig(
            dataset=row_file(folder / "rows.jsonl", *({"prompt": one, "completion": f" {one}"} for one in words)),
            max_length=32,
        ),
        method=MethodConfig(kind="lora", rank=2),
        optimizer=OptimizerConfig(learning_rate=1e-2),
        batch=BatchConfig(microbatch_size=4),
        mesh=MeshConfig(device="cpu", devices=1),
        evaluation=EvaluationConfig(
            eval_set=row_file(folder / "items.jsonl", *items), baseline=False, max_new_tokens=4
        ),
        limits=LimitsConfig(steps=2),
    )
    assert run(RunRequest(config=config, folder=folder / "run", command=["trainproof", "train"]), QUIET) == 0
    return folder / "run"


@pytest.mark.slow
def test_adapters_are_trained_on_a_gguf_and_written_into_one(base, trained):
    said = []
    manifest = json.loads((trained / "run_manifest.json").read_text())
    assert (manifest["model"]["name"], manifest["model"]["family"]) == (str(base), "llama")
    target = export_run(trained, None, Said(said), gguf="f16")
    assert target == trained / "gguf" / "run-f16.gguf"
    receipt = json.loads(target.with_suffix(".receipt.json").read_text())
    assert check_document(target.with_suffix(".receipt.json")) == []
    assert receipt["sha256"] == sha256_file(target)
    assert (receipt["file"], receipt["form"], receipt["step"], receipt["llama_cpp"]) == ("run-f16.gguf", "f16", 2, None)
    assert receipt["texts_with_equal_tokens"] == receipt["texts"] > receipt["prompts"]
    assert 0 < receipt["tokens_equal"] <= receipt["prompts"] * receipt["new_tokens"]
    assert 0 < receipt["largest_logit_difference"] < 0.01
    assert said[-1].startswith("compared with the exported parameters: ")
    # The tokenizer is the base's to the letter, and only what adapters are on has changed.
    before, after = read_gguf(base), read_gguf(target)
    tokenizer = {key: value for key, value in before.metadata.items() if key.startswith("tokenizer.")}
    np.testing.assert_equal({key: after.metadata[key] for key in tokenizer}, tokenizer)
    changed = {name for name in before.tensors if (before.tensors[name].read() != after.tensors[name].read()).any()}
    assert changed
    assert all(name.startswith("blk.") and name.endswith(".weight") and "norm" not in name for name in changed)
    with pytest.raises(ProblemError) as raised:
        export_run(trained, None, Watch(), gguf="f16")
    assert raised.value.problems[0].what == f"{target} is there already."


class Said(Watch):
    """A watch that keeps what is said."""

    def __init__(self, lines):
        super().__init__()
        self.lines = lines

    def say(self, text):
        self.lines.append(text)


def test_a_judge_with_another_gguf_is_refused_with_both_hashes(base, trained):
    other = str(base.with_name("other.gguf"))
    stated = json.loads((trained / "run_manifest.json").read_text())["model"]["frozen_sha256"]
    found = params_sha256(load_model(other).params)
    expected = (
        f"error TP765: {trained} at /model: The weights of the base model here have the SHA-256 {found}; the run "
        f"states {stated}.\n"
        "  With another base every number differs, which would say nothing about the run.\n"
        f"  Next: Fetch {base}, as the run had it, and give its folder with --model.\n"
    )
    asked = ChallengeRequest(
        folder=trained, items=str(base.with_name("items.jsonl")), generate=0, seed=1, again=1, model=other
    )
    said = []
    for act in (
        lambda: replay(ReplayRequest(folder=trained, model=other), said.append, said.append),
        lambda: challenge_run(asked, Said(said), said.append),
    ):
        with pytest.raises(ProblemError) as caught:
            act()
        assert (caught.value.exit_code, as_text(caught.value.problems)) == (3, expected)
    assert not [line for line in said if "compiling" in str(line)], "before anything is computed"
    receipt = challenge_run(replace(asked, model=str(base)), QUIET, lambda event: None)
    assert receipt["covered"]["items"]["identical"] == 1


@pytest.mark.slow
def test_a_run_is_not_evaluated_on_a_gguf_that_was_replaced(base, trained, tmp_path):
    config = replace(
        read_config(trained),
        model=ModelConfig(name=str(tmp_path / "base.gguf")),
        evaluation=EvaluationConfig(max_new_tokens=4),
    )
    shutil.copy(base, tmp_path)
    folder = tmp_path / "run"
    assert run(RunRequest(config=config, folder=folder, command=["trainproof", "train"]), QUIET) == 0
    shutil.copy(base.with_name("other.gguf"), tmp_path / "base.gguf")
    with pytest.raises(ProblemError) as caught:
        evaluate_run(folder, str(base.with_name("items.jsonl")), QUIET)
    [problem] = caught.value.problems
    assert (caught.value.exit_code, problem.code) == (3, "TP055")
    assert json.loads((folder / "run_manifest.json").read_text())["model"]["frozen_sha256"] in problem.what


def test_a_gguf_has_the_hash_of_the_numbers_in_it(base, tmp_path):
    """The hash of first parameters is that of the dequantised numbers: a folder that holds them has the same."""
    params = load_model(base).params
    export(tmp_path / "folder", params, resolve(str(base)))
    assert params_sha256(load_model(tmp_path / "folder").params) == params_sha256(params)


def test_tokens_are_counted_up_to_the_first_that_is_another():
    assert equal_tokens([[5, 7, 8], [1, 2, 3]], [[5, 9, 8], [1, 2, 3]]) == 4
    assert NEW_TOKENS > 0
