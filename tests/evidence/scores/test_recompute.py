"""Results and scores against numbers worked out by hand, with samples, groups and repeated prompts."""

import json
from collections.abc import Callable
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic import seal, write_document, write_rows, write_run

from evidence.compare.scores import compare_runs
from evidence.grade import check_run
from evidence.hashes import sha256_file, sha256_lines
from evidence.run import read_run
from evidence.scores.intervals import BY_PROMPT, clustered_error, clustered_wilson
from evidence.scores.reading import Scoring
from evidence.scores.recompute import (
    compute_result,
    compute_scores,
    describe_format_gain,
    describe_format_losses,
    learning_rates,
    majority_fields,
    pass_at_k,
)
from trainproof.cli.inspect import comparison_text


def metric_row(step: int, loss: float | None) -> dict[str, Any]:
    return {"step": step, "tokens_seen": step * 100, "loss": loss}


def test_first_last_mean_and_best_are_different_numbers() -> None:
    found = compute_result([metric_row(1, 4.0), metric_row(2, 1.0), metric_row(3, 1.0), metric_row(4, 2.0)])
    losses = {"first_loss": 4.0, "last_loss": 2.0, "mean_loss": 2.0, "best_loss": 1.0}
    assert found == losses | {"best_step": 2, "tokens_seen": 400}
    assert set(compute_result([]).values()) == {None}


def test_a_loss_that_is_not_finite_counts_for_neither_mean_nor_best() -> None:
    result = compute_result([metric_row(1, 4.0), metric_row(2, 2.0), metric_row(3, None)])
    assert (result["mean_loss"], result["best_loss"], result["last_loss"]) == (3.0, 2.0, None)


def prediction(
    *, correct: bool, ok: bool = True, error: str | None = None, section: str | None = "a"
) -> dict[str, Any]:
    of_item = {"section": section, "category": "c", "difficulty": None}
    return {"correct": correct, "format_ok": ok, "error": error, **of_item}


def test_an_error_counts_as_wrong() -> None:
    rows = [prediction(correct=True)] * 3 + [prediction(correct=True, ok=True, error="too long")]
    metric = compute_scores(rows)["metrics"]["exact_match"]
    assert (metric["value"], metric["n"], metric["n_scored"], metric["n_errors"]) == (0.75, 4, 3, 1)
    assert metric["standard_error"] == pytest.approx((0.75 * 0.25 / 4) ** 0.5, abs=1e-15)
    assert compute_scores([])["metrics"]["exact_match"]["value"] is None


def test_groups_hold_the_items_that_state_one() -> None:
    rows = [prediction(correct=True, section="a"), prediction(correct=False, section="b", ok=False)]
    rows.append(prediction(correct=False, section=None))
    groups = compute_scores(rows)["groups"]
    assert {name: block["exact_match"]["value"] for name, block in groups["section"].items()} == {"a": 1.0, "b": 0.0}
    assert groups["section"]["b"]["format_compliance"]["value"] == 0.0
    assert groups["category"]["c"]["exact_match"]["n"] == 3
    assert groups["difficulty"] == {}


@pytest.mark.parametrize(
    ("schedule", "warmup", "final", "rates"),
    [
        ("linear", 2, 0.0, [0.5, 1.0, 1.0, 0.5, 0.0]),
        ("linear", 0, 0.2, [1.0, 0.8, 0.6, 0.4, 0.2]),
        ("cosine", 0, 0.0, [1.0, 0.853553, 0.5, 0.146447, 0.0]),
        ("cosine", 1, 0.5, [1.0, 1.0, 0.875, 0.625, 0.5]),
        ("constant", 4, 0.0, [0.25, 0.5, 0.75, 1.0, 1.0]),
        ("linear", 9, 0.0, [1 / 9, 2 / 9, 3 / 9, 4 / 9, 5 / 9]),
    ],
)
def test_learning_rate_of_each_step(schedule: str, warmup: int, final: float, rates: list[float]) -> None:
    optimizer = {"schedule": schedule, "learning_rate": 1.0, "warmup_steps": warmup}
    optimizer["final_learning_rate_fraction"] = final
    assert learning_rates(optimizer, np.arange(1.0, 6.0), 5) == pytest.approx(rates, abs=1e-6)


