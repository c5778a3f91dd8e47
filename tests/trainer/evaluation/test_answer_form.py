"""A run whose answers are whole outputs: told from its rows, stated, held by `check`, asked again, compared."""

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from leaves import Forger, Forgery
from model_folders import row_file
from whole_runs import rows

from dashboard.shared.reading.series import Tail
from dashboard.shared.tables import headline
from evidence import layout
from evidence.compare.scores import Pair, compare_runs, score_difference
from evidence.grade import find_problems
from evidence.hashes import sha256_json
from evidence.run import read_run
from evidence.scores.reading import Scoring
from evidence.scores.recompute import compute_scores, describe_run_gain
from trainer.config.tree import Config, DataConfig, EvaluationConfig, LimitsConfig
from trainer.evaluation.challenge import ChallengeRequest, challenge_run
from trainer.evaluation.evaluate import describe_summary
from trainer.evaluation.late import evaluate_run
from trainer.evaluation.reanswer import changed_score
from trainer.recorder.progress import Watch
from trainproof.cli.inspect import comparison_text, run_json, run_text

ROWS = [{"prompt": f"Say {word}: ", "completion": word} for word in ("red", "blue", "green", "red")]
ITEMS = [
    {"id": "red", "prompt": "Say red: ", "expected": ["red", "crimson"]},
    {"id": "blue", "prompt": "Say blue: ", "expected": "blue"},
]
QUESTIONS = [{"id": "q", "prompt": "Say green, please: ", "expected": "green"}]


@pytest.fixture(scope="module")
def words(config, shared_rows) -> Config:
    """Sixty steps on three words, enough to know them by heart."""
    return replace(
        config,
        data=DataConfig(dataset=shared_rows("words", *ROWS), max_length=32),
        evaluation=EvaluationConfig(eval_set=shared_rows("two_items", *ITEMS), max_new_tokens=8),
        limits=LimitsConfig(steps=60),
    )


@pytest.fixture(scope="module")
def made(finished, words) -> Path:
    return finished(words)


def document(folder: Path, name: str) -> dict[str, Any]:
    return json.loads((folder / name).read_text())


@pytest.mark.slow
def test_right_answers_count_and_how_they_were_read_is_stated(made):
    summary = document(made, layout.EVAL_SUMMARY)
    scoring = {"answer": "whole", "answer_regex": None, "compare": "exact", "tolerance": 1e-6, "version": 2}
    assert summary["scoring"] == scoring | {"sha256": sha256_json(scoring)}
    assert summary["generation"]["prompt_template"] == "{prompt}"
    assert summary["metrics"]["exact_match"]["value"] == 1
    assert summary["metrics"]["lenient_match"]["value"] == 1
    assert summary["baseline"]["metrics"]["exact_match"]["value"] == 0
    effective = document(made, layout.MANIFEST)["effective"]
    assert effective["evaluation"] == {"answer": "whole", "compare": "exact"}
    assert effective["data"]["template"] == "{prompt}"
    [red, blue] = rows(made, layout.PREDICTIONS)
    assert (red["expected"], red["also_expected"], red["extracted_answer"]) == ("red", ["crimson"], "red")
    assert "also_expected" not in blue
    logged = {row["event"]: row for row in rows(made, layout.LOG)}
    assert logged["scoring"]["message"] == "answers are read as whole, compared exact"


def test_both_readings_are_shown(made):
    said = run_text(read_run(made))
    assert re.search(r"exact match +1\.000 \(0\.342–1\.000\), n\u00a0=\u00a02; leniently 1\.000\n", said)
    assert re.search(r"exact match before training +0\.000 .*; leniently 0\.000\n", said)


def test_a_gain_of_form_is_shown_of_a_run_and_in_a_line(made):
    summary = deepcopy(document(made, layout.EVAL_SUMMARY))
    summary["baseline"]["metrics"]["lenient_match"]["value"] = 1.0
    gain = "the gain is form: strict 0 → 2 of 2, lenient 2 → 2"
    assert describe_run_gain(summary) == gain
    assert describe_summary(summary, "words").endswith(f"before training 0.000); {gain}")
    series = Tail(made / layout.METRICS).series()
    [figure] = [each for each in headline.figures(None, summary, None, series) if each.label == "Exact match"]
    assert figure.detail == "34.2–100.0 %, n = 2; untrained 0.0 %; leniently 100.0 %, untrained 100.0 %"


def test_the_run_has_no_error_but_what_it_was_made_for(made):
    assert {each.code for each in find_problems(read_run(made)) if each.severity == "error"} == {"TP408"}


Change = Callable[[dict[str, Any]], None]


def lenient(values: dict[str, Any]) -> None:
    values[layout.BASELINE_PREDICTIONS][0]["lenient_correct"] = True
    values[layout.EVAL_SUMMARY]["baseline"] |= compute_scores(values[layout.BASELINE_PREDICTIONS])


def accepting_more(values: dict[str, Any]) -> None:
    values[layout.PREDICTIONS][1]["also_expected"] = ["anything"]
    values[layout.BASELINE_PREDICTIONS][1]["also_expected"] = ["anything"]


def read_by(**scoring: Any) -> Change:
    def change(values: dict[str, Any]) -> None:
        stated = {**values[layout.EVAL_SUMMARY]["scoring"], **scoring}
        del stated["sha256"]
        values[layout.EVAL_SUMMARY]["scoring"] = stated | {"sha256": sha256_json(stated)}

    return change


