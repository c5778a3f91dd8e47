"""Whether the files that decide what pip installs are as they were when the tests of installing last passed.

Those tests take minutes and a network. They run where one of these files has changed, and every night.
`python tests/support/packaging_stamp.py` writes the stamp down once they have passed.
"""

import hashlib
import json
import tomllib
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
STAMP = REPOSITORY / "tests" / "story" / "packaging.sha256"
DECIDING = (
    "setup.py",
    "requirements.lock",
    "action.yml",
    ".pre-commit-hooks.yaml",
    "evidence/extras.py",
    "trainer/recorder/code.py",
    "trainer/recorder/code.py",
    "tests/story/test_installed.py",
    "tests/story/test_other_repository.py",
)


def digest() -> str:
    """Return the hash over the deciding files, and over what `pyproject.toml` says to installers."""
    settings = tomllib.loads((REPOSITORY / "pyproject.toml").read_text("utf-8"))
    said = [settings["build-system"], settings["project"], settings["tool"]["setuptools"]]
    whole = hashlib.sha256(json.dumps(said, sort_keys=True).encode() + b"\0")
    for name in DECIDING:
        whole.update(name.encode() + b"\0" + (REPOSITORY / name).read_bytes() + b"\0")
    return whole.hexdigest()


def is_as_tested() -> bool:
    return STAMP.is_file() and STAMP.read_text().split()[0] == digest()


if __name__ == "__main__":
    STAMP.write_text(f"{digest()}\n")
