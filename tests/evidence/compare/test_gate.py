"""Requirements as a gate: what is asked, what is found, and every expression that cannot be understood."""

import json
from pathlib import Path

import pytest
from synthetic import write_run

from evidence.compare.gate import FIGURES, parse_requirements
from evidence.scores.recompute import compute_scores
from schemas.problems import ProblemError
from trainproof.cli import app as command
from trainproof.cli.inspect import compare_folders, result_text


def score(run: Path) -> float:
    rows = [json.loads(line) for line in (run / "predictions.jsonl").read_text("utf-8").splitlines()]
    return compute_scores(rows)["metrics"]["exact_match"]["value"]


def result(run: Path) -> dict[str, float]:
    return json.loads((run / "run_manifest.json").read_text("utf-8"))["result"]


def gate(*runs: Path, **asked: object) -> str:
    return result_text(*compare_folders(runs, **asked))


def test_one_run_and_what_is_asked_of_it(tmp_path: Path):
    run = write_run(tmp_path, "a", items=30)
    value, loss = score(run), result(run)["last_loss"]
    asked = [f"exact_match>={value}", f"exact_match > {value}", f"last_loss<={loss}", "tokens_seen == 40960"]
    assert gate(run, require=asked) == (
        f"met      a: exact_match >= {value:g}. exact_match is {value:.6g} (n = 30, 30 with an output, 0 without).\n"
        f"NOT MET  a: exact_match > {value:g}. exact_match is {value:.6g} (n = 30, 30 with an output, 0 without).\n"
        f"met      a: last_loss <= {loss:g}. last_loss is {loss:.6g}.\n"
        "met      a: tokens_seen == 40960. tokens_seen is 40960.\n"
    )


def test_a_figure_that_was_not_measured_is_not_reached(tmp_path: Path):
    run = write_run(tmp_path, "a", items=0)
    assert gate(run, require=["exact_match>=0"]) == "NOT MET  a: exact_match >= 0. exact_match was not measured.\n"


def test_no_figure_of_a_contradictory_run_counts(tmp_path: Path):
    run = write_run(tmp_path, "a", items=30, manifest={"result": {"last_loss": 0.01}})
    assert gate(run, require=["last_loss<=1"]) == (
        "NOT MET  a: last_loss <= 1. The run is graded contradictory, so its figures do not count.\n"
    )


def test_no_worse_than_a_baseline(tmp_path: Path):
    old = write_run(tmp_path, "old", items=200, correct=0.5, seed=1)
    same = write_run(tmp_path, "same", items=200, correct=0.5, seed=1)
    worse = write_run(tmp_path, "worse", items=200, correct=0.2, seed=2)
    _, lines = compare_folders([same, worse], baseline=old, no_worse_than=0.02)
    assert [(line.run, line.met) for line in lines] == [("same", True), ("worse", False)]
    assert lines[0].required == "exact_match no worse than old by 0.02"
    assert lines[0].what == ("The difference is +0.000 with the 95 % interval -0.014 to +0.014, above -0.02.")
    assert lines[1].what.endswith(", reaching -0.02.")


SYNTAX = 'Use figure, sign and number, as in --require "exact_match>=0.4" or --require "last_loss<=1.5".'
INVALID = {
    "exact_match=0.4": ("Invalid requirement `exact_match=0.4`.", SYNTAX),
    "": ("Invalid requirement ``.", SYNTAX),
    "exact_match >= nan": ("Invalid requirement `exact_match >= nan`.", SYNTAX),
    "exact_match>=40%": ("Invalid requirement `exact_match>=40%`.", "Use a fraction: 0.4 for 40 %."),
    "exact_match>=40": ("`exact_match>=40`: exact_match is a fraction from 0 to 1.", "If 40 is a percentage, use 0.4."),
    "exact_mach>=0.4": ("Unknown figure `exact_mach`.", f"Did you mean exact_match? Choose from {', '.join(FIGURES)}."),
}


def test_invalid_expressions_are_reported_together():
    with pytest.raises(ProblemError) as caught:
        parse_requirements(["exact_match>=0.5", *INVALID])
    assert caught.value.exit_code == 2
    assert [(problem.code, problem.what, problem.next) for problem in caught.value.problems] == [
        ("TP094", what, then) for what, then in INVALID.values()
    ]


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        ({"baseline": Path("old")}, "`--baseline` needs `--no-worse-than`."),
        ({"no_worse_than": 0.02}, "`--no-worse-than` needs `--baseline`."),
        ({"baseline": Path("old"), "no_worse_than": 2.0}, "`--no-worse-than 2` is not a fraction from 0 to 1."),
        ({"baseline": Path("old"), "no_worse_than": -0.1}, "`--no-worse-than -0.1` is not a fraction from 0 to 1."),
    ],
)
def test_a_baseline_and_its_margin_belong_together(asked: dict, what: str):
    with pytest.raises(ProblemError) as caught:
        compare_folders([Path("new")], **asked)
    assert [problem.what for problem in caught.value.problems] == [what]


@pytest.mark.parametrize(("bound", "code"), [("0", 0), ("1", 1), ("x", 2)])
def test_exit_codes(tmp_path: Path, capsys: pytest.CaptureFixture[str], bound: str, code: int):
    run = write_run(tmp_path, "a", items=30)
    with pytest.raises(SystemExit) as caught:
        command.main(["compare", str(run), "--require", f"exact_match>={bound}", "--json"])
    assert caught.value.code == code
    printed_lines = capsys.readouterr().out
    assert bool(printed_lines) == (code < 2)
    if printed_lines:
        assert [line["met"] for line in json.loads(printed_lines)["gate"]] == [code == 0]
