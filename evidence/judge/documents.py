"""The documents of a run as evidence: what each follows, how much stands in it, and whether it is as it was sealed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from evidence.records.facts import Facts
from evidence.rules.contradiction.log import SEALED
from evidence.run.layout import EVAL_SUMMARY, LOG, MANIFEST, METRICS, PREDICTIONS
from foreign.readers.view import ForeignRun
from schemas.catalog import is_rows, kind_of
from schemas.problems import Problem
from schemas.reading import get_str

Seal = Literal["matches", "differs", "not listed", "not stated", "not sealed", "not checked"]
"""What a stated hash states of a file. Not sealed: the run has not ended. Not checked: the manifest cannot be read."""

MANIFEST_CARD, SUMMARY_CARD, LOGS_CARD = "Run manifest", "Eval summary", "Logs"
CARDS: dict[str, tuple[str, ...]] = {
    MANIFEST_CARD: (MANIFEST,),
    SUMMARY_CARD: (EVAL_SUMMARY,),
    LOGS_CARD: (LOG, METRICS, PREDICTIONS),
}
"""The three documents that are handed in, and their files."""

FACTS, SCORES, ROWS, ANSWERS = "facts", "scores", "rows", "answers"
IN_THEIR_PLACE: dict[str, tuple[str, ...]] = {
    MANIFEST_CARD: (FACTS,),
    SUMMARY_CARD: (SCORES,),
    LOGS_CARD: (ROWS, ANSWERS),
}
"""What stands in the place of each in a run of another tool."""

_DIFFER = {"TP201", "TP202", "TP213", "TP210"}


@dataclass(frozen=True, kw_only=True)
class DocumentState:
    """One document of a run; of another tool's run, what its files gave in place of one.

    Attributes:
        name: Its file; one of `FACTS`, `SCORES`, `ROWS`, `ANSWERS` for another tool's run.
        schema: The kind of document that it is checked as; empty where no schema is followed.
        version: The schema's version that it states, or the manifest of its run. None: none is stated.
        is_there: Whether there is such a file; of another tool's run, whether its files gave any.
        rows: How many rows, facts, scores or answers. None: it is not a file of rows.
        errors: Findings about it that are errors.
        seal: What its stated hash states.
    """

    name: str
    schema: str
    version: str | None
    is_there: bool
    rows: int | None
    errors: int
    seal: Seal

    @property
    def mark(self) -> Literal["valid", "wrong", "missing", "another tool's"]:
        """Its state in a word; what another tool's files state follows no schema."""
        if self.errors:
            return "wrong"
        if not self.is_there:
            return "missing"
        return "valid" if self.schema else "another tool's"


def documents_of(facts: Facts, view: ForeignRun | None, findings: Iterable[Problem]) -> tuple[DocumentState, ...]:
    """Return the documents of `CARDS` in their order, or what another tool's run has `IN_THEIR_PLACE`.

    Args:
        facts: What the run states.
        view: What another tool's files state. None: trainproof wrote the run.
        findings: Everything that was found in the run.
    """
    if view is not None:
        given = {FACTS: view.facts, SCORES: view.scores, ROWS: view.metrics, ANSWERS: view.predictions}
        return tuple(_given_state(name, given[name]) for names in IN_THEIR_PLACE.values() for name in names)
    found = tuple(findings)
    states = [_state(facts, name, found) for names in CARDS.values() for name in names]
    return with_errors(states, facts.folder, found)


def with_errors(
    states: Sequence[DocumentState], folder: Path, findings: Iterable[Problem]
) -> tuple[DocumentState, ...]:
    """Return the documents with the errors among these findings counted."""
    errors = Counter(problem.file for problem in findings if problem.severity == "error")
    return tuple(replace(state, errors=errors[str(folder / state.name)]) for state in states)


def errors_of(folder: Path, name: str, findings: Iterable[Problem]) -> list[Problem]:
    """Return the errors about one document, in the order of the findings."""
    return [problem for problem in findings if problem.severity == "error" and problem.file == str(folder / name)]


def _given_state(name: str, given: Sequence[object]) -> DocumentState:
    return DocumentState(
        name=name, schema="", version=None, is_there=bool(given), rows=len(given), errors=0, seal="not stated"
    )


def _state(facts: Facts, name: str, findings: Sequence[Problem]) -> DocumentState:
    schema, run = kind_of(name) or "", facts.run
    rows = run.rows(name) if is_rows(schema) and name in facts.files else None
    document = run.eval_summary if name == EVAL_SUMMARY else run.manifest
    return DocumentState(
        name=name,
        schema=schema,
        version=get_str(document, "schema_version"),
        is_there=name in facts.files,
        rows=None if rows is None else len(rows.values) + len(rows.left_out),
        errors=0,
        seal=_seal(facts, name, findings),
    )


def _seal(facts: Facts, name: str, findings: Sequence[Problem]) -> Seal:
    if facts.manifest is None:
        return "not checked"
    if not facts.is_sealed:
        return "not sealed"
    if name == MANIFEST:
        if any(problem.code == "TP212" for problem in findings):
            return "differs"
        records = facts.log or []
        is_stated = any(one["event"] == SEALED and "manifest_sha256" in one["fields"] for one in records)
        return "matches" if is_stated else "not stated"
    if all(artifact["path"] != name for artifact in facts.manifest["artifacts"]):
        return "not listed"
    is_other = name not in facts.files or any(
        problem.code in _DIFFER and problem.file == str(facts.folder / name) for problem in findings
    )
    return "differs" if is_other else "matches"
