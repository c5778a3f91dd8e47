"""Evaluations in a run and later: outputs, held-out points, samples; checked, replayed, resumed and challenged."""

import json
import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from operator import getitem
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import pytest
import yaml
from configs import changed
from forging import read_rows
from leaves import Forger, Forgery
from model_folders import row_file
from refusals import catch_problem
from replays import challenged, replay_run
from whole_runs import QUIET, carried_out, error_codes, errors_of, manifest_of

from evidence import layout
from evidence.compare.scores import compare_runs, score_difference
from evidence.hashes import sha256_json
from evidence.lock import RunLock
from evidence.run import read_run
from evidence.scores.reading import Scoring
from evidence.scores.recompute import draw_ids
from schemas.problems import Problem, ProblemError
from trainer.config.tree import Config
from trainer.data.conversations import FORM
from trainer.evaluation import evaluate
from trainer.evaluation.answers import MARGINS, allowed_margin, changed_score, find_difference, is_same, item_fields
from trainer.evaluation.evaluate import describe_summary, evaluate_run
from trainer.evaluation.recorded import load_run_params, read_sampler
from trainer.export_run import export_run
from trainer.loop.checkpoints import checkpoint_steps
from trainer.loop.session import StopRequest
from trainer.loop.task import Task, build_mesh
from trainer.model import export
from trainer.model.source import resolve
from trainer.objectives import find_contradictions
from trainer.recorder.progress import Watch
from trainer.run import RunRequest
from trainer.runtime import choose_devices

WORDS = ("red", "blue", "green", "white", "black")
ROWS = [{"prompt": f"Say {word}: ", "completion": word} for word in WORDS]
ITEMS = [{"id": word, "prompt": f"Say {word}: ", "expected": word} for word in WORDS]
SAMPLES = 5

Values = dict[str, Any]
Change = Callable[[Values], Any]


@pytest.fixture(scope="module")
def words(config, tmp_path_factory) -> Config:
    """Sixty steps on five words, read as whole outputs, with three items evaluated at every tenth step."""
    folder = tmp_path_factory.mktemp("words")
    items = row_file(folder / "items.jsonl", ITEMS[0] | {"expected": ["red", "crimson"]}, *ITEMS[1:])
    return changed(
        config,
        data={"dataset": row_file(folder / "words.jsonl", *ROWS), "max_length": 32},
        optimizer={"schedule": "constant"},
        batch={"microbatch_size": 5},
        checkpoint={"save_every_steps": 20, "keep": 1, "keep_best": "held_out_score"},
        recording={"log_every_steps": 7, "states_mib": 0},
        evaluation={"eval_set": items, "max_new_tokens": 6, "every_steps": 10, "during_items": 3},
        limits={"steps": 60},
    )


@pytest.fixture(scope="module")
def sampled(config, tmp_path_factory) -> Config:
    """Twenty-five steps on three words, evaluated with five samples of each item; one prompt is too long."""
    folder = tmp_path_factory.mktemp("sampled")
    items = row_file(folder / "items.jsonl", *ITEMS[:3], {"id": "long", "prompt": "Say " * 600, "expected": "red"})
    settings = {"samples": SAMPLES, "temperature": 1.5, "top_k": 40, "top_p": 0.95, "stop": "e"}
    sizes = {"max_new_tokens": 8, "batch_size": 12}
    return changed(
        config,
        seed=7,
        data={"dataset": row_file(folder / "words.jsonl", *ROWS[:3], ROWS[0]), "max_length": 32},
        evaluation={"eval_set": items, **sizes, **settings},
        limits={"steps": 25},
    )


@pytest.fixture
def spoken(finished, words) -> Path:
    return finished(words)


@pytest.fixture
def drawn(finished, sampled) -> Path:
    return finished(sampled)


def document(folder: Path, name: str) -> Values:
    return json.loads((folder / name).read_text())


