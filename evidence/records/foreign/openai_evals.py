"""The record of OpenAI evals: a specification, the events of each sample, and the final report, as JSON lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from evidence.records.foreign.arithmetic import MOST_ITEMS
from evidence.records.foreign.keys import plain
from evidence.records.foreign.numbers import finite
from evidence.records.foreign.predictions import text_of
from evidence.records.foreign.score_names import metric_and_scope
from evidence.records.foreign.statement import Fact, Source, Statement
from evidence.records.foreign.view import FileReading, Prediction, Score

OPENAI_EVALS = "OpenAI evals"

Numbered = tuple[int, Any]


def is_record(values: Sequence[Numbered]) -> bool:
    """Return whether rows are such a record, by the specification that stands first."""
    first = values[0][1] if values else None
    return isinstance(first, dict) and isinstance(first.get("spec"), dict) and "eval_name" in first["spec"]


def read_record(values: Sequence[Numbered], file: str) -> FileReading:
    """Return what a record states: facts, the answers, the scores of its report, and the one that its answers give."""
    facts: list[Fact] = []
    scores: list[Score] = []
    items: list[Statement] = []
    matches: list[tuple[int, dict[str, Any]]] = []
    sampled: dict[str, dict[str, Any]] = {}
    for line, row in values:
        if not isinstance(row, dict):
            continue
        if isinstance(row.get("spec"), dict):
            facts += _facts(row["spec"], Source(file=file, line=line))
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
        statements=(*items, *_given(answers, file)),
    )


def _facts(spec: dict[str, Any], source: Source) -> Iterator[Fact]:
    functions = spec.get("completion_fns")
    if isinstance(functions, list) and len(functions) == 1 and isinstance(functions[0], str):
        yield Fact(name="evaluation.model", value=functions[0], source=source)
    if isinstance(spec.get("eval_name"), str):
        yield Fact(name="evaluation.set", value=spec["eval_name"], source=source)
    config = spec.get("run_config")
    seed = config.get("seed") if isinstance(config, dict) else None
    if isinstance(seed, int) and not isinstance(seed, bool):
        yield Fact(name="evaluation.seed", value=seed, source=source)


def _report(report: dict[str, Any], file: str, line: int) -> Iterator[Score]:
    for key, value in report.items():
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if is_number and plain(key) in ("accuracy", "acc", "score", "f1_score", "exact_match"):
            number = finite(value)
            if number is not None:
                source = Source(file=file, line=line, pointer=f"/final_report/{key}")
                yield Score(name=plain(key), value=number, source=source)


def _items(report: dict[str, Any], file: str, line: int) -> Iterator[Statement]:
    """Yield the number of samples that a report states."""
    for key in ("count", "total", "num_samples", "n_samples"):
        value = report.get(key)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= MOST_ITEMS:
            source = Source(file=file, line=line, pointer=f"/final_report/{key}")
            yield Statement(fact="evaluation.items", value=value, source=source)


def _answer(line: int, row: dict[str, Any], sampling: dict[str, Any], file: str) -> Prediction:
    data = row["data"]
    output = data.get("sampled", sampling.get("sampled"))
    return Prediction(
        source=Source(file=file, line=line),
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


def _given(answers: Sequence[Prediction], file: str) -> Iterator[Statement]:
    """Yield the accuracy that the answers give: every sample counts once, as `evals.metrics.get_accuracy` has it."""
    judged = [one.correct for one in answers if one.correct is not None]
    if not judged or len(judged) < len(answers):
        return
    share = sum(judged) / len(judged)
    metric, scope = metric_and_scope("accuracy", file)
    source = answers[-1].source
    yield Statement(fact="evaluation.items", value=len(answers), source=source, kind="measured", series="matches")
    yield Statement(
        fact=f"score.{metric}",
        value=share,
        source=Source(file=file),
        kind="measured",
        how="inferred",
        scope=scope,
        low=share - 1e-9,
        high=share + 1e-9,
        told=f"{sum(judged)} of its {len(judged)} matches are right, {share:.4g}",
    )