@pytest.mark.parametrize("samples", range(1, 8))
def test_pass_at_k_is_the_share_of_all_choices_of_tries_that_hold_a_right_one(samples: int):
    for right in range(samples + 1):
        answers = [True] * right + [False] * (samples - right)
        for tries in range(1, samples + 1):
            chosen = list(combinations(answers, tries))
            assert pass_at_k(samples, right, tries) == pytest.approx(sum(map(any, chosen)) / len(chosen), abs=1e-12)


def test_the_majority_is_the_earliest_of_the_most_frequent_answers():
    exact, numbers = Scoring(answer="whole"), Scoring(answer="whole", compare="numeric")
    assert majority_fields(["7", "8", "8.0"], exact, ())["majority_answer"] == "7"
    assert majority_fields(["7", "8", "8.0"], numbers, ())["majority_answer"] == "8"
    assert majority_fields([None, None, "3"], exact, ())["majority_answer"] == "3"
    assert majority_fields([None, None], exact, ())["majority_answer"] is None
    assert majority_fields(["2", "2", "3"], exact, ("3",)) == {"majority_answer": "2", "majority_correct": False}


def sampled_row(name: str, verdicts: str, *, majority: bool, **more: Any) -> dict[str, Any]:
    """Return a row whose samples are right where `verdicts` has a plus."""
    first, *others = ({"correct": one == "+", "format_ok": True, "lenient_correct": one == "+"} for one in verdicts)
    told = {"id": name, "error": None, "expected": "1", "more_samples": others, "majority_correct": majority}
    return told | first | more


def test_scores_are_of_all_samples_and_those_of_the_first_stay_beside_them():
    rows = [
        sampled_row("a", "+++-", majority=True),
        sampled_row("b", "-+--", majority=False),
        sampled_row("c", "----", majority=False),
    ]
    scores = compute_scores(rows, 4)
    assert scores["metrics"]["exact_match"]["value"] == pytest.approx(1 / 3)
    sampled = scores["sampled"]
    assert [each["tries"] for each in sampled["pass_at"]] == [1, 2, 4]
    # Two tries of four: all six pairs of a hold a right one, three of b's, none of c's.
    assert [each["value"] for each in sampled["pass_at"]] == pytest.approx([1 / 3, (1 + 1 / 2) / 3, 2 / 3])
    assert sampled["majority"]["value"] == pytest.approx(1 / 3)
    assert "sampled" not in compute_scores(rows)
    assert [each["tries"] for each in compute_scores(rows[:0], 6)["sampled"]["pass_at"]] == [1, 2, 4, 6]


def test_an_item_is_one_piece_however_often_it_is_answered():
    rows = [sampled_row(f"q{n}", "++++" if n % 2 else "----", majority=bool(n % 2)) for n in range(20)]
    one = compute_scores(rows, 4)["sampled"]["pass_at"][0]
    error, groups = clustered_error([float(n % 2) for n in range(20) for _ in range(4)], [n // 4 for n in range(80)])
    assert (one["standard_error"], groups) == (pytest.approx(error), 20)
    # Four equal answers are worth one: as wide as that of 20 items, not of 80 answers.
    assert one["interval"]["high"] - one["interval"]["low"] > 0.35
    together = [each | {"group": "all of one"} for each in rows]
    interval = compute_scores(together, 4)["sampled"]["majority"]["interval"]
    assert (interval["low"], interval["high"]) == (0.0, 1.0)


def test_an_item_without_an_output_has_no_right_answer():
    failed = {"id": "x", "error": "no room", "correct": False, "format_ok": False, "lenient_correct": False}
    sampled = compute_scores([sampled_row("a", "++", majority=True), failed], 2)["sampled"]
    assert [each["value"] for each in (*sampled["pass_at"], sampled["majority"])] == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ((0, 4), (2, 2), "the gain is only in the answer format: strict 0 → 2 of 60, lenient 4 → 2"),
        ((0, 2), (2, 2), "the gain is only in the answer format: strict 0 → 2 of 60, lenient 2 → 2"),
        ((0, 30), (40, 42), "part of the gain is in the answer format: strict 0 → 40 of 60, lenient 30 → 42"),
        ((10, 12), (40, 42), None),
        ((0, 0), (2, 2), None),
        ((2, 2), (2, 4), None),
        ((2, 2), (0, 0), None),
    ],
)
def test_gain_in_form(before: tuple[int, int], after: tuple[int, int], expected: str | None) -> None:
    def metrics(counts: tuple[int, int]) -> dict[str, Any]:
        names = ("exact_match", "lenient_match")
        return {name: {"value": count / 60, "n": 60} for name, count in zip(names, counts, strict=True)}

    assert describe_format_gain(metrics(before), metrics(after)) == expected
    assert describe_format_gain(None, metrics(after)) is None


