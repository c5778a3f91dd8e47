"""Skip slow tests whose files have not changed since they last passed.

Tests of compilers take minutes and compile only programs of `trainer/`; their stamps are outside the checkout, so that
every clone finds them. Tests of installing take minutes and a network. Both run if one of their files has changed, and
every night. `python tests/support/stamps.py compilers` exits with 0 if nothing has changed, else with 1;
`compilers --passed` and `packaging --passed` write the stamps.
"""

import hashlib
import json
import sys
import tomllib
from collections.abc import Iterable
from pathlib import Path

import compiled

REPOSITORY = Path(__file__).parents[2]
COMPILERS = (
    "requirements.lock",
    "requirements-compilers.lock",
    "trainer/config",
    "trainer/loop",
    "trainer/model",
    "trainer/objectives",
    "trainer/planning",
    "evidence/targets.json",
    "tests/support",
    "tests/trainer/model",
    "tests/trainer/planning",
    "tests/trainproof/verbs/test_plan.py",
)
PACKAGING = (
    "setup.py",
    "requirements.lock",
    "action.yml",
    ".pre-commit-hooks.yaml",
    "evidence/extras.py",
    "trainer/recorder/code.py",
    "tests/story/test_installed.py",
    "tests/story/test_other_repository.py",
)
PASSED = compiled.kept() / "compilers"
STAMP = REPOSITORY / "tests" / "story" / "packaging.sha256"


def compilers(repository: Path = REPOSITORY) -> Path:
    """Return the file that is there if compilers have passed: named by the files, their names and Python's version."""
    return PASSED / _digest(repository, COMPILERS, sys.version)


def packaging(repository: Path = REPOSITORY) -> str:
    """Return the hash over the deciding files, and over what `pyproject.toml` says to installers."""
    settings = tomllib.loads((repository / "pyproject.toml").read_text("utf-8"))
    said = [settings["build-system"], settings["project"], settings["tool"]["setuptools"]]
    return _digest(repository, PACKAGING, json.dumps(said, sort_keys=True))


def is_packaging_as_tested() -> bool:
    return STAMP.is_file() and STAMP.read_text().split()[0] == packaging()


def _digest(repository: Path, names: Iterable[str], *facts: str) -> str:
    whole = hashlib.sha256("".join(f"{fact}\0" for fact in facts).encode())
    for name in names:
        path = repository / name
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                whole.update(file.relative_to(repository).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return whole.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:] == ["packaging", "--passed"]:
        STAMP.write_text(f"{packaging()}\n")
    elif "--passed" in sys.argv:
        PASSED.mkdir(parents=True, exist_ok=True)
        compilers().touch()
    elif compilers().exists():
        sys.stdout.write("The compilers have passed with these files on this machine; `make compilers` asks again.\n")
    else:
        sys.exit(1)
