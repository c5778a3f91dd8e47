"""Challenges: an honest run is plausible; forged answers, other weights and a claimed 98 % are refuted."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from commands import run_command
from configs import changed
from forging import Row, answered, forge_answers, right_answer
from model_folders import row_file
from refusals import catch_problem
from replays import challenged
from tasks import task_of
from whole_runs import QUIET, error_codes

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.grade import check_run
from evidence.proof.receipts import run_sha256
from evidence.proof.verification import find_proofs
from evidence.run import read_run
from evidence.scores.intervals import ExactMatch
from trainer.config.tree import Config
from trainer.data.rows import read_dataset
from trainer.evaluation.challenge import score_probability
from trainer.export_run import export_run
from trainer.loop.state import load_trained_params
from trainer.model.decoder import params_sha256
from trainer.model.source import resolve


@pytest.fixture
def tiny(config) -> Config:
    evaluation = {"eval_set": "eval_v1", "baseline": False, "max_new_tokens": 8, "batch_size": 25}
    return changed(config, evaluation=evaluation)


@pytest.fixture
def honest(finished, tiny) -> Path:
    """A run of two steps, evaluated."""
    return finished(tiny)


@pytest.fixture
def folder(honest, tmp_path) -> Path:
    """The same without its checkpoint, as a bundle has it, for one test."""
    return shutil.copytree(honest, tmp_path / "run", ignore=shutil.ignore_patterns(layout.CHECKPOINTS))


def refusal(folder: Path, exit_code: int, **asked: Any) -> str:
    return catch_problem(challenged, folder, exit_code=exit_code, **asked).code


def test_an_honest_run_gives_the_same_answers_bit_for_bit(folder):
    receipt = challenged(folder)
    assert receipt["result"] == "identical"
    counts = {"drawn": 6, "identical": 6, "within_tolerance": 0, "different": 0, "trained": 6}
    assert receipt["covered"]["items"] == counts | {"given_again": {"trained": 50, "untrained": 0}}
    assert receipt["marks"]["said"] == (
        "Score reproduced: 50 of 50 answers of the trained model. Training not reproduced: 0 of 2 steps."
    )
    score = receipt["score"]
    assert (score["can_be_true"], score["chance"], score["found"]["n"]) == (True, 1.0, 40)
    assert (score["questions"]["source"], score["questions"]["seed"]) == ("generated", 3)
    assert receipt["said"] == (
        "Scored 0.000 (0.000 to 0.088) on 40 new questions; it states 0.000 (0.000 to 0.071) on eval_v1, which is "
        "plausible. Of 50 stated answers: 6 generated again, identical, 44 scored in one pass, as stated."
    )


def test_a_claimed_98_percent_cannot_be_true(folder):
    forge_answers(folder, lambda number, row: row if number == 0 else right_answer(row))
    # The folder alone shows that tokens are missing, but not that the answers are forged.
    report = check_run(read_run(folder))
    assert (report.grade.name, error_codes(folder)) == ("measured", {"TP525"})
    receipt = challenged(folder)
    assert receipt["result"] == "different"
    assert (receipt["score"]["stated"]["value"], receipt["score"]["can_be_true"]) == (0.98, False)
    assert receipt["score"]["chance"] < 1e-20
    assert receipt["covered"]["items"]["different"] >= 5
    # Answers that fail the forward pass are generated again, even if none is drawn.
    assert challenged(folder, again=0)["covered"]["items"]["different"] == 49


def with_other_token(row: Row) -> Row:
    """Change a token and the text with it."""
    tokens = row["output_token_ids"].split()
    tokens[4] = "60" if tokens[4] != "60" else "61"
    text = resolve("tiny-gpt2").tokenizer().decode([int(token) for token in tokens])
    return answered(row, text) | {"output_token_ids": " ".join(tokens)}


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (right_answer, "The stated answer is not one that the model's tokens can be."),
        (with_other_token, "The model does not write this: token"),
    ],
)
def test_an_edited_answer_is_named(change, why, folder):
    forge_answers(folder, lambda number, row: change(row) if number == 7 else row)
    items = challenged(folder, again=50)["covered"]["items"]
    assert (items["drawn"], items["identical"], items["within_tolerance"], items["different"]) == (50, 49, 0, 1)
    assert items["given_again"] == {"trained": 49, "untrained": 0}
    [difference] = items["differences"]
    assert difference["id"] == "eval_v1-008"
    assert difference["why"].startswith(why)


def test_repeated_and_unknown_ids_are_named(folder):
    forge_answers(folder, lambda number, row: row | {"id": {7: "eval_v1-001", 8: "other"}.get(number, row["id"])})
    found = Counter(each["why"] for each in challenged(folder, again=0)["covered"]["items"]["differences"])
    repeated, unknown = "The run states this item more than once.", "The evaluation set lacks an item with this id."
    assert found == {repeated: 2, unknown: 1}


@pytest.mark.slow
def test_weights_of_another_run_are_not_those_that_answered(folder, tiny, train):
    other = train(changed(tiny, seed=1, evaluation={"eval_set": None}), "other")
    shutil.copy(other / layout.TRAINED_PARAMS, folder)
    forge_answers(folder, lambda number, row: row)
    assert refusal(folder, 1) == "TP058"
    sha256 = params_sha256(load_trained_params(folder, task_of(tiny)))
    forge_answers(folder, lambda number, row: row, params_sha256=sha256)
    receipt = challenged(folder)
    assert receipt["result"] == "different"
    assert receipt["covered"]["items"]["different"] > 40


def truncate(path: Path) -> None:
    with path.open("r+b") as file:
        file.truncate(1 << 40)  # a file with a hole, which takes no room


def store_float8(path: Path) -> None:
    header = json.dumps({"final_norm.scale": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + bytes(4))


@pytest.mark.parametrize(
    ("file", "damage", "exit_code", "code"),
    [
        (layout.TRAINED_PARAMS, Path.unlink, 3, "TP057"),
        (layout.TRAINED_PARAMS, truncate, 2, "TP056"),
        (layout.TRAINED_PARAMS, store_float8, 2, "TP056"),
        (layout.EVAL_SUMMARY, Path.unlink, 2, "TP083"),
    ],
)
def test_a_run_without_usable_parameters_or_score_is_refused(file, damage, exit_code, code, folder):
    damage(folder / file)
    assert refusal(folder, exit_code) == code


@pytest.mark.slow
def test_an_export_or_a_checkpoint_replaces_the_parameters(honest, folder):
    (folder / layout.TRAINED_PARAMS).unlink()
    export_run(honest, folder / layout.EXPORT, QUIET)
    assert challenged(folder, generate=1, again=2)["result"] == "identical"
    shutil.rmtree(folder / layout.EXPORT)
    shutil.copytree(honest / layout.CHECKPOINTS, folder / layout.CHECKPOINTS)
    assert challenged(folder, generate=1, again=2)["result"] == "identical"


@pytest.mark.slow
def test_adapters_are_enough_where_the_base_can_be_drawn(tiny, train):
    folder = train(changed(tiny, method={"kind": "lora", "rank": 2}))
    assert (folder / layout.TRAINED_PARAMS).stat().st_size < 25_000
    assert challenged(folder, generate=1)["result"] == "identical"
    export_run(folder, folder / layout.ADAPTER, QUIET, adapter=True)
    shutil.rmtree(folder / layout.CHECKPOINTS)
    (folder / layout.TRAINED_PARAMS).unlink()
    assert challenged(folder, generate=1)["result"] == "identical"


def test_questions_of_the_training_data_are_left_out(folder, tmp_path):
    asked = read_dataset("dev-reasoning-v2").rows[0]
    old = {"id": "old", "prompt": asked["prompt"].upper(), "expected": asked["final_answer"]}
    new = {"id": "new", "prompt": "Which is larger, 10 or 2?", "expected": "10"}
    path = Path(row_file(tmp_path / "mine.jsonl", old, new))
    questions = challenged(folder, items=path)["score"]["questions"]
    found = tuple(questions[key] for key in ("source", "name", "n", "in_training"))
    assert found == ("file", "mine.jsonl", 1, 1)
    row_file(path, old)
    assert refusal(folder, 2, items=path) == "TP059"


@pytest.mark.parametrize(("dropped", "probability"), [(0, 0.01246), (57, 0.13536), (5000, 0.30167)])
def test_dropped_questions_count_as_right_up_to_the_number_of_questions(dropped, probability):
    """scipy.stats.fisher_exact(alternative="greater") of 94 of 100 against 83 of 100, 140 of 157 and 183 of 200."""
    stated, found = ExactMatch(correct=94, n=100), ExactMatch(correct=83, n=100)
    assert score_probability(stated, found, dropped=dropped) == pytest.approx(probability, abs=1e-4)


@pytest.mark.slow
def test_the_command_takes_a_bundle_and_keeps_a_receipt(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.chdir(tmp_path)
    build_bundle([folder], tmp_path / "run.zip", allow_partial=True)
    asked = ["challenge", "run.zip", "--generate", "10", "--again", "3", "--json", "--json-lines", "--output", "r.json"]
    code, out, err = run_command(capsys, *asked)
    assert code == 0
    receipt = json.loads(out)
    assert receipt["result"] == "identical"
    assert json.loads((tmp_path / "r.json").read_text()) == receipt
    events = [json.loads(line)["event"] for line in err.splitlines()]
    assert events == ["planned", *["items"] * 50, *["questions"] * 10, "done"]
    # The receipt is for the run, whatever its folder.
    [proof] = find_proofs(folder, run_sha256(folder))
    assert (proof.by, proof.is_positive, proof.description) == ("you", True, receipt["said"])
