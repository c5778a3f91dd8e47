"""Tables of scores in a README, a metric a row: those that lm-evaluation-harness prints, and shorter ones."""

from __future__ import annotations

import re
from dataclasses import dataclass

from evidence.records.foreign.keys import is_score, plain
from evidence.records.foreign.numbers import number_of

_TASK = {"task", "tasks", "dataset", "benchmark", "benchmarks"}
_CELLS = re.compile(r"\s*\|\s*")


@dataclass
class ScoreTable:
    """The table that the lines of a document are in, as far as it is one of scores."""

    metric: int | None = None
    """Column of the metric. None: the lines are in no such table."""
    value: int = 0
    """Column of its value."""
    task: int | None = None
    """Column of what was asked. None: there is none."""
    named: str = ""
    """The task that was named last; lm-eval leaves the cell empty for its further metrics."""

    def score(self, line: str) -> tuple[str, float, frozenset[str]] | None:
        """Take the next line; return metric, value and the words of the task where it is a row of scores.

        Example:
            >>> table = ScoreTable()
            >>> table.score("| Task | Metric | Value |"), table.score("|---|---|---|")
            (None, None)
            >>> name, value, words = table.score("| arc_easy | acc | 0.65 |")
            >>> name, value, sorted(words)
            ('acc', 0.65, ['arc', 'easy'])
        """
        if not line.startswith("|"):
            self.metric = None
            return None
        cells = _CELLS.split(line.strip().removeprefix("|").removesuffix("|").strip())
        columns = {plain(cell): place for place, cell in reversed(list(enumerate(cells)))}
        if "metric" in columns and "value" in columns:
            self.metric, self.value, self.named = columns["metric"], columns["value"], ""
            self.task = next((columns[name] for name in columns if name in _TASK), None)
            return None
        if self.metric is None or max(self.metric, self.value) >= len(cells):
            return None
        if self.task is not None and self.task < len(cells):
            self.named = cells[self.task].lstrip("- ") or self.named
        number, name = number_of(cells[self.value].rstrip("%").strip()), cells[self.metric]
        if number is None or not is_score(name):
            return None
        share = number / 100 if cells[self.value].endswith("%") else float(number)
        return plain(name), share, frozenset(word for word in plain(self.named).split("_") if word)