CHANGES: dict[str, tuple[Change, str]] = {
    "right leniently": (lenient, "TP341"),
    "further answers": (accepting_more, "TP352"),
    "another reader": (read_by(answer="last_line"), "TP354"),
    "a pattern that is none": (read_by(answer="regex", answer_regex="(a*)*"), "TP341"),
    "another hash": (lambda values: values[layout.EVAL_SUMMARY]["scoring"].update(sha256="0" * 64), "TP353"),
    "an earlier version of the reader": (read_by(version=1), "TP354"),
    "no reader": (lambda values: values[layout.EVAL_SUMMARY].pop("scoring"), "TP525"),
    "declared otherwise": (lambda values: values[layout.CONFIG]["evaluation"].update(compare="folded"), "TP354"),
    "another template": (
        lambda values: values[layout.FIRST_EXAMPLES]["examples"][0].update(template="Q: {prompt}"),
        "TP366",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_statement_is_found(made, name, tmp_path):
    change, code = CHANGES[name]
    forger = Forger(made, tmp_path / "words-1")
    values = deepcopy(forger.values)
    change(values)
    forger._reseal(values, Forgery(file="all", what="told"))
    assert code in {each.code for each in find_problems(read_run(forger.folder)) if each.severity == "error"}


@pytest.mark.slow
def test_a_judges_questions_are_read_in_the_same_way(made, tmp_path):
    items = Path(row_file(tmp_path / "questions.jsonl", *QUESTIONS))
    request = ChallengeRequest(folder=made, items=items, generate=0, seed=1, again=2, model=None)
    receipt = challenge_run(request, Watch(quiet=True), lambda event: None)
    assert receipt["covered"]["items"]["identical"] == 2
    assert receipt["score"]["found"]["n"] == 1


def test_an_answer_scored_by_another_reader_is_named(made):
    row = rows(made, layout.PREDICTIONS)[0]
    assert changed_score(row, Scoring(answer="whole")) == ""
    assert changed_score(row, Scoring()) == "By its text, extracted_answer is None; the run states 'red'."


@pytest.mark.slow
def test_a_later_evaluation_reads_answers_as_the_log_says(words, train, tmp_path):
    dataset = Path(row_file(tmp_path / "words.jsonl", *ROWS))
    evaluation = replace(words.evaluation, eval_set=None)
    data = replace(words.data, dataset=str(dataset))
    folder = train(replace(words, data=data, limits=LimitsConfig(steps=1), evaluation=evaluation))
    dataset.unlink()
    summary = evaluate_run(folder, words.evaluation.eval_set, Watch(quiet=True))
    assert summary["scoring"]["answer"] == "whole"


def test_runs_read_differently_are_not_compared(made, tmp_path):
    other = Forger(made, tmp_path / "other")
    values = deepcopy(other.values)
    read_by(answer="last_line")(values)
    values[layout.CONFIG]["evaluation"]["answer"] = "last_line"
    for record in values[layout.LOG]:
        if record["event"] == "scoring":
            record["fields"] = values[layout.EVAL_SUMMARY]["scoring"]
    other._reseal(values, Forgery(file="all", what="told"))
    (pair,) = compare_runs([read_run(made), read_run(other.folder)]).pairs
    assert pair.refused == ("Answers were read with answer 'whole' and 'last_line'.",)


def test_a_gain_of_form_is_said_where_runs_are_compared(made):
    """The first run answers the same in a sentence, which is not the form that is read."""
    after = rows(made, layout.PREDICTIONS)
    before = [{**row, "extracted_answer": f"It is {row['expected']}", "correct": False} for row in after]
    score = score_difference(before, after)
    assert score.gain_of_form == "the gain is form: strict 0 → 2 of 2, lenient 2 → 2"
    same = compare_runs([read_run(made), read_run(made)])
    compared = replace(same, pairs=(Pair(first="a", second="b", score=score, refused=()),))
    assert "  But the gain is form: strict 0 → 2 of 2, lenient 2 → 2.\n" in comparison_text(compared)


def test_that_rows_do_not_teach_the_form_is_said_by_show(made, tmp_path):
    forger = Forger(made, tmp_path / "words-1")
    values = deepcopy(forger.values)
    place, scoring = next((n, row) for n, row in enumerate(values[layout.LOG]) if row["event"] == "scoring")
    said = {"level": "warning", "event": "odd_row", "message": "TP087: None has one.", "fields": {"code": "TP087"}}
    values[layout.LOG].insert(place + 1, scoring | said)
    forger._reseal(values, Forgery(file="all", what="told"))
    assert re.search(r"\n  form +None has one\.\n", run_text(read_run(forger.folder)))
    assert run_json(read_run(forger.folder))["form"] == ["None has one."]
    assert run_json(read_run(made))["form"] == []


def test_only_runs_whose_answers_depend_on_the_reader_are_not_compared_across_its_versions(made, tmp_path):
    other = Forger(made, tmp_path / "other")
    values = deepcopy(other.values)
    for stated in (values[layout.EVAL_SUMMARY]["scoring"], *(row["fields"] for row in values[layout.LOG])):
        stated.pop("version", None)
    read_by()(values)
    other._reseal(values, Forgery(file="all", what="told"))
    (pair,) = compare_runs([read_run(made), read_run(other.folder)]).pairs
    assert pair.refused == ()
    assert [Scoring(answer=name).depends_on_version for name in ("tags", "whole", "choice")] == [False, False, True]