def forge(original: Path, folder: Path, change: Change, forgery: Forgery | None = None) -> Path:
    """Return a copy of a run with a change, in which every hash fits."""
    forger = Forger(original, folder)
    change(forger.values)
    forger._reseal(forger.values, forgery or Forgery(file="all", what="other"))
    return forger.folder


def challenged_items(folder: Path, again: int, target: Path) -> Values:
    question = {"id": "new", "prompt": "Say green, please: ", "expected": "green"}
    receipt = challenged(folder, items=Path(row_file(target / "questions.jsonl", question)), again=again)
    assert receipt["score"]["found"]["n"] == 1
    return receipt["covered"]["items"]


@pytest.mark.slow
def test_right_answers_count_and_the_reader_is_recorded(spoken):
    summary = document(spoken, layout.EVAL_SUMMARY)
    scoring = {"answer": "whole", "answer_regex": None, "compare": "exact", "tolerance": 1e-6, "version": 2}
    assert summary["scoring"] == scoring | {"sha256": sha256_json(scoring)}
    assert [summary["metrics"][name]["value"] for name in ("exact_match", "lenient_match")] == [1, 1]
    assert summary["baseline"]["metrics"]["exact_match"]["value"] == 0
    assert document(spoken, layout.MANIFEST)["effective"]["evaluation"]["answer"] == "whole"
    red, blue, *_ = read_rows(spoken, layout.PREDICTIONS)
    assert (red["expected"], red["also_expected"], red["extracted_answer"]) == ("red", ["crimson"], "red")
    assert "also_expected" not in blue


def test_a_gain_of_form_is_named_for_a_run_and_between_runs(spoken):
    """The run before answers the same in a sentence, which is not the form that is read."""
    gain = "the gain is only in the answer format: strict 0 → 5 of 5, lenient 5 → 5"
    summary = document(spoken, layout.EVAL_SUMMARY)
    summary["baseline"]["metrics"]["lenient_match"]["value"] = 1.0
    assert describe_summary(summary, "words").endswith(f"before training 0.000); {gain}")
    after = read_rows(spoken, layout.PREDICTIONS)
    before = [{**row, "extracted_answer": f"It is {row['expected']}", "correct": False} for row in after]
    assert score_difference(before, after).gain_of_form == gain


def held_out(folder: Path) -> dict[int, tuple[float, float]]:
    rows = read_rows(folder)
    return {row["step"]: (row["held_out_score"], row["held_out_loss"]) for row in rows if "held_out_score" in row}


@pytest.mark.slow
def test_score_loss_and_answers_are_recorded_at_the_configured_steps(spoken):
    points, answers = held_out(spoken), read_rows(spoken, layout.ANSWERS_OVER_STEPS)
    assert list(points) == [10, 20, 30, 40, 50, 60]
    ids = draw_ids(WORDS, 3, 0)
    assert [row["id"] for row in answers] == ids * 6
    for step, (score, _) in points.items():
        assert score == sum(row["correct"] for row in answers if row["step"] == step) / 3
    assert points[60][1] < points[10][1], "the words were learned"
    assert {row["step"] for row in read_rows(spoken)} == {1, *range(7, 60, 7), *range(10, 61, 10)}
    # At the end the same program gives the same answers of the same model.
    ended = {row["id"]: row["output_text"] for row in read_rows(spoken, layout.PREDICTIONS)}
    last = {row["id"]: row["output_text"] for row in answers if row["step"] == 60}
    assert last == {each: ended[each] for each in ids}


def test_held_out_seconds_are_not_step_seconds_and_the_best_checkpoint_is_kept(spoken):
    rows = read_rows(spoken)
    firsts = [0, *(each["step"] for each in rows[:-1])]
    training = sum(row["step_seconds"] * (row["step"] - before) for row, before in zip(rows, firsts, strict=True))
    evaluating = sum(row.get("held_out_seconds", 0) for row in rows)
    assert evaluating > 0
    assert training + evaluating <= document(spoken, layout.MANIFEST)["result"]["train_seconds"]
    scores = {step: score for step, (score, _) in held_out(spoken).items()}
    best = min(step for step in scores if scores[step] == max(scores.values()))
    assert checkpoint_steps(spoken) == sorted({60, best}, reverse=True)
    logged = [row["fields"] for row in read_rows(spoken, layout.LOG) if row["event"] == "best_so_far"]
    assert (logged[-1]["step"], logged[-1]["value"]) == (best, max(scores.values()))


