"""Evaluation items: their prompts as token ids, how answers are read, and items that cannot be answered or be right.

`evidence.scores.reading` reads and compares answers; here its settings are inferred from the training rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from evidence.hashes import sha256_json
from evidence.rules.plausibility import describe_repeated_prompts
from evidence.scores.forms import is_choice, parse_number
from evidence.scores.reading import (
    Answer,
    Compare,
    PatternError,
    Scoring,
    accepted_answers,
    can_capture,
    compile_pattern,
)
from schemas.formats import format_value, join_words
from schemas.problems import Problem, problem_of, truncate_problems
from trainer.config.tree import Config, EvaluationConfig
from trainer.data.conversations import PromptForm, Tokenizer, learned_text, render_each
from trainer.data.encode import describe_difference, encode_prompt
from trainer.data.rows import RowFile

SCORING = "scoring"  # log event with the settings of answer reading
MAX_ROWS = 1_000  # training rows from which the form of answers is inferred

USUAL: Mapping[Answer, Compare] = {"last_number": "numeric", "choice": "folded"}
"""Default comparison by reader; exact for all others, and inferred from the items for boxed answers."""


@dataclass(frozen=True, kw_only=True)
class EvalShape:
    """Shape of the prompts of an evaluation, which determines its memory."""

    prompts: int
    longest_tokens: int


@dataclass(frozen=True, kw_only=True)
class Items:
    """An evaluation set, and the token ids of each item's prompt."""

    file: RowFile
    prompts: list[list[int]]


def encode_items(items: RowFile, form: PromptForm, tokenizer: Tokenizer) -> list[list[int]]:
    """Tokenize the prompt of each item in the form of the training rows, or raise a ProblemError with exit code 2."""
    templated, file = form.templated(tokenizer), str(items.path)
    texts = render_each(items.rows, lambda item: form.render(item["prompt"], tokenizer), file=file, lines=items.lines)
    return [encode_prompt(text, tokenizer, templated=templated) for _, text in texts]


def check_prompt_room(
    config: Config, items: RowFile, prompts: Sequence[Sequence[int]], *, max_positions: int
) -> list[Problem]:
    """Return a problem if no prompt has a token, or if outputs leave no room for any prompt.

    A single prompt without a token or without room is an error of its row; the others are answered.
    """
    lengths = [len(prompt) for prompt in prompts if prompt]
    if not lengths:
        what = f"The model's tokenizer finds no token in any prompt of {items.name}."
        return [problem_of("TP063", file=str(items.path), what=what)]
    model, max_new_tokens, shortest = config.model.name, config.evaluation.max_new_tokens, min(lengths)
    if shortest + max_new_tokens <= max_positions:
        return []
    for_one, for_all = max_positions - shortest, max_positions - max(lengths)
    fix = f"Set evaluation.max_new_tokens to at most {for_one}"
    fix += f"; up to {for_all} leave room for every prompt." if 0 < for_all < for_one else "."
    if for_one <= 0:
        fix = "Use an evaluation set with shorter prompts, or a model with more positions."
    what = f"evaluation.max_new_tokens is {max_new_tokens} and the shortest prompt of {items.name} has {shortest} "
    what += f"tokens; {model} has {max_positions} positions."
    return [problem_of("TP062", file=model, pointer="/evaluation/max_new_tokens", what=what, next=fix)]


def check_items(
    items: RowFile, tokenizer: Tokenizer, prompts: Sequence[Sequence[int]], scoring: Scoring, *, max_prompt_tokens: int
) -> list[Problem]:
    """Return warnings about items that cannot be answered or be right."""
    file, found = str(items.path), list(items.warnings)
    skipped = [place for place, prompt in enumerate(prompts) if not 0 < len(prompt) <= max_prompt_tokens]
    if skipped:
        longest = max(map(len, prompts))
        why = f": the longest has {longest:,} tokens, and {max_prompt_tokens:,} leave room for an output."
        what = f"{len(skipped):,} of {len(prompts):,} items cannot be answered and count as wrong"
        what += why if longest > max_prompt_tokens else ": the tokenizer finds no token in them."
        found.append(problem_of("TP457", file=file, line=items.lines[skipped[0]], what=what))
    if repeated := describe_repeated_prompts(items.rows):
        found.append(problem_of("TP458", file=file, what=repeated))
    if unwritable := unwritable_items(items.rows, tokenizer, scoring):
        [(place, expected, decoded), *_] = unwritable
        what = f"{len(unwritable):,} of {len(prompts):,} items expect an answer that the tokenizer changes: "
        what += describe_difference(expected, decoded)
        found.append(problem_of("TP459", file=file, line=items.lines[place], what=what))
    return found


