"""Every recipe of docs/extending.md works: it is followed in a copy of the repository, and its commands end well."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from recipes import Recipe, recipes
from stand_ins import wait_for

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
    stand_in = root / "bin" / "srun"
    stand_in.parent.mkdir()
    stand_in.write_text('#!/bin/sh\necho "$@"\n', "utf-8")
    stand_in.chmod(0o755)
    return root, {recipe.title: recipe.follow(root) for recipe in RECIPES}


def run(root: Path, command: str) -> str:
    """Run a command of the page in the copy and return what it printed."""
    words = shlex.split(command)
    kept_whole = {"NO_COLOR": "1", "PATH": f"{root / 'bin'}:{PROGRAMS}:{os.environ['PATH']}"}
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
    printed = [run(root, command) for command in commands[recipe.title]]
    assert len(printed) > 0
    match recipe.title:
        case "A method":
            manifest = json.loads((root / "submission_runs/norms/run_manifest.json").read_text("utf-8"))
            assert manifest["model"]["trainable_parameters"] < 0.01 * manifest["model"]["parameters"]
        case "A place where jobs run":
            [job] = json.loads(printed[-1])
            assert job["place"] == "slurm"
            folder = root / "submission_runs" / ".launch" / job["job"]
            wait_for((folder / "exit_code").exists)
            assert (
                (folder / "output.log").read_text("utf-8").startswith("--disable-status --gres=gpu:1 --job-name=tiny-")
            )


def test_there_is_a_recipe_for_each_thing_that_grows() -> None:
    assert len(RECIPES) == 7
