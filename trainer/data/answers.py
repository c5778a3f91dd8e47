"""How the answers of an evaluation are read, as set or inferred from the rows, and what could not be read.

The reader itself is `evidence.scores.reading`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from evidence.hashes import sha256_json
from evidence.scores.forms import is_choice, parse_number
from evidence.scores.reading import (
    Answer,
    Compare,
    PatternError,
    Scoring,
    accepted_answers,
    can_capture,
    compile_pattern,
    extract_answer,
    last_boxed,
)
from evidence.scores.recompute import iter_answers
from schemas.formats import format_value, join_words
from schemas.problems import Problem, problem_of, truncate_problems
from trainer.config.tree import EvaluationConfig
from trainer.data.render import learned_text
from trainer.data.rows import RowFile

SCORING = "scoring"
"""Event of the log that states how answers are read."""

MOST_ROWS = 1_000
"""Training rows from which the form of answers is inferred."""
SHOWN = 3
"""Outputs that a warning shows."""
LONGEST_SHOWN = 40
MOST_EXPECTED = 200
"""Expected answers, and training rows, that are held against each other."""

USUAL: Mapping[Answer, Compare] = {"last_number": "numeric", "choice": "folded"}
"""How answers of some readers are compared unless it is set; those of others exactly, in boxes as the items expect."""


def refused_readers(settings: EvaluationConfig, file: str, *, keep_best: str | None = None) -> list[Problem]:
    """Return what is wrong with the settings of the evaluation alone.

    Args:
        settings: of the evaluation.
        file: the configuration, for messages.
        keep_best: by which measure a checkpoint is kept. None: by none.
    """
    problems: list[tuple[str, str, str]] = []
    if settings.answer == "regex":
        try:
            compile_pattern(settings.answer_regex or "")
        except PatternError as error:
            said = f"evaluation.answer_regex is {format_value(settings.answer_regex)}: {error}."
            missing = "evaluation.answer is regex, and evaluation.answer_regex is not set."
            problems.append(("TP007", "answer_regex", missing if settings.answer_regex is None else said))
    elif settings.answer_regex is not None:
        what = (
            "evaluation.answer_regex is set, and evaluation.answer is "
            f"{format_value(settings.answer)}, which does not use it."
        )
        problems.append(("TP009", "answer_regex", what))
    compare = settings.compare or (None if settings.answer in (None, "boxed") else USUAL.get(settings.answer, "exact"))
    if settings.tolerance != EvaluationConfig().tolerance and compare not in ("numeric", None):
        what = f"evaluation.tolerance is {settings.tolerance:g}, and answers are compared {compare}."
        problems.append(("TP009", "tolerance", what))
    for key in ("temperature", "top_k", "top_p") if settings.samples == 1 else ():
        if (value := getattr(settings, key)) != getattr(EvaluationConfig(), key):
            what = f"evaluation.{key} is {value:g}, and evaluation.samples is 1: the likeliest tokens are taken."
            problems.append(("TP009", key, what))
    return [
        *(problem_of(code, file=file, pointer=f"/evaluation/{key}", what=what) for code, key, what in problems),
        *refused_measures(settings, keep_best, file),
    ]


def refused_measures(settings: EvaluationConfig, keep_best: str | None, file: str) -> list[Problem]:
    """Return what is wrong with the settings of what is measured during training."""
    wrong = []
    if settings.every_steps and settings.eval_set is None:
        what = f"evaluation.every_steps is {settings.every_steps}, and evaluation.eval_set names no items."
        wrong.append(("/evaluation/every_steps", what, "Name a set, or leave it out."))
    elif not settings.every_steps:
        then = "Leave it out, or set evaluation.every_steps."
        if settings.during_items != EvaluationConfig().during_items:
            what = f"evaluation.during_items is {settings.during_items}, and evaluation.every_steps is 0."
            wrong.append(("/evaluation/during_items", what, then))
        if keep_best is not None:
            what = f"checkpoint.keep_best is {keep_best}, and evaluation.every_steps is 0: nothing is measured."
            wrong.append(("/checkpoint/keep_best", what, then))
    return [problem_of("TP009", file=file, pointer=pointer, what=what, next=then) for pointer, what, then in wrong]


def scoring_from(
    settings: EvaluationConfig, rows: Iterable[Mapping[str, Any]], items: Sequence[Mapping[str, Any]]
) -> Scoring:
    """Return how answers are read and compared: as set, and what is not set as the rows show.

    Tags or boxes are read where most rows hold them. Else the whole output is the answer, unless the items expect
    numbers or letters of choices that most rows only end with (`#### 42`). The stop text ends a row, too.

    Args:
        settings: of the evaluation.
        rows: training rows, of which the first are looked at.
        items: of the evaluation set; none where nothing is evaluated yet.
    """
    answer = settings.answer or infer_answer(learned_texts(rows, settings.stop), items)
    is_numeric = answer == "boxed" and kind_expected(items) is is_number
    return Scoring(
        answer=answer,
        answer_regex=settings.answer_regex,
        compare=settings.compare or ("numeric" if is_numeric else USUAL.get(answer, "exact")),
        tolerance=settings.tolerance,
    )


def learned_texts(rows: Iterable[Mapping[str, Any]], stop: str | None) -> list[str]:
    """Return what the first rows teach to write before the stop text; a task teaches nothing."""
    texts = [text for text in map(learned_text, islice(rows, MOST_ROWS)) if text]
    return [text.partition(stop)[0] for text in texts] if stop else texts


def scoring_document(scoring: Scoring) -> dict[str, Any]:
    """Return how answers are read as `eval_summary.json` states it, with the hash that comparisons hold."""
    stated = scoring.document()
    return stated | {"sha256": sha256_json(stated)}


def infer_answer(texts: Sequence[str], items: Sequence[Mapping[str, Any]]) -> Answer:
    """Return how answers are read, from the texts that are learned."""
    marked: tuple[tuple[Answer, Callable[[str], str | None]], ...] = (("tags", extract_answer), ("boxed", last_boxed))
    for answer, read in marked:
        if 2 * sum(read(text) is not None for text in texts) > len(texts):
            return answer
    of_kind = kind_expected(items)
    candidates: tuple[Answer, ...] = ("whole", "last_number", "choice")
    if of_kind is None:
        return "whole"
    for answer in candidates:
        found = [Scoring(answer=answer).read(text) for text in texts]
        if 2 * sum(one is not None and of_kind(one) for one in found) > len(texts):
            return answer
    return "whole"


def kind_expected(items: Sequence[Mapping[str, Any]]) -> Callable[[str], bool] | None:
    """Return what shows the kind of text that all items expect, numbers or letters of choices; None for any other."""
    expected = [one for item in items for one in accepted_answers(item)]
    kinds = (is_number, is_choice)
    return next((of_kind for of_kind in kinds if expected and all(map(of_kind, expected))), None)


def is_number(text: str) -> bool:
    """Return whether a text is a number and nothing else."""
    return parse_number(text) is not None


def unreadable_items(items: RowFile, scoring: Scoring) -> list[Problem]:
    """Return a problem for each of the first items whose expected answers no output could be read as."""
    return list(truncate_problems(_unreadable(items, scoring)))


def _unreadable(items: RowFile, scoring: Scoring) -> Iterator[Problem]:
    for line, item in zip(items.lines, items.rows, strict=True):
        for one in accepted_answers(item):
            if not (why := _why_unreadable(one, scoring)):
                continue
            what = f"{item['id']} expects {format_value(one_line(one))}, which {why}."
            yield problem_of("TP008", file=str(items.path), line=line, pointer="/expected", what=what)


def _why_unreadable(expected: str, scoring: Scoring) -> str:
    if not expected.strip():
        return "is blank"
    if not scoring.can_compare(expected):
        return "is no number, and answers are compared as numbers"
    if scoring.answer == "tags":
        return "holds a tag, and the answer is what stands between tags" if "<answer>" in expected else ""
    if scoring.answer == "boxed":
        return "holds a box, and the answer is what stands in it" if "\\boxed" in expected else ""
    if scoring.answer == "regex":
        pattern = scoring.answer_regex or ""
        read = scoring.compare != "exact" or can_capture(pattern, expected)
        return "" if read else f"evaluation.answer_regex {format_value(pattern)} never reads"
    if not scoring.is_right(scoring.read(expected), [expected]):
        return f"evaluation.answer {scoring.answer} never reads"
    return ""


def rows_of_another_form(
    rows: Iterable[Mapping[str, Any]], scoring: Scoring, items: RowFile, *, file: str, stop: str | None = None
) -> list[Problem]:
    """Return the warning that no training row could be scored right.

    None has an answer of the form that is read or of the kind that is expected; or a tenth of them end with an answer
    that an item expects, and none is read as one.

    Args:
        rows: training rows, of which the first are looked at.
        scoring: how answers are read.
        items: of the evaluation set.
        file: the dataset, for messages.
        stop: the text that ends an output.
    """
    of_kind, texts = kind_expected(items.rows), learned_texts(rows, stop)
    answers = [answer for answer in map(scoring.read, texts) if answer is not None]
    if not texts:
        return []
    kind = " of the kind that the items expect" if answers else ""
    if any(scoring.can_compare(one) and (of_kind is None or of_kind(scoring.unboxed_number(one))) for one in answers):
        expected = list(dict.fromkeys(one for item in items.rows for one in accepted_answers(item)))[:MOST_EXPECTED]
        few = texts[:MOST_EXPECTED]
        ending = [text for text in few if scoring.verdict(text, "stop", expected)["lenient_correct"]]
        if 10 * len(ending) < len(few) or any(scoring.is_right(one, expected) for one in answers):
            return []
        kind = f" that an item expects, and {len(ending):,} of the first {len(few):,} end with one"
    what = (
        f"Answers are read as {scoring.describe()}; none of {len(texts):,} training rows has one{kind}. "
        f"The first teaches {format_value(one_line(texts[0]))}."
    )
    return [problem_of("TP087", file=file, what=what)]


def none_read(rows: Sequence[Mapping[str, Any]], scoring: Scoring, *, file: str) -> list[Problem]:
    """Return the warning that no output had an answer of the form that is read, with what outputs looked like.

    Args:
        rows: of predictions.
        scoring: how they were read.
        file: that holds them.
    """
    outputs = [str(row["output_text"]) for row in rows if row["error"] is None]
    if not outputs or any(row["extracted_answer"] is not None for row in rows):
        return []
    examples = join_words([format_value(one_line(text)) for text in dict.fromkeys(outputs)][:SHOWN], last="and")
    what = f"Answers are read as {scoring.describe()}; none of {len(outputs):,} outputs has one, such as {examples}."
    return [problem_of("TP088", file=file, what=what)]


def never_stopped(rows: Sequence[Mapping[str, Any]], stop: str | None, *, file: str) -> list[Problem]:
    """Return the warning that no output holds the stop text."""
    texts = [answer["output_text"] for row in rows if row["error"] is None for answer in iter_answers(row)]
    if not stop or not texts or any(stop in text for text in texts):
        return []
    what = f"evaluation.stop is {format_value(stop)}, and none of {len(texts):,} outputs holds it."
    return [problem_of("TP752", file=file, what=what)]


def one_line(text: str) -> str:
    """Return a text of one line, its end where it is long: there the answer would stand."""
    plain = " ".join(text.split())
    return plain if len(plain) <= LONGEST_SHOWN else "…" + plain[1 - LONGEST_SHOWN :]
