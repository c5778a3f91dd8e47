"""The tolerances follow from the measurements of the benchmark and never decrease with the number of steps."""

import json
import sys
from pathlib import Path

import pytest

from trainer.replay.repetition import load_tolerance

# Appended for this import only: a benchmark may have the name of a package.
sys.path.append(BENCHMARKS := str(Path(__file__).parents[3] / "benchmarks"))

import replay_tolerance

sys.path.remove(BENCHMARKS)


def test_the_table_follows_from_the_measurements():
    measured = json.loads((Path(BENCHMARKS) / "results" / "replay_tolerance.json").read_text())["measured"]
    assert json.loads(replay_tolerance.TABLE.read_text()) == replay_tolerance.build_table(measured)


@pytest.mark.parametrize("compute", ["float32", "bfloat16", "float16"])
def test_tolerances_grow_up_to_the_end_of_the_table(compute):
    tolerance = load_tolerance(compute)
    for field in ("loss", "grad_norm"):
        allowed = [tolerance.allowed(field, steps=steps) for steps in (1, 5, 20, 60, 1000)]
        assert allowed == sorted(allowed)
        assert (
            allowed[-1] == allowed[-2] == max(tolerance.least, tolerance.factor * dict(tolerance.measured[field])[60])
        )
    assert tolerance.allowed("reward_margin", steps=1) == tolerance.allowed("loss", steps=1)