def test_the_lenient_score_is_counted_where_rows_say_it() -> None:
    row = {"id": "1", "error": None, "correct": False, "format_ok": True}
    rows = [row | {"id": str(n), "lenient_correct": n < 3} for n in range(4)]
    assert compute_scores(rows)["metrics"]["lenient_match"]["value"] == 0.75
    assert "lenient_match" not in compute_scores([row])["metrics"]
    unanswered = row | {"error": "too long", "lenient_correct": True}
    assert compute_scores([unanswered])["metrics"]["lenient_match"]["value"] == 0


def test_right_answers_of_another_form_are_said_with_what_to_change():
    def summary(strict: float, lenient: float) -> dict:
        metrics = {"exact_match": {"value": strict, "n": 10}, "lenient_match": {"value": lenient, "n": 10}}
        return {"metrics": metrics, "scoring": {"answer": "whole"}}

    [sentence] = describe_format_losses(summary(0.1, 0.9), ())
    assert sentence.startswith("9 of 10 answers are right leniently, but only 1 with evaluation.answer whole. Set ")
    for few in (summary(0.8, 0.9), summary(0.0, 0.1), None):
        assert describe_format_losses(few, ()) == []
    log = [{"message": "TP087: rows.jsonl: None has one.", "fields": {"code": "TP087"}}, {"message": "", "fields": {}}]
    assert describe_format_losses(None, log) == ["rows.jsonl: None has one."]


def grouped_row(number: int, group: str | None, *, correct: bool, error: str | None = None) -> dict[str, Any]:
    stated = {"id": f"q{number}", "correct": correct, "format_ok": True, "error": error, "section": "core"}
    return stated | ({"group": group} if group else {})


def test_scores_of_items_in_groups():
    rows = [
        grouped_row(1, "a", correct=True),
        grouped_row(2, "a", correct=True),
        grouped_row(3, "b", correct=False),
        grouped_row(4, "b", correct=False),
    ]
    scores = compute_scores(rows)
    metric = scores["metrics"]["exact_match"]
    low, high = clustered_wilson(0.5, 2, 4, 2)
    counts = {"value": 0.5, "n": 4, "n_scored": 4, "n_errors": 0, "standard_error": 0.5, "clusters": 2}
    assert metric == counts | {"interval": {"low": low, "high": high, "level": 0.95, "method": "clustered_wilson"}}
    assert scores["groups"]["section"]["core"]["exact_match"] == metric


def rewritten(run: Path, change: Callable[[list[dict]], None], **scoring: bool) -> Path:
    """Change the answers of a run, score them again unless `rescore` is false, and seal the run."""
    summary = json.loads((run / "eval_summary.json").read_text("utf-8"))
    rescore = scoring.pop("rescore", True)
    for name, place in (("predictions.jsonl", summary), ("baseline_predictions.jsonl", summary["baseline"])):
        rows = [json.loads(line) for line in (run / name).read_text("utf-8").splitlines()]
        change(rows)
        write_rows(run / name, rows)
        place["predictions"]["sha256"] = sha256_file(run / name)
        if rescore:
            place |= compute_scores(rows, **scoring)
    summary["eval_set"]["prompts_sha256"] = sha256_lines(each["prompt"] for each in rows)
    write_document(run / "eval_summary.json", summary)
    seal(run)
    return run


