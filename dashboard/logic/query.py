"""The search box of the runs page: words and conditions, all of which a run must meet.

`gemma grade:verified mode:full loss<1.2` asks for runs whose text has `gemma`, whose grade is `verified`, whose mode is
`full` and whose last loss is below 1.2. `grade:verified,measured` accepts either; `-status:failed` asks for the rest.
"""

from __future__ import annotations

import operator
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

_CONDITION = re.compile(r"(?P<not>-?)(?P<field>[a-z_]+)(?P<sign><=|>=|<|>|:|=)(?P<value>.+)")
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, kw_only=True)
class Query:
    """A parsed search: the words and conditions, and what in the text was not understood."""

    words: tuple[str, ...]
    conditions: tuple[Condition, ...]
    complaints: tuple[str, ...]

    def matches(self, row: Mapping[str, object]) -> bool:
        """Return whether a run, given as named values, meets every word and condition."""
        text = " ".join(str(value) for value in row.values() if isinstance(value, str)).lower()
        return all(word in text for word in self.words) and all(item.holds(row) for item in self.conditions)


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition on one named value."""

    field: str
    sign: str
    value: str
    negated: bool

    def holds(self, row: Mapping[str, object]) -> bool:
        """Return whether the row meets it; a missing value meets no comparison."""
        return self._asserted(row.get(self.field)) != self.negated

    def _asserted(self, found: object) -> bool:
        if self.sign in _COMPARE:
            return isinstance(found, int | float) and _COMPARE[self.sign](float(found), float(self.value))
        wanted = [part.strip().lower() for part in self.value.split(",")]
        if isinstance(found, int | float) and not isinstance(found, bool):
            return any(_is_number(part) and float(part) == float(found) for part in wanted)
        text = "" if found is None else str(found).lower()
        return any(part == text if self.sign == "=" else part in text for part in wanted)


def parse(text: str, fields: Iterable[str]) -> Query:
    """Return the query that a text states; nothing is ever refused, and what is not understood is named."""
    words: list[str] = []
    conditions: list[Condition] = []
    complaints: list[str] = []
    known = sorted(fields)
    for part in _parts(text):
        found = _CONDITION.fullmatch(part)
        if found is None:
            words.append(part.lower())
        elif found["field"] not in known:
            complaints.append(f"No field is called {found['field']}; there are {', '.join(known)}.")
        elif found["sign"] in _COMPARE and not _is_number(found["value"]):
            complaints.append(f"{found['field']}{found['sign']} needs a number, not {found['value']}.")
        else:
            conditions.append(
                Condition(field=found["field"], sign=found["sign"], value=found["value"], negated=found["not"] == "-")
            )
    return Query(words=tuple(words), conditions=tuple(conditions), complaints=tuple(complaints))


def _parts(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # A quotation that is not closed yet: the reader is still typing.
        return text.split()


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
