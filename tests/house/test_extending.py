"""Follow the recipes of docs/contributing/extending.md in a copy of the repository and run their commands."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recipes import Recipe, recipes

REPOSITORY = Path(__file__).parents[2]
COPIED = (
    *("trainproof", "schemas", "evidence", "trainer", "launch", "dashboard", "docs"),
    *("tests/support", "tests/cases/models/mistral-no-window", "tests/cases/runs"),
    *("tests/conftest.py", "tests/dashboard/conftest.py", "tests/evidence/rules/test_broken_runs.py", "pyproject.toml"),
)
RECIPES = recipes()
PROGRAMS = Path(sys.executable).parent


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, list[str]]]:
    """Follow every recipe in one copy; return it, and the commands of each."""
    root = tmp_path_factory.mktemp("copy")
    for name in COPIED:
        target = root / name
        target.parent.mkdir(parents=True, exist_ok=True)
        # With what Python has compiled of them: else every command would compile hundreds of files anew.
        (shutil.copytree if (REPOSITORY / name).is_dir() else shutil.copy2)(REPOSITORY / name, target)
    return root, {recipe.title: recipe.follow(root) for recipe in RECIPES}


def run(root: Path, command: str) -> str:
    """Run a command of the page in the copy and return what it printed."""
    words = shlex.split(command)
    kept_whole = {"NO_COLOR": "1", "PATH": f"{PROGRAMS}:{os.environ['PATH']}"}
    program = {"pytest": [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-q"], "python": [sys.executable]}
    done = subprocess.run(
        [*program.get(words[0], words[:1]), *words[1:]],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root), **kept_whole},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: recipe.title)
def test_a_recipe_works(copy: tuple[Path, dict[str, list[str]]], recipe: Recipe) -> None:
    root, commands = copy
    assert commands[recipe.title]
    for command in commands[recipe.title]:
        run(root, command)


def test_there_are_three_recipes() -> None:
    assert [recipe.title for recipe in RECIPES] == ["An objective", "A model family", "A rule"]
