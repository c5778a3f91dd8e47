"""Examples in docstrings, documents, locks, committed files, and texts of rules."""

import doctest
import importlib
import re
import subprocess
from pathlib import Path

import pytest
from recipes import new_files

from schemas.problems import all_rules

PACKAGES = ("trainproof", "schemas", "evidence", "trainer", "launch", "dashboard")
EXAMPLES = [path for name in PACKAGES for path in sorted(Path(name).rglob("*.py")) if ">>> " in path.read_text()]
DOCUMENTS = [Path("README.md"), Path("CONTRIBUTING.md"), Path("CHANGELOG.md"), *sorted(Path("docs").rglob("*.md"))]

MADE = ("submission_runs/", "bundles/", ".venv", "output/", "export/", "checkpoints/", "states/")
"""Paths that documents name and that only running something makes."""


@pytest.mark.parametrize("path", EXAMPLES, ids=str)
def test_examples_in_docstrings(path: Path):
    module = importlib.import_module(".".join(path.with_suffix("").parts))
    result = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert (result.attempted > 0, result.failed) == (True, 0)


def names_in(text: str) -> set[str]:
    """Return what looks like a path of this repository in a document: in backquotes, links and commands."""
    quoted = re.findall(r"`([^`\n]+)`", text)
    linked = re.findall(r"\]\(([^)#\s]+)\)", text)
    words = [word for part in quoted for word in part.split()] + linked
    pattern = re.compile(r"^\.?/?[\w.-]+(/[\w.*-]+)*/?(\.(py|md|json|jsonl|yaml|toml|png|txt|lock)|/)$")
    return {word.removeprefix("./") for word in words if (pattern.match(word) and "/" in word) or word.endswith(".md")}


@pytest.mark.parametrize("path", DOCUMENTS, ids=str)
def test_a_document_names_only_files_that_exist(path: Path):
    made = set(new_files()) if path.name == "extending.md" else set()
    for name in names_in(path.read_text()) - made:
        if name.startswith(MADE) or "*" in name or name.startswith(("http", "a/")):
            continue
        assert Path(name).exists() or (path.parent / name).exists(), f"{path} names {name}"


def test_every_feature_has_a_test_that_is_not_slow():
    table = re.findall(r"^\| .+ \| `(tests/[^`:]+)(?:::(\w+))?` \|$", Path("CONTRIBUTING.md").read_text(), re.MULTILINE)
    assert len(table) > 20
    for path, name in table:
        text = Path(path).read_text()
        assert "pytestmark = pytest.mark.slow" not in text, path
        marks = re.search(rf"((?:^@.*\n)*)^def {name or 'test_'}", text, re.MULTILINE)
        assert marks, f"{path} has no {name}"
        assert not re.search(r"mark\.slow$", marks[1], re.MULTILINE), f"{name} is slow"


def test_tests_leave_the_places_of_modules_as_they_were():
    """`benchmarks/dashboard.py` was `dashboard` to every later test of a process that one test had put it first in."""
    for path in Path("tests").rglob("*.py"):
        changes = re.findall(r"^sys\.path\.(\w+)", path.read_text(), re.MULTILINE)
        assert changes in ([], ["append", "remove"]), path


def test_no_committed_file_names_a_machine_or_a_registry():
    listed = subprocess.run(["git", "ls-files", "-z"], capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("not a git checkout")
    hosts = ("files.python" + "hosted.org", "pypi" + ".org", "registry.npm" + "js.org", "deb." + "debian.org")
    for name in filter(None, listed.stdout.split("\0")):
        path = Path(name)
        if path.suffix in {".png", ".npz", ".safetensors", ".zip"} or not path.is_file():
            continue
        text = path.read_bytes().decode("utf-8", "replace")
        for word in (*hosts, "/work" + "/main", "/root" + "/"):
            assert word not in text, f"{name} names {word}"


@pytest.mark.parametrize(("lock", "least"), [("requirements.lock", 50), ("requirements-compilers.lock", 3)])
def test_the_lock_is_pinned_and_hashed(lock: str, least: int):
    lines = Path(lock).read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith((" ", "#"))]
    assert len(pins) >= least
    assert all(re.match(r"^[a-z0-9._-]+==\S+", pin) for pin in pins)
    assert all(pin.endswith("\\") for pin in pins), "a hash follows each"


def test_every_code_in_use_has_texts_in_sentences_and_every_text_is_used():
    sources = [path.read_text(encoding="utf-8") for name in PACKAGES for path in Path(name).rglob("*.py")]
    rules = all_rules()
    assert {code for source in sources for code in re.findall(r'"(TP\d{3})"', source)} == set(rules)
    assert [code for code, rule in rules.items() if not (rule.why.endswith(".") and rule.fix.endswith("."))] == []