def test_a_resumed_run_measures_the_same(spoken, words, train, tmp_path):
    begun = shutil.copytree(spoken, tmp_path / "begun")
    for step in checkpoint_steps(begun)[:-1]:
        shutil.rmtree(begun / layout.CHECKPOINTS / str(step))
    [from_step] = checkpoint_steps(begun)
    folder = train(words, "on", resume=begun)
    assert held_out(folder) == {step: each for step, each in held_out(spoken).items() if step > from_step}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["spoken", "drawn"])
def test_a_replay_gives_the_same_points_and_answers(name, request):
    folder = request.getfixturevalue(name)
    receipt, code, _ = replay_run(folder, whole=True)
    assert (receipt["result"], code) == ("identical", 0), receipt["said"]
    assert receipt["covered"]["items"]["identical"] == 2 * len(read_rows(folder, layout.PREDICTIONS))


@pytest.mark.slow
def test_every_sample_is_kept_and_scored(drawn):
    summary, rows = document(drawn, layout.EVAL_SUMMARY), read_rows(drawn, layout.PREDICTIONS)
    stated = {key: summary["generation"][key] for key in ("method", "samples", "seed", "temperature", "top_k", "top_p")}
    assert list(stated.values()) == ["sampled", SAMPLES, 7, 1.5, 40, 0.95]
    assert [len(row.get("more_samples", ())) for row in rows] == [4, 4, 4, 0]
    texts = {each["output_text"] for row in rows[:3] for each in (row, *row["more_samples"])}
    assert len(texts) > 3
    assert all("e" not in text[:-1] for text in texts), "the stop text ends an output"
    assert any(text.endswith("e") for text in texts)
    assert summary["baseline"]["sampled"]["samples"] == SAMPLES


@pytest.mark.slow
def test_a_sample_depends_only_on_seed_item_and_number(drawn, sampled):
    """An item answered alone, in another order or with fewer samples has the same answers."""
    task = Task.of(sampled, resolve("tiny-gpt2"), build_mesh(choose_devices("cpu", 1).list))
    sampler, (params, _) = read_sampler(drawn, task, None), load_run_params(drawn, task, sha256=None)
    prompts = {word: sampler.tokenizer(f"Say {word}: ").input_ids for word in WORDS[:3]}

    def tokens(sampler: Any, *ids: str) -> list[list[Any]]:
        return [[one.tokens for one in each] for each in sampler.answer(params, {name: prompts[name] for name in ids})]

    green = tokens(sampler, *prompts)[2]
    assert tokens(sampler, "green") == [green]
    assert tokens(replace(sampler, settings=replace(sampler.settings, samples=2)), "green") == [green[:2]]
    assert tokens(replace(sampler, task=replace(task, config=replace(sampled, seed=8))), "green") != [green]
    keys = sampler.sample_keys(["red", "blue"])
    assert keys.shape == (2, SAMPLES)
    assert len({tuple(each) for each in jax.random.key_data(keys).reshape(-1, 2).tolist()}) == 2 * SAMPLES


def read_by(**scoring: Any) -> Change:
    """Return a change of the recorded reader, with its hash."""

    def change(values: Values) -> None:
        stated = {**values[layout.EVAL_SUMMARY]["scoring"], **scoring}
        stated = {key: value for key, value in stated.items() if key != "sha256" and value is not ...}
        values[layout.EVAL_SUMMARY]["scoring"] = stated | {"sha256": sha256_json(stated)}

    return change


