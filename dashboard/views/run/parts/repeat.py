"""Whether anyone repeated or witnessed a run, and repeating it here."""

from __future__ import annotations

import streamlit as st

from dashboard.shared.parts import markup, repeating
from dashboard.shared.session import reading
from dashboard.shared.words.grades import GRADES
from evidence.proof.receipts import run_sha256
from evidence.proof.verification import Proof, proofs_of
from evidence.records.ours import Run
from evidence.run.layout import CONFIG
from schemas.reading.values import number_at


def section(run: Run) -> None:
    """Draw who has repeated a run, and how it is repeated here."""
    sha256 = run_sha256(run.path)
    if sha256 is None or CONFIG not in run.files:
        markup.empty("Nothing to repeat", "A run is repeated from its run_manifest.json and its config.yaml.")
        return
    if run.status == "running":
        markup.empty("Not yet", "A run is repeated when it has ended.")
        return
    grade = reading.check(run.path).grade
    sign = markup.sign(GRADES, grade.name, grade.coverage)
    st.html(f'<p class="tp-sub">{sign} {markup.safe(GRADES[grade.name].meaning)}</p>')
    proofs = proofs_of(run.path, sha256)
    if proofs:
        markup.table(
            ["By", "When", "What came of it"],
            [
                (proof.by or "an unknown person", markup.when(proof.made_at, reading.reader_zone()), _describe(proof))
                for proof in proofs
            ],
            quiet=[number for number, proof in enumerate(proofs) if not proof.by],
        )
    steps = number_at(run.manifest, "training", "steps_done")
    subject = repeating.ReplaySubject(path=run.path, sha256=sha256, steps=int(steps or 0), name=f"{run.path}")
    repeating.show(subject, key=f"repeat {run.path.name}")


def _describe(proof: Proof) -> str:
    """Return what came of a repetition, and how much of the run it covers."""
    return proof.said if proof.marks is None else f"{proof.said} {proof.marks.said}"
