"""The README keeps its word: its length, its commands, its promises, its figures."""

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from trainproof.cli import app as command

README = Path("README.md").read_text()
VERBS = sorted(name for name, each in get_command(command.app).commands.items() if not each.hidden)


def commands(page: str = README) -> list[str]:
    """Return the commands of every shell block."""
    blocks = re.findall(r"```(?:sh|console)?\n(.*?)```", page, re.DOTALL)
    lines = [line.split("  #")[0].strip() for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    return [line for line in lines if line.startswith(("trainproof ", "make "))]


def test_it_is_short():
    assert len(README.splitlines()) <= 130


def test_every_verb_is_shown():
    pages = (README, Path("docs/index.md").read_text())
    lines = [line for page in pages for line in commands(page) if line.startswith("trainproof ")]
    shown = {shlex.split(line)[1] for line in lines}
    assert shown == set(VERBS)


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help(verb: str):
    done = subprocess.run(
        [sys.executable, "-m", "trainproof", verb, "--help"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0
    assert "Usage:" in done.stdout


def test_every_make_target_exists():
    makefile = Path("Makefile").read_text()
    for line in commands():
        if line.startswith("make "):
            assert re.search(rf"^{line.split()[1]}:", makefile, re.MULTILINE), line


def test_every_promise_names_the_test_that_holds_it():
    promises = re.findall(r"^\d\. \*\*(.+?)\*\*.*?\[([^\]]+)\]\(([^)]+)\)", README, re.MULTILINE | re.DOTALL)
    assert len(promises) == 4
    for _, name, path in promises:
        assert f"def {name}(" in Path(path).read_text(), name


def test_every_figure_stands_in_a_result():
    """A figure is written as `value <!-- file key key -->`; the file in benchmarks/results holds it."""
    figures = re.findall(r"([\d.,]+)[^\n<]*<!-- (\S+\.json) ([^>]+?) -->", README)
    assert figures, "the README states measured figures"
    for shown, file, keys in figures:
        value = json.loads((Path("benchmarks/results") / file).read_text())
        for key in keys.split():
            value = value[int(key)] if isinstance(value, list) else value[key]
        digits = len(shown.partition(".")[2])
        assert float(shown.replace(",", "")) == pytest.approx(value, abs=0.51 * 10**-digits), (shown, file, keys)


def test_help_answers_at_once():
    """Only light modules may be imported for `--help`; a stopwatch would measure the machine."""
    code = "import sys, trainproof.cli.app; heavy = {'jax', 'flax', 'streamlit', 'pandas', 'transformers', 'numpy'}; "
    code += "print(sorted(heavy & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_a_verb_loads_no_more_than_it_needs(tmp_path):
    code = "import sys\nfrom trainproof.cli import app as command\n"
    code += f"try: command.main(['runs', {str(tmp_path)!r}])\nexcept SystemExit: pass\n"
    code += "print(sorted({'jax', 'streamlit', 'pandas', 'pydantic', 'pyarrow'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
