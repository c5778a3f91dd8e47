"""The search box of the runs page: words and conditions, all of which a run must meet.

`gemma grade:verified mode:full loss<1.2` requests runs whose text has `gemma`, whose grade is `verified`, whose mode is
`full` and whose last loss is below 1.2. `grade:verified,consistent` accepts either; `-status:failed` requests the rest;
`model="my model"` takes spaces and commas; `model=""` requests runs that do not state it. Any setting or figure of a
run is
a field too: `optimizer.learning_rate<0.001`. Dates compare as `started>2026-11-01`, in UTC; a score, which is
0 to 1, as `score>0.6` or `score>60%`.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Protocol

_PART = re.compile(
    r"(?P<not>-?)(?P<field>[A-Za-z_][\w./@-]*)(?P<sign><=|>=|<|>|:|=)(?P<value>\"[^\"]*\"?|[^\s\"]+)"
    r"|\"(?P<quoted>[^\"]*)\"?"
    r"|(?P<word>\S+)"
)
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class SearchFields(Protocol):
    """What a query looks at."""

    @property
    def text(self) -> str:
        """All words of the run, in lower case."""

    def get(self, field: str) -> object:
        """Return the value of a field; None where the run does not state it."""


@dataclass(frozen=True, kw_only=True)
class Query:
    """A parsed search: the words and conditions, and what in the text was not understood."""

    words: tuple[str, ...]
    conditions: tuple[Condition, ...]
    complaints: tuple[str, ...]

    @property
    def is_empty(self) -> bool:
        """Whether every run matches."""
        return not self.words and not self.conditions

    def matches(self, row: SearchFields) -> bool:
        """Return whether a run meets every word and condition."""
        return all(word in row.text for word in self.words) and all(
            item.test(row.get(item.field)) != item.negated for item in self.conditions
        )


@dataclass(frozen=True, kw_only=True)
class Condition:
    """One condition on one named value: what it requires of the value, and whether the opposite is meant."""

    field: str
    test: Callable[[object], bool]
    negated: bool


def parse(text: str, fields: Collection[str], others: Collection[str] = ()) -> Query:
    """Return the query that a text states; nothing is ever refused, and what is not understood is named."""
    words: list[str] = []
    conditions: list[Condition] = []
    complaints: list[str] = []
    for part in _PART.finditer(text):
        if part["field"] is None:
            words.append((part["quoted"] or part["word"] or "").lower())
            continue
        field, sign, value = part["field"], part["sign"], part["value"].strip('"')
        is_quoted = part["value"].startswith('"')
        if field not in fields and field not in others:
            complaints.append(_unknown(field, fields, others))
        elif sign in _COMPARE and _bind(value) is None:
            complaints.append(f"{field}{sign} needs a number or a date, not {value}.")
        else:
            wanted = [value] if is_quoted else value.split(",")
            conditions.append(Condition(field=field, test=_test(sign, wanted), negated=part["not"] == "-"))
    return Query(words=tuple(filter(None, words)), conditions=tuple(conditions), complaints=tuple(complaints))


def condition_text(field: str, value: object) -> str:
    """Return the condition that requests one value of a field: `model="my model"`; None requests runs without it."""
    return f'{field}="{"" if value is None else str(value).replace(chr(34), "")}"'


def _unknown(field: str, fields: Collection[str], others: Collection[str]) -> str:
    near = get_close_matches(field, [*fields, *others], n=3)
    if near:
        return f"No field is called {field}; did you mean {' or '.join(near)}?"
    settings = ", and any setting or figure of a run" if others else ""
    return f"No field is called {field}; there are {', '.join(sorted(fields))}{settings}."


def _test(sign: str, values: Sequence[str]) -> Callable[[object], bool]:
    """Return what a sign and values, any of which will do, require of a run's value.

    A missing one meets no comparison.
    """
    if sign in _COMPARE:
        return _comparison(_COMPARE[sign], values[0])
    if sign == "=" and list(values) == [""]:
        return lambda found: found is None or found in ("", ())
    wanted = [value.strip().lower() for value in values]
    numbers = {number for part in wanted if (number := _number(part)) is not None}

    def holds(found: object) -> bool:
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found) in numbers
        texts = list(_texts(found))
        return any(part == text if sign == "=" else part in text for part in wanted for text in texts)

    return holds


def _comparison(compare: Callable[[float, float], bool], value: str) -> Callable[[object], bool]:
    number, at = _number(value), _date(value)

    def holds(found: object) -> bool:
        if isinstance(found, datetime):
            return at is not None and compare(found.timestamp(), at.timestamp())
        is_number = isinstance(found, int | float) and not isinstance(found, bool)
        return is_number and number is not None and compare(float(found), number)  # type: ignore[arg-type]

    return holds


def _texts(found: object) -> Iterator[str]:
    """Yield a value as the texts that can be requested: every tag, a date in UTC, true and false."""
    if isinstance(found, tuple):
        yield from (str(one).lower() for one in found)
    elif isinstance(found, datetime):
        yield found.astimezone(UTC).isoformat(" ")
    elif found is not None:
        yield str(found).lower()


def _bind(value: str) -> float | datetime | None:
    number = _number(value)
    return number if number is not None else _date(value)


def _number(text: str) -> float | None:
    """Return the number that a text states: `60%` is 0.6, as a score is kept."""
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


def _date(text: str) -> datetime | None:
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return None
    return at if at.tzinfo else at.replace(tzinfo=UTC)
