"""Commands and files of docs/guides/data.md, read as a run reads them."""

import re
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from tasks import inputs_of

from schemas.catalog import DATASETS, EVAL_SETS
from trainer.config.load import load_config
from trainer.config.tree import MeshConfig
from trainer.objectives.data import Data

PAGE = (Path(__file__).parents[3] / "docs" / "guides" / "data.md").read_text(encoding="utf-8")
FILES = re.findall(r"`(\w+\.jsonl)`[^\n]*:\n\n```json\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = re.findall(r"^trainproof train --config data\.yaml.*$", PAGE, re.MULTILINE)
STATED = re.findall(
    r"^trainproof train (?P<command>[^\n]*)\n(?:[^\n]*\n)?```\n\n```text\ngiven    (.*)\nlearned  (.*)\n```",
    PAGE,
    re.MULTILINE,
)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, rows in FILES:
        (tmp_path / name).write_text(rows, encoding="utf-8")
    (tmp_path / "data.yaml").write_text(re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[0], encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "docs/guides/data.md", "exec"), {})
    return tmp_path


def load_data(command: str) -> Data:
    """Return the data of the run that a command starts."""
    words = shlex.split(command)
    settings = [value for flag, value in pairwise(words) if flag == "--set"]
    config = load_config(Path("data.yaml"), settings=settings)
    return inputs_of(replace(config, mesh=MeshConfig(device="cpu", devices=1)))[1]


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_of_the_page_read_their_rows(folder: Path, command: str):
    data = load_data(command)
    assert len(data.rows) >= 1
    assert (data.items is not None) == ("eval_set" in command)


@pytest.mark.parametrize(("command", "given", "learned"), STATED, ids=[command for command, _, _ in STATED])
def test_given_and_learned_texts_of_the_page(folder: Path, command: str, given: str, learned: str):
    assert len(STATED) == 6
    data = load_data(command)
    row = data.encoded.encoded[0]
    first, last = row.spans[-1]
    texts = [data.tokenizer.decode(list(ids)) for ids in (row.token_ids[:first], row.token_ids[first : last - 1])]
    assert [text.replace("\n", "⏎") for text in texts] == [given, learned]


def test_page_lists_builtin_data():
    assert {name for name in (*DATASETS, *EVAL_SETS) if f"`{name}`" not in PAGE} == set()
