"""Tables in a README: of scores, a metric a row, as lm-evaluation-harness prints them; of a course, a step a row."""

from __future__ import annotations

import re
from dataclasses import dataclass

from evidence.records.foreign.keys import is_score, metric_of, plain, split_name
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


@dataclass
class CourseTable:
    """The table of evaluations that the Hugging Face Trainer writes into a card: a step a row, a metric a column."""

    columns: dict[str, int] | None = None
    """Column of each metric, and of the step. None: the lines are in no such table."""

    def values(self, line: str) -> dict[str, float]:
        """Take the next line; return what was measured by its name at a step, where it is a row of such a table.

        Example:
            >>> table = CourseTable()
            >>> table.values("| Training Loss | Epoch | Step | Validation Loss | Accuracy |")
            {}
            >>> table.values("| 1.4 | 1.0 | 200 | 1.5 | 0.66 |")
            {'eval_loss at step 200': 1.5, 'eval_accuracy at step 200': 0.66}
        """
        if not line.startswith("|"):
            self.columns = None
            return {}
        cells = _CELLS.split(line.strip().removeprefix("|").removesuffix("|").strip())
        names = {plain(cell): place for place, cell in enumerate(cells)}
        if "step" in names and "validation_loss" in names:
            measured = {name: _of_evaluation(name) for name in names if name == "validation_loss" or is_score(name)}
            self.columns = {"step": names["step"], **{measured[name]: names[name] for name in measured}}
            return {}
        if self.columns is None or len(cells) <= max(self.columns.values()):
            return {}
        numbers = {name: number_of(cells[place]) for name, place in self.columns.items()}
        step = numbers.pop("step")
        return (
            {}
            if step is None
            else {f"{name} at step {step:g}": float(n) for name, n in numbers.items() if n is not None}
        )


def _of_evaluation(name: str) -> str:
    """Return the name of a column as rows have it: `Accuracy` of such a table is of the evaluation."""
    metric = split_name(metric_of(name))
    return metric if metric.startswith("eval_") else f"eval_{metric}"
