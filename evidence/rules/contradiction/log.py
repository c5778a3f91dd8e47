"""What the log states of a run against what its documents state: the same fact, written down when it happened.

A run of the trainer logs the same few things, one after the other (TP365).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evidence.records.facts import Document, Facts, finding
from evidence.run import layout
from schemas.formats import format_value, join_words
from schemas.problems import Problem

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
            yield finding(facts.folder, "TP360", layout.LOG, what, expected=f"at most {done}", line=line)
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
                f"The event prompt_form says plain prompts, written {format_value(logged)}; "
                "eval_summary.json states the "
                f"template {format_value(stated)}."
            )
            yield finding(facts.folder, "TP360", layout.LOG, what, expected=format_value(logged), line=line)
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
        yield finding(facts.folder, "TP360", layout.LOG, what, line=line)


SEALED = "run_sealed"
CONTINUED = "continued"
"""Event of a run that goes on from the checkpoint of another."""
IN_ORDER = ("run_started", "devices_chosen", "planned", "compiled", "trained", "evaluated", SEALED)
"""Events of the trainer in the order of their first occurrence."""
_OF_EVERY_RUN = {"run_started", "devices_chosen", "planned", "compiled", "trained", SEALED}
_EARLIEST = "1.0"
_ENOUGH = 3
"""Events of `IN_ORDER`, or the seal alone, from which on a log of the earliest version is the trainer's own."""


def events_are_those_of_a_run(facts: Facts) -> Iterator[Problem]:
    """Yield problems for events that are missing, stand in another order, or stand again."""
    log = facts.log or []
    events = [record["event"] for record in log]
    if facts.manifest is None or not facts.is_sealed:
        return
    few = SEALED not in events and len(_OF_EVERY_RUN & set(events)) < _ENOUGH
    if few and facts.manifest["schema_version"] == _EARLIEST:
        return
    yield from _missing(facts, events)
    known = [event for event in events if event in IN_ORDER]
    for event in IN_ORDER:
        again = [line for line, name in enumerate(events, start=1) if name == event][1:]
        if again and event != SEALED:
            yield _other(facts, f"The event {event} was logged already.", again[0])
    firsts = list(dict.fromkeys(known))
    right = [event for event in IN_ORDER if event in firsts]
    if firsts != right:
        event, before = next((one, other) for one, other in zip(firsts, right, strict=True) if one != other)
        line = events.index(event) + 1
        yield _other(facts, f"The event {event} comes before {before}.", line)
    if SEALED in events and events[-1] != SEALED:
        yield _other(facts, f"The event {events[-1]} comes after the seal.", len(events))
    yield from _checkpoint(facts, log)
    if CONTINUED in events and facts.manifest["parent"] is None:
        yield _other(
            facts, f"The event {CONTINUED} stands in the log of a run without a parent.", events.index(CONTINUED) + 1
        )


def _missing(facts: Facts, events: list[str]) -> Iterator[Problem]:
    expected = _OF_EVERY_RUN if facts.succeeded else {"run_started", SEALED}
    if facts.succeeded and facts.eval_summary is not None and events.count(SEALED) == 1:
        expected = expected | {"evaluated"}  # one that was added later seals the run again instead
    absent = [event for event in IN_ORDER if event in expected and event not in events]
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        yield _other(facts, f"{join_words(absent, last='and')} {verb} missing.", None)
    for line, event in enumerate(events, start=1):
        if event == SEALED and "manifest_sha256" not in (facts.log or [])[line - 1]["fields"]:
            yield _other(facts, f"The event {SEALED} states no manifest_sha256.", line)


def _checkpoint(facts: Facts, log: Sequence[Document]) -> Iterator[Problem]:
    """Yield a problem where the last checkpoint in the log is not of the last step; every run that trained saves it."""
    saved = [(line, record) for line, record in enumerate(log, start=1) if record["event"] == "checkpoint_saved"]
    if facts.training is None or not facts.succeeded:
        return
    done = facts.training["steps_done"]
    if not saved or saved[-1][1]["fields"].get("step") != done:
        what = f"No checkpoint was saved at step {done}, the last one."
        yield _other(facts, what, saved[-1][0] if saved else None)


def _other(facts: Facts, what: str, line: int | None) -> Problem:
    return finding(facts.folder, "TP365", layout.LOG, what, line=line)


CHECKS = (log_ends_with_the_run, prompts_are_put_as_logged, events_are_those_of_a_run)
