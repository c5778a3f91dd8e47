"""The pages for users: every key is explained as the schema has it, and every command that a page shows exists."""

import importlib.util
import re
import shlex
from itertools import pairwise
from pathlib import Path

import pytest
from typer.main import get_command

from trainer.config.load import load_config
from trainproof.cli import app as command

DOCS = sorted(page for page in Path("docs").rglob("*.md") if page.parent.name != "decisions")


@pytest.fixture(scope="module")
def made():
    spec = importlib.util.spec_from_file_location("make_reference", "docs/make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["cli", "configuration", "rules"])
def test_a_generated_page_is_current(made, name: str):
    found = Path(f"docs/reference/{name}.md").read_text(encoding="utf-8")
    assert found == made.PAGES[name](), "run: python docs/make_reference.py"


def test_the_index_links_every_page():
    index = Path("docs/index.md").read_text(encoding="utf-8")
    assert [
        page.name for page in DOCS if page.name != "index.md" and f"]({page.relative_to('docs')})" not in index
    ] == []


def commands_of(page: Path) -> list[list[str]]:
    """Return the words of each trainproof command in the shell blocks of a page."""
    blocks = re.findall(r"```(?:sh|bash|console)\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [shlex.split(line, comments=True)[1:] for line in lines if line.startswith("trainproof ")]


@pytest.mark.parametrize("page", [Path("README.md"), *DOCS], ids=str)
def test_a_page_shows_commands_that_exist(page: Path):
    for words in commands_of(page):
        node, path = get_command(command.app), []
        while words and words[0] in getattr(node, "commands", {}):
            path.append(words.pop(0))
            node = node.commands[path[-1]]
        assert path, f"{page}: {words}"
        known = {name for each in node.params for name in each.opts}
        given = {command.hyphenate(word).partition("=")[0] for word in words if word.startswith("--")}
        assert given <= known, f"{page}: {path} {given - known}"


def test_the_examples_of_the_configuration_page_are_usable(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("model: {name: demo}\n")
    [one, two, smoke] = [words for words in commands_of(Path("docs/reference/configuration.md")) if words[0] == "train"]
    assert (one, smoke[-4:]) == (["train", "--config", "config.yaml"], ["--smoke-steps", "2", "--device", "cpu"])
    settings = [word for flag, word in pairwise(two) if flag == "--set"]
    config = load_config(tmp_path / "config.yaml", settings=settings)
    assert (config.optimizer.learning_rate, config.limits.steps) == (1e-4, 300)