def changing(*path: str | int, **fields: Any) -> Change:
    """Return a change of fields of the object at a path in the documents of a run."""
    return lambda values: reduce(getitem, path, values).update(fields)


def first_row(change: Change) -> Change:
    return lambda values: change(values[layout.PREDICTIONS][0])


def negate(row: Values, key: str) -> None:
    row[key] = not row[key]


FORGED: dict[str, tuple[str, str, Change]] = {
    "right leniently": ("spoken", "TP341", changing(layout.BASELINE_PREDICTIONS, 0, lenient_correct=True)),
    "further answers": ("spoken", "TP352", changing(layout.PREDICTIONS, 1, also_expected=["anything"])),
    "another reader": ("spoken", "TP354", read_by(answer="last_line")),
    "an invalid pattern": ("spoken", "TP341", read_by(answer="regex", answer_regex="(a*)*")),
    "another hash": ("spoken", "TP353", changing(layout.EVAL_SUMMARY, "scoring", sha256="0" * 64)),
    "an earlier version of the reader": ("spoken", "TP354", read_by(version=1)),
    "no reader": ("spoken", "TP525", lambda values: values[layout.EVAL_SUMMARY].pop("scoring")),
    "another configuration": ("spoken", "TP354", changing(layout.CONFIG, "evaluation", compare="folded")),
    "another template": ("spoken", "TP366", changing(layout.FIRST_EXAMPLES, "examples", 0, template="Q: {prompt}")),
    "held-out score": ("spoken", "TP396", changing(layout.METRICS, 2, held_out_score=0.5)),  # of three items
    "held-out verdict": ("spoken", "TP396", lambda values: negate(values[layout.ANSWERS_OVER_STEPS][0], "correct")),
    "a point less": ("spoken", "TP396", lambda values: values[layout.ANSWERS_OVER_STEPS].__delitem__(slice(3, 6))),
    "another item": ("spoken", "TP397", changing(layout.ANSWERS_OVER_STEPS, 1, id="other")),
    "an easier prompt": ("spoken", "TP397", changing(layout.ANSWERS_OVER_STEPS, 1, prompt="Say it.")),
    "temperature": ("drawn", "TP354", changing(layout.EVAL_SUMMARY, "generation", temperature=0.5)),
    "pass@k": ("drawn", "TP340", changing(layout.EVAL_SUMMARY, "sampled", "pass_at", 3, value=0.9)),
    "majority": ("drawn", "TP340", changing(layout.EVAL_SUMMARY, "sampled", "majority", value=0.9)),
    "no samples": ("drawn", "TP340", lambda values: values[layout.EVAL_SUMMARY].pop("sampled")),
    "a sample's verdict": ("drawn", "TP341", first_row(lambda row: negate(row["more_samples"][2], "correct"))),
    "the majority's verdict": ("drawn", "TP341", first_row(lambda row: negate(row, "majority_correct"))),
    "a sample less": ("drawn", "TP342", first_row(lambda row: row["more_samples"].pop())),
    "text after the stop": ("drawn", "TP342", first_row(lambda row: row["more_samples"][0].update(output_text="e!"))),
}
FORGERIES = {
    "held-out score": Forgery(file=layout.METRICS, what="other"),
    "temperature": Forgery(file=layout.EVAL_SUMMARY, what="other", path=("generation", "temperature")),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_evaluation_is_found(name, request, tmp_path):
    run, code, change = FORGED[name]
    folder = forge(request.getfixturevalue(run), tmp_path / "forged", change, FORGERIES.get(name))
    assert code in error_codes(folder)


@pytest.mark.slow
def test_a_challenge_reads_answers_in_the_same_way(spoken, tmp_path):
    assert challenged_items(spoken, 2, tmp_path)["identical"] == 2
    row = read_rows(spoken, layout.PREDICTIONS)[0]
    assert changed_score(row, Scoring(answer="whole")) == ""
    assert changed_score(row, Scoring()) == "By its text, extracted_answer is None; the run states 'red'."


def test_sampled_answers_are_verified_in_one_pass(drawn, tmp_path):
    counts = dict.fromkeys(("drawn", "identical", "within_tolerance", "different", "trained"), 0)
    assert challenged_items(drawn, 0, tmp_path) == counts | {"given_again": {"trained": 4, "untrained": 0}}


def test_swapped_samples_are_found(drawn, tmp_path):
    """Two samples of one item change places, so that every hash and score still fits."""

    def swap(row: Values) -> None:
        first, *others = row["more_samples"]
        number = next(n for n, each in enumerate(others, 1) if each["output_text"] != first["output_text"])
        row["more_samples"][0], row["more_samples"][number] = others[number - 1], first

    found = challenged_items(forge(drawn, tmp_path / "run", first_row(swap)), 0, tmp_path)
    assert (found["different"], found["given_again"]["trained"]) == (1, 3)
    assert found["differences"][0]["why"].startswith("The model does not write this: token ")


@pytest.mark.parametrize(
    ("scoring", "refused"),
    [({"answer": "last_line"}, ("Answers were read with answer 'whole' and 'last_line'.",)), ({"version": ...}, ())],
)
def test_only_runs_whose_answers_are_read_alike_are_compared(scoring, refused, spoken, tmp_path):
    """Whole outputs do not depend on the version of the reader, which earlier versions did not record."""

    def change(values: Values) -> None:
        read_by(**scoring)(values)
        if "answer" in scoring:
            values[layout.CONFIG]["evaluation"] |= scoring
        for record in values[layout.LOG]:
            if record["event"] == "scoring":
                record["fields"] = values[layout.EVAL_SUMMARY]["scoring"]

    other = forge(spoken, tmp_path / "other", change)
    (pair,) = compare_runs([read_run(spoken), read_run(other)]).pairs
    assert pair.refused == refused
    assert [Scoring(answer=name).depends_on_version for name in ("tags", "whole", "choice")] == [False, False, True]


@pytest.mark.parametrize(
    ("evaluation", "keep_best", "name"),
    [
        ({"every_steps": 5}, None, "evaluation/every_steps"),
        ({"eval_set": "eval_v1", "during_items": 4}, None, "evaluation/during_items"),
        ({"eval_set": "eval_v1"}, "held_out_loss", "checkpoint/keep_best"),
        *(({"eval_set": "eval_v1", key: 0.7}, None, f"evaluation/{key}") for key in ("temperature", "top_k", "top_p")),
    ],
)
def test_settings_without_effect_are_refused(evaluation, keep_best, name, config):
    settings = changed(config, evaluation=evaluation, checkpoint={"keep_best": keep_best})
    assert [(each.code, each.pointer) for each in find_contradictions(settings)] == [("TP009", f"/{name}")]


def test_items_are_drawn_from_the_seed_in_the_order_of_the_set():
    ids = [f"q{n}" for n in range(40)]
    one, other = draw_ids(ids, 8, 0), draw_ids(ids, 8, 1)
    assert len(set(one)) == 8
    assert one == sorted(one, key=ids.index) != other
    assert draw_ids(ids, 99, 0) == ids
    assert set(draw_ids(ids, 8, 0)) < set(draw_ids(ids, 9, 0))


ITEM = {"id": "one", "prompt": "What is 2 + 2?", "expected": "4"} | dict.fromkeys(("section", "category", "difficulty"))
TOKENS = {"output_tokens": 40, "finish_reason": "stop", "output_token_ids": " ".join(map(str, range(40)))}
ANSWER = {"output_text": "<reasoning>2 + 2 = 4.</reasoning>\n<answer>4</answer>", "extracted_answer": "4"}
ROW: Values = ITEM | TOKENS | ANSWER | {"error": None, "correct": True, "format_ok": True}


def difference(stated: Values, margin: float) -> str:
    """Compare an answer with its item, given the largest logit gap of its tokens."""
    margins = [np.full(40, margin, np.float32)]
    return find_difference(stated, item_fields(ROW), margins, allowed_margin("float32", ("cpu",)), Scoring())


def test_margins_depend_on_platforms_and_precision():
    assert difference(ROW, 0.0005) == "" != difference(ROW, 0.05)
    # A TPU multiplies float32 in bfloat16 by default; between CPUs nothing explains such a margin.
    assert allowed_margin("float32", ("cpu",)) < 0.05 < allowed_margin("float32", ("tpu", "cpu")) < 0.3
    assert allowed_margin("float32", ("cpu", "gpu")) == MARGINS["float16"]
    assert allowed_margin("bfloat16", ("cpu", "gpu")) == MARGINS["bfloat16"]


@pytest.mark.parametrize("change", [{}, {"fingerprint": "AAAA"}, {"output_token_ids": None}])
def test_equal_answers_are_identical_whatever_fields_other_versions_have(change):
    assert is_same({key: value for key, value in (ROW | change).items() if value is not None or key not in change}, ROW)
    assert not is_same(ROW | change, ROW | {"output_text": "5"})


@pytest.mark.parametrize(
    ("change", "margin", "why"),
    [
        ({"prompt": "What is 3 + 1?"}, 0, "The set states prompt 'What is 2 + 2?', and the run 'What is 3 + 1?'."),
        ({"expected": "5", "correct": False}, 0, "The set states expected '4', and the run '5'."),
        ({"correct": False}, 0, "By its text, correct is True; the run states False."),
        ({"error": "no room"}, 0, "The run states an error (no room), and the model answers."),
        ({}, 2, "The model does not write this: token 1 of the stated answer has a logit 2 below the largest; other "),
    ],
)
def test_an_edited_field_and_an_improbable_token_are_named(change, margin, why):
    assert difference(ROW | change, margin).startswith(why)


@pytest.fixture
def folder(finished, config, tmp_path) -> Path:
    """Return a run of its own for a test: two steps, not evaluated."""
    return shutil.copytree(finished(config), tmp_path / "run")


@pytest.fixture
def unread(monkeypatch) -> None:
    monkeypatch.setattr("trainer.loop.checkpoints.restore", lambda *_: pytest.fail("the checkpoint was read first"))


def refused_evaluation(folder: Path, eval_set: str | None = "eval_v1") -> Problem:
    return catch_problem(lambda: evaluate_run(folder, eval_set, QUIET))


def read_files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.iterdir() if path.is_file()}


