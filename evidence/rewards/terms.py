"""The weighted sum that a configuration states: `exact + 0.2*length(most=200)` as its terms."""

from __future__ import annotations

import json
import re
from typing import Any

from schemas.problems import ProblemError, problem_of

TERM = re.compile(
    r"\s*(?:(?P<weight>-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)\s*\*\s*)?(?P<name>[A-Za-z_][\w.]*(?::\w+)?)"
    r"\s*(?:\((?P<options>[^()]*)\))?\s*(?P<next>\+|$)"
)
OPTION = re.compile(r"\s*(?P<key>\w+)\s*=\s*(?P<value>[^,]+?)\s*(?:,|$)")


def terms_of(text: str | None, *, file: str) -> list[dict[str, Any]]:
    """Return the terms of `objective.rewards`, each with name, weight and options.

    >>> terms_of("exact + 0.2*length(most=200)", file="run")
    [{'name': 'exact', 'weight': 1.0, 'options': {}}, {'name': 'length', 'weight': 0.2, 'options': {'most': 200}}]

    Raises:
        ProblemError: exit code 2; it is no such sum, and where it ends to be one.
    """
    found: list[dict[str, Any]] = []
    place, text = 0, text or ""
    while text.strip():
        term = TERM.match(text, place)
        options = None if term is None else _options_of(term["options"] or "")
        if term is None or options is None:
            what = f"objective.rewards is {text!r}; from {text[place:].strip()[:40]!r} on it is no term."
            problem = problem_of("TP909", file=file, pointer="/objective/rewards", what=what)
            raise ProblemError([problem], exit_code=2)
        found.append({"name": term["name"], "weight": float(term["weight"] or 1), "options": options})
        if term["next"] != "+":
            break
        place = term.end()
    return found


def _options_of(text: str) -> dict[str, Any] | None:
    """Return options by name, None where they are not `key=value` with commas between them."""
    found: dict[str, Any] = {}
    place = 0
    while place < len(text.rstrip()):
        option = OPTION.match(text, place)
        if option is None:
            return None
        try:
            found[option["key"]] = json.loads(option["value"])
        except ValueError:
            found[option["key"]] = option["value"]
        place = option.end()
    return found
