"""docs/guides/models.md in a folder with a model and an adapter: its code runs, and its table names every family."""

import re
import shutil
from pathlib import Path

import trainproof
from trainer.model.families import FAMILIES

REPOSITORY = Path(__file__).parents[2]
PAGE = (REPOSITORY / "docs" / "guides" / "models.md").read_text()


def test_the_code_of_the_page_runs(tmp_path, monkeypatch, capsys):
    shutil.copytree(REPOSITORY / "tests" / "cases" / "models" / "llama", tmp_path / "my-model")
    shutil.copytree(REPOSITORY / "tests" / "cases" / "adapters" / "llama-rslora", tmp_path / "my-adapter")
    monkeypatch.chdir(tmp_path)
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(compile(code, "docs/guides/models.md", "exec"), {})
    assert capsys.readouterr().out.startswith("(2, 3, 97) ")


def test_the_page_names_every_family():
    table = PAGE[PAGE.index("| `model_type`") : PAGE.index("config.json is read")]
    assert set(re.findall(r"`(\w+)`", table)) == {*FAMILIES, "model_type"}


def test_the_names_are_public():
    assert {"generate", "load_model"} <= set(dir(trainproof))
