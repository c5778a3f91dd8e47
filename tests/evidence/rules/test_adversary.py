"""A run that nobody trained is consistent at best, and its absurd variants are named."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from evidence.grade import check_run
from evidence.run import read_run

# At the end, and for these imports alone: a benchmark may have the name of a package.
sys.path.append(LAB := str(Path(__file__).parents[3] / "lab"))

from adversary_parts.forged import VARIANTS, forged_run
from adversary_parts.forged_gpu import forged_gpu
from adversary_parts.gpu_variants import GPU_VARIANTS

sys.path.remove(LAB)

UNNAMED = {
    *("as told", "an unknown commit", "one byte of memory", "random weights", "a day after its last event"),
    *("version 99", "jax 0.0.1 on Python 2.7", "a chip of no table"),
}
"""What no other file contradicts: repeating the run shows it (`trainproof replay`)."""


@pytest.mark.parametrize("name", VARIANTS)
def test_a_forged_run_is_never_more_than_consistent(tmp_path: Path, name: str) -> None:
    report = check_run(read_run(forged_run(tmp_path, name, VARIANTS[name])))
    assert report.grade.name != "verified"
    assert any(each.severity != "note" for each in report.findings) == (name not in UNNAMED)


SMOKE = Path(__file__).parents[2] / "cases" / "earlier" / "demo-smoke"
UNNAMED_AGAIN = {
    *("as told", "three items", "a card of no name", "one fingerprint", "a half that comes again", "an exponential"),
    *("a commit of one digit", "a first loss of 80", "losses of next to nothing", "100 kB of memory", "Python 2.7"),
    *("jax 0.1", "50 answers in no time", "one gradient norm", "losses of three decimals"),
}


@pytest.mark.parametrize("name", GPU_VARIANTS)
def test_a_forged_fine_tuning_is_never_more_than_consistent(tmp_path: Path, name: str) -> None:
    report = check_run(read_run(forged_gpu(SMOKE, tmp_path, name, GPU_VARIANTS[name])))
    assert report.grade.name != "verified"
    assert any(each.severity != "note" for each in report.findings) == (name not in UNNAMED_AGAIN)
