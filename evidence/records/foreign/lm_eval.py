"""The files of EleutherAI's lm-evaluation-harness: its results, and the samples that each score was computed from."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from evidence.records.foreign.arithmetic import BINARY, MOST_ITEMS, standard_error
from evidence.records.foreign.keys import SCORE_KEYS, plain
from evidence.records.foreign.numbers import finite
from evidence.records.foreign.predictions import text_of
from evidence.records.foreign.score_names import metric_and_scope
from evidence.records.foreign.statement import Source, Statement
from evidence.records.foreign.view import FileReading, Prediction
from schemas.problems.problem import Lines, pointer_to
from schemas.problems.words import counted

LM_EVAL = "lm-evaluation-harness"

_SAMPLE = {"doc_id", "target", "filtered_resps"}
_BEHIND_MARKS = re.compile(r"####\s*(\S[^\n]*)$")


def is_samples(values: Sequence[tuple[int, Any]]) -> bool:
    """Return whether rows are samples of lm-eval, by their keys."""
    return bool(values) and all(isinstance(value, dict) and value.keys() >= _SAMPLE for _, value in values)


def read_samples(values: Sequence[tuple[int, dict[str, Any]]], file: str) -> FileReading:
    """Return the answers, and each score and number of items that they give."""
    answers = [
        Prediction(
            source=Source(file=file, line=line),
            id=text_of(row["doc_id"]),
            prompt=_question(row.get("doc")),
            expected=_expected(row["target"]),
            output_text=text_of(row["filtered_resps"]),
            correct=_flag(row),
        )
        for line, row in values
    ]
    of_filter: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for _, row in values:
        of_filter[str(row.get("filter", "none"))].append(row)
    statements = [one for name, rows in of_filter.items() for one in _recomputed(name, rows, file)]
    first = next(iter(of_filter.values()))
    _, scope = metric_and_scope("acc", file)
    items = len({str(row["doc_id"]) for row in first})
    statements.append(Statement(fact="evaluation.items", value=items, source=Source(file=file), scope=scope))
    return FileReading(tool=LM_EVAL, predictions=tuple(answers), statements=tuple(statements))


def _recomputed(name: str, rows: Sequence[dict[str, Any]], file: str) -> Iterator[Statement]:
    for key in sorted(set().union(*rows)):
        if plain(key) not in SCORE_KEYS | {"acc_norm"}:
            continue
        values = [row.get(key) for row in rows]
        numbers = [float(value) for value in values if isinstance(value, int | float) and finite(value) is not None]
        if len(numbers) < len(rows):
            continue
        mean = sum(numbers) / len(numbers)
        metric, scope = metric_and_scope(plain(key) + ("" if name == "none" else f".{plain(name)}"), file)
        yield Statement(
            fact=f"score.{metric}",
            value=mean,
            source=Source(file=file),
            kind="measured",
            how="inferred",
            scope=scope,
            low=mean - 1e-9,
            high=mean + 1e-9,
            told=f"the {counted(len(numbers), 'sample')} in {file} give {mean:.4g}",
        )


def results_of(value: Any, file: str, lines: Lines) -> Iterator[Statement]:
    """Yield the number of items of each task of a results file, and each standard error with the one that follows."""
    samples = value.get("n-samples") if isinstance(value, dict) else None
    results = value.get("results") if isinstance(value, dict) else None
    if not isinstance(samples, dict) or not isinstance(results, dict):
        return
    for task, counts in samples.items():
        items = counts.get("effective") if isinstance(counts, dict) else None
        if not isinstance(items, int) or isinstance(items, bool) or not 0 <= items <= MOST_ITEMS:
            continue
        pointer = pointer_to(("n-samples", task, "effective"))
        _, scope = metric_and_scope(f"{plain(task)}.acc", file)
        place = Source(file=file, line=lines(pointer), pointer=pointer)
        yield Statement(fact="evaluation.items", value=items, source=place, scope=scope)
        if isinstance(scores := results.get(task), dict):
            yield from _errors(task, scores, items, file, lines)


def _errors(task: str, scores: dict[str, Any], items: int, file: str, lines: Lines) -> Iterator[Statement]:
    for key, error in scores.items():
        name, _, filtered = key.partition("_stderr,")
        score = scores.get(f"{name},{filtered}")
        if (
            name in BINARY
            and filtered
            and isinstance(error, float)
            and isinstance(score, int | float)
            and 0 <= score <= 1
        ):
            pointer = pointer_to(("results", task, key))
            place = Source(file=file, line=lines(pointer), pointer=pointer)
            _, scope = metric_and_scope(f"{plain(task)}.{name}", file)
            yield from standard_error(f"{task}.{name}.{filtered}", float(score), error, items, place, scope)


def _question(document: Any) -> str | None:
    return text_of(document.get("question")) if isinstance(document, dict) else None


def _expected(target: Any) -> str | None:
    """Return the right answer: of a worked solution, as GSM8K has them, what stands behind its four signs."""
    text = text_of(target)
    marked = _BEHIND_MARKS.search(text) if text else None
    return marked.group(1) if marked else text


def _flag(row: dict[str, Any]) -> bool | None:
    value = next((row[key] for key in ("exact_match", "acc", "em", "pass@1") if key in row), None)
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None
