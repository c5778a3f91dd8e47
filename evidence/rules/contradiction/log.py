"""What the log states of a run against what its documents state: the same fact, written down when it happened."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule
from schemas.problems.words import show

OTHER_IN_LOG = Rule(
    "TP360",
    "Log states something else",
    "The event was logged when it happened; the document states the same fact differently.",
    "Restore log.jsonl and the document as the run wrote them.",
)

WITH_NEWLINE = "{prompt}\n"
"""How a plain prompt is put to a model where the log of an earlier version does not state it."""


def log_ends_with_the_run(facts: Facts) -> Iterator[Problem]:
    """Yield problems for checkpoints after the last step, and scores in the log that the summary does not state."""
    if facts.training is None or not facts.is_sealed:
        return
    done = facts.training["steps_done"]
    for line, record in enumerate(facts.log or [], start=1):
        step = record["fields"].get("step")
        if record["event"] == "checkpoint_saved" and isinstance(step, int) and step > done:
            what = f"A checkpoint was saved at step {step}; the manifest states {done} steps done."
            yield finding(facts.folder, OTHER_IN_LOG, layout.LOG, what, expected=f"at most {done}", line=line)
            return
    yield from _other_scores(facts)


def prompts_are_put_as_logged(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the log states that prompts are put plainly and the evaluation states another template."""
    if facts.eval_summary is None:
        return
    stated = facts.eval_summary["generation"]["prompt_template"]
    for line, record in enumerate(facts.log or [], start=1):
        if record["event"] != "prompt_form" or record["fields"].get("conversation") is not False:
            continue
        logged = record["fields"].get("template", WITH_NEWLINE)
        if stated != logged:
            what = (
                f"The event prompt_form says plain prompts, written {show(logged)}; eval_summary.json states the "
                f"template {show(stated)}."
            )
            yield finding(facts.folder, OTHER_IN_LOG, layout.LOG, what, expected=show(logged), line=line)
            return


def _other_scores(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the last evaluation in the log has another score than the summary."""
    evaluations = [
        (line, record["fields"]["metrics"])
        for line, record in enumerate(facts.log or [], start=1)
        if record["event"] == "evaluated" and "metrics" in record["fields"]
    ]
    if facts.eval_summary is None or not evaluations:
        return
    line, metrics = evaluations[-1]
    if metrics != facts.eval_summary["metrics"]:
        what = "The event evaluated states other metrics than eval_summary.json."
        yield finding(facts.folder, OTHER_IN_LOG, layout.LOG, what, line=line)


CHECKS = (log_ends_with_the_run, prompts_are_put_as_logged)