def unwritable_items(
    items: Sequence[Mapping[str, Any]], tokenizer: Tokenizer, scoring: Scoring
) -> list[tuple[int, str, str]]:
    """Return index, expected answer and decoded answer of items that no output of the tokenizer can answer."""
    found = []
    for place, accepted in enumerate(map(accepted_answers, items)):
        # Some tokenizers encode the first word of a text differently than the same word after a space.
        texts = [prefix + each for each in accepted for prefix in ("", " ")]
        decoded = [str(tokenizer.decode(tokenizer.encode(text, add_special_tokens=False))).strip() for text in texts]
        if not any(scoring.is_right(each, accepted) for each in decoded):
            found.append((place, accepted[0], decoded[0]))
    return found


def check_evaluation_settings(settings: EvaluationConfig, file: str, *, keep_best: str | None = None) -> list[Problem]:
    """Return problems of the evaluation settings: an invalid pattern, and settings without effect.

    `file` is the configuration, for messages; `keep_best` is the measure that selects a checkpoint, or None.
    """
    default, found = EvaluationConfig(), list[Problem]()
    compare = settings.compare or (None if settings.answer in (None, "boxed") else USUAL.get(settings.answer, "exact"))
    reader, fix = format_value(settings.answer), "Leave it out, or set evaluation.every_steps."
    is_greedy = (settings.samples == 1, "evaluation.samples is 1: decoding is greedy", None)
    useless: Mapping[str, tuple[bool, str, str | None]] = {
        "every_steps": (settings.eval_set is None, "evaluation.eval_set is not set", "Name a set, or leave it out."),
        "during_items": (not settings.every_steps, "evaluation.every_steps is 0", fix),
        "answer_regex": (settings.answer != "regex", f"evaluation.answer is {reader}, which does not use it", None),
        "tolerance": (compare not in ("numeric", None), f"the comparison of answers is {compare}", None),
        **dict.fromkeys(("temperature", "top_k", "top_p"), is_greedy),
    }
    for key, (is_useless, because, advice) in useless.items():
        if is_useless and (value := getattr(settings, key)) != getattr(default, key):
            what, pointer = f"evaluation.{key} is {format_value(value)}, but {because}.", f"/evaluation/{key}"
            found.append(problem_of("TP009", file=file, pointer=pointer, what=what, next=advice))
    if keep_best is not None and not settings.every_steps:
        what = f"checkpoint.keep_best is {keep_best}, but evaluation.every_steps is 0: nothing is measured."
        found.append(problem_of("TP009", file=file, pointer="/checkpoint/keep_best", what=what, next=fix))
    if settings.answer == "regex":
        try:
            compile_pattern(settings.answer_regex or "")
        except PatternError as error:
            what = f"evaluation.answer_regex is {format_value(settings.answer_regex)}: {error}."
            if settings.answer_regex is None:
                what = "evaluation.answer is regex, but evaluation.answer_regex is not set."
            found.append(problem_of("TP007", file=file, pointer="/evaluation/answer_regex", what=what))
    return found


def infer_scoring(
    settings: EvaluationConfig, rows: Iterable[Mapping[str, Any]], items: Sequence[Mapping[str, Any]]
) -> Scoring:
    """Return how answers are read and compared; settings that are not configured are inferred from the first rows.

    Tags or boxes are read if most rows have them. Otherwise the whole output is the answer, unless the items expect
    numbers or letters of choices with which most rows only end (`#### 42`). Rows are cut at the stop text.
    """
    answer = settings.answer or infer_answer(first_learned(rows, settings.stop), items)
    is_numeric = answer == "boxed" and find_answer_type(items) is is_number
    return Scoring(
        answer=answer,
        answer_regex=settings.answer_regex,
        compare=settings.compare or ("numeric" if is_numeric else USUAL.get(answer, "exact")),
        tolerance=settings.tolerance,
    )


def first_learned(rows: Iterable[Mapping[str, Any]], stop: str | None) -> list[str]:
    """Return the learned texts of the first rows up to the stop text, without tasks."""
    texts = [text for text in map(learned_text, islice(rows, MAX_ROWS)) if text]
    return [text.partition(stop)[0] for text in texts] if stop else texts


