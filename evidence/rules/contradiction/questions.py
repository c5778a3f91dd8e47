"""Questions: predictions against the evaluation set, the settings and the baseline of eval_summary.json."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from evidence.records.facts import Document, Facts, finding
from evidence.rules.contradiction.scores import EvaluatedModel, answers_of
from evidence.run import layout
from evidence.run.hashes import sha256_json, sha256_lines
from evidence.scores.reading import expected_line, scoring_of
from schemas.catalog import VERSION
from schemas.formats import format_value
from schemas.problems import Problem, truncate_problems

_HASHED = (("id", "ids_sha256"), ("prompt", "prompts_sha256"), ("expected", "expected_sha256"))


def predictions_are_as_many_as_stated(facts: Facts) -> Iterator[Problem]:
    """Yield problems where rows, stated rows and items of the set do not agree."""
    if facts.eval_summary is None:
        return
    items = facts.eval_summary["eval_set"]["items"]
    complete = facts.eval_summary["status"] == "complete"
    for answers in answers_of(facts):
        rows, stated = len(answers.rows), answers.stated["predictions"]["rows"]
        pointer = f"{answers.place}/predictions/rows"
        if stated != rows:
            what = f"{answers.file} has {rows} rows; {stated} are stated."
            yield finding(facts.folder, "TP350", layout.EVAL_SUMMARY, what, expected=str(rows), pointer=pointer)
        elif rows > items or (complete and rows < items):
            what = f"The evaluation is {facts.eval_summary['status']} with {rows} predictions for {items} items."
            yield finding(facts.folder, "TP350", layout.EVAL_SUMMARY, what, expected=str(items), pointer=pointer)


def items_are_answered_once(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each id that stands in an earlier row."""
    for answers in answers_of(facts):
        yield from truncate_problems(_repeated_questions(facts, answers))


def questions_are_those_of_the_set(facts: Facts) -> Iterator[Problem]:
    """Yield problems where ids, prompts or expected answers do not have the stated hash."""
    if facts.eval_summary is None:
        return
    stated = facts.eval_summary["eval_set"]
    for answers in answers_of(facts):
        if len(answers.rows) != stated["items"]:
            continue  # A part of the set has another hash; the count is judged by its own rule.
        for key, name in _HASHED:
            actual = sha256_lines(_text(row, key) for row in answers.rows)
            if actual != stated[name]:
                what = f"The field {key} of {answers.file} does not have the hash that is stated for the set."
                yield finding(
                    facts.folder,
                    "TP352",
                    layout.EVAL_SUMMARY,
                    what,
                    expected=actual,
                    pointer=f"/eval_set/{name}",
                )


