"""A run that nobody trained is consistent at best, and its absurd variants are named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evidence.judge.judgement import report_of
from evidence.records.ours import read_run

# At the end: a benchmark may have the name of a package.
sys.path.append(str(Path(__file__).parents[3] / "benchmarks"))

from adversary_parts.forged import VARIANTS, forged_run

UNNAMED = {"as told", "an unknown commit"}
"""What a folder cannot contradict: these need somebody outside."""


@pytest.mark.parametrize("name", VARIANTS)
def test_a_forged_run_is_never_more_than_consistent(tmp_path: Path, name: str) -> None:
    report = report_of(read_run(forged_run(tmp_path, name, VARIANTS[name])))
    assert report.grade.name != "verified"
    assert any(each.severity != "note" for each in report.findings) == (name not in UNNAMED)
