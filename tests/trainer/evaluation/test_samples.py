"""Several drawn answers to each item: kept, stated, held by `check`, given again by replay and challenge."""

import json
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax
import pytest
from forging import read_rows, write_rows
from leaves import Forger, Forgery
from model_folders import row_file

from evidence import layout
from evidence.grade import find_problems
from evidence.hashes import sha256_file
from evidence.run import read_run
from evidence.scores.recompute import compute_scores
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.config.tree import Config, DataConfig, EvaluationConfig, LimitsConfig
from trainer.evaluation.challenge import ChallengeRequest, challenge_run
from trainer.evaluation.recorded import load_run_params
from trainer.loop.mesh import build_mesh
from trainer.loop.task import Task
from trainer.model.source import resolve
from trainer.objectives import find_contradictions
from trainer.play import run_sampler
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay
from trainer.runtime import choose_devices
from trainproof.terminal.runs import run_text

ROWS = [{"prompt": f"Say {word}: ", "completion": word} for word in ("red", "blue", "green", "red")]
ITEMS = [
    *({"id": word, "prompt": f"Say {word}: ", "expected": word} for word in ("red", "blue", "green")),
    {"id": "long", "prompt": "Say " * 600, "expected": "red"},
]
SAMPLES = 5


@pytest.fixture(scope="module")
def sampled(config, shared_rows) -> Config:
    """Twenty-five steps on three words, evaluated with five samples of each item."""
    return replace(
        config,
        seed=7,
        data=DataConfig(dataset=shared_rows("words", *ROWS), max_length=32),
        evaluation=EvaluationConfig(
            eval_set=shared_rows("words_items", *ITEMS),
            max_new_tokens=8,
            batch_size=12,
            samples=SAMPLES,
            temperature=1.5,
            top_k=40,
            top_p=0.95,
            stop="e",
        ),
        limits=LimitsConfig(steps=25),
    )


@pytest.fixture(scope="module")
def made(finished, sampled) -> Path:
    return finished(sampled)


@pytest.fixture
def copy(made, tmp_path) -> Path:
    return shutil.copytree(made, tmp_path / "run")


def summary_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / layout.EVAL_SUMMARY).read_text())


def errors_of(folder: Path) -> set[str]:
    return {each.code for each in find_problems(read_run(folder)) if each.severity == "error"}


@pytest.mark.slow
def test_every_answer_is_kept_and_scores_are_of_all_of_them(made):
    summary, rows = summary_of(made), read_rows(made, layout.PREDICTIONS)
    stated = {key: summary["generation"][key] for key in ("method", "samples", "seed", "temperature", "top_k", "top_p")}
    assert list(stated.values()) == ["sampled", SAMPLES, 7, 1.5, 40, 0.95]
    assert [len(row.get("more_samples", ())) for row in rows] == [4, 4, 4, 0]
    texts = {
        text for row in rows[:3] for text in (row["output_text"], *(s["output_text"] for s in row["more_samples"]))
    }
    assert len(texts) > 3, "what is drawn differs"
    assert all("e" not in text[:-1] for text in texts), "the stop text ends an output"
    assert any(text.endswith("e") for text in texts)
    assert summary["sampled"] == compute_scores(rows, SAMPLES)["sampled"]
    assert [each["tries"] for each in summary["sampled"]["pass_at"]] == [1, 2, 4, 5]
    assert summary["baseline"]["sampled"]["samples"] == SAMPLES
    said = run_text(read_run(made))
    assert all(name in said for name in ("pass@1 ", "pass@5 ", "majority of 5 "))
    logged = [row["message"] for row in read_rows(made, layout.LOG) if row["event"] == "evaluated"]
    assert "of 5 samples pass@1 " in logged[0]
    # The set is small on purpose, and one of its prompts too long.
    assert errors_of(made) <= {"TP408"}


@pytest.mark.slow
def test_a_replay_draws_the_same(made):
    receipt, code = replay(ReplayRequest(folder=made, whole=True), lambda line: None, lambda event: None)
    assert (receipt["result"], code) == ("identical", 0), receipt["said"]
    assert receipt["covered"]["items"]["identical"] == 2 * len(ITEMS)


def challenged(folder: Path, again: int) -> dict[str, Any]:
    question = {"id": "new", "prompt": "Say green, please: ", "expected": "green"}
    items = row_file(folder.parent / "questions.jsonl", question)
    request = ChallengeRequest(folder=folder, items=Path(items), generate=0, seed=1, again=again, model=None)
    return challenge_run(request, Watch(quiet=True), lambda event: None)["covered"]["items"]


def test_a_judge_follows_drawn_answers_in_one_pass(copy):
    assert challenged(copy, again=0) == {
        "drawn": 0,
        "identical": 0,
        "within_tolerance": 0,
        "different": 0,
        "trained": 0,
        "given_again": {"trained": len(ITEMS), "untrained": 0},
    }


def swapped(row: dict[str, Any]) -> None:
    """Exchange two samples: each is an answer of the model, and not the one of its number."""
    one, other = next(
        (a, b)
        for a in range(4)
        for b in range(a, 4)
        if row["more_samples"][a]["output_text"] != row["more_samples"][b]["output_text"]
    )
    samples = row["more_samples"]
    samples[one], samples[other] = samples[other], samples[one]


