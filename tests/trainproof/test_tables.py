"""The public names: tables of runs, and the example of the documentation."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import write_run

import trainproof
from evidence.extras import install_command
from schemas.problems import ProblemError

REPOSITORY = Path(__file__).parents[2]


def test_the_example_of_the_documentation_runs(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.chdir(REPOSITORY)
    (code,) = re.findall(
        r"```python\n(.*?)```", (REPOSITORY / "docs" / "guides" / "notebooks.md").read_text(), re.DOTALL
    )
    exec(compile(code, "docs/guides/notebooks.md", "exec"), {})
    assert "consistent" in capsys.readouterr().out


def test_a_table_has_a_row_for_each_run_with_its_settings(tmp_path: Path) -> None:
    write_run(tmp_path, "one", seed=0)
    write_run(tmp_path, "two", status="failed")
    table = trainproof.frame(tmp_path)
    stated = (trainproof.read_run(tmp_path / "one").config or {})["optimizer"]["learning_rate"]
    assert sorted(table.index) == ["one", "two"]
    assert (table.loc["one", "grade"], table.loc["one", "optimizer.learning_rate"]) == ("consistent", stated)
    assert table.loc["two", "status"] == "failed"
    assert str(table["started_at"].dtype).startswith("datetime64")
    assert table.columns.is_unique


def test_rows_of_one_run_are_under_their_step(tmp_path: Path) -> None:
    rows = trainproof.metrics(write_run(tmp_path, "one", steps=5))
    assert list(rows.index) == [1, 2, 3, 4, 5]
    assert (rows["loss"] > 0).all()


def test_runs_are_checked_alone_and_together(tmp_path: Path) -> None:
    one, two = write_run(tmp_path, "one"), write_run(tmp_path, "two")
    assert trainproof.check(str(one)).ok
    assert [run.path for run in trainproof.check([one, two]).runs] == [one, two]
    assert trainproof.read_run(one).status == "succeeded"


def test_nothing_in_a_folder_is_an_empty_table(tmp_path: Path) -> None:
    assert trainproof.frame(tmp_path).empty
    (tmp_path / "run").mkdir()
    assert trainproof.metrics(tmp_path / "run").empty
    with pytest.raises(ProblemError):
        trainproof.metrics(tmp_path / "none")


@pytest.mark.parametrize(("name", "extra"), [("frame", "frame"), ("metrics", "frame"), ("load_model", "train")])
def test_without_its_packages_a_name_says_what_to_install(name: str, extra: str, monkeypatch) -> None:
    monkeypatch.setattr("evidence.extras.missing", lambda extra: ["one", "two"])
    with pytest.raises(ModuleNotFoundError) as refused:
        getattr(trainproof, name)
    assert str(refused.value) == f"trainproof.{name} needs one, two. Next: {install_command(extra)}"


def test_importing_it_costs_nothing_and_an_unknown_name_is_said() -> None:
    code = "import sys, trainproof; print(sorted({'numpy', 'pandas', 'evidence', 'schemas', 'jax'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="it has check, frame, generate, load_model, metrics, read_run"):
        _ = trainproof.nothing
    assert set(trainproof.__all__) <= set(dir(trainproof))
