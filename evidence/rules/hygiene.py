"""TP6xx: what does no harm to the numbers and does not belong in a run folder."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Facts
from evidence.records.values import found
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, first_few

LEFT_OVER = Rule(
    "TP601",
    "Temporary file left over",
    "A document was being replaced when the process was killed; the document itself is the old one, and whole.",
    "Delete the temporary file.",
    "note",
)


def temporary_files(facts: Facts) -> Iterator[Problem]:
    """Yield a note for each temporary file of a write that was cut short."""
    yield from first_few(
        found(facts.folder, LEFT_OVER, name, "A temporary file was left over.")
        for name in facts.files
        if name.endswith(".tmp") and facts.status != "running"
    )


CHECKS = (temporary_files,)
