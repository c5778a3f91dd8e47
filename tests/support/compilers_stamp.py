"""Whether all that compilers are asked about is as it was when the tests of compilers last passed on this machine.

They take minutes on a machine of two cores, and compile programs of `trainer/` alone. `make test` runs them where one
of these files has changed, on every machine that has not passed them, and every night. What has passed lies outside
the checkout, so that every clone knows it.

`python tests/support/compilers_stamp.py` ends with 0 if nothing has changed, else 1; `--passed` writes it down.
"""

import hashlib
import sys
from pathlib import Path

import compiled

REPOSITORY = Path(__file__).parents[2]
DECIDING = (
    "requirements.lock",
    "requirements-compilers.lock",
    *("trainer/config", "trainer/loop", "trainer/model", "trainer/objectives", "trainer/planning"),
    *("evidence/targets.json", "tests/support", "tests/trainer/model", "tests/trainer/planning"),
    "tests/trainproof/verbs/test_plan.py",
)
PASSED = compiled.kept() / "compilers"


def digest(repository: Path = REPOSITORY) -> str:
    """Return the hash over the deciding files, their names and Python's version."""
    whole = hashlib.sha256(sys.version.encode() + b"\0")
    for name in DECIDING:
        path = repository / name
        found = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in found:
            if file.is_file() and "__pycache__" not in file.parts:
                whole.update(file.relative_to(repository).as_posix().encode() + b"\0" + file.read_bytes() + b"\0")
    return whole.hexdigest()


def is_as_tested(repository: Path = REPOSITORY) -> bool:
    return (PASSED / digest(repository)).exists()


if __name__ == "__main__":
    if "--passed" in sys.argv:
        PASSED.mkdir(parents=True, exist_ok=True)
        (PASSED / digest()).touch()
    elif is_as_tested():
        sys.stdout.write("The compilers have passed with these files on this machine; `make compilers` asks again.\n")
    else:
        sys.exit(1)
