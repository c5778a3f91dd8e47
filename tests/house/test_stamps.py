"""What is left out of a push because it has passed runs again as soon as anything that decides it has changed."""

from pathlib import Path

import compilers_stamp
import packaging_stamp
import pytest

TREE = {
    "requirements.lock": "jax",
    "requirements-compilers.lock": "libtpu",
    "trainer/planning/plan.py": "1",
    "trainer/run.py": "1",
    "tests/trainproof/verbs/test_plan.py": "1",
}


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, text in TREE.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(compilers_stamp, "PASSED", tmp_path / "passed")
    (tmp_path / "passed").mkdir()
    (tmp_path / "passed" / compilers_stamp.digest(tmp_path)).touch()
    assert compilers_stamp.is_as_tested(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    "name", [*sorted(set(TREE) - {"trainer/run.py"}), "trainer/loop/new.py", "trainer/planning/plan.txt"]
)
def test_compilers_are_asked_again_after_a_change(name: str, repository: Path):
    (repository / name).parent.mkdir(exist_ok=True)
    (repository / name).write_text("2")
    assert not compilers_stamp.is_as_tested(repository)


def test_compilers_are_not_asked_about_other_files(repository: Path):
    (repository / "trainer/run.py").write_text("2")
    assert compilers_stamp.is_as_tested(repository)


PROJECT = '[build-system]\nrequires = []\n[project]\nname = "a"\n[tool.setuptools]\n[tool.ruff]\nline-length = 120\n'


@pytest.mark.parametrize(
    ("before", "after", "same"),
    [('"a"', '"b"', False), ("= []", '= ["setuptools"]', False), ("120", "100", True)],
)
def test_packaging_is_what_installers_read(
    before: str, after: str, same: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in packaging_stamp.DECIDING:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    monkeypatch.setattr(packaging_stamp, "REPOSITORY", tmp_path)
    (tmp_path / "pyproject.toml").write_text(PROJECT)
    digest = packaging_stamp.digest()
    (tmp_path / "pyproject.toml").write_text(PROJECT.replace(before, after))
    assert (packaging_stamp.digest() == digest) == same