def test_a_run_is_evaluated_once(folder):
    assert evaluate_run(folder, "eval_v1", QUIET)["eval_set"]["name"] == "eval_v1"
    problem = refused_evaluation(folder)
    assert (problem.code, problem.file) == ("TP070", str(folder / layout.EVAL_SUMMARY))


@pytest.mark.usefixtures("unread")
@pytest.mark.parametrize(
    ("key", "value", "code"), [("max_new_tokens", 1024, "TP062"), ("eval_set", "eval_v2", "TP074")]
)
def test_settings_of_the_run_that_do_not_fit_are_refused(key, value, code, folder):
    config = yaml.safe_load((folder / layout.CONFIG).read_text())
    config["evaluation"][key] = value
    (folder / layout.CONFIG).write_text(yaml.safe_dump(config))
    before = sorted(folder.iterdir())
    problem = refused_evaluation(folder)
    assert (problem.code, key in problem.pointer) == (code, True)
    assert sorted(folder.iterdir()) == before


@pytest.mark.usefixtures("unread")
def test_locked_runs_lost_checkpoints_and_taken_folders_are_refused_before_the_checkpoint_is_read(folder):
    with RunLock(folder):
        assert refused_evaluation(folder).code == "TP090"
    problem = catch_problem(export_run, folder, folder.parent, QUIET)
    assert (problem.code, problem.what) == ("TP048", f"{folder.parent} is not empty.")
    shutil.rmtree(folder / layout.CHECKPOINTS)
    for work in (lambda: evaluate_run(folder, "eval_v1", QUIET), lambda: export_run(folder, None, QUIET)):
        problem = catch_problem(work)
        assert (problem.code, problem.file) == ("TP050", str(folder))


