"""Twenty SIGKILLs at random moments of a run, three hundred every night.

All but 2 (every night 20) of them hit a *replay* (see `tests/support/kills.py`). The seconds of the trainer itself are
mostly computation, so most kills of it fall between two writes. A later evaluation is killed at each call of the file
system.
"""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from evidence import layout

pytestmark = pytest.mark.slow

REPLAYS, TRAININGS = (280, 19) if os.environ.get("TRAINPROOF_NIGHTLY") else (18, 1)
KILLED = REPLAYS + TRAININGS + 1
KILLS = Path(__file__).parents[1] / "support" / "kills.py"

MAY_BE_LEFT = {
    "TP601",  # a temporary file of the document that was being replaced
    "TP130",  # a row that was being written
}
OF_THE_MODEL = {"TP410"}
"""A model of twenty steps gives one output to every item, killed or not."""


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[str, Any]:
    root = tmp_path_factory.mktemp("kills")
    counts = ("--replays", f"{REPLAYS}", "--trainings", f"{TRAININGS}", "--resumed", "1", "--seed", "8")
    done = subprocess.run([sys.executable, str(KILLS), str(root), *counts], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    outcomes: dict[str, Any] = json.loads(done.stdout)
    return outcomes


@pytest.fixture(scope="module")
def left(found) -> list[dict[str, Any]]:
    """Return what every killed run left, where the kill came after its folder was made."""
    killed = [*found["replays"], *found["trainings"], *(each["killed"] for each in found["resumed"])]
    assert len(killed) == KILLED
    return [outcome for outcome in killed if outcome["folder"]]


def test_the_kills_come_at_every_stage(found, left):
    assert found["whole"]["stated"] == "succeeded"
    stages = Counter(outcome["last_file"] for outcome in left if outcome["ended"] == -9)
    # Of few kills none may fall where it is short: before the first examples, and between the last answer and the seal.
    short = {"log.jsonl", "eval_summary.json"} if KILLED > 50 else set()
    assert {"first_examples.json", "baseline_predictions.jsonl"} | short <= set(stages)
    assert sum(stages.values()) > KILLED // 3  # the others had ended before their moment


def test_a_killed_run_is_shown_as_interrupted_and_has_lost_no_row(left):
    for outcome in left:
        expected = "succeeded" if outcome["stated"] == "succeeded" else "interrupted"
        if outcome["grade"] != "not a run":  # killed when its folder was still empty
            assert outcome["status"] == expected, outcome
            assert outcome["listed"] == [expected], outcome
        assert not any(outcome["lost"].values()), outcome


def test_a_killed_run_contradicts_nothing(found, left):
    for outcome in left:
        codes = set(outcome["codes"]) - OF_THE_MODEL
        if outcome["stated"] == "succeeded":  # killed after the seal
            assert (codes, outcome["grade"]) == (set(), found["whole"]["grade"]), outcome
        elif outcome["stated"] == "running":
            assert {"TP513"} <= codes <= {"TP513"} | MAY_BE_LEFT, outcome
            assert outcome["grade"] in {"partial", "template"}, outcome
        elif outcome["grade"] == "not a run":
            assert codes == {"TP501"}, outcome
        else:  # killed before the first manifest was whole: nothing was measured, and nothing says what was to run
            assert {"TP503"} <= codes <= {"TP503"} | MAY_BE_LEFT, outcome
            assert outcome["grade"] == "template", outcome


def test_a_killed_training_goes_on_from_its_checkpoint(found):
    for outcome in found["resumed"]:
        assert outcome["killed"]["checkpoint"] >= 5
        assert (outcome["exit"], outcome["status"], outcome["errors"]) == (0, "succeeded", [])
        assert outcome["state"] == found["whole"]["state"], "bit for bit that of a run that nobody killed"
        assert not any(outcome["lost"].values())


def test_a_killed_later_evaluation_loses_nothing_and_is_completed_by_the_next(tmp_path):
    command = [sys.executable, str(KILLS), str(tmp_path), "--evaluations"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    *killed, whole = json.loads(done.stdout)
    assert len(killed) > 20
    assert (whole["ended"], whole["rows"][layout.PREDICTIONS], whole["errors"]) == (0, 50, [])
    for outcome in killed:
        assert outcome["ended"] == -9
        # The ten answers of the run itself are there until all fifty are.
        assert outcome["killed"]["rows"][layout.PREDICTIONS] in (10, 50), outcome
        assert outcome["rows"] == whole["rows"], outcome
        assert set(outcome["codes"]) - {"TP601"} == set(whole["codes"]), outcome
    assert {outcome["killed"]["rows"][layout.PREDICTIONS] for outcome in killed} == {10, 50}
