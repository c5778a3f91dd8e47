"""Change one value of a real run and recompute every hash; benchmarks/results/rules.json lists what is not found.

Tests every nineteenth change of the sweep of `benchmarks/rules.py`.
"""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
from leaves import Forger, Forgery

from evidence.grade import find_problems
from evidence.run import read_run
from schemas.render import as_text

REPOSITORY = Path(__file__).parents[3]
FINISHED = REPOSITORY / "tests/corpus/v1/runs/finished"
EVERY = 19


@pytest.fixture
def forger(tmp_path: Path) -> Forger:
    return Forger(FINISHED, tmp_path / "finished")


def new_findings(forger: Forger, forgery: Forgery) -> str:
    """Return the findings except the one warning of the unchanged run."""
    forger.commit(forgery)
    return as_text([problem for problem in find_problems(read_run(forger.folder)) if problem.code != "TP410"])


def test_undetected_changes_are_listed(forger: Forger) -> None:
    swept = json.loads((REPOSITORY / "benchmarks/results/rules.json").read_text("utf-8"))["real_runs"]
    listed = swept["tests/corpus/v1/runs/finished"]["found_nowhere"]
    for forgery in list(forger.forgeries())[::EVERY]:
        assert new_findings(forger, forgery) or forgery.what in listed.get(forgery.place, ()), forgery


def test_restore_undoes_a_change(forger: Forger) -> None:
    before = {path.name: path.read_bytes() for path in forger.folder.iterdir()}
    forger.commit(Forgery(file="metrics.jsonl", path=("loss",), what="other", line=2))
    forger.restore()
    assert {path.name: path.read_bytes() for path in forger.folder.iterdir()} == before


@pytest.mark.parametrize(
    ("line", "change", "what"),
    [
        (1, "row removed", "The log lacks run_started."),
        (4, "row removed", "The log lacks compiled."),
        (7, "row removed", "The log lacks evaluated."),
        (8, "row removed", "The log lacks run_sealed."),
        (5, "row removed", "No checkpoint was saved at the last step, 6."),
        (3, "row repeated", "The event planned was logged twice."),
        (2, "rows swapped", "The event planned comes before devices_chosen."),
    ],
)
def test_changed_log(forger: Forger, line: int, change: str, what: str) -> None:
    found = new_findings(forger, Forgery(file="log.jsonl", what=change, line=line))
    assert found.startswith("error TP365: ")
    assert f": {what}\n" in found


def test_seal_without_a_hash(forger: Forger) -> None:
    forgery = Forgery(file="log.jsonl", what="removed", path=("fields", "manifest_sha256"), line=8)
    assert "The event run_sealed lacks manifest_sha256." in new_findings(forger, forgery)


def test_detection_page_is_current() -> None:
    spec = importlib.util.spec_from_file_location("make_detection", REPOSITORY / "docs/make_detection.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    page = (REPOSITORY / "docs/verify/detection.md").read_text(encoding="utf-8")
    assert page == made.page(), "run: python docs/make_detection.py"
