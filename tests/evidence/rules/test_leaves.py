"""A forger changes one value of a real run and makes every hash fit: what is found, and what nothing else states.

Every nineteenth change of the sweep that `benchmarks/rules.py` does whole. What escapes must be listed in its result,
where docs/detection.md shows it: a value that nothing in the folder bears out is told, not hidden.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from leaves import Forger, Forgery

from evidence.judge.judgement import check_run
from evidence.records.ours import read_run
from schemas.render import as_text

REPOSITORY = Path(__file__).parents[3]
FINISHED = REPOSITORY / "tests/corpus/v1/runs/finished"
EVERY = 19


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    return Forger(FINISHED, tmp_path / "finished")


def new_findings(forger: Forger, forgery: Forgery) -> str:
    """Return what a change adds to the one warning that the run has."""
    forger.commit(forgery)
    return as_text([one for one in check_run(read_run(forger.folder)) if one.code != "TP410"])


def test_what_is_found_nowhere_is_listed(forger: Forger) -> None:
    swept = json.loads((REPOSITORY / "benchmarks/results/rules.json").read_text("utf-8"))["real_runs"]
    listed = swept["tests/corpus/v1/runs/finished"]["found_nowhere"]
    for forgery in list(forger.forgeries())[::EVERY]:
        assert new_findings(forger, forgery) or forgery.what in listed.get(forgery.place, ()), forgery


def test_a_change_that_is_taken_back_leaves_no_trace(forger: Forger) -> None:
    before = {path.name: path.read_bytes() for path in forger.folder.iterdir()}
    forger.commit(Forgery(file="metrics.jsonl", path=("loss",), what="other", line=2))
    forger.restore()
    assert {path.name: path.read_bytes() for path in forger.folder.iterdir()} == before


@pytest.mark.parametrize(
    ("forgery", "what"),
    [
        (Forgery(file="log.jsonl", what="row removed", line=1), "run_started is missing."),
        (Forgery(file="log.jsonl", what="row removed", line=4), "compiled is missing."),
        (Forgery(file="log.jsonl", what="row removed", line=7), "evaluated is missing."),
        (Forgery(file="log.jsonl", what="row removed", line=8), "run_sealed is missing."),
        (Forgery(file="log.jsonl", what="row removed", line=5), "No checkpoint was saved at step 6, the last one."),
        (Forgery(file="log.jsonl", what="row repeated", line=3), "The event planned was logged already."),
        (
            Forgery(file="log.jsonl", what="rows swapped", line=2),
            "The event planned comes before devices_chosen.",
        ),
        (
            Forgery(file="log.jsonl", what="removed", path=("fields", "manifest_sha256"), line=8),
            "The event run_sealed states no manifest_sha256.",
        ),
    ],
    ids=lambda value: f"{value.what} {value.line}" if isinstance(value, Forgery) else "",
)
def test_log_that_no_run_writes(forger: Forger, forgery: Forgery, what: str) -> None:
    assert f": {what}\n  A run logs start, devices, plan, program, training and seal" in new_findings(forger, forgery)
    assert new_findings(forger, forgery).startswith("error TP365: ")


def test_the_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_detection", REPOSITORY / "docs/make_detection.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    page = (REPOSITORY / "docs/detection.md").read_text(encoding="utf-8")
    assert page == made.page(), "run: python docs/make_detection.py"
