"""What each code of family TP1xx (shape) means and how to fix it; the other packages have a table of the same form.

The list of rules in the documentation is generated from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.problems import Severity


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One code: its usual severity, a title, what it means and how to fix it."""

    code: str
    severity: Severity
    title: str
    meaning: str
    fix: str