def baseline_answers_the_same(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where before and after answer different items."""
    if facts.predictions is None or facts.baseline_predictions is None:
        return
    for line, (after, before) in enumerate(zip(facts.predictions, facts.baseline_predictions, strict=False), start=1):
        for key, _ in _HASHED:
            was, became = _text(before, key), _text(after, key)
            if became != was:
                what = f"{key} is {format_value(was)}; {layout.PREDICTIONS} has {format_value(became)} in this line."
                yield finding(facts.folder, "TP355", layout.BASELINE_PREDICTIONS, what, line=line, pointer=f"/{key}")
                return


def generation_has_its_hash(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the settings of generation or scoring do not have the stated hash."""
    if facts.eval_summary is None:
        return
    for group in ("generation", "scoring"):
        stated = facts.eval_summary.get(group, {})
        settings = {key: value for key, value in stated.items() if key != "sha256"}
        if stated and sha256_json(settings) != stated["sha256"]:
            yield finding(
                facts.folder,
                "TP353",
                layout.EVAL_SUMMARY,
                f"The {group} settings do not have the hash stated beside them.",
                expected=sha256_json(settings),
                pointer=f"/{group}/sha256",
            )


def evaluation_is_the_declared_one(facts: Facts) -> Iterator[Problem]:
    """Yield problems where the set, the length of outputs or how they are drawn is not what config.yaml requests."""
    if facts.config is None or facts.eval_summary is None:
        return
    declared = facts.config.get("evaluation", {})
    generation = facts.eval_summary["generation"]
    drawn = ("temperature", "top_k", "top_p") if "samples" in generation else ()
    pairs = (
        ("eval_set", "/eval_set/name", facts.eval_summary["eval_set"]["name"]),
        ("samples", "/generation/samples", generation.get("samples", 1)),
        *((key, f"/generation/{key}", generation.get(key)) for key in ("max_new_tokens", "stop", *drawn)),
    )
    for key, pointer, effective in pairs:
        asked = declared.get(key)
        if asked is not None and _last_part(asked) != _last_part(effective):
            what = (
                f"The evaluation states {format_value(effective)}; config.yaml states "
                f"{format_value(asked)} at evaluation.{key}."
            )
            yield finding(
                facts.folder, "TP354", layout.EVAL_SUMMARY, what, expected=format_value(asked), pointer=pointer
            )


def answers_are_read_as_declared(facts: Facts) -> Iterator[Problem]:
    """Yield problems where answers were read otherwise than config.yaml or the log states.

    A configuration of an earlier version means tags, compared exactly.
    """
    if facts.eval_summary is None:
        return
    scoring = asdict(scoring_of(facts.eval_summary))
    for line, record in enumerate(facts.log or [], start=1):
        logged = {"version": 1} | record["fields"]
        if record["event"] == "scoring" and any(logged.get(key) != value for key, value in scoring.items()):
            what = "The event scoring states another way of reading answers than eval_summary.json."
            yield finding(facts.folder, "TP354", layout.LOG, what, line=line)
    if facts.config is None:
        return
    earlier = {"answer": "tags", "compare": "exact"} if _is_earlier(facts.config) else {}
    declared = earlier | facts.config.get("evaluation", {})
    for key, effective in scoring.items():
        asked = declared.get(key)
        if asked is not None and asked != effective:
            what = (
                f"The evaluation states {format_value(effective)}; config.yaml states "
                f"{format_value(asked)} at evaluation.{key}."
            )
            pointer = f"/scoring/{key}"
            yield finding(
                facts.folder, "TP354", layout.EVAL_SUMMARY, what, expected=format_value(asked), pointer=pointer
            )


def baseline_is_the_declared_one(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the untrained model was evaluated although config.yaml requests no baseline."""
    if facts.config is None or facts.eval_summary is None or facts.eval_summary["baseline"] is None:
        return
    declared = facts.config.get("evaluation", {})
    if "eval_set" in declared and declared["eval_set"] is None:
        what = "There is a baseline, which only a run evaluates; config.yaml states null at evaluation.eval_set."
        yield finding(facts.folder, "TP354", layout.EVAL_SUMMARY, what, expected="null", pointer="/baseline")
    if declared.get("baseline") is False:
        what = "There is a baseline; config.yaml states false at evaluation.baseline."
        yield finding(facts.folder, "TP354", layout.EVAL_SUMMARY, what, expected="null", pointer="/baseline")


def outputs_end_with_the_end_token(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where answers end at another token than the training examples do."""
    if facts.eval_summary is None or facts.first_examples is None:
        return
    stop = facts.eval_summary["generation"]["stop_token_id"]
    for example in facts.first_examples["examples"]:
        whole = facts.first_examples["counts"]["end_token_supervised"] and not example["truncated"]
        if whole and example["tokens"] and (last := example["tokens"][-1]["id"]) != stop:
            what = f"Answers end at token {stop}; row {example['row']} of the training data ends with token {last}."
            pointer = "/generation/stop_token_id"
            yield finding(facts.folder, "TP356", layout.EVAL_SUMMARY, what, expected=str(last), pointer=pointer)
            return


def _repeated_questions(facts: Facts, answers: EvaluatedModel) -> Iterator[Problem]:
    places: dict[str, int] = {}
    for place, row in enumerate(answers.rows, start=1):
        first = places.setdefault(row["id"], place)
        if first != place:
            line = facts.run.rows(answers.file).line_of(first - 1)
            what = f"The item {row['id']} was answered in line {line} already."
            yield finding(facts.folder, "TP351", answers.file, what, line=place, pointer="/id")


def _text(row: Document, key: str) -> str:
    """Return what a row repeats of its item as the text of which the set's hash is made."""
    return expected_line(row) if key == "expected" else str(row[key])


def _is_earlier(config: Document) -> bool:
    """Return whether a configuration is of a version in which the reader was not a setting."""
    return str(config.get("schema_version", VERSION)) < "1.2"


def _last_part(value: object) -> object:
    return value.rsplit("/", 1)[-1] if isinstance(value, str) else value


CHECKS = (
    predictions_are_as_many_as_stated,
    items_are_answered_once,
    questions_are_those_of_the_set,
    baseline_answers_the_same,
    generation_has_its_hash,
    outputs_end_with_the_end_token,
    evaluation_is_the_declared_one,
    answers_are_read_as_declared,
    baseline_is_the_declared_one,
)