def test_the_current_folder_cannot_become_an_export(folder, tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    for name in (".", str(tmp_path / "empty")):
        problem = catch_problem(export_run, folder, Path(name), QUIET)
        assert (problem.code, problem.what) == ("TP048", f"{name} is the current directory.")


@pytest.fixture(scope="module")
def stopped(config, tmp_path_factory) -> Path:
    """A run that was interrupted when the tenth item was answered."""
    folder = tmp_path_factory.mktemp("half") / "half"
    answers = folder / layout.PREDICTIONS

    def reason(self: StopRequest, *, reserve_seconds: float = 0.0) -> str | None:
        return "signal SIGTERM" if answers.is_file() and answers.read_text().count("\n") >= 10 else None

    evaluated = changed(config, evaluation={"eval_set": "eval_v1"})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StopRequest, "reason", reason)
        assert carried_out(RunRequest(config=evaluated, folder=folder, command=["trainproof", "train"])) == 5
    assert json.loads((folder / layout.EVAL_SUMMARY).read_text())["status"] == "partial"
    return folder


@pytest.fixture
def half(stopped: Path, tmp_path: Path) -> Path:
    return shutil.copytree(stopped, tmp_path / "half")


@pytest.mark.slow
def test_a_stopped_evaluation_is_completed_and_keeps_its_baseline(half):
    before = json.loads((half / layout.EVAL_SUMMARY).read_text())
    summary = evaluate_run(half, None, QUIET)
    assert summary == json.loads((half / layout.EVAL_SUMMARY).read_text())
    assert (summary["status"], summary["predictions"]["rows"]) == ("complete", 50)
    assert summary["baseline"] == before["baseline"]
    assert errors_of(half) == []
    assert [path.name for path in half.iterdir() if path.name.startswith(".")] == []
    assert refused_evaluation(half, None).code == "TP070"


