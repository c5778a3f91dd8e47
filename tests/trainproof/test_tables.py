"""The public names: tables of runs, models, and the examples of the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from synthetic import write_run

import trainproof
from evidence.extras import install_command
from schemas.problems import ProblemError
from trainer.model.families import FAMILIES

REPOSITORY = Path(__file__).parents[2]


MODELS = (REPOSITORY / "docs" / "guides" / "models.md").read_text()


def test_the_examples_of_the_documentation_run(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    shutil.copytree(REPOSITORY / "tests" / "cases" / "models" / "llama", tmp_path / "my-model")
    shutil.copytree(REPOSITORY / "tests" / "cases" / "adapters" / "llama-rslora", tmp_path / "my-adapter")
    notebooks = (REPOSITORY / "docs" / "guides" / "notebooks.md").read_text()
    for page, folder, printed in ((notebooks, REPOSITORY, "consistent"), (MODELS, tmp_path, "(2, 3, 97) ")):
        monkeypatch.chdir(folder)
        (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        exec(compile(code, "docs/guides", "exec"), {})
        assert printed in capsys.readouterr().out


def test_the_page_of_models_names_every_family() -> None:
    table = MODELS[MODELS.index("| `model_type`") : MODELS.index("config.json is read")]
    assert set(re.findall(r"`(\w+)`", table)) == {*FAMILIES, "model_type"}


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


def test_runs_are_read_and_checked_alone_and_together(tmp_path: Path) -> None:
    one, two = write_run(tmp_path, "one", steps=5), write_run(tmp_path, "two")
    rows = trainproof.metrics(one)
    assert (list(rows.index), (rows["loss"] > 0).all()) == ([1, 2, 3, 4, 5], True)
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


def test_importing_it_costs_nothing_and_an_unknown_name_is_an_error() -> None:
    code = "import sys, trainproof; print(sorted({'numpy', 'pandas', 'evidence', 'schemas', 'jax'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
    with pytest.raises(AttributeError, match="it has check, frame, generate, load_model, metrics, read_run"):
        _ = trainproof.nothing
    assert set(trainproof.__all__) <= set(dir(trainproof))
