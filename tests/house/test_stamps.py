"""Tests that are skipped because they have passed run again as soon as a file that decides them has changed."""

from pathlib import Path

import pytest
import stamps

PROJECT = '[build-system]\nrequires = []\n[project]\nname = "a"\n[tool.setuptools]\n[tool.ruff]\nline-length = 120\n'


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    for name in (*stamps.COMPILERS, *stamps.PACKAGING, "trainer/run.py"):
        path = tmp_path / name if "." in Path(name).name else tmp_path / name / "some.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "compilers", "packaging"),
    [
        ("requirements.lock", True, True),
        ("requirements-compilers.lock", True, False),
        ("trainer/loop/new.py", True, False),
        ("trainer/planning/plan.txt", True, False),
        ("tests/trainproof/verbs/test_plan.py", True, False),
        ("setup.py", False, True),
        ("trainer/run.py", False, False),
    ],
)
def test_tests_run_again_after_a_change(repository: Path, name: str, compilers: bool, packaging: bool):
    before = stamps.compilers(repository), stamps.packaging(repository)
    (repository / name).write_text("2")
    assert (stamps.compilers(repository) != before[0]) is compilers
    assert (stamps.packaging(repository) != before[1]) is packaging


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [('"a"', '"b"', False), ("= []", '= ["setuptools"]', False), ("120", "100", True)],
)
def test_packaging_is_what_installers_read(repository: Path, before: str, after: str, same: bool):
    digest = stamps.packaging(repository)
    (repository / "pyproject.toml").write_text(PROJECT.replace(before, after))
    assert (stamps.packaging(repository) == digest) == same
