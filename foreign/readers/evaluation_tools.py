"""Results of lm-evaluation-harness with the samples that each was computed from, and the record of OpenAI evals."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from foreign.readers.arithmetic import BINARY, MOST_ITEMS, standard_error
from foreign.readers.keys import SCORE_KEYS, plain
from foreign.readers.predictions import text_of
from foreign.readers.scores import metric_and_scope
from foreign.readers.statement import Citation, Fact, Statement, infer
from foreign.readers.text import finite
from foreign.readers.view import FileReading, ForeignScore, Prediction
from schemas.formats import quantity
from schemas.problems import Lines, pointer_to

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
            source=Citation(file=file, line=line),
            id=text_of(row["doc_id"]),
            prompt=_question(row.get("doc")),
            expected=_expected_answer(row["target"]),
            output_text=text_of(row["filtered_resps"]),
            correct=_flag(row),
        )
        for line, row in values
    ]
    of_filter: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for _, row in values:
        of_filter[str(row.get("filter", "none"))].append(row)
    statements = [one for name, rows in of_filter.items() for one in _recompute(name, rows, file)]
    first = next(iter(of_filter.values()))
    _, scope = metric_and_scope("acc", file)
    items = len({str(row["doc_id"]) for row in first})
    statements.append(Statement(fact="evaluation.items", value=items, source=Citation(file=file), scope=scope))
    return FileReading(tool=LM_EVAL, predictions=tuple(answers), statements=tuple(statements))


def _recompute(name: str, rows: Sequence[dict[str, Any]], file: str) -> Iterator[Statement]:
    for key in sorted(set().union(*rows)):
        if plain(key) not in SCORE_KEYS | {"acc_norm"}:
            continue
        values = [row.get(key) for row in rows]
        numbers = [float(value) for value in values if isinstance(value, int | float) and finite(value) is not None]
        if len(numbers) < len(rows):
            continue
        mean = sum(numbers) / len(numbers)
        metric, scope = metric_and_scope(plain(key) + ("" if name == "none" else f".{plain(name)}"), file)
        yield infer(
            f"score.{metric}",
            mean,
            Citation(file=file),
            f"the {quantity(len(numbers), 'sample')} in {file} give {mean:.4g}",
            scope=scope,
            low=mean - 1e-9,
            high=mean + 1e-9,
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
        place = Citation(file=file, line=lines(pointer), pointer=pointer)
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
            place = Citation(file=file, line=lines(pointer), pointer=pointer)
            _, scope = metric_and_scope(f"{plain(task)}.{name}", file)
            yield from standard_error(f"{task}.{name}.{filtered}", float(score), error, items, place, scope)


def _question(document: Any) -> str | None:
    return text_of(document.get("question")) if isinstance(document, dict) else None


def _expected_answer(target: Any) -> str | None:
    """Return the right answer: of a worked solution, as GSM8K has them, what stands behind its four signs."""
    text = text_of(target)
    marked = _BEHIND_MARKS.search(text) if text else None
    return marked.group(1) if marked else text


def _flag(row: dict[str, Any]) -> bool | None:
    value = next((row[key] for key in ("exact_match", "acc", "em", "pass@1") if key in row), None)
    return bool(value) if isinstance(value, bool | int | float) and value in (0, 1) else None


OPENAI_EVALS = "OpenAI evals"

Numbered = tuple[int, Any]


def is_record(values: Sequence[Numbered]) -> bool:
    """Return whether rows are such a record, by the specification that stands first."""
    first = values[0][1] if values else None
    return isinstance(first, dict) and isinstance(first.get("spec"), dict) and "eval_name" in first["spec"]


def read_record(values: Sequence[Numbered], file: str) -> FileReading:
    """Return what a record states: facts, the answers, the scores of its report, and the one that its answers give."""
    facts: list[Fact] = []
    scores: list[ForeignScore] = []
    items: list[Statement] = []
    matches: list[tuple[int, dict[str, Any]]] = []
    sampled: dict[str, dict[str, Any]] = {}
    for line, row in values:
        if not isinstance(row, dict):
            continue
        if isinstance(row.get("spec"), dict):
            facts += _facts(row["spec"], Citation(file=file, line=line))
        elif isinstance(row.get("final_report"), dict):
            scores += _report(row["final_report"], file, line)
            items += _items(row["final_report"], file, line)
        elif isinstance(row.get("data"), dict) and row.get("type") == "match":
            matches.append((line, row))
        elif isinstance(row.get("data"), dict) and row.get("type") == "sampling":
            sampled[str(row.get("sample_id"))] = row["data"]
    answers = tuple(_answer(line, row, sampled.get(str(row.get("sample_id")), {}), file) for line, row in matches)
    return FileReading(
        tool=OPENAI_EVALS,
        facts=tuple(facts),
        scores=tuple(scores),
        predictions=answers,
        statements=(*items, *_given_accuracy(answers, file)),
    )


def _facts(spec: dict[str, Any], source: Citation) -> Iterator[Fact]:
    functions = spec.get("completion_fns")
    if isinstance(functions, list) and len(functions) == 1 and isinstance(functions[0], str):
        yield Fact(name="evaluation.model", value=functions[0], source=source)
    if isinstance(spec.get("eval_name"), str):
        yield Fact(name="evaluation.set", value=spec["eval_name"], source=source)
    config = spec.get("run_config")
    seed = config.get("seed") if isinstance(config, dict) else None
    if isinstance(seed, int) and not isinstance(seed, bool):
        yield Fact(name="evaluation.seed", value=seed, source=source)


def _report(report: dict[str, Any], file: str, line: int) -> Iterator[ForeignScore]:
    for key, value in report.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and plain(key) in ("accuracy", "acc", "score", "f1_score", "exact_match"):
            number = finite(value)
            if number is not None:
                source = Citation(file=file, line=line, pointer=f"/final_report/{key}")
                yield ForeignScore(name=plain(key), value=number, source=source)


def _items(report: dict[str, Any], file: str, line: int) -> Iterator[Statement]:
    """Yield the number of samples that a report states."""
    for key in ("count", "total", "num_samples", "n_samples"):
        value = report.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ITEMS:
            source = Citation(file=file, line=line, pointer=f"/final_report/{key}")
            yield Statement(fact="evaluation.items", value=value, source=source)


def _answer(line: int, row: dict[str, Any], sampling: dict[str, Any], file: str) -> Prediction:
    data = row["data"]
    output = data.get("sampled", sampling.get("sampled"))
    return Prediction(
        source=Citation(file=file, line=line),
        id=text_of(row.get("sample_id")),
        prompt=_prompt(sampling.get("prompt")),
        expected=text_of(data.get("expected")),
        output_text=text_of(output),
        extracted_answer=text_of(data.get("picked")),
        correct=data["correct"] if isinstance(data.get("correct"), bool) else None,
    )


def _prompt(value: Any) -> str | None:
    if isinstance(value, list):
        return "\n".join(str(one.get("content", "")) for one in value if isinstance(one, dict)) or None
    return text_of(value)


def _given_accuracy(answers: Sequence[Prediction], file: str) -> Iterator[Statement]:
    """Yield the accuracy that the answers give: every sample counts once, as `evals.metrics.get_accuracy` has it."""
    judged = [one.correct for one in answers if one.correct is not None]
    if not judged or len(judged) < len(answers):
        return
    share = sum(judged) / len(judged)
    metric, scope = metric_and_scope("accuracy", file)
    source = answers[-1].source
    yield Statement(fact="evaluation.items", value=len(answers), source=source, kind="measured", series="matches")
    yield infer(
        f"score.{metric}",
        share,
        Citation(file=file),
        f"{sum(judged)} of its {len(judged)} matches are right, {share:.4g}",
        scope=scope,
        low=share - 1e-9,
        high=share + 1e-9,
    )
