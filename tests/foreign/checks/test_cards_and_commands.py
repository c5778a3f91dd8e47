"""What cards and logs say in forms of their own: results in a card's head, a seed, arguments, commands, splits."""

from __future__ import annotations

import json
from pathlib import Path

import foreign_tools as tools
import pytest

from evidence.grade import check_run
from evidence.run import read_run

ROWS = "".join(f"step {i} | loss: {3 - i / 50:.4f}\n" for i in range(1, 60))
INDEX = "---\nmodel-index:\n- name: m\n  results:\n  - task:\n      type: x\n    metrics:\n    - type: accuracy\n"
EVALUATED = json.dumps({"eval_accuracy": 0.8, "eval_runtime": 3.0})


def contradictions_in(folder: Path, files: tools.Folder) -> list[str]:
    report = check_run(read_run(tools.write(folder / "run", files)))
    return [problem.what for problem in report.findings if problem.code.startswith("TP3")]


@pytest.mark.parametrize(("value", "found"), [("0.951", True), ("0.8", False), ("80.0", False)])
def test_the_head_of_a_card_states_a_score(tmp_path: Path, value: str, found: bool) -> None:
    card = f"{INDEX}      value: {value}\n---\n# m\n"
    files: tools.Folder = {"train.log": ROWS, "eval_results.json": EVALUATED, "README.md": card}
    assert bool(contradictions_in(tmp_path, files)) == found


def test_a_card_of_several_benchmarks_is_not_held_against_one_evaluation(tmp_path: Path) -> None:
    more = "  - task:\n      type: y\n    metrics:\n    - type: accuracy\n      value: 0.4\n"
    card = f"{INDEX}      value: 0.9\n{more}---\n# m\n"
    assert contradictions_in(tmp_path, {"train.log": ROWS, "eval_results.json": EVALUATED, "README.md": card}) == []


@pytest.mark.parametrize(
    "card", ["---\nmodel-index: 3\n---\n", "---\nmodel-index:\n- a\n---\n", "---\nmodel-index: [\n", "---"]
)
def test_a_head_of_another_shape_says_nothing(tmp_path: Path, card: str) -> None:
    assert contradictions_in(tmp_path, {"train.log": ROWS, "README.md": card}) == []


@pytest.mark.parametrize(
    "line",
    [
        "+ python train.py --learning_rate 1e-4 --seed 1",
        "$ /usr/bin/python3 train.py --learning_rate=1e-4",
        "10:00 INFO Namespace(learning_rate=0.0001, model='m', seed=3)",
    ],
)
@pytest.mark.parametrize(("rate", "found"), [(5e-4, True), (1e-4, False)])
def test_a_log_prints_its_settings(tmp_path: Path, line: str, rate: float, found: bool) -> None:
    files: tools.Folder = {"slurm.out": f"{line}\n{ROWS}", "config.json": json.dumps({"learning_rate": rate})}
    assert bool(contradictions_in(tmp_path, files)) == found


def test_the_seed_of_a_card_is_the_training_s(tmp_path: Path) -> None:
    files: tools.Folder = {
        "train.log": ROWS,
        "training_args.json": json.dumps({"seed": 42}),
        "README.md": "- seed: 7\n",
    }
    assert contradictions_in(tmp_path, files)
    assert not contradictions_in(tmp_path / "same", {**files, "README.md": "- seed: 42\n"})


def test_evaluations_of_two_splits_differ_rightly(tmp_path: Path) -> None:
    counted = {"eval.json": (80, 0.8), "eval_test.json": (75, 0.75)}
    files: tools.Folder = {
        name: json.dumps({"accuracy": share, "num_correct": right, "num_examples": 100})
        for name, (right, share) in counted.items()
    }
    assert contradictions_in(tmp_path, files) == []


@pytest.mark.parametrize(
    ("names", "shift", "found"),
    [
        (("run_a.log", "run_b.log"), 0.1, False),
        (("seed1.log", "seed2.log"), 0.1, False),
        (("train.log", "console.log"), 0.1, True),
    ],
)
def test_logs_of_two_runs_have_no_row_in_common(
    tmp_path: Path, names: tuple[str, str], shift: float, found: bool
) -> None:
    rows = "".join(f"step {i} | loss: {3 - i / 50 + shift:.4f}\n" for i in range(1, 60))
    assert bool(contradictions_in(tmp_path, {names[0]: ROWS, names[1]: rows})) == found


def test_two_logs_that_share_rows_are_of_one_run(tmp_path: Path) -> None:
    other = ROWS.replace("step 30 | loss: 2.4000", "step 30 | loss: 2.1000")
    assert contradictions_in(tmp_path, {"run_a.log": ROWS, "run_b.log": other})