DISK_FULL = OSError(28, "No space left on device")
OUT_OF_MEMORY = jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes.")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "error", "text"),
    [
        ("trainer.evaluation.evaluate.list_artifacts", DISK_FULL, None),
        ("trainer.evaluation.evaluate.list_artifacts", KeyboardInterrupt(), None),
        ("trainer.evaluation.answers.Sampler.answer", OUT_OF_MEMORY, "The device ran out of memory: RESOURCE_EXH"),
    ],
    ids=["disk full", "interrupted", "out of memory"],
)
def test_a_completion_that_fails_leaves_the_run_as_it_was(where, error, text, half, monkeypatch):
    before = read_files(half)
    monkeypatch.setattr(where, Mock(side_effect=error))
    with pytest.raises((ProblemError, KeyboardInterrupt), match=text):
        evaluate_run(half, None, QUIET)
    assert read_files(half) == before


@pytest.mark.slow
def test_a_partial_evaluation_with_a_logged_score_is_not_replaced(half):
    """As earlier versions logged it: a second score would contradict the first."""
    log = half / layout.LOG
    log.write_text(log.read_text().replace("evaluation_stopped", "evaluated"))
    assert refused_evaluation(half, None).code == "TP070"


def test_a_run_without_a_recorded_prompt_form_needs_its_rows(folder):
    """As earlier versions recorded it."""
    log, config = folder / layout.LOG, folder / layout.CONFIG
    log.write_text("".join(line for line in log.read_text().splitlines(keepends=True) if FORM not in line))
    config.write_text(config.read_text().replace("dataset: dev-reasoning-v2", "dataset: gone.jsonl"))
    problem = refused_evaluation(folder)
    assert (problem.code, problem.file) == ("TP010", "gone.jsonl")