def grouped(run: Path, size: int, **scoring: bool) -> Path:
    def group(rows: list[dict]) -> None:
        for number, each in enumerate(rows):
            each["group"] = f"text-{number // size}"

    return rewritten(run, group, **scoring)


def repeating(run: Path, **scoring: bool) -> Path:
    def repeat(rows: list[dict]) -> None:
        for number, each in enumerate(rows):
            each["prompt"] = rows[number - number % 2]["prompt"]

    return rewritten(run, repeat, **scoring)


@pytest.mark.parametrize(("rescore", "codes"), [(True, set()), (False, {"TP340"})])
def test_scores_that_forget_the_groups_are_found(rescore: bool, codes: set[str], tmp_path: Path):
    run = grouped(write_run(tmp_path, "a", items=30), 3, rescore=rescore)
    found = check_run(read_run(run)).findings
    assert {problem.code for problem in found if problem.severity == "error"} >= codes
    assert bool(found) == bool(codes)


def test_items_with_one_prompt_count_once_in_the_interval(tmp_path: Path):
    run = read_run(repeating(write_run(tmp_path, "a", items=30)))
    metric = run.eval_summary["metrics"]["exact_match"]
    right = [float(row["correct"]) for row in run.predictions]
    error, groups = clustered_error(right, [number // 2 for number in range(30)])
    low, high = clustered_wilson(error, sum(right), 30, groups)
    assert metric["interval"] == {"low": low, "high": high, "level": 0.95, "method": BY_PROMPT}
    assert (metric["clusters"], metric["standard_error"]) == (15, error)
    [found] = check_run(run).findings
    assert found.code == "TP458"
    assert found.what.startswith("Items repeat prompts, so the interval counts 30 items as 15; 15 of 30 items repeat ")


def test_a_run_of_an_earlier_version_keeps_its_interval(tmp_path: Path):
    run = read_run(repeating(write_run(tmp_path, "a", items=30), by_prompt=False))
    assert run.eval_summary["metrics"]["exact_match"]["interval"]["method"] == "wilson"
    [found] = check_run(run).findings
    assert (found.code, found.severity) == ("TP458", "warning")
    assert found.what.startswith("The interval takes them as independent; 15 of 30 items repeat ")


def test_a_method_that_the_items_do_not_call_for_is_found(tmp_path: Path):
    run = write_run(tmp_path, "a", items=30)
    summary = json.loads((run / "eval_summary.json").read_text("utf-8"))
    summary["metrics"]["exact_match"]["interval"]["method"] = BY_PROMPT
    write_document(run / "eval_summary.json", summary)
    seal(run)
    assert "TP340" in {each.code for each in check_run(read_run(run)).findings}


def test_comparison_of_items_in_groups(tmp_path: Path):
    a = grouped(write_run(tmp_path, "a", items=30, correct=0.4, seed=1), 5)
    b = grouped(write_run(tmp_path, "b", items=30, correct=0.8, seed=2), 5)
    comparison = compare_runs([read_run(a), read_run(b)])
    score = comparison.pairs[0].score
    assert score is not None
    assert (score.test, score.clusters) == ("clustered t", 6)
    assert "30 items in 6 groups); clustered t p " in comparison_text(comparison)
    plain = write_run(tmp_path, "c", items=30, correct=0.8, seed=2)
    (pair,) = compare_runs([read_run(plain), read_run(a)]).pairs
    assert pair.score is not None
    assert pair.score.clusters == 6  # stated by one of the two


def test_other_groups_are_other_questions(tmp_path: Path):
    a = grouped(write_run(tmp_path, "a", items=30), 3)
    b = grouped(write_run(tmp_path, "b", items=30), 5)
    (pair,) = compare_runs([read_run(a), read_run(b)]).pairs
    assert pair.refused == ("The groups of 26 items differ (item-0003, item-0004, item-0006, …).",)
