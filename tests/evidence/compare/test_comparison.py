"""Comparison of runs: settings, figures, the paired score, and every reason against it, said whole."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from mutations import apply
from scipy.stats import binomtest
from synthetic import seal, write_run

from evidence.compare.comparison import compare_runs
from evidence.compare.settings import ABSENT
from evidence.judge.grade import Grade
from evidence.judge.headlines import Headline
from evidence.judge.report import RunReport
from evidence.records.ours import read_run
from schemas.problems import ProblemError
from schemas.render import as_text as problems_text
from trainproof.terminal.comparisons import as_dict, as_text, existing_runs

FOREIGN = Path(__file__).parents[2] / "cases" / "foreign"


def runs_of(root: Path, *settings: dict[str, Any]) -> list[Path]:
    """Return runs a, b, c … of 30 items that differ in their seeds."""
    return [
        write_run(root, name, **{"items": 30, "seed": seed} | setting)
        for seed, (name, setting) in enumerate(zip("abcdef", settings, strict=False))
    ]


def compared(*folders: Path):
    """Return the comparison as if nothing were wrong with the runs, so that a test may change one thing of one."""
    grade = Grade(name="consistent", reasons=("So it is said.",))
    runs = [read_run(folder) for folder in folders]
    return compare_runs(runs, [RunReport(path=run.path, grade=grade, findings=()) for run in runs])


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


def test_settings_that_differ_come_with_their_source(tmp_path: Path):
    a, b = runs_of(tmp_path, {}, {"steps": 40, "manifest": {"devices": {"kind": "TPU v5e"}}})
    comparison = compared(a, b)
    differing = {(setting.source, setting.name): setting.values for setting in comparison.differing}
    assert differing["effective", "training.steps_planned"] == (20, 40)
    assert differing["effective", "devices.kind"] == ("cpu", "TPU v5e")
    assert differing["declared", "limits.steps"] == (20, 40)
    assert differing["declared", "seed"] == (0, 1)
    names = {setting.name for setting in comparison.differing}
    assert not names & {"name", "schema_version", "training.steps_done"}
    equal = {(setting.source, setting.name) for setting in comparison.equal}
    assert ("declared", "optimizer.learning_rate") in equal
    assert not equal & differing.keys()


def test_a_setting_that_one_run_does_not_state(tmp_path: Path):
    a, b = runs_of(tmp_path, {}, {"manifest": {"environment": {"flags": {"XLA_FLAGS": "--x"}}}})
    (setting,) = [setting for setting in compared(a, b).differing if setting.name == "environment.flags.XLA_FLAGS"]
    assert setting.values == (ABSENT, "--x")


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
    differing = compared(a, b).told().differing
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
    told = compared(a, b).told()
    assert [(setting.name, setting.source, setting.values) for setting in told.differing] == [
        ("training.optimizer.name", "effective", ("adamw", "adafactor")),
    ]
    assert ("optimizer.name", "declared") in [(setting.name, setting.source) for setting in told.equal]


def test_a_run_without_settings_differs_in_none(tmp_path: Path):
    a, b, c = runs_of(tmp_path, {"seed": 1}, {"seed": 1, "steps": 40}, {"seed": 1})
    (c / "config.yaml").unlink()
    (c / "run_manifest.json").write_text("{}", "utf-8")
    told = compared(a, c).told()
    assert (told.differing, told.equal) == ((), ())
    assert len(told.unheld) == 75
    assert as_text(compared(a, c)).startswith(
        "Settings: none differ; 0 are equal, 75 are not stated by every run.\n\nFigures\n"
    )
    told = compared(a, b, c).told()
    assert [(setting.name, setting.values) for setting in told.differing] == [("limits.steps", (20, 40, ABSENT))]
    assert as_text(compared(a, b, c)).startswith(
        "Settings that differ (1; 0 are equal, 74 are not stated by every run)\n"
        "  setting       source  a   b   c\n"
        "  limits.steps  both    20  40  (not stated)\n"
    )


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
    assert comparison.pairs[0].refused == ("theirs is another tool's run: its answers were not scored here.",)
    shutil.copytree(FOREIGN / "mlflow" / "folder", tmp_path / "ended")
    assert compare_runs([read_run(a), read_run(tmp_path / "ended")]).statuses == ("succeeded", "succeeded")


def test_true_is_not_one(tmp_path: Path):
    a, b = runs_of(tmp_path, {"seed": 1}, {"seed": 1})
    for run, value in ((a, True), (b, 1)):
        config = (run / "config.yaml").read_text("utf-8")
        (run / "config.yaml").write_text(config.replace("shuffle: true", f"shuffle: {json.dumps(value)}"), "utf-8")
    # An integer where a truth value belongs is not valid, so that document states nothing at all.
    assert all(setting.values[1] == ABSENT for setting in compared(a, b).differing if setting.source == "declared")


def test_paired_score(tmp_path: Path):
    a, b = runs_of(tmp_path, {"correct": 0.3}, {"correct": 0.8})
    (pair,) = compared(a, b).pairs
    one, other = answers(a), answers(b)
    only_first = sorted(item for item in one if one[item] and not other[item])
    only_second = sorted(item for item in one if other[item] and not one[item])
    score = pair.score
    assert score is not None
    assert pair.refused == ()
    assert (score.table.items, score.table.only_first, score.table.only_second) == (
        30,
        len(only_first),
        len(only_second),
    )
    assert score.difference == pytest.approx((sum(other.values()) - sum(one.values())) / 30)
    assert score.low < score.difference < score.high
    discordant = len(only_first) + len(only_second)
    assert score.p_value == pytest.approx(binomtest(len(only_first), discordant).pvalue)
    assert [flip.id for flip in score.flips] == [*only_first, *only_second]
    assert {flip.kind for flip in score.flips if flip.id in only_first} <= {"broken"}
    assert all(flip.first_answer != flip.second_answer for flip in score.flips)


def test_a_run_against_itself(tmp_path: Path):
    (a,) = runs_of(tmp_path, {})
    comparison = compared(a, a)
    assert comparison.differing == ()
    (pair,) = comparison.pairs
    assert pair.score is not None
    assert (pair.score.difference, pair.score.p_value, pair.score.flips) == (0.0, 1.0, ())


def test_several_runs_are_held_against_the_first_with_holm(tmp_path: Path):
    comparison = compared(*runs_of(tmp_path, {"correct": 0.2}, {"correct": 0.9}, {"correct": 0.5}))
    assert [(pair.first, pair.second) for pair in comparison.pairs] == [("a", "b"), ("a", "c")]
    raw = [pair.score.p_value for pair in comparison.pairs if pair.score]
    adjusted = [pair.score.adjusted_p_value for pair in comparison.pairs if pair.score]
    assert adjusted == pytest.approx([min(raw) * 2 if p == min(raw) else max(min(raw) * 2, p) for p in raw])


def test_order_of_items_does_not_matter(tmp_path: Path):
    a, b = runs_of(tmp_path, {}, {"seed": 0})
    edit_rows(b, lambda rows: rows.reverse())
    (pair,) = compared(a, b).pairs
    assert pair.score is not None
    assert pair.score.difference == 0.0


def drop_two(rows: list[dict[str, Any]]) -> None:
    del rows[3:5]


def repeat_one(rows: list[dict[str, Any]]) -> None:
    rows.append(rows[0])


def other_prompts(rows: list[dict[str, Any]]) -> None:
    for row in rows[:5]:
        row["prompt"] += " Think."


def other_answers(rows: list[dict[str, Any]]) -> None:
    rows[2]["expected"] = "0"


def other_items(rows: list[dict[str, Any]]) -> None:
    rows[0]["id"] = "new-item"


REFUSALS = {
    "fewer items": (drop_two, ("2 items were asked of a only (item-0003, item-0004).",)),
    "an item twice": (repeat_one, ("b: 1 item was answered more than once (item-0000).",)),
    "other prompts": (
        other_prompts,
        ("5 items have another prompt (item-0000, item-0001, item-0002, …).",),
    ),
    "other expected answers": (other_answers, ("1 item has another expected answer (item-0002).",)),
    "other ids": (
        other_items,
        ("1 item was asked of a only (item-0000).", "1 item was asked of b only (new-item)."),
    ),
    "nothing": (list.clear, ("b: predictions.jsonl is empty.",)),
    "no valid rows": (
        lambda rows: rows[0].update(correct="yes"),
        ("b: predictions.jsonl has errors; `trainproof check` names them.",),
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
    assert pair.refused == ("b was not evaluated: it has no predictions.jsonl.",)
    (c,) = runs_of(tmp_path / "more", {})
    (c / "eval_summary.json").unlink()
    (pair,) = compared(b, c).pairs
    assert pair.refused[1:] == ("a: no valid eval_summary.json says how its outputs were generated.",)


def test_smoke_against_full(tmp_path: Path):
    smoke, full = runs_of(
        tmp_path,
        {"mode": "smoke", "steps": 2},
        {
            "seed": 0,
            "manifest": {
                "devices": {"platform": "tpu", "kind": "TPU v5e", "count": 8},
                "dataset": {"sha256": "0" * 64},
            },
        },
    )
    check = compared(full, smoke).smoke
    assert check is not None
    assert (check.smoke, check.full) == ("a", "b")
    assert {answer.question: answer.same for answer in check.answers} == {
        "same model": True,
        "same first parameters": True,
        "same training data": False,
        "same code": True,
        "same kind of device": False,
        "same number of devices": False,
        "same method and optimizer": True,
        "same number formats": True,
        "same shape of a step": True,
        "same settings apart from model, rows, batch and length": True,
    }
    assert check.proved[0] == "The pipeline runs to its end and seals its evidence: 2 of 2 steps on 1 × cpu."
    assert check.not_proved == (
        "That the model learns: 2 steps say nothing about 20.",
        "That it runs on 8 × TPU v5e: the smoke run used 1 × cpu.",
        "That the full run's data can be read: it is other data.",
    )


def test_a_smoke_run_with_other_settings_is_another_pipeline(tmp_path: Path):
    smoke, full = runs_of(
        tmp_path,
        {"seed": 1, "mode": "smoke", "steps": 2, "items": 0, "config": {"optimizer": {"learning_rate": 0.01}}},
        {"seed": 1, "items": 8},
    )
    check = compared(smoke, full).smoke
    assert check is not None
    answer = check.answers[-1]
    assert (answer.same, answer.smoke, answer.full) == (
        False,
        ("optimizer.learning_rate = 0.01",),
        ("optimizer.learning_rate = 0.001",),
    )
    assert check.not_proved[-2:] == (
        "That the full run's settings work together: they differ in more than size, or are not known.",
        "That the evaluation works: the smoke run answered no items.",
    )


def test_a_smoke_run_that_was_evaluated_proves_that_evaluation_runs(tmp_path: Path):
    check = compared(*runs_of(tmp_path, {"mode": "smoke", "steps": 2, "items": 4}, {})).smoke
    assert check is not None
    assert check.proved[-1] == "The evaluation runs to its end: 4 items were answered."


def test_a_smoke_run_that_failed_proves_nothing(tmp_path: Path):
    smoke, full = runs_of(tmp_path, {"mode": "smoke", "status": "failed", "steps": 4}, {})
    check = compared(smoke, full).smoke
    assert check is not None
    assert check.proved == ("Nothing: the smoke run did not succeed (failed).",)


def test_code_that_is_not_known_is_not_the_same(tmp_path: Path):
    unknown = {"manifest": {"code": {"commit": None, "branch": None, "dirty": None}}}
    smoke, full = runs_of(tmp_path, {"mode": "smoke", "steps": 2} | unknown, unknown)
    check = compared(smoke, full).smoke
    assert check is not None
    assert [answer.same for answer in check.answers if answer.question == "same code"] == [None]
    assert "That the code of the full run works: it is not known to be the same." in check.not_proved


def test_a_smoke_run_that_failed_before_it_had_a_model_is_compared_all_the_same(tmp_path: Path):
    smoke, full = runs_of(tmp_path, {"mode": "smoke", "status": "failed", "steps": 4, "items": 0}, {})
    apply(smoke, {"file": "run_manifest.json", "pointer": "/model", "value": None})
    apply(smoke, {"file": "run_manifest.json", "pointer": "/training", "value": None})
    check = compare_runs([read_run(smoke), read_run(full)]).smoke
    assert check is not None
    assert check.proved == ("Nothing: the smoke run did not succeed (failed).",)
    assert check.not_proved[0] == "That the model learns: 0 steps say nothing about 20."
    assert check.answers[0].same is None
    check = compare_runs([read_run(full), read_run(smoke)]).smoke
    assert check is not None


@pytest.mark.parametrize("forged", ["smoke", "full"])
def test_nothing_is_proved_by_or_about_a_run_that_contradicts_itself(forged: str, tmp_path: Path):
    runs = dict(zip(("smoke", "full"), runs_of(tmp_path, {"mode": "smoke", "steps": 2}, {}), strict=True))
    apply(runs[forged], {"file": "run_manifest.json", "pointer": "/result/best_loss", "value": 0.5})
    check = compare_runs([read_run(run) for run in runs.values()]).smoke
    assert check is not None
    if forged == "smoke":
        assert check.proved == ("Nothing: the smoke run contradicts itself; `trainproof check` says where.",)
    else:
        assert check.not_proved[0] == (
            "Anything about the full run: it contradicts itself; `trainproof check` says where."
        )


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
        "b: what it states of its evaluation does not hold; `trainproof check` says why.",
    )


def test_two_full_runs_are_no_rehearsal(tmp_path: Path):
    assert compared(*runs_of(tmp_path, {}, {})).smoke is None


def test_text_is_whole(tmp_path: Path):
    a, b = runs_of(tmp_path, {"items": 4, "seed": 5}, {"items": 0, "seed": 5})
    text = as_text(compared(a, b))
    assert (
        text
        == (
            "Settings that differ (2; 73 are equal)\n"
            "  setting                    source     a          b\n"
            "  evaluation.eval_set        declared   own-items  null\n"
            "  dataset.overlap_with_eval  effective  0          null\n"
            "\n"
            "Figures\n"
            "  figure                       a                           b\n"
            "  grade                        consistent                  consistent\n"
            "  status                       succeeded                   succeeded\n"
            "  optimizer steps              20 of 20                    20 of 20\n"
            "  tokens seen                  40,960                      40,960\n"
        )
        + text[text.index("  first loss") :]
    )
    assert text.endswith(
        "\nScores of a and b cannot be compared:\n  b was not evaluated: it has no predictions.jsonl.\n"
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
    text = as_text(compared(a, b))
    assert text[text.index("Exact match of b") :] == (
        "Exact match of b minus a: +0.500 (95 % interval -0.235 to +0.850, 4 items); exact McNemar p = 0.5000: "
        "within chance at the 5 % level.\n"
        "  both right 1, only a 0, only b 2, neither 1.\n"
        "  So few items cannot show any difference.\n"
        "  Output tokens per item: +0.0 (95 % interval +0.0 to +0.0, bca bootstrap, 4 items).\n"
        "  fixed item-0001: What is 20 + 6? expected '26', '?' → '26'\n"
        "  fixed item-0003: What is 26 + 8? expected '34', '?' → '34'\n"
    )


def test_what_a_terminal_would_obey_is_escaped(tmp_path: Path):
    a, b = runs_of(tmp_path, {}, {"manifest": {"environment": {"flags": {"X": "\x1b[2J\u202e"}}}})
    text = as_text(compared(a, b))
    assert "\x1b" not in text
    assert "\u202e" not in text


def test_json_has_every_field(tmp_path: Path):
    value = as_dict(compared(*runs_of(tmp_path, {"correct": 0.1}, {"correct": 0.9})))
    assert json.loads(json.dumps(value, allow_nan=False))["names"] == ["a", "b"]
    assert set(value) == {
        "names",
        "grades",
        "statuses",
        "differing",
        "equal",
        "headlines",
        "withheld",
        "pairs",
        "smoke",
    }
    assert value["pairs"][0]["score"]["table"]["items"] == 30


def test_fewer_than_two_runs_or_none_there(tmp_path: Path):
    with pytest.raises(ProblemError) as caught:
        existing_runs([tmp_path / "nothing"], at_least=2)
    assert caught.value.exit_code == 2
    assert problems_text(caught.value.problems) == (
        f"error TP091: {tmp_path / 'nothing'}: This does not exist.\n"
        "  Next: Give the path of a run folder; `trainproof runs` lists them.\n"
        "error TP093: A comparison needs at least 2 runs; 1 was given.\n"
        "  Next: Name the runs one after the other: `trainproof compare A B`.\n"
    )
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
