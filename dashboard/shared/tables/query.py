"""The search box of the list of runs: words and conditions that a run must all meet.

`gemma grade:verified,consistent loss<1.2` finds runs with the word gemma, either grade, and a last loss below 1.2; the
Runs page explains the rest. Settings and figures are fields too.

Nothing that is typed is evaluated: `DataFrame.query` would run code from the URL.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import NamedTuple

import pandas as pd

from schemas.formats import join_words

_PART = re.compile(
    r"(?P<not>-?)(?P<field>[A-Za-z_][\w./@-]*)(?P<sign><=|>=|<|>|:|=)(?P<value>\"[^\"]*\"?|[^\s\"]+)"
    r"|\"(?P<quoted>[^\"]*)\"?"
    r"|(?P<word>\S+)"
)
_COMPARISONS: Mapping[str, Callable[[float, float], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class Condition(NamedTuple):
    """Test of one field."""

    field: str
    test: Callable[[object], bool]
    is_negated: bool


class Query(NamedTuple):
    """A parsed search, with a message for each part that is not valid."""

    words: Sequence[str]
    conditions: Sequence[Condition]
    complaints: Sequence[str]

    def matches(self, text: pd.Series[str], column: Callable[[str], pd.Series]) -> pd.Series[bool]:
        """Return which runs have every word (`text`: words in lower case) and meet every condition on a `column`."""
        found = text.notna()
        for word in self.words:
            found &= text.str.contains(word, regex=False)
        for one in self.conditions:
            found &= column(one.field).map(one.test).astype(bool) != one.is_negated
        return found


def parse(text: str, fields: Collection[str], others: Collection[str] = ()) -> Query:
    """Parse a search; `others` are the names of settings and figures."""
    words: list[str] = []
    conditions: list[Condition] = []
    complaints: list[str] = []
    for part in _PART.finditer(text):
        if part["field"] is None:
            words.append((part["quoted"] or part["word"] or "").lower())
            continue
        field, sign, value = part["field"], part["sign"], part["value"].strip('"')
        if field not in fields and field not in others:
            near = get_close_matches(field, [*fields, *others], n=3)
            known = f"the fields are {', '.join(sorted(fields))}" + (", settings and figures" if others else "")
            complaints.append(f"Unknown field {field}; {f'did you mean {join_words(near)}?' if near else f'{known}.'}")
        elif sign in _COMPARISONS and _number(value) is None and _date(value) is None:
            complaints.append(f"{field}{sign} needs a number or a date, not {value}.")
        else:
            values = [value] if part["value"].startswith('"') else value.split(",")
            test = _comparison(_COMPARISONS[sign], value) if sign in _COMPARISONS else _equality(sign, values)
            conditions.append(Condition(field, test, part["not"] == "-"))
    return Query(list(filter(None, words)), conditions, complaints)


def is_missing(value: object) -> bool:
    """Return whether a value is None, NaN, an empty text or an empty tuple."""
    return value is None or value is pd.NaT or value != value or (isinstance(value, str | tuple) and not value)


def _equality(sign: str, values: Sequence[str]) -> Callable[[object], bool]:
    """Return a test for one of several values; a missing value only meets `=""`."""
    wanted = [value.strip().lower() for value in values]
    numbers = {number for value in wanted if (number := _number(value)) is not None}

    def test(found: object) -> bool:
        if is_missing(found):
            return sign == "=" and wanted == [""]
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found) in numbers
        texts = [
            (one.astimezone(UTC).isoformat(" ") if isinstance(one, datetime) else str(one)).lower()
            for one in (found if isinstance(found, tuple) else (found,))
        ]
        return any(value == text if sign == "=" else value in text for value in wanted for text in texts)

    return test


def _comparison(compare: Callable[[float, float], bool], value: str) -> Callable[[object], bool]:
    number, date = _number(value), _date(value)

    def test(found: object) -> bool:
        if is_missing(found) or isinstance(found, bool):
            return False
        if isinstance(found, datetime):
            return date is not None and compare(found.timestamp(), date.timestamp())
        return number is not None and isinstance(found, int | float) and compare(float(found), number)

    return test


def _number(text: str) -> float | None:
    try:
        return float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        return None


def _date(text: str) -> datetime | None:
    try:
        date = datetime.fromisoformat(text)
    except ValueError:
        return None
    return date if date.tzinfo else date.replace(tzinfo=UTC)