def scoring_document(scoring: Scoring) -> dict[str, Any]:
    """Return the scoring as `eval_summary.json` records it, with a hash for comparisons."""
    document = scoring.document()
    return document | {"sha256": sha256_json(document)}


def infer_answer(texts: Sequence[str], items: Sequence[Mapping[str, Any]]) -> Answer:
    """Infer the reader of answers from learned texts."""
    has_type = find_answer_type(items)
    typed: tuple[Answer, ...] = ("whole", "last_number", "choice")
    for answer in ("tags", "boxed", *(typed if has_type else ())):
        found = [one for text in texts if (one := Scoring(answer=answer).read(text)) is not None]
        count = sum(map(has_type, found)) if has_type and answer in typed else len(found)
        if 2 * count > len(texts):
            return answer
    return "whole"


def find_answer_type(items: Sequence[Mapping[str, Any]]) -> Callable[[str], bool] | None:
    """Return the predicate that all expected answers fulfil, `is_number` or `is_choice`, or None."""
    expected = [one for item in items for one in accepted_answers(item)]
    return next((each for each in (is_number, is_choice) if expected and all(map(each, expected))), None)


def is_number(text: str) -> bool:
    """Return whether a text is just a number."""
    return parse_number(text) is not None


def unreadable_items(items: RowFile, scoring: Scoring) -> list[Problem]:
    """Return a problem for each of the first items whose expected answer cannot be read from any output."""
    found = []
    for line, item in zip(items.lines, items.rows, strict=True):
        for one in accepted_answers(item):
            if reason := _why_unreadable(one, scoring):
                what = f"{item['id']} expects {format_value(one_line(one))}, which {reason}."
                found.append(problem_of("TP008", file=str(items.path), line=line, pointer="/expected", what=what))
    return list(truncate_problems(found))


def _why_unreadable(expected: str, scoring: Scoring) -> str:
    if not expected.strip():
        return "is blank"
    if not scoring.can_compare(expected):
        return "is not a number, although answers are compared as numbers"
    if scoring.answer == "tags":
        return "contains a tag, although answers are read between tags" if "<answer>" in expected else ""
    if scoring.answer == "boxed":
        return "contains a box, although answers are read from boxes" if "\\boxed" in expected else ""
    if scoring.answer == "regex":
        pattern = scoring.answer_regex or ""
        is_readable = scoring.compare != "exact" or can_capture(pattern, expected)
        return "" if is_readable else f"evaluation.answer_regex {format_value(pattern)} never reads"
    if not scoring.is_right(scoring.read(expected), [expected]):
        return f"evaluation.answer {scoring.answer} never reads"
    return ""


def check_learned_form(
    rows: Iterable[Mapping[str, Any]], scoring: Scoring, items: RowFile, *, file: str, stop: str | None = None
) -> list[Problem]:
    """Return a warning if no answer can be read from the first training rows, of the type that the items expect."""
    has_type, texts = find_answer_type(items.rows) or (lambda _: True), first_learned(rows, stop)
    answers = [answer for answer in map(scoring.read, texts) if answer is not None]
    if not texts or any(scoring.can_compare(one) and has_type(scoring.unboxed_number(one)) for one in answers):
        return []
    what = f"Answers are read as {scoring.describe()}; none of {len(texts):,} training rows has one"
    what += f"{' of the type that the items expect' if answers else ''}. "
    what += f"The first teaches {format_value(one_line(texts[0]))}."
    return [problem_of("TP087", file=file, what=what)]


def none_read(rows: Sequence[Mapping[str, Any]], scoring: Scoring, *, file: str) -> list[Problem]:
    """Return a warning with examples if no answer could be read from any prediction."""
    outputs = [str(row["output_text"]) for row in rows if row["error"] is None]
    if not outputs or any(row["extracted_answer"] is not None for row in rows):
        return []
    examples = [format_value(one_line(text)) for text in dict.fromkeys(outputs)][:3]
    what = (
        f"None of {len(outputs):,} outputs has an answer in the form that is read ({scoring.describe()}), for example "
    )
    return [problem_of("TP088", file=file, what=f"{what}{join_words(examples, last='and')}.")]


def one_line(text: str) -> str:
    """Return a text as one line; of a long text the end, where the answer would be."""
    plain = " ".join(text.split())
    return plain if len(plain) <= 40 else "…" + plain[-39:]
