"""The options of one reward in a configuration, each read once; what is wrong with them is gathered."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from schemas.formats import format_value, join_words
from schemas.problems import Problem, problem_of


class RewardOptions:
    """Reads options by name.

    Args:
        name: of the reward.
        values: as the configuration has them.
        file: the configuration, for messages.
        pointer: to the options.
        problems: what is wrong is added to them.
        executes: whether code of others may be imported.
    """

    def __init__(
        self,
        name: str,
        values: Mapping[str, Any],
        *,
        file: str,
        pointer: str,
        problems: list[Problem],
        executes: bool = True,
    ) -> None:
        self.name = name
        self.file = file
        self.pointer = pointer
        self.problems = problems
        self.executes = executes
        self._values = values
        self._read: list[str] = []

    def given(self, key: str) -> bool:
        """Return whether an option is set."""
        return self._values.get(key) is not None

    def number(self, key: str, default: float, low: float, high: float) -> float:
        """Return a finite number from `low` to `high`."""
        value = self._take(key, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not low <= value <= high:
            self.refuse(f"is {format_value(value)}", key, expected=f"a number from {low:g} to {high:g}")
            return default
        return float(value)

    def count(self, key: str, default: int, low: int, high: int) -> int:
        """Return a whole number from `low` to `high`."""
        value = self._take(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            self.refuse(f"is {format_value(value)}", key, expected=f"a whole number from {low:,} to {high:,}")
            return default
        return value

    def text(self, key: str, default: str) -> str:
        """Return a text with a character at least."""
        value = self._take(key, default)
        if not isinstance(value, str) or not value:
            self.refuse(f"is {format_value(value)}", key, expected="a text")
            return default
        return value

    def texts(self, key: str, default: tuple[str, ...]) -> tuple[str, ...]:
        """Return a list of texts, one at least and none twice; a text is a list of its words."""
        value = self._take(key, default)
        value = value.split() if isinstance(value, str) else value
        is_list = isinstance(value, list | tuple) and bool(value) and all(isinstance(one, str) and one for one in value)
        if not is_list or len(set(value)) < len(value):
            self.refuse(f"is {format_value(value)}", key, expected="a list of texts, none twice")
            return default
        return tuple(value)

    def refuse_rest(self) -> None:
        """Add a problem for options that no one read."""
        if rest := [key for key in self._values if key not in self._read]:
            takes = f"takes {join_words(self._read, 'and')}" if self._read else "takes no option"
            self.refuse(f"does not know {join_words(map(format_value, rest), 'and')}, and {takes}")

    def refuse(self, why: str, key: str | None = None, *, expected: str | None = None) -> None:
        """Add the problem of an option, or of all of them."""
        what = f"The reward {self.name} {why}." if key is None else f"{key} of the reward {self.name} {why}."
        pointer = self.pointer if key is None else f"{self.pointer}/{key}"
        self.problems.append(problem_of("TP903", file=self.file, pointer=pointer, what=what, expected=expected))

    def _take(self, key: str, default: Any) -> Any:
        self._read.append(key)
        value = self._values.get(key)
        return default if value is None else value
