"""What a run measured of itself while it trained, against the answers that it kept of these steps."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from evidence.records.facts import Document, Facts, finding, same
from evidence.rules.contradiction.rollouts import scoring_in
from evidence.run import layout
from evidence.scores.held_out import drawn_ids
from evidence.scores.patterns.parse import PatternError
from evidence.scores.reading import accepted_of
from schemas.formats import format_value
from schemas.problems import Problem, truncate_problems


def points_follow_from_answers(facts: Facts) -> Iterator[Problem]:
    """Yield problems for steps whose score, answers or items are not those that were asked."""
    stated = {row["step"]: (line, row) for line, row in enumerate(facts.metrics or (), 1) if "held_out_score" in row}
    if not stated and not facts.answers_over_steps:
        return
    points: dict[int, list[Document]] = defaultdict(list)
    for row in facts.answers_over_steps or ():
        points[row["step"]].append(row)
    if facts.is_sealed:
        yield from truncate_problems(_other_scores(facts, stated, points))
    yield from truncate_problems(_other_verdicts(facts))
    yield from truncate_problems(_other_items(facts, points))


def _other_scores(
    facts: Facts, stated: dict[int, tuple[int, Document]], points: dict[int, list[Document]]
) -> Iterator[Problem]:
    for step in sorted({*stated, *points}):
        line, row = stated.get(step, (None, {}))
        answers, score = points.get(step, []), row.get("held_out_score")
        right = sum(each["correct"] for each in answers) / len(answers) if answers else None
        if not same(score, right):
            what = (
                f"held_out_score of step {step} is {format_value(score)}; "
                f"{layout.ANSWERS_OVER_STEPS} gives {format_value(right)}."
            )
            more: dict[str, Any] = {"line": line, "pointer": "/held_out_score", "expected": format_value(right)}
            yield finding(facts.folder, "TP396", layout.METRICS, what, **more)


def _other_verdicts(facts: Facts) -> Iterator[Problem]:
    if (scoring := scoring_in(facts)) is None:
        return
    try:
        scoring.read("")
    except PatternError:
        return  # That it reads nothing is told of the evaluation.
    stop = (facts.config or {}).get("evaluation", {}).get("stop")
    for line, row in enumerate(facts.answers_over_steps or (), start=1):
        right = scoring.verdict(row["output_text"], row["finish_reason"], accepted_of(row), stop=stop)
        for key in ("extracted_answer", "correct"):
            if row[key] != right[key]:
                what = (
                    f"{key} of {row['id']} at step {row['step']} is {format_value(row[key])}; its output gives another."
                )
                more: dict[str, Any] = {"line": line, "pointer": f"/{key}", "expected": format_value(right[key])}
                yield finding(facts.folder, "TP396", layout.ANSWERS_OVER_STEPS, what, **more)


def _other_items(facts: Facts, points: dict[int, list[Document]]) -> Iterator[Problem]:
    of = (facts.config or {}).get("evaluation", {})
    if facts.predictions is None or facts.eval_summary is None or not of.get("every_steps"):
        return
    items = {row["id"]: row for row in facts.predictions}
    if len(items) != facts.eval_summary["eval_set"]["items"]:
        return  # Of a part of the set no one knows what would be drawn.
    drawn = drawn_ids(list(items), of.get("during_items", 0), (facts.config or {}).get("seed", 0))
    for step, answers in points.items():
        asked = [row["id"] for row in answers]
        if asked != drawn and (facts.is_sealed or asked != drawn[: len(asked)]):
            what = f"Step {step} asks {len(asked)} items, which are not the {len(drawn)} that the seed draws in order."
            yield finding(facts.folder, "TP397", layout.ANSWERS_OVER_STEPS, what)
            return
        for row in answers:
            if (row["prompt"], accepted_of(row)) != (items[row["id"]]["prompt"], accepted_of(items[row["id"]])):
                what = f"{row['id']} has another prompt or expected answer at step {step} than in the evaluation."
                yield finding(facts.folder, "TP397", layout.ANSWERS_OVER_STEPS, what)


CHECKS = (points_follow_from_answers,)
"""Rules of what is measured during training."""
