"""The scores that eval_summary.json states against the rows of the predictions, computed again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.records.facts import Document, Facts, finding, same
from evidence.run import layout
from evidence.scores.fingerprint import fingerprint_bytes
from evidence.scores.patterns.parse import PatternError
from evidence.scores.reading import Scoring, accepted_of, scoring_of
from evidence.scores.recompute import counts_prompts_once, scores_of
from evidence.scores.samples import MORE_SAMPLES, answers_in, majority_fields
from schemas.formats import format_value
from schemas.problems import Problem, pointer_to, truncate_problems


@dataclass(frozen=True, kw_only=True)
class EvaluatedModel:
    """One evaluated model: what the summary states of it, and its rows."""

    stated: Document
    rows: Sequence[Document]
    file: str
    place: str
    """Pointer to the statement in eval_summary.json."""


def answers_of(facts: Facts) -> Iterator[EvaluatedModel]:
    """Yield the answers of the trained model and of the baseline, where both scores and rows are there."""
    if facts.eval_summary is None:
        return
    if facts.predictions is not None:
        yield EvaluatedModel(stated=facts.eval_summary, rows=facts.predictions, file=layout.PREDICTIONS, place="")
    baseline = facts.eval_summary["baseline"]
    if baseline is not None and facts.baseline_predictions is not None:
        rows, file = facts.baseline_predictions, layout.BASELINE_PREDICTIONS
        yield EvaluatedModel(stated=baseline, rows=rows, file=file, place="/baseline")


def scores_follow_from_predictions(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each stated score that the rows do not give."""
    samples = facts.eval_summary["generation"].get("samples", 1) if facts.eval_summary else 1
    for answers in answers_of(facts):
        computed = scores_of(answers.rows, samples, by_prompt=counts_prompts_once(answers.stated))
        stated = {key: answers.stated.get(key) for key in ("metrics", "groups", "sampled") if key in answers.stated}
        yield from truncate_problems(
            finding(
                facts.folder,
                "TP340",
                layout.EVAL_SUMMARY,
                f"{'.'.join(path)} is {format_value(here)}; {answers.file} gives {format_value(there)}.",
                expected=format_value(there),
                pointer=answers.place + pointer_to(path),
            )
            for path, here, there in _leaves_that_differ(stated, computed, ())
        )


