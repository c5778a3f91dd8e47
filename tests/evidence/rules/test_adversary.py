"""A run that nobody trained is consistent at best, and its absurd variants are named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evidence.judge.judgement import report_of
from evidence.records.ours import read_run

# At the end, and for these imports alone: a benchmark may have the name of a package.
sys.path.append(LAB := str(Path(__file__).parents[3] / "lab"))

from adversary_parts.forged import VARIANTS, forged_run
from adversary_parts.forged_gpu import forged_gpu
from adversary_parts.gpu_variants import GPU_VARIANTS

sys.path.remove(LAB)

UNNAMED = {"as told", "an unknown commit"}
"""What a folder cannot contradict: these need somebody outside."""


@pytest.mark.parametrize("name", VARIANTS)
def test_a_forged_run_is_never_more_than_consistent(tmp_path: Path, name: str) -> None:
    report = report_of(read_run(forged_run(tmp_path, name, VARIANTS[name])))
    assert report.grade.name != "verified"
    assert any(each.severity != "note" for each in report.findings) == (name not in UNNAMED)


SMOKE = Path(__file__).parents[2] / "cases" / "earlier" / "demo-smoke"
UNNAMED_AGAIN = {
    *("as told", "three items", "a card of no name", "one fingerprint", "a half that comes again", "an exponential"),
    "a commit of one digit",
}
"""A small set and a new card may be; with parameters in bfloat16 rows may come again, and a curve may be smooth."""


@pytest.mark.parametrize("name", GPU_VARIANTS)
def test_a_forged_fine_tuning_is_never_more_than_consistent(tmp_path: Path, name: str) -> None:
    report = report_of(read_run(forged_gpu(SMOKE, tmp_path, name, GPU_VARIANTS[name])))
    assert report.grade.name != "verified"
    assert any(each.severity != "note" for each in report.findings) == (name not in UNNAMED_AGAIN)
