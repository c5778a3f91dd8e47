"""Comparing runs: settings, figures, the paired score, and the reasons against it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from comparing import compared, runs_of
from mutations import apply
from scipy.stats import binomtest
from synthetic import seal, write_run

from evidence.compare.scores import PairVerdict, compare_runs, judge_pairs
from evidence.compare.settings import ABSENT
from evidence.layout import MANIFEST
from evidence.report import Headline
from evidence.run import read_run
from schemas.problems import ProblemError
from trainproof.cli.inspect import compare_folders, comparison_json, comparison_text

FOREIGN = Path(__file__).parents[2] / "cases" / "foreign"


def edit_rows(run: Path, change: Callable[[list[dict[str, Any]]], object]) -> Path:
    """Change the predictions of a run and seal it again; the summary is left as it was."""
    path = run / "predictions.jsonl"
    rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    change(rows)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    seal(run)
    return run


def answers(run: Path) -> dict[str, bool]:
    rows = [json.loads(line) for line in (run / "predictions.jsonl").read_text("utf-8").splitlines()]
    return {row["id"]: row["correct"] for row in rows}


def test_what_was_changed_comes_first_and_what_both_documents_state_alike_once(tmp_path: Path):
    other = {"optimizer": {"learning_rate": 0.003}, "data": {"dataset": "sets/mine.jsonl"}, "mesh": {"device": "auto"}}
    manifest = {
        "code": {"branch": "elsewhere"},
        "devices": {"requested": "auto", "kind": "T4"},
        "environment": {"python": "3.11.9"},
        "dataset": {"name": "mine.jsonl"},
        "training": {"schedule": {"peak_learning_rate": 0.0030000000261}},
    }
    a, b = runs_of(tmp_path, {}, {"steps": 40, "config": other, "manifest": manifest})
    differing = compared(a, b).settings_diff().differing
    assert [(setting.name, setting.source) for setting in differing] == [
        ("optimizer.learning_rate", "both"),
        ("limits.steps", "both"),
        ("data.dataset", "both"),
        ("seed", "both"),
        ("mesh.device", "declared"),
        ("training.schedule.final_learning_rate", "effective"),
        ("model.weights_sha256", "effective"),
        ("devices.kind", "effective"),
        ("environment.python", "effective"),
        ("code.branch", "effective"),
    ]
    assert differing[0].values == (0.001, 0.003)
    assert differing[2].values == ("own-rows", "sets/mine.jsonl")


def test_what_ran_is_told_beside_what_was_asked_for_where_they_differ(tmp_path: Path):
    a, b = runs_of(tmp_path, {"seed": 1}, {"seed": 1, "manifest": {"training": {"optimizer": {"name": "adafactor"}}}})
    told = compared(a, b).settings_diff()
    assert [(setting.name, setting.source, setting.values) for setting in told.differing] == [
        ("training.optimizer.name", "effective", ("adamw", "adafactor")),
    ]
    assert ("optimizer.name", "declared") in [(setting.name, setting.source) for setting in told.equal]


def test_a_run_without_settings_differs_in_none(tmp_path: Path):
    a, b, c = runs_of(tmp_path, {"seed": 1}, {"seed": 1, "steps": 40}, {"seed": 1})
    (c / "config.yaml").unlink()
    (c / "run_manifest.json").write_text("{}", "utf-8")
    told = compared(a, c).settings_diff()
    assert (told.differing, told.equal) == ((), ())
    assert len(told.unheld) == 75
    told = compared(a, b, c).settings_diff()
    assert [(setting.name, setting.values) for setting in told.differing] == [("limits.steps", (20, 40, ABSENT))]
    assert "  changed  limits.steps  20  40  (not stated)\n" in comparison_text(compared(a, b, c))


def test_another_tools_run_has_the_figures_that_its_files_state_and_no_score(tmp_path: Path):
    (a,) = runs_of(tmp_path, {})
    shutil.copytree(FOREIGN / "hf_trainer" / "folder", tmp_path / "theirs")
    comparison = compare_runs([read_run(a), read_run(tmp_path / "theirs")])
    stated = {figure.name: figure.as_text() for figure in comparison.headlines[1] if figure.value is not None}
    assert stated == {
        "optimizer steps": "60 of 60",
        "first loss": "2.4113",
        "last loss": "1.7044",
        "best loss": "1.7044",
        "training time": "1 min 23 s",
    }
    assert [grade.name for grade in comparison.grades] == ["consistent", "measured"]
    assert comparison.pairs[0].refused == ("theirs is imported from another tool and has not been scored.",)
    shutil.copytree(FOREIGN / "mlflow" / "folder", tmp_path / "ended")
    assert compare_runs([read_run(a), read_run(tmp_path / "ended")]).statuses == ("succeeded", "succeeded")


def test_paired_score(tmp_path: Path):
    a, b = runs_of(tmp_path, {"correct": 0.3}, {"correct": 0.8})
    (pair,) = compared(a, b).pairs
    one, other = answers(a), answers(b)
    only_first = sorted(item for item in one if one[item] and not other[item])
    only_second = sorted(item for item in one if other[item] and not one[item])
    score = pair.score
    assert score is not None
    assert pair.refused == ()
    table = score.table
    assert (table.items, table.only_first, table.only_second) == (30, len(only_first), len(only_second))
    assert score.difference == pytest.approx((sum(other.values()) - sum(one.values())) / 30)
    assert score.low < score.difference < score.high
    discordant = len(only_first) + len(only_second)
    assert score.p_value == pytest.approx(binomtest(len(only_first), discordant).pvalue)
    assert [flip.id for flip in score.flips] == [*only_first, *only_second]
    assert {flip.kind for flip in score.flips if flip.id in only_first} <= {"broken"}
    assert all(flip.first_answer != flip.second_answer for flip in score.flips)


def test_order_of_items_does_not_matter(tmp_path: Path):
    a, b = runs_of(tmp_path, {}, {"seed": 0})
    edit_rows(b, lambda rows: rows.reverse())
    comparison = compared(a, b)
    (pair,) = comparison.pairs
    assert pair.score is not None
    assert (pair.score.difference, pair.score.p_value, pair.score.flips) == (0.0, 1.0, ())
    assert comparison.smoke is None


def other_prompts(rows: list[dict[str, Any]]) -> None:
    for row in rows[:5]:
        row["prompt"] += " Think."


REFUSALS: dict[str, tuple[Callable[[list[dict[str, Any]]], object], tuple[str, ...]]] = {
    "fewer items": (
        lambda rows: [rows.pop(3), rows.pop(3)],
        ("Only a was evaluated on 2 items (item-0003, item-0004).",),
    ),
    "an item twice": (lambda rows: rows.append(rows[0]), ("b answers 1 item more than once (item-0000).",)),
    "other prompts": (other_prompts, ("The prompts of 5 items differ (item-0000, item-0001, item-0002, …).",)),
    "other expected answers": (
        lambda rows: rows[2].update(expected="0"),
        ("The expected answers of 1 item differ (item-0002).",),
    ),
    "other ids": (
        lambda rows: rows[0].update(id="new-item"),
        ("Only a was evaluated on 1 item (item-0000).", "Only b was evaluated on 1 item (new-item)."),
    ),
    "nothing": (list.clear, ("predictions.jsonl of b is empty.",)),
    "no valid rows": (
        lambda rows: rows[0].update(correct="yes"),
        ("predictions.jsonl of b has errors; run `trainproof check` for details.",),
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_scores_of_other_questions_are_not_compared(tmp_path: Path, name: str):
    change, reasons = REFUSALS[name]
    a, b = runs_of(tmp_path, {}, {})
    edit_rows(b, change)
    (pair,) = compared(a, b).pairs
    assert pair.score is None
    assert pair.refused == reasons


def test_other_generation_settings(tmp_path: Path):
    a, b = runs_of(
        tmp_path, {}, {"eval_summary": {"generation": {"max_new_tokens": 32, "prompt_template": "Q: {prompt}"}}}
    )
    (pair,) = compared(a, b).pairs
    assert pair.refused == (
        "Outputs were generated with max_new_tokens 160 and 32.",
        "Outputs were generated with prompt_template '{prompt}\\n' and 'Q: {prompt}'.",
    )


def test_without_evaluation(tmp_path: Path):
    a, b = runs_of(tmp_path, {}, {"items": 0})
    (pair,) = compared(a, b).pairs
    assert pair.refused == ("b was not evaluated: it lacks predictions.jsonl.",)
    (c,) = runs_of(tmp_path / "more", {})
    (c / "eval_summary.json").unlink()
    (pair,) = compared(b, c).pairs
    assert pair.refused[1:] == ("a lacks a valid eval_summary.json.",)


def test_a_forged_figure_is_not_shown_and_a_forged_score_not_compared(tmp_path: Path):
    honest, forged = runs_of(tmp_path, {}, {})
    apply(forged, {"file": "eval_summary.json", "pointer": "/metrics/exact_match/value", "value": 0.99})
    apply(forged, {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    comparison = compare_runs([read_run(honest), read_run(forged)])
    assert [grade.name for grade in comparison.grades] == ["consistent", "contradictory"]
    shown = {figure.name: figure.value for figure in comparison.headlines[1]}
    assert (shown["exact match"], shown["best loss"]) == (None, None)
    assert shown["last loss"] is not None
    assert comparison.pairs[0].score is None
    assert comparison.pairs[0].refused == (
        "The evaluation of b is invalid or contradictory; run `trainproof check` for details.",
    )


def test_text_of_a_score(tmp_path: Path):
    a, b = runs_of(tmp_path, {"items": 4}, {"items": 4})
    rows = [(True, True), (False, True), (False, False), (False, True)]

    def answer(which: int) -> Callable[[list[dict[str, Any]]], None]:
        def change(found: list[dict[str, Any]]) -> None:
            for row, outcome in zip(found, rows, strict=True):
                row["correct"] = outcome[which]
                row["extracted_answer"] = row["expected"] if outcome[which] else "?"

        return change

    edit_rows(a, answer(0))
    edit_rows(b, answer(1))
    text = comparison_text(compared(a, b))
    assert text[text.index("Exact match of b") :] == (
        "Exact match of b minus a: +0.500 (95 % interval -0.263 to +0.930, 4 items); exact McNemar p = 0.5000: "
        "not significant at the 5 % level.\n"
        "  Both right 1, only a 0, only b 2, neither 1.\n"
        "  So few items cannot show any difference.\n"
        "  Output tokens per item: +0.0 (95 % interval +0.0 to +0.0, t, 4 items).\n"
        "  fixed item-0001: What is 20 + 6? expected '26', '?' → '26'\n"
        "  fixed item-0003: What is 26 + 8? expected '34', '?' → '34'\n"
    )


def test_what_a_terminal_would_obey_is_escaped(tmp_path: Path):
    a, b = runs_of(tmp_path, {}, {"manifest": {"environment": {"flags": {"X": "\x1b[2J\u202e"}}}})
    text = comparison_text(compared(a, b))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_json_has_every_field(tmp_path: Path):
    comparison = compared(*runs_of(tmp_path, {"correct": 0.1}, {"correct": 0.9}))
    value = comparison_json(comparison, ())
    assert json.loads(json.dumps(value, allow_nan=False))["names"] == ["a", "b"]
    assert " ".join(value) == "names grades statuses differing equal headlines withheld pairs smoke"
    assert value["pairs"][0]["score"]["table"]["items"] == 30


def test_runs_with_and_without_several_samples_have_the_same_figures():
    runs = Path(__file__).parents[3] / "submission_runs"
    several, one = compare_runs([read_run(runs / "countdown-grpo"), read_run(runs / "demo-full")]).headlines
    assert [figure.name for figure in several] == [figure.name for figure in one]
    assert {figure.name: figure.value for figure in one}["pass@4"] is None


def test_fewer_than_two_runs_or_none_there(tmp_path: Path):
    missing = tmp_path / "nothing"
    for folder, code, what in (
        (missing, "TP091", f"{missing} does not exist."),
        (tmp_path, "TP093", "A comparison needs at least 2 runs; 1 was given."),
    ):
        with pytest.raises(ProblemError) as caught:
            compare_folders([folder])
        [problem] = caught.value.problems
        assert (problem.code, problem.what, caught.value.exit_code) == (code, what, 2)
    with pytest.raises(ValueError, match="at least 2 runs; got 1"):
        compare_runs([read_run(tmp_path)])


def test_figures_are_written_with_their_units():
    figures = [
        Headline(name="n", unit="count", value=1234567, of=2000000),
        Headline(name="l", unit="nats", value=1.23456),
        Headline(name="s", unit="tokens per second", value=1234.5),
        Headline(name="f", unit="fraction", value=0.5, low=0.25, high=0.75, of=12),
        Headline(name="z", unit="fraction", value=0.0),
        Headline(name="x", unit="bytes", value=None),
    ]
    assert [figure.as_text() for figure in figures] == [
        "1,234,567 of 2,000,000",
        "1.2346",
        "1,234 tokens/s",
        "0.500 (0.250–0.750), n\u00a0=\u00a012",
        "0.000",
        "–",
    ]


def verdict(*folders: Path) -> PairVerdict:
    return judge_pairs(compare_runs([read_run(folder) for folder in folders]))[-1]


@pytest.mark.parametrize(
    ("first", "second", "word"),
    # All 40 right against none: McNemar's p is 2^-39. Twice the same answers: p is 1.
    [(0.0, 1.0, "better"), (1.0, 0.0, "worse"), (0.5, 0.5, "cannot tell")],
)
def test_a_difference_is_called_one_where_chance_is_no_likely_reason(tmp_path, first, second, word):
    one = write_run(tmp_path, "a", items=40, correct=first)
    assert verdict(one, write_run(tmp_path, "b", items=40, correct=second)).word == word


def test_one_pair_that_would_be_a_find_alone_is_none_among_many(tmp_path: Path):
    # 6 items fixed and none broken: p = 2 / 2^6 = 0.031 alone, 0.062 where Holm doubles it for two pairs.
    one = write_run(tmp_path, "a", items=6, correct=0.0)
    other = write_run(tmp_path, "b", items=6, correct=1.0)
    same = write_run(tmp_path, "c", items=6, correct=0.0)
    assert verdict(one, other).word == "better"
    assert verdict(one, same, other).word == "cannot tell"


def test_what_a_person_changed_is_apart_from_what_follows_from_it(tmp_path: Path):
    one = write_run(tmp_path, "a", config={"optimizer": {"learning_rate": 0.002}})
    found = verdict(one, write_run(tmp_path, "b", config={"optimizer": {"learning_rate": 0.004}}))
    assert [(setting.name, setting.values) for setting in found.changed] == [
        ("optimizer.learning_rate", (0.002, 0.004)),
    ]
    assert found.sameness == ""


@pytest.mark.parametrize(
    ("manifest", "correct", "said"),
    [
        ({"code": {"commit": "b" * 40}}, 1.0, "Same settings, another commit, another result"),
        ({"code": {"commit": "b" * 40}}, 0.0, "Same settings, another commit, the same result"),
        ({}, 0.0, "Same settings, same code and device, the same result"),
        ({"devices": {"kind": "TPU v5e"}}, 1.0, "Same settings, another device, another result"),
    ],
)
def test_where_nobody_changed_a_setting_it_is_said_what_else_differs(tmp_path, manifest, correct, said):
    one = write_run(tmp_path, "a", correct=0.0)
    assert verdict(one, write_run(tmp_path, "b", correct=correct, manifest=manifest)).sameness == said


def test_a_key_that_an_earlier_version_did_not_know_was_changed_by_nobody(tmp_path: Path):
    one, other = write_run(tmp_path, "a"), write_run(tmp_path, "b", config={"data": {"new_key": 3}})
    assert verdict(one, other).changed == ()


def test_loss_time_and_memory_are_given_as_far_as_both_state_them(tmp_path: Path):
    one, other = write_run(tmp_path, "a", seed=1), write_run(tmp_path, "b", seed=2)
    assert [first.name for first, _ in verdict(one, other).costs] == [
        "last loss", "training time", "peak memory",
    ]  # fmt: skip
    manifest = json.loads((other / MANIFEST).read_text("utf-8"))
    manifest["result"]["last_loss"] += 1.0  # Forged, so that it is withheld.
    (other / MANIFEST).write_text(json.dumps(manifest), "utf-8")
    assert "last loss" not in [first.name for first, _ in verdict(one, other).costs]


def test_scores_under_a_manifest_that_is_cut_off_are_not_compared(tmp_path: Path):
    one, other = write_run(tmp_path, "a"), write_run(tmp_path, "b", seed=2)
    text = (other / MANIFEST).read_text("utf-8")
    (other / MANIFEST).write_text(text[: len(text) // 2], "utf-8")
    found = verdict(one, other)
    assert found.word == "not compared"
    assert found.pair.refused == ("b lacks a valid run_manifest.json; run `trainproof check` for details.",)
