"""Names and docstrings: one noun for one thing, no participle as a name, no negation by a pronoun."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

PACKAGES = ("trainproof", "schemas", "foreign", "evidence", "trainer", "launch", "dashboard")
SOURCES = [path for name in PACKAGES for path in sorted(Path(name).rglob("*.py"))]

NOT_YET = Path("trainer/planning")
"""Left out of all but the class names until its names and docstrings follow."""

PARTICIPLE = re.compile(
    r"(?!(embed|exceed|feed|need|proceed|seed|speed)$)([a-z]+ed|begun|bought|broken|built|caught|chosen|done|drawn|"
    r"forgotten|found|given|gone|grown|heard|held|hidden|kept|known|laid|lost|made|meant|met|said|seen|sent|shown|sold|"
    r"spent|spoken|stood|struck|taken|taught|thought|thrown|told|torn|understood|worn|written)"
)

NAMES_NOT_YET = {"Asked", "Compiled", "jitted", "listed", "padded"}
"""Names that `NOT_YET` imports."""

BY_PRONOUN = re.compile(r"\b(is|are|was|were|be|has|have|had)\s+none\b")


@cache
def trees() -> tuple[tuple[Path, ast.Module], ...]:
    return tuple((path, ast.parse(path.read_text())) for path in SOURCES)


def is_participle(name: str) -> bool:
    word = name.strip("_")
    return bool(PARTICIPLE.fullmatch(word[:1].lower() + word[1:]))


def docstrings(tree: ast.Module) -> Iterator[ast.Constant]:
    """Yield every string that stands alone: docstrings, and those below a name."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value


def test_a_class_name_is_given_once():
    places = defaultdict(list)
    for path, tree in trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(str(path))
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def test_no_function_or_class_is_named_by_a_bare_participle():
    found = [
        f"{path}:{node.lineno} {node.name}"
        for path, tree in trees()
        if NOT_YET not in path.parents
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and is_participle(node.name)
    ]
    assert [line for line in found if line.rpartition(" ")[2] not in NAMES_NOT_YET] == []


def test_no_docstring_negates_by_a_pronoun():
    """Write "or None if it is missing" and "is not one"."""
    found = [
        f"{path}:{each.lineno}"
        for path, tree in trees()
        if NOT_YET not in path.parents
        for each in docstrings(tree)
        if BY_PRONOUN.search(str(each.value))
    ]
    assert found == []
