"""Which figures may be shown as results: those that follow from rows nobody has found fault with.

A number that cannot be traced is not shown as a result, whatever a document states. Lists, pages and reports take their
figures from here; the findings say why one is missing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from evidence.records.facts import Facts
from evidence.rules.integrity import LINE_ENDS
from evidence.run import layout
from evidence.scores.recompute import result_of
from schemas.problems.problem import Problem

_OF_SCORES = {layout.EVAL_SUMMARY, layout.PREDICTIONS, layout.BASELINE_PREDICTIONS}


def traced(facts: Facts, findings: Iterable[Problem]) -> Facts:
    """Return the facts without every figure that an error concerns: scores as a whole, results one by one.

    Converted line ends leave every figure traceable: each was computed again from the same rows.
    """
    errors = [problem for problem in findings if problem.severity == "error" and problem.code != LINE_ENDS.code]
    faulty = {Path(problem.file).name for problem in errors}
    lost = {problem.pointer for problem in errors if Path(problem.file).name == layout.MANIFEST}
    if layout.METRICS in faulty:
        lost |= {f"/result/{name}" for name in result_of([])}
    manifest = facts.manifest
    if manifest is not None:
        kept = {name: None if f"/result/{name}" in lost else value for name, value in manifest["result"].items()}
        manifest = manifest | {"result": kept}
    return replace(facts, manifest=manifest, eval_summary=None if faulty & _OF_SCORES else facts.eval_summary)