def verdicts_follow_from_outputs(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each row whose verdict its own text does not give."""
    scoring = scoring_of(facts.eval_summary)
    stop = facts.eval_summary["generation"].get("stop") if facts.eval_summary else None
    try:
        scoring.read("")
    except PatternError as error:
        what = f"The pattern {format_value(scoring.answer_regex)} reads no answer: {error}."
        pointer = "/scoring/answer_regex"
        yield finding(facts.folder, "TP341", layout.EVAL_SUMMARY, what, pointer=pointer)
        return
    for file, rows in _prediction_files(facts):
        yield from truncate_problems(_wrong_verdicts(facts, file, rows, scoring, stop))


def outputs_are_whole(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each row whose ending, length and error do not fit together."""
    generation = facts.eval_summary["generation"] if facts.eval_summary else {}
    for file, rows in _prediction_files(facts):
        if generation:
            yield from truncate_problems(_other_samples(facts, file, rows, generation.get("samples", 1)))
        yield from truncate_problems(_odd_outputs(facts, file, rows, generation.get("max_new_tokens")))
        yield from truncate_problems(_odd_ends(facts, file, rows, generation))
        yield from truncate_problems(_texts_of_one_answer(facts, file, rows))


def _prediction_files(facts: Facts) -> Iterator[tuple[str, Sequence[Document]]]:
    yield layout.PREDICTIONS, facts.predictions or []
    yield layout.BASELINE_PREDICTIONS, facts.baseline_predictions or []


def _leaves_that_differ(
    stated: Any, computed: Any, path: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Yield path, stated and computed value of each leaf that differs; what one side lacks is None there."""
    if stated == computed:
        return  # Nearly always, and quick; a walk over every leaf is not.
    if isinstance(stated, dict) and isinstance(computed, dict):
        for key in (*computed, *(key for key in stated if key not in computed)):
            yield from _leaves_that_differ(stated.get(key), computed.get(key), (*path, key))
    elif not same(stated, computed):
        yield path, stated, computed


def _wrong_verdicts(
    facts: Facts, file: str, rows: Sequence[Document], scoring: Scoring, stop: str | None
) -> Iterator[Problem]:
    # Rows of earlier versions do not state what is right leniently; either all of a file do, or none.
    is_lenient = any("lenient_correct" in row for row in rows)
    for line, pointer, row in each_answer(rows):
        right = scoring.verdict(row["output_text"], row["finish_reason"], accepted_of(row), stop=stop)
        wrong = [key for key in right if row.get(key) != right[key] and (is_lenient or key != "lenient_correct")]
        for key in wrong:
            what = f"{key} of {row['id']} is {format_value(row.get(key))}; its output gives {format_value(right[key])}."
            at = f"{pointer}/{key}"
            yield finding(facts.folder, "TP341", file, what, expected=format_value(right[key]), line=line, pointer=at)
    for line, row in enumerate(rows, start=1):
        if MORE_SAMPLES not in row:
            continue
        answers = [each["extracted_answer"] for each in answers_in(row)]
        for key, value in majority_fields(answers, scoring, accepted_of(row)).items():
            if row.get(key) != value:
                what = f"{key} of {row['id']} is {format_value(row.get(key))}; its samples give {format_value(value)}."
                at = f"/{key}"
                yield finding(facts.folder, "TP341", file, what, expected=format_value(value), line=line, pointer=at)


def each_answer(rows: Sequence[Document]) -> Iterator[tuple[int, str, Document]]:
    """Yield every answer of every row, with its line and the pointer to it."""
    for line, row in enumerate(rows, start=1):
        if MORE_SAMPLES not in row:
            yield line, "", row
            continue
        for number, answer in enumerate(answers_in(row)):
            yield line, f"/{MORE_SAMPLES}/{number - 1}" if number else "", answer


def _other_samples(facts: Facts, file: str, rows: Sequence[Document], samples: int) -> Iterator[Problem]:
    """Yield each answered row with another number of answers than the summary states."""
    for line, row in enumerate(rows, start=1):
        found = 1 + len(row.get(MORE_SAMPLES, ()))
        if row["error"] is None and found != samples:
            what = f"{row['id']} has {found} answers; the evaluation states {samples} for each item."
            yield finding(facts.folder, "TP342", file, what, line=line, pointer=f"/{MORE_SAMPLES}")


def _odd_outputs(facts: Facts, file: str, rows: Sequence[Document], limit: int | None) -> Iterator[Problem]:
    for line, pointer, row in each_answer(rows):
        reason, tokens = row["finish_reason"], row["output_tokens"]
        failed = row["error"] is not None
        if failed != (reason == "error"):
            key, what = "finish_reason", f"finish_reason is {reason} and error is {format_value(row['error'])}."
        elif failed and row["output_text"]:
            key, what = "output_text", "The row has an output, and its error says that it has none."
        elif not failed and tokens == 0:
            key, what = "output_tokens", f"No token was generated, and finish_reason is {reason}."
        elif limit is not None and (tokens > limit or (reason == "length" and tokens != limit)):
            key, what = "output_tokens", f"{tokens} tokens were generated, ended by {reason}; the limit is {limit}."
        elif strange := _strange_trace(row):
            key, what = strange
        else:
            continue
        yield finding(facts.folder, "TP342", file, what, line=line, pointer=f"{pointer}/{key}")


def _odd_ends(facts: Facts, file: str, rows: Sequence[Document], generation: Document) -> Iterator[Problem]:
    """Yield each row whose tokens hold the end token elsewhere than at the end that the row states.

    And each whose text goes on after the stop text.
    """
    stop, text = generation.get("stop_token_id"), generation.get("stop")
    for line, pointer, row in each_answer(rows):
        _, found, after = row["output_text"].partition(text) if text else ("", "", "")
        if after:
            what = f"{row['id']} goes on after {format_value(text)}, with which an output ends."
            yield finding(facts.folder, "TP342", file, what, line=line, pointer=f"{pointer}/output_text")
        ids = row.get("output_token_ids", "").split()
        if not ids or stop is None or row["error"] is not None:
            continue
        places = [place for place, each in enumerate(ids) if int(each) == stop]
        ends = [len(ids) - 1] if row["finish_reason"] == "stop" else []
        # The stop text ends an output before its end token, unless that is part of the very token.
        if places != ends and not (found and ends and not places):
            stands = f"stands at place {places[0] + 1} of {len(ids)}" if places else f"is none of {len(ids)}"
            what = f"{row['id']} ended by {row['finish_reason']}, and the end token {stop} {stands}."
            yield finding(facts.folder, "TP342", file, what, line=line, pointer=f"{pointer}/output_token_ids")


def _texts_of_one_answer(facts: Facts, file: str, rows: Sequence[Document]) -> Iterator[Problem]:
    """Yield each row whose tokens are those of another row, and whose text is not: one tokenizer decodes both."""
    first: dict[tuple[str, str], Document] = {}
    for line, pointer, row in each_answer(rows):
        ids = row.get("output_token_ids")
        if not ids:
            continue
        other = first.setdefault((ids, row["finish_reason"]), row)
        if other["output_text"] != row["output_text"]:
            what = f"{row['id']} has the very tokens of {other['id']} and another text."
            yield finding(facts.folder, "TP342", file, what, line=line, pointer=f"{pointer}/output_text")


def _strange_trace(row: Document) -> tuple[str, str] | None:
    """Return what an answer's token ids or fingerprint state of another number of tokens, and under which key."""
    tokens, ids = row["output_tokens"], row.get("output_token_ids")
    if ids is not None and len(ids.split()) != tokens:
        return "output_token_ids", f"{len(ids.split())} token ids are stated, and {tokens} tokens."
    fingerprint = row.get("fingerprint")
    if fingerprint is None:
        return None
    held = len(fingerprint) // 4 * 3 - fingerprint.count("=")
    if held == fingerprint_bytes(tokens):
        return None
    return (
        "fingerprint",
        f"The fingerprint has {held:,} bytes; one of {tokens} tokens has {fingerprint_bytes(tokens):,}.",
    )


CHECKS = (scores_follow_from_predictions, verdicts_follow_from_outputs, outputs_are_whole)
