"""Recompute the scores measured during training from their answers."""

from __future__ import annotations

from collections import defaultdict

from evidence.layout import ANSWERS_OVER_STEPS, METRICS
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.rules.rollouts import recorded_scoring
from evidence.run import Document
from evidence.scores.reading import PatternError, accepted_answers
from evidence.scores.recompute import draw_ids
from schemas.reading import get_path


@rule("TP396")
def held_out_scores(run: ValidRun, check: Checker) -> None:
    """Recompute the held-out score of every step from its answers."""
    stated = {row["step"]: (line, row) for line, row in enumerate(run.metrics or (), 1) if "held_out_score" in row}
    answers = _answers_by_step(run)
    for step in sorted({*stated, *answers}) if run.is_sealed else ():
        line, row = stated.get(step, (None, {}))
        correct = [answer["correct"] for answer in answers.get(step, ())]
        expected = sum(correct) / len(correct) if correct else None
        source = f"{ANSWERS_OVER_STEPS} at step {step}"
        check.equal(METRICS, "/held_out_score", row.get("held_out_score"), expected, source, line=line)


@rule("TP396", "answers_over_steps")
def held_out_verdicts(run: ValidRun, check: Checker) -> None:
    """Score every answer given during training again."""
    scoring, stop = recorded_scoring(run), get_path(run.config, "evaluation", "stop")
    if scoring is None:
        return
    try:
        scoring.read("")
    except PatternError:
        return  # Reported for the evaluation.
    for line, row in enumerate(run.answers_over_steps, start=1):
        expected = scoring.verdict(row["output_text"], row["finish_reason"], accepted_answers(row), stop=stop)
        for key in ("extracted_answer", "correct"):
            source = f"the output of {row['id']} at step {row['step']}"
            check.equal(ANSWERS_OVER_STEPS, f"/{key}", row[key], expected[key], source, line=line)


@rule("TP397", "config", "predictions", "eval_summary", "answers_over_steps")
def held_out_items(run: ValidRun, check: Checker) -> None:
    """Check that every step asks the items that the seed draws, as the evaluation does."""
    items, settings = {row["id"]: row for row in run.predictions}, run.config.get("evaluation", {})
    # Which items would be drawn is unknown if the set is incomplete.
    if not settings.get("every_steps") or len(items) != run.eval_summary["eval_set"]["items"]:
        return
    drawn = draw_ids(list(items), settings.get("during_items", 0), run.config.get("seed", 0))
    for step, answers in _answers_by_step(run).items():
        ids = [row["id"] for row in answers]
        if ids != drawn and (run.is_sealed or ids != drawn[: len(ids)]):
            what = f"Step {step} asks {len(ids)} items, which are not the {len(drawn)} that the seed draws."
            check.report(ANSWERS_OVER_STEPS, what)
            return
        for row in answers:
            item = items[row["id"]]
            is_same = (row["prompt"], accepted_answers(row)) == (item["prompt"], accepted_answers(item))
            what = f"Prompt or expected answer of {row['id']} at step {step} differ from the evaluation."
            check.require(is_same, ANSWERS_OVER_STEPS, what)


def _answers_by_step(run: ValidRun) -> dict[int, list[Document]]:
    answers = defaultdict(list)
    for row in run.answers_over_steps or ():
        answers[row["step"]].append(row)
    return answers
