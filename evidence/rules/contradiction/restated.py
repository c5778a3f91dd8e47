"""Every fact that a run states more than once, each repetition compared with the place that leads."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Facts
from evidence.records.own_table import pairs_of
from evidence.records.values import finding, same
from evidence.rules.contradiction.log import OTHER_IN_LOG
from evidence.rules.contradiction.settings import NOT_WHAT_RAN, OTHER_PLAN
from evidence.run import layout
from foreign.readers.statement import Statement
from schemas.problems.problem import Problem
from schemas.problems.rule import first_few
from schemas.problems.words import show


def repetitions_agree(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each place that states a fact otherwise than the place that leads."""
    differing = [(lead, other) for lead, other in pairs_of(facts) if not same(other.value, lead.value)]
    logged = sorted((pair for pair in differing if pair[1].source.file == layout.LOG), key=_line)
    yield from (_of_plan(facts, lead, other) for lead, other in differing if other.source.file == layout.PLAN)
    yield from (_of_command(facts, lead, other) for lead, other in differing if other.source.file == layout.MANIFEST)
    yield from first_few(_of_log(facts, lead, other) for lead, other in logged)


def _line(pair: tuple[Statement, Statement]) -> int:
    return pair[1].source.line or 0


def _of_plan(facts: Facts, lead: Statement, other: Statement) -> Problem:
    what = f"The manifest states {show(lead.value)}; plan.json states {show(other.value)} at {other.source.pointer}."
    expected, pointer = show(other.value), lead.source.pointer
    return finding(facts.folder, OTHER_PLAN, layout.MANIFEST, what, expected=expected, pointer=pointer)


def _of_command(facts: Facts, lead: Statement, other: Statement) -> Problem:
    what = (
        f"The command line sets {lead.fact.removeprefix('setting.')} to {show(other.value)}; config.yaml states "
        f"{show(lead.value)} at {lead.source.pointer}."
    )
    expected, pointer = show(lead.value), other.source.pointer
    return finding(facts.folder, NOT_WHAT_RAN, layout.MANIFEST, what, expected=expected, pointer=pointer)


def _of_log(facts: Facts, lead: Statement, other: Statement) -> Problem:
    event, _, field = (other.source.pointer or "").partition("/")
    what = (
        f"The event {event} states {field} {show(other.value)}; "
        f"{lead.source.file} states {show(lead.value)} at {lead.source.pointer}."
    )
    line = other.source.line
    return finding(facts.folder, OTHER_IN_LOG, layout.LOG, what, expected=show(lead.value), line=line)


CHECKS = (repetitions_agree,)
