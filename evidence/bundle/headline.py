"""The one sentence that states what is wrong with a bundle: the cause, of which the other findings follow."""

from __future__ import annotations

import re
from collections.abc import Iterator

from evidence.bundle.verdict import BundleVerdict, VerifiedRun
from schemas.formats import quantity
from schemas.problems import Problem

_SCORE = re.compile(r"metrics\.(\w+)\.value is ([\d.e+-]+); predictions\.jsonl gives ([\d.e+-]*\d)\.")


def headline(verdict: BundleVerdict) -> str:
    """Return what is wrong in a sentence, of the cause that weighs most; empty for a bundle that holds.

    A stated score that the answers do not give comes first, then any other contradiction inside a run, then files that
    were changed, then whatever was found first.
    """
    if verdict.ok:
        return ""
    causes = [
        *(said for run in verdict.runs for said in _scores(run)),
        *(f"{run.run_id}: {found.what}" for run in verdict.runs for found in _errors(run) if found.code[2] == "3"),
        *_changed_lines(verdict),
        *(found.what for found in (*verdict.findings, *verdict.witness_problems) if found.severity == "error"),
    ]
    return causes[0]


def _scores(run: VerifiedRun) -> Iterator[str]:
    for found in _errors(run):
        score = _SCORE.fullmatch(found.what) if found.code == "TP340" else None
        if score is not None:
            what = "" if score[1] == "exact_match" else f" as {score[1].replace('_', ' ')}"
            answers = (
                "predictions give" if run.predictions is None else f"{quantity(run.predictions, 'prediction')} give"
            )
            give = answers.replace("prediction give", "prediction gives")
            yield f"{run.run_id} claims {float(score[2]):.4g}{what}; its {give} {float(score[3]):.4g}."


def _changed_lines(verdict: BundleVerdict) -> Iterator[str]:
    files = [found.file for found in verdict.findings if found.code == "TP823"]
    if files:
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        yield f"{files[0]}{more} changed since the bundle was built."


def _errors(run: VerifiedRun) -> Iterator[Problem]:
    return (found for found in run.findings if found.severity == "error")
