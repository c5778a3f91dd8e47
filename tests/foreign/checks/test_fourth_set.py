"""The folders of the benchmark's fourth set: each lie but a few is found, and none of the honest ones is accused."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import foreign_tools as tools
import pytest

from evidence.grade import check_run
from evidence.run import read_run

# At the end, and for these imports alone: a benchmark may have the name of a package.
sys.path.append(LAB := str(Path(__file__).parents[3] / "lab"))

from foreign_parts.fourth_plants import FOURTH, HONEST_FOURTH

sys.path.remove(LAB)

NOT_FOUND = {"wandb_runtime", "keras_epochs", "plain_answers"}
"""A clock may go on after the last row, a log may be cut off, and a grader of numbers may let an answer differ."""

Case = Callable[[], tools.Folder]


def contradictions_in(folder: Path, files: tools.Folder) -> list[str]:
    report = check_run(read_run(tools.write(folder / "run", files)))
    return [problem.what for problem in report.findings if problem.code.startswith("TP3")]


@pytest.mark.parametrize("case", FOURTH, ids=lambda case: case.__name__)
def test_a_planted_contradiction_is_found(tmp_path: Path, case: Case) -> None:
    assert bool(contradictions_in(tmp_path, case())) == (case.__name__ not in NOT_FOUND)


@pytest.mark.parametrize("case", HONEST_FOURTH, ids=lambda case: case.__name__)
def test_an_honest_folder_is_not_accused(tmp_path: Path, case: Case) -> None:
    assert contradictions_in(tmp_path, case()) == []