def test_a_stopped_export_leaves_nothing(folder, tmp_path, monkeypatch):
    real = export.save_file

    def saved(*given, **named):
        real(*given, **named)
        os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr(export, "save_file", saved)
    problem = catch_problem(export_run, folder, tmp_path / "model", QUIET, exit_code=5)
    assert (problem.code, "signal SIGTERM" in problem.what) == ("TP049", True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_one_of_two_concurrent_evaluations_is_refused(folder, monkeypatch):
    """Another process ends its evaluation while this one still reads the configuration."""
    real = evaluate.resolve

    def meanwhile(name: str, revision: str | None, **options: bool):
        (folder / layout.EVAL_SUMMARY).write_text("{}")
        return real(name, revision, **options)

    monkeypatch.setattr(evaluate, "resolve", meanwhile)
    assert refused_evaluation(folder).code == "TP070"


def as_killed(folder: Path, **training: int) -> None:
    manifest = manifest_of(folder)
    manifest |= {"status": "running", "exit": None, "finished_at": None, "artifacts": []}
    manifest["training"] |= training
    (folder / layout.MANIFEST).write_text(json.dumps(manifest))
    log = [line for line in (folder / layout.LOG).read_text().splitlines() if "run_sealed" not in line]
    (folder / layout.LOG).write_text("".join(f"{line}\n" for line in log))


def lose_checkpoint(folder: Path) -> None:
    (folder / layout.CHECKPOINTS / "2").rename(folder / layout.CHECKPOINTS / "1")


@pytest.mark.parametrize(
    ("damage", "code", "what"),
    [
        (lambda folder: as_killed(folder, steps_done=0), "TP075", "The run was killed; its newest checkpoint is at "),
        (lose_checkpoint, "TP075", "The newest checkpoint is at step 1; the run did 2 steps."),
        (lambda folder: (folder / layout.MANIFEST).write_text("{"), "TP107", ""),
    ],
    ids=["killed between steps", "last checkpoint lost", "manifest not valid"],
)
def test_a_run_without_the_state_of_its_last_step_is_not_scored(damage, code, what, folder):
    damage(folder)
    before = read_files(folder)
    problem = refused_evaluation(folder)
    assert (problem.code, what in problem.what) == (code, True)
    if code == "TP075":
        continued = f"trainproof train --resume {folder} --set evaluation.eval_set=eval_v1."
        assert problem.next == f"Continue it, which evaluates at the end: {continued}"
    assert read_files(folder) == before


def test_a_run_killed_after_its_last_step_is_scored_and_has_an_end(folder):
    as_killed(folder)
    assert evaluate_run(folder, "eval_v1", QUIET)["checkpoint"]["step"] == 2
    manifest, message = manifest_of(folder), "killed after its last step; evaluated later"
    assert (manifest["status"], manifest["exit"]["message"]) == ("interrupted", message)
    assert errors_of(folder) == []


@pytest.mark.slow
def test_a_run_of_another_device_and_without_its_data_is_scored_and_exported_here(config, train, tmp_path, capsys):
    dataset = row_file(tmp_path / "rows.jsonl", *[{"prompt": "What is 1 + 1?", "completion": "2"}] * 4)
    folder = train(changed(config, data={"dataset": dataset}))
    file = folder / layout.CONFIG
    file.write_text(file.read_text().replace("device: cpu", "device: tpu").replace("devices: 1", "devices: 4096"))
    Path(dataset).unlink()  # the log has the form of the prompts, and how answers are read
    capsys.readouterr()
    assert export_run(folder, None, Watch()) == folder / layout.EXPORT
    assert capsys.readouterr().out == f"exported step 2 to {folder / layout.EXPORT}\n"
    items = row_file(tmp_path / "items.jsonl", {"id": "a", "prompt": "What is 2 + 1?", "expected": "3"})
    assert evaluate_run(folder, items, Watch())["scoring"]["answer"] == "whole"
    said = "No tpu device was found; JAX sees only: cpu. 8 × cpu is used instead.\n"
    assert capsys.readouterr().out.startswith(said)
    assert (folder / layout.LOG).read_text().count("sealed again with its evaluation on 8 × cpu") == 1