def test_a_sample_that_was_not_drawn_so_is_found(copy):
    """Two samples of one item change places, so that every hash and score still fits."""
    rows, summary = read_rows(copy, layout.PREDICTIONS), summary_of(copy)
    swapped(rows[0])
    write_rows(copy, layout.PREDICTIONS, rows)
    summary["predictions"]["sha256"] = sha256_file(copy / layout.PREDICTIONS)
    (copy / layout.EVAL_SUMMARY).write_text(json.dumps(summary))
    found = challenged(copy, again=0)
    assert (found["different"], found["given_again"]["trained"]) == (1, len(ITEMS) - 1)
    assert found["differences"][0]["why"].startswith("The model does not write this: token ")


@pytest.mark.slow
def test_a_sample_depends_on_seed_item_and_number_alone(made, sampled):
    """An item put alone, in another order or with fewer samples has the same answers."""
    devices = choose_devices("cpu", 1)
    task = Task.of(sampled, resolve("tiny-gpt2"), build_mesh(devices.list))
    sampler = run_sampler(made, sampled, task, None)
    manifest = json.loads((made / layout.MANIFEST).read_text())
    params = load_run_params(made, task, manifest, sha256=None).params
    prompts = {word: sampler.tokenizer(f"Say {word}: ").input_ids for word in ("red", "blue", "green")}
    whole = dict(zip(prompts, sampler.answer(params, prompts), strict=True))
    [alone] = sampler.answer(params, {"green": prompts["green"]})
    fewer = replace(sampler, settings=replace(sampler.settings, samples=2))
    [two] = fewer.answer(params, {"green": prompts["green"]})
    assert [each.tokens for each in alone] == [each.tokens for each in whole["green"]]
    assert [each.tokens for each in two] == [each.tokens for each in whole["green"][:2]]
    other = replace(sampler, seed=8)
    [elsewhere] = other.answer(params, {"green": prompts["green"]})
    assert [each.tokens for each in elsewhere] != [each.tokens for each in alone]
    keys = sampler.sample_keys(["red", "blue"])
    assert keys.shape == (2, SAMPLES)
    assert len({tuple(each) for each in jax.random.key_data(keys).reshape(-1, 2).tolist()}) == 2 * SAMPLES


Change = Callable[[dict[str, Any]], None]


def first_row(change: Callable[[dict[str, Any]], None]) -> Change:
    return lambda values: change(values[layout.PREDICTIONS][0])


FORGED: dict[str, tuple[str, Change]] = {
    "pass@k": ("TP340", lambda values: values[layout.EVAL_SUMMARY]["sampled"]["pass_at"][3].update(value=0.999)),
    "majority": ("TP340", lambda values: values[layout.EVAL_SUMMARY]["sampled"]["majority"].update(value=0.999)),
    "no samples": ("TP340", lambda values: values[layout.EVAL_SUMMARY].pop("sampled")),
    "a sample's verdict": (
        "TP341",
        first_row(lambda row: row["more_samples"][2].update(correct=not row["more_samples"][2]["correct"])),
    ),
    "the majority's verdict": (
        "TP341",
        first_row(lambda row: row.update(majority_correct=not row["majority_correct"])),
    ),
    "a sample less": ("TP342", first_row(lambda row: row["more_samples"].pop())),
    "text after the stop": (
        "TP342",
        first_row(lambda row: row["more_samples"][0].update(output_text="some more text than it had")),
    ),
    "another temperature": (
        "TP354",
        lambda values: values[layout.EVAL_SUMMARY]["generation"].update(temperature=0.5),
    ),
}


PATH = ("generation", "temperature")
"""Has the forger make the hash of the settings anew, too."""


@pytest.mark.parametrize("name", FORGED)
def test_check_finds_what_does_not_follow(name, made, tmp_path):
    code, change = FORGED[name]
    forger = Forger(made, tmp_path / "forged")
    values = deepcopy(forger.values)
    change(values)
    forger._reseal(values, Forgery(file=layout.EVAL_SUMMARY if code == "TP354" else "all", what="told", path=PATH))
    assert code in errors_of(forger.folder)


@pytest.mark.parametrize(("key", "value"), [("temperature", 0.7), ("top_k", 5), ("top_p", 0.9)])
def test_a_sampling_setting_without_samples_is_refused(key, value, sampled):
    evaluation = EvaluationConfig(eval_set=sampled.evaluation.eval_set, **{key: value})
    greedy = replace(sampled, evaluation=evaluation)
    [problem] = find_contradictions(greedy)
    assert (problem.code, problem.pointer) == ("TP009", f"/evaluation/{key}")
    assert find_contradictions(replace(greedy, evaluation=replace(greedy.evaluation, samples=2))) == []


def test_samples_are_refused_out_of_range(tmp_path):
    (tmp_path / "c.yaml").write_text("model: {name: tiny-gpt2}\nevaluation: {samples: 0}\n")
    with pytest.raises(ProblemError):
        load_config(tmp_path / "c.yaml")
