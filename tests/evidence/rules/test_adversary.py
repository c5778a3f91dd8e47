"""Lies of benchmarks/detection: none makes a run verified, and those with an error in the stored result keep it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from evidence.grade import check_run
from evidence.run import read_run

sys.path.append(FOLDER := str(Path(__file__).parents[3] / "benchmarks" / "detection"))  # for these imports only

from forged import VARIANTS, forge_run
from leaves import Forger
from lies import LIES, tell

sys.path.remove(FOLDER)

REPOSITORY = Path(__file__).parents[3]
STORED = json.loads((REPOSITORY / "benchmarks" / "results" / "adversary.json").read_text())


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(REPOSITORY / STORED["run"], tmp_path_factory.mktemp("told") / "demo-smoke")


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, lies in LIES.items() for name in lies])
def test_a_lie_is_found_as_the_benchmark_says(family: str, name: str, forger: Forger) -> None:
    report = check_run(read_run(tell(forger, LIES[family][name])))
    assert report.grade.name != "verified"
    expected = set(STORED["families"][family]["found_by"].get(name, ()))
    assert expected <= {each.code for each in report.findings}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_forged_run_is_never_verified(name: str, tmp_path: Path) -> None:
    report = check_run(read_run(forge_run(tmp_path, name, VARIANTS[name])))
    assert report.grade.name != "verified"
    is_found = any(each.severity != "note" for each in report.findings)
    assert is_found == (name in STORED["families"]["forged"]["found_by"])
