"""Items in groups: standard errors by hand, intervals, and what the scores of a run and a comparison make of them."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

import pytest
from synthetic import seal, write_run

from evidence import layout
from evidence.compare.comparison import compare_runs
from evidence.grade import find_problems
from evidence.hashes import sha256_file, sha256_lines
from evidence.run import read_run
from evidence.scores.clusters import (
    BY_PROMPT,
    clustered_detectable,
    clustered_difference,
    clustered_error,
    clustered_mean,
    clustered_wilson,
    clusters_of,
)
from evidence.scores.proportions import PairedTable, paired_difference_interval, wilson_interval
from evidence.scores.recompute import scores_of
from trainproof.terminal.comparisons import as_text


def test_standard_error_by_hand():
    assert clustered_error([1, 1, 0, 0], list("aabb")) == (0.5, 2)
    assert clustered_error([1, 1, 0, 0], list("abab")) == (0.0, 2)
    assert clustered_error([1, 0], list("aa")) == (None, 1)


@pytest.mark.parametrize("right", [(1, 0), (1, 0, 0), (1, 1, 0), (1, 0, 0, 0, 0, 0, 0)])
def test_groups_of_the_same_share_are_worth_one_item_each(right: tuple[int, ...]):
    """Whatever the share, sums of it round; what is left is no error, and no reason to trust the share more."""
    values, clusters = list(right) * 5, [number // len(right) for number in range(5 * len(right))]
    error, groups = clustered_error(values, clusters)
    assert (error, groups) == (0.0, 5)
    share = sum(right) / len(right)
    low, high = clustered_wilson(error, sum(values), len(values), groups)
    assert low < share - 0.25 or low < 0.02
    assert high - low > wilson_interval(round(5 * share), 5)[1] - wilson_interval(round(5 * share), 5)[0] - 0.05
    assert clustered_detectable(values, clusters) is None


def test_every_item_its_own_group_is_the_usual_standard_error():
    values = [3.0, 1.0, 4.0, 1.0, 5.0]
    error, groups = clustered_error(values, range(5))
    assert groups == 5
    assert error == pytest.approx(statistics.stdev(values) / math.sqrt(5))


def test_share_in_groups():
    assert clustered_wilson(0.15, 24, 40, 4) == pytest.approx((0.206, 0.897), abs=5e-4)
    assert clustered_wilson(None, 3, 4, 1) == (0.0, 1.0)
    # All right: nothing tells how alike a group is, so four groups are worth four items and no more.
    low, high = clustered_wilson(0.0, 40, 40, 4)
    assert high == 1.0
    assert low < wilson_interval(4, 4)[0]


def test_groups_never_make_items_worth_more_than_they_are():
    narrowest = clustered_wilson(1e-9, 20, 40, 10_000)
    assert narrowest == pytest.approx(wilson_interval(20, 40), abs=1e-4)


def test_difference_by_hand():
    # Differences 1, 1, 0, 0 in two groups: mean 0.5, standard error 0.5, t = 1 with 1 degree of freedom.
    low, high, p_value = clustered_difference([1, 1, 0, 0], list("aabb"))
    assert (low, high) == (-1.0, 1.0)
    assert p_value == pytest.approx(0.5)


def test_groups_that_do_not_differ_are_taken_as_items():
    low, high, p_value = clustered_difference([0] * 20, [number // 2 for number in range(20)])
    assert (low, high) == paired_difference_interval(PairedTable(both=10, only_first=0, only_second=0, neither=0))
    assert p_value == 1.0
    low, _, p_value = clustered_difference([-1] * 20, [number // 2 for number in range(20)])
    assert low == pytest.approx(-1.0)
    assert p_value == pytest.approx(2 / 2**10)


def test_one_group_says_nothing():
    assert clustered_difference([1, 0, 1], list("aaa")) == (-1.0, 1.0, 1.0)
    assert clustered_mean([1, 2], list("aa")).low is None
    assert clustered_detectable([1, 0, 1], list("aaa")) is None


def test_detectable_difference():
    # (12.706 + 1.376) times 0.5 is more than 1; with 21 groups (2.086 + 0.860) times the error.
    assert clustered_detectable([1, 1, 0, 0], list("aabb")) is None
    values, groups = [number % 4 // 2 for number in range(42)], [number // 2 for number in range(42)]
    error, found = clustered_error(values, groups)
    assert found == 21
    assert error
    assert clustered_detectable(values, groups) == pytest.approx((2.086 + 0.860) * error, rel=1e-3)


def row(number: int, group: str | None, *, correct: bool, error: str | None = None) -> dict[str, Any]:
    stated = {"id": f"q{number}", "correct": correct, "format_ok": True, "error": error, "section": "core"}
    return stated | ({"group": group} if group else {})


def test_scores_of_items_in_groups():
    rows = [
        row(1, "a", correct=True),
        row(2, "a", correct=True),
        row(3, "b", correct=False),
        row(4, "b", correct=False),
    ]
    scores = scores_of(rows)
    metric = scores["metrics"]["exact_match"]
    low, high = clustered_wilson(0.5, 2, 4, 2)
    assert metric == {
        "value": 0.5,
        "n": 4,
        "n_scored": 4,
        "n_errors": 0,
        "standard_error": 0.5,
        "interval": {"low": low, "high": high, "level": 0.95, "method": "clustered_wilson"},
        "clusters": 2,
    }
    assert scores["groups"]["section"]["core"]["exact_match"] == metric


def test_groups_of_one_change_nothing():
    rows = [row(1, "a", correct=True), row(2, "b", correct=False), row(3, None, correct=True)]
    bare = [{key: value for key, value in each.items() if key != "group"} for each in rows]
    assert scores_of(rows) == scores_of(bare)
    assert "clusters" not in scores_of(rows)["metrics"]["exact_match"]


def grouped(run: Path, size: int, *, rescore: bool = True) -> Path:
    """Put the items of a run into groups of a size, with or without new scores, and seal it again."""
    summary_path = run / "eval_summary.json"
    summary = json.loads(summary_path.read_text("utf-8"))
    for name, place in (("predictions.jsonl", summary), ("baseline_predictions.jsonl", summary["baseline"])):
        path = run / name
        rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for number, each in enumerate(rows):
            each["group"] = f"text-{number // size}"
        path.write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")
        place["predictions"]["sha256"] = sha256_file(path)
        if rescore:
            place |= scores_of(rows)
    summary_path.write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    seal(run)
    return run


def test_a_run_with_groups_is_valid(tmp_path: Path):
    run = grouped(write_run(tmp_path, "a", items=30), 3)
    assert find_problems(read_run(run)) == []


def test_scores_that_forget_the_groups_are_found(tmp_path: Path):
    run = grouped(write_run(tmp_path, "a", items=30), 3, rescore=False)
    assert {problem.code for problem in find_problems(read_run(run)) if problem.severity == "error"} >= {"TP340"}


@pytest.mark.parametrize(
    ("rows", "clusters", "method"),
    [
        ([("p", None), ("q", None)], [0, 1], "wilson"),
        ([("p", "a"), ("q", "a"), ("r", "b")], [0, 0, 1], "clustered_wilson"),
        ([("p", None), ("q", None), (" p\n", None)], [0, 1, 0], BY_PROMPT),
        # Of one group with the same prompt: an earlier version had no other clusters.
        ([("p", "a"), ("p", "a"), ("q", None)], [0, 0, 1], "clustered_wilson"),
        # The prompt joins the groups of both.
        ([("p", "a"), ("q", "a"), ("q", "b"), ("r", "b"), ("s", None)], [0, 0, 0, 0, 1], BY_PROMPT),
    ],
)
def test_items_of_one_group_or_prompt_are_one_cluster(rows: list[tuple], clusters: list[int], method: str):
    found, how = clusters_of([{"prompt": prompt, "group": group} for prompt, group in rows])
    numbers = {each: number for number, each in enumerate(dict.fromkeys(found))}
    assert ([numbers[each] for each in found], how) == (clusters, method)


def repeating(run: Path, *, by_prompt: bool = True) -> Path:
    """Have every two items of a run share a prompt, with scores of this version or of an earlier one."""
    summary = json.loads((run / "eval_summary.json").read_text("utf-8"))
    for name, place in (("predictions.jsonl", summary), ("baseline_predictions.jsonl", summary["baseline"])):
        rows = [json.loads(line) for line in (run / name).read_text("utf-8").splitlines()]
        for number, each in enumerate(rows):
            each["prompt"] = rows[number - number % 2]["prompt"]
        (run / name).write_text("".join(json.dumps(each) + "\n" for each in rows), "utf-8")
        place["predictions"]["sha256"] = sha256_file(run / name)
        place |= scores_of(rows, by_prompt=by_prompt)
    summary["eval_set"]["prompts_sha256"] = sha256_lines(each["prompt"] for each in rows)
    (run / "eval_summary.json").write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    seal(run)
    return run


def test_items_with_one_prompt_count_once_in_the_interval(tmp_path: Path):
    run = read_run(repeating(write_run(tmp_path, "a", items=30)))
    metric = run.eval_summary["metrics"]["exact_match"]
    right = [float(row["correct"]) for row in run.rows(layout.PREDICTIONS).values]
    error, groups = clustered_error(right, [number // 2 for number in range(30)])
    low, high = clustered_wilson(error, sum(right), 30, groups)
    assert metric["interval"] == {"low": low, "high": high, "level": 0.95, "method": BY_PROMPT}
    assert (metric["clusters"], metric["standard_error"]) == (15, error)
    [found] = find_problems(run)
    assert found.code == "TP458"
    assert found.what.startswith("Items repeat prompts, so the interval counts 30 items as 15; 15 of 30 items repeat ")


def test_a_run_of_an_earlier_version_keeps_its_interval(tmp_path: Path):
    run = read_run(repeating(write_run(tmp_path, "a", items=30), by_prompt=False))
    assert run.eval_summary["metrics"]["exact_match"]["interval"]["method"] == "wilson"
    [found] = find_problems(run)
    assert (found.code, found.severity) == ("TP458", "warning")
    assert found.what.startswith("The interval takes them as independent; 15 of 30 items repeat ")


def test_a_method_that_the_items_do_not_call_for_is_found(tmp_path: Path):
    run = write_run(tmp_path, "a", items=30)
    summary = json.loads((run / "eval_summary.json").read_text("utf-8"))
    summary["metrics"]["exact_match"]["interval"]["method"] = BY_PROMPT
    (run / "eval_summary.json").write_text(json.dumps(summary, indent=2) + "\n", "utf-8")
    seal(run)
    assert "TP340" in {each.code for each in find_problems(read_run(run))}


def test_comparison_of_items_in_groups(tmp_path: Path):
    a = grouped(write_run(tmp_path, "a", items=30, correct=0.4, seed=1), 5)
    b = grouped(write_run(tmp_path, "b", items=30, correct=0.8, seed=2), 5)
    comparison = compare_runs([read_run(a), read_run(b)])
    score = comparison.pairs[0].score
    assert score is not None
    assert (score.test, score.clusters) == ("clustered t", 6)
    assert "30 items in 6 groups); clustered t p " in as_text(comparison)
    plain = write_run(tmp_path, "c", items=30, correct=0.8, seed=2)
    (pair,) = compare_runs([read_run(plain), read_run(a)]).pairs
    assert pair.score is not None
    assert pair.score.clusters == 6  # stated by one of the two


def test_other_groups_are_other_questions(tmp_path: Path):
    a = grouped(write_run(tmp_path, "a", items=30), 3)
    b = grouped(write_run(tmp_path, "b", items=30), 5)
    (pair,) = compare_runs([read_run(a), read_run(b)]).pairs
    assert pair.refused == ("26 items have another group (item-0003, item-0004, item-0006, …).",)
