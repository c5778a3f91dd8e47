"""Format problems: text for people, JSON, GitHub annotations and SARIF 2.1.0 for programs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from schemas.formats import visible
from schemas.problems import Action, Problem, all_rules

FIELDS = ("code", "severity", "file", "line", "pointer", "what", "why", "expected", "next", "action")
ACTIONS: Mapping[Action, str] = {
    "allow_partial": "Or pass `--allow-partial` to pack it with the label `partial`.",
    "redact": "Or pass `--redact` to mask it.",
    "resume": "To resume, run `trainproof train --resume RUN`.",
}
"""How the command line offers each action."""


def render_text(problems: Iterable[Problem]) -> str:
    """Format one paragraph per problem: place and what is wrong, then indented why, expected and next step."""
    return "".join(_paragraph(problem) for problem in problems)


def render_sentence(problem: Problem) -> str:
    """Format a problem in one line: `FILE at POINTER (line N): WHAT Expected: …. Next: …`."""
    return " ".join([f"{_location(problem)}{_sentence(problem.what)}", *_details(problem)])


def render_json(problems: Iterable[Problem]) -> list[dict[str, Any]]:
    """Return each problem as a JSON object with the keys of `FIELDS`."""
    return [{field: getattr(problem, field) for field in FIELDS} for problem in problems]


def render_github(problems: Iterable[Problem]) -> str:
    """Format one GitHub workflow command per problem, which GitHub shows as an annotation of the line."""
    return "".join(_annotation(problem) for problem in problems)


def render_sarif(problems: Sequence[Problem]) -> str:
    """Format a SARIF 2.1.0 log with one run and the rules that occur."""
    codes = sorted({problem.code for problem in problems})
    log = {
        "$schema": "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "trainproof", "rules": [_sarif_rule(code) for code in codes]}},
                "results": [_sarif_result(problem, codes.index(problem.code)) for problem in problems],
            }
        ],
    }
    return json.dumps(log, ensure_ascii=False, indent=2) + "\n"


def _location(problem: Problem) -> str:
    place = visible(problem.file)
    if problem.pointer:
        place += f" at {visible(problem.key_path)}"
    if problem.line is not None:
        place += f" (line {problem.line})"
    return f"{place}: " if place else ""


def _sentence(words: str) -> str:
    words = visible(words)
    return words if words.endswith((".", "…", "?")) else words + "."


def _details(problem: Problem) -> list[str]:
    details = [_sentence(problem.why)] if problem.why else []
    if problem.expected:
        details.append(_sentence(f"Expected: {problem.expected}"))
    details.append(f"Next: {next_step(problem.next, problem.action)}")
    return details


def next_step(advice: str, action: Action | None, actions: Mapping[Action, str] = ACTIONS) -> str:
    """Return what to do, followed by how an action is offered."""
    return _sentence(advice) + (f" {actions[action]}" if action else "")


def _paragraph(problem: Problem) -> str:
    first = f"{problem.severity} {problem.code}: {_location(problem)}{_sentence(problem.what)}"
    return "".join(line + "\n" for line in [first, *(f"  {detail}" for detail in _details(problem))])


def _annotation(problem: Problem) -> str:
    """Format one workflow command; GitHub requires some characters to be escaped."""
    kind = {"error": "error", "warning": "warning", "note": "notice"}[problem.severity]
    properties = {"file": problem.file, "line": problem.line or "", "title": problem.code}
    escaped = ((name, _github_data(str(value)).replace(":", "%3A")) for name, value in properties.items() if value)
    listed = ",".join(f"{name}={value.replace(',', '%2C')}" for name, value in escaped)
    at = f"{visible(problem.key_path)}: " if problem.pointer else ""
    message = " ".join([at + _sentence(problem.what), *_details(problem)])
    return f"::{kind} {listed}::{_github_data(message)}\n"


def _github_data(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _sarif_rule(code: str) -> dict[str, Any]:
    rule = all_rules().get(code)
    if rule is None:
        return {"id": code}
    return {
        "id": code,
        "shortDescription": {"text": rule.title},
        "fullDescription": {"text": rule.why},
        "help": {"text": next_step(rule.fix, rule.action)},
        "defaultConfiguration": {"level": rule.severity},
    }


def _sarif_result(problem: Problem, rule_index: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": problem.code,
        "ruleIndex": rule_index,
        "level": problem.severity,
        "message": {"text": " ".join([_sentence(problem.what), *_details(problem)])},
    }
    location: dict[str, Any] = {}
    if problem.file:
        place: dict[str, Any] = {"artifactLocation": {"uri": _uri(problem.file)}}
        if problem.line is not None:
            place["region"] = {"startLine": problem.line}
        location["physicalLocation"] = place
    if problem.pointer:
        location["logicalLocations"] = [{"fullyQualifiedName": problem.pointer, "kind": "value"}]
    if location:
        result["locations"] = [location]
    return result


def _uri(file: str) -> str:
    """Return a path as a URI: relative to the checkout, or `file:` for an absolute path."""
    # Imported here to keep the start of the command line fast.
    from urllib.parse import quote

    path = file.replace("\\", "/")
    if re.match("[A-Za-z]:/", path):  # a drive of Windows
        return f"file:///{path[:2]}{quote(path[2:], errors='surrogateescape')}"
    uri = quote(path, errors="surrogateescape")
    return f"file://{uri}" if uri.startswith("/") else uri
