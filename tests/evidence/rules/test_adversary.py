<<<<<<< /tmp/o.py
"""Lies of benchmarks/detection: none makes a run verified, and those with an error in the stored result keep it."""
=======
"""Forged runs are graded consistent at best, and absurd variants get a finding."""
>>>>>>> /tmp/t.py

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from evidence.judge.judgement import report_of
from evidence.records.ours import read_run

<<<<<<< /tmp/o.py
sys.path.append(FOLDER := str(Path(__file__).parents[3] / "benchmarks" / "detection"))  # for these imports only
=======
# Last, and only for these imports: a benchmark may have the name of a package.
sys.path.append(LAB := str(Path(__file__).parents[3] / "lab"))
>>>>>>> /tmp/t.py

from forged import VARIANTS, forge_run
from leaves import Forger
from lies import LIES, tell

sys.path.remove(FOLDER)

<<<<<<< /tmp/o.py
REPOSITORY = Path(__file__).parents[3]
STORED = json.loads((REPOSITORY / "benchmarks" / "results" / "adversary.json").read_text())


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(REPOSITORY / STORED["run"], tmp_path_factory.mktemp("told") / "demo-smoke")
=======
UNNAMED = {
    *("as told", "an unknown commit", "one byte of memory", "random weights", "a day after its last event"),
    *("version 99", "jax 0.0.1 on Python 2.7", "a chip of no table"),
}
"""Variants without a contradiction, which only `trainproof replay` detects."""


@pytest.mark.parametrize("name", VARIANTS)
def test_forged_run(tmp_path: Path, name: str) -> None:
    report = report_of(read_run(forged_run(tmp_path, name, VARIANTS[name])))
    assert report.grade.name != "verified"
    assert any(problem.severity != "note" for problem in report.findings) == (name not in UNNAMED)
>>>>>>> /tmp/t.py


@pytest.mark.parametrize(("family", "name"), [(family, name) for family, lies in LIES.items() for name in lies])
def test_a_lie_is_found_as_the_benchmark_says(family: str, name: str, forger: Forger) -> None:
    report = report_of(read_run(tell(forger, LIES[family][name])))
    assert report.grade.name != "verified"
    expected = set(STORED["families"][family]["found_by"].get(name, ()))
    assert expected <= {each.code for each in report.findings}


<<<<<<< /tmp/o.py
@pytest.mark.parametrize("name", VARIANTS)
def test_a_forged_run_is_never_verified(name: str, tmp_path: Path) -> None:
    report = report_of(read_run(forge_run(tmp_path, name, VARIANTS[name])))
    assert report.grade.name != "verified"
    is_found = any(each.severity != "note" for each in report.findings)
    assert is_found == (name in STORED["families"]["forged"]["found_by"])
=======
@pytest.mark.parametrize("name", GPU_VARIANTS)
def test_forged_fine_tuning(tmp_path: Path, name: str) -> None:
    report = report_of(read_run(forged_gpu(SMOKE, tmp_path, name, GPU_VARIANTS[name])))
    assert report.grade.name != "verified"
    assert any(problem.severity != "note" for problem in report.findings) == (name not in UNNAMED_AGAIN)
>>>>>>> /tmp/t.py
