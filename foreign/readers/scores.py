"""Scores: the metric, split, task, set and checkpoint of each, and tables of them in a README.

A table has a metric a row, as lm-evaluation-harness prints them, or a step a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from foreign.readers.keys import BEST_OF_EVALUATION, SCORE_KEYS, is_score, metric_of, plain, split_name
from foreign.readers.statement import Scope
from foreign.readers.text import number_of
from foreign.readers.view import ForeignScore

_SPLITS = {
    **dict.fromkeys(("eval", "val", "valid", "validation", "dev", "evaluation"), "eval"),
    **dict.fromkeys(("test", "testing", "predict"), "test"),
    **dict.fromkeys(("train", "training"), "train"),
}

_SAME = {
    "acc": "accuracy",
    "overall_accuracy": "accuracy",
    "answer_accuracy": "accuracy",
    "final_accuracy": "accuracy",
    "em": "exact_match",
    "f1_score": "f1",
    "ppl": "perplexity",
}
"""Names of one metric, and the one that is compared."""

_OF_NO_METRIC = ("final_", "overall_")

_GENERIC = {
    *("results", "result", "metrics", "metric", "summary", "all", "scores", "score", "output", "outputs", "report"),
    *("final", "trainer", "state", "wandb", "files", "run", "runs", "log", "logs", "logger", "history", "mlruns"),
    *("artifacts", "params", "version", "tensorboard", "events", "out", "tfevents", "checkpoint", "ckpt", "last"),
    *("json", "jsonl", "csv", "samples", "predictions", "answers", "offline", "latest", "lightning", "evaluations"),
    *(
        "eval",
        "evaluation",
        "val",
        "valid",
        "validation",
        "test",
        "predict",
        "train",
        "training",
        "groups",
        "step",
        "epoch",
        "lm",
    ),
    *("harness", "readme", "md", "report", "me", "in", "of", "the", "and", "on", "set", "none", "value", "scorecard"),
    *("performance", "benchmark", "stats", "data", "info", "folder", "original", "keras", "console", "txt", "table"),
    *("checkpoints", "per", "by", "a", "model", "best", "openai", "evals", "mlperf", "mllog", "accuracy", "recorded"),
}
"""Words of names that distinguish no evaluation from another."""

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T_ ]\d{2}[-:_]\d{2}(?:[-:_]\d{2}(?:\.\d+)?)?)?")
_NUMBERED = re.compile(r"(?:checkpoint|ckpt|step|epoch)[-_ ]?(\d+)", re.IGNORECASE)
_VERSION = re.compile(r"version_\d+(?=/)")
_TOLD_BY_MACHINES = re.compile(r"[0-9a-f]{16,}|\d{6,}|\d+t\d+")


def metric_and_scope(name: str, file: str, *, checkpoint: str | None = None) -> tuple[str, Scope]:
    """Return which metric a score is, and what it is of, from its name and the file that states it.

    Example:
        >>> metric, scope = metric_and_scope("gsm8k.exact_match.strict_match", "results_2026-01-02T05-04-12.json")
        >>> metric, sorted(scope.words), scope.when
        ('exact_match', ['gsm8k', 'match', 'strict'], '2026-01-02T05-04-12')
        >>> metric_and_scope("eval_acc", "all_results.json")[1].split
        'eval'
    """
    parts = [part for part in name.split(".") if part]
    at = next((index for index, part in enumerate(parts) if _split_off(part)[1] in SCORE_KEYS), len(parts) - 1)
    best_of = BEST_OF_EVALUATION.fullmatch(parts[at]) if parts else None
    split, metric = _split_off(best_of.group("rest") if best_of else parts[at])
    groups = [part for index, part in enumerate(parts) if index != at]
    split = split or next((_SPLITS[part] for part in groups if part in _SPLITS), "") or _split_of(file)
    best = (
        bool(best_of)
        or metric.startswith("best_")
        or any(part == "best" for part in (*groups, *_words(file, drop=False)))
    )
    words = ({word for part in groups for word in part.split("_") if word} - _GENERIC) | _words(file)
    time, numbered = _TIME.search(file), _NUMBERED.search(file)
    return _SAME.get(metric.removeprefix("best_"), metric.removeprefix("best_")), Scope(
        words=frozenset(words),
        split=split,
        best=best,
        when=time.group() if time else "",
        checkpoint=_number_in(checkpoint) or (numbered.group(1) if numbered else ""),
    )


def identity(score: ForeignScore) -> tuple[str, Scope]:
    """Return metric and scope of a score."""
    return metric_and_scope(score.name, score.source.file, checkpoint=score.checkpoint)


def _split_off(part: str) -> tuple[str, str]:
    """Return split and metric of one part of a name: `eval_acc` is of eval, `final_accuracy` of none."""
    for prefix in _OF_NO_METRIC:
        part = part.removeprefix(prefix) if part.removeprefix(prefix) in SCORE_KEYS else part
    head, _, rest = part.partition("_")
    return (_SPLITS[head], rest) if rest and head in _SPLITS else ("", part)


def _split_of(file: str) -> str:
    """Return the split in a file's own name: `test_results.json` is of test."""
    named = {_SPLITS[word] for word in _pieces(file.rpartition("/")[2]) if word in _SPLITS}
    named = named - {"eval"} or named  # `eval_test.json` is an evaluation, of test.
    return named.pop() if len(named) == 1 else ""


def _words(file: str, *, drop: bool = True) -> set[str]:
    """Return the words of a path that distinguish one evaluation from another."""
    pieces = {word for word in _pieces(file) if not _TOLD_BY_MACHINES.fullmatch(word)}
    if file.endswith((".txt", ".log", ".out")):
        pieces = {word for word in pieces if not word.isdigit()}  # Logs are numbered as they are written.
    return pieces - _GENERIC if drop else pieces


def _pieces(path: str) -> list[str]:
    if "tfevents" in path:
        path = path.rpartition("/")[0]  # The name of an event file holds a machine's name.
    if "/metrics/" in f"/{path}" and re.search(r"[0-9a-f]{32}/", path):
        path = ""  # Of a run of MLflow: its folders name nothing.
    path = re.sub(r"(?:offline-)?run-\d{8}_\d{6}-\w+", "", _TIME.sub(" ", path))
    path = _VERSION.sub("", _NUMBERED.sub(" ", path))
    stem = path.rpartition(".")[0] if "." in path.rpartition("/")[2] else path
    return [word for word in re.split(r"[^a-z0-9]+", plain_path(stem)) if word]


def plain_path(path: str) -> str:
    """Return a path in lower case, its folders apart."""
    return "/".join(plain(part) for part in path.split("/")).replace("_", " ")


def _number_in(text: str | None) -> str:
    found = re.search(r"\d+(?:\.\d+)?", text or "")
    return found.group() if found else ""


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
    """Column of the question. None: it is missing."""
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
