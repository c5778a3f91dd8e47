"""Train a GGUF file, and export the run as one."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from gguf_cases import TEXT, folder_of, params_of, with_tokenizer
from model_folders import row_file
from refusals import catch_problems
from whole_runs import carried_out, manifest_of

from evidence.hashes import sha256_file
from evidence.index.index import check_document
from trainer.evaluation.challenge import ChallengeRequest, challenge_run
from trainer.evaluation.evaluate import evaluate_run
from trainer.evaluation.recorded import read_config
from trainer.export_run import equal_tokens, export_run
from trainer.generate.api import load_model
from trainer.model.decoder import params_sha256
from trainer.model.export import export_gguf
from trainer.model.gguf import read_gguf
from trainer.model.source import resolve
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay
from trainer.run import RunRequest

QUIET = Watch(quiet=True)


def heard(lines):
    """Return a watch whose lines are kept."""
    watch = Watch()
    watch.say = lines.append
    return watch


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
def trained(base, config):
    """A run of two steps on the file, evaluated."""
    words, folder = TEXT.split(), base.parent
    pairs = ({"prompt": one, "completion": f" {one}"} for one in words)
    items = ({"id": str(n), "prompt": f"{words[n]} {words[n + 1]}", "expected": words[n]} for n in range(3))
    changed = config.changed(
        model={"name": str(base)},
        data={"dataset": row_file(folder / "rows.jsonl", *pairs), "max_length": 32},
        method={"kind": "lora", "rank": 2},
        evaluation={"eval_set": row_file(folder / "items.jsonl", *items), "baseline": False, "max_new_tokens": 4},
    )
    assert carried_out(RunRequest(config=changed, folder=folder / "run", command=["trainproof", "train"])) == 0
    return folder / "run"


@pytest.mark.slow
def test_adapters_are_trained_on_a_gguf_and_written_into_one(base, trained):
    said = []
    manifest = manifest_of(trained)
    assert (manifest["model"]["name"], manifest["model"]["family"]) == (str(base), "llama")
    target = export_run(trained, None, heard(said), gguf="f16")
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
    [problem] = catch_problems(lambda: export_run(trained, None, Watch(), gguf="f16"))
    assert problem.what == f"{target} exists already."


def test_a_judge_with_another_gguf_is_refused_with_both_hashes(base, trained):
    other, said = str(base.with_name("other.gguf")), []
    stated = manifest_of(trained)["model"]["frozen_sha256"]
    found = params_sha256(load_model(other).params)
    items = base.with_name("items.jsonl")
    asked = ChallengeRequest(folder=trained, items=items, generate=0, seed=1, again=1, model=other)
    for act in (
        lambda: replay(ReplayRequest(folder=trained, model=other), said.append, said.append),
        lambda: challenge_run(asked, heard(said), said.append),
    ):
        [problem] = catch_problems(act, exit_code=3)
        assert (problem.code, problem.pointer) == ("TP765", "/model")
        assert problem.what == (f"The weights of the base model here have the SHA-256 {found}; the run used {stated}.")
    assert not [line for line in said if "compiling" in str(line)], "before anything is computed"
    receipt = challenge_run(replace(asked, model=str(base)), QUIET, lambda event: None)
    assert receipt["covered"]["items"]["identical"] == 1


@pytest.mark.slow
def test_a_run_is_not_evaluated_on_a_gguf_that_was_replaced(base, trained, train, tmp_path):
    shutil.copy(base, tmp_path)
    of_copy = read_config(trained).changed(model={"name": str(tmp_path / "base.gguf")}, evaluation={"eval_set": None})
    folder = train(of_copy)
    shutil.copy(base.with_name("other.gguf"), tmp_path / "base.gguf")
    [problem] = catch_problems(lambda: evaluate_run(folder, str(base.with_name("items.jsonl")), QUIET), exit_code=3)
    assert problem.code == "TP055"
    assert manifest_of(folder)["model"]["frozen_sha256"] in problem.what


def test_tokens_are_counted_up_to_the_first_that_is_another():
    assert equal_tokens([[5, 7, 8], [1, 2, 3]], [[5, 9, 8], [1, 2, 3]]) == 4
