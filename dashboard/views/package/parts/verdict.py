"""The verdict on a bundle: whether it is valid, what is proven, and every run graded again."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from dashboard.shared.parts import markup, problems
from dashboard.shared.words.grades import GRADES, Sign, label
from dashboard.shared.words.text import plain
from evidence.bundle.verify import BundleVerdict, headline
from schemas import formats
from schemas.formats import quantity
from schemas.problems import Problem

_SIGNS = {
    "valid": Sign(symbol="✓", tone="good", meaning="Nothing is wrong with the bundle."),
    "valid, labelled partial": Sign(symbol="◔", tone="poor", meaning="Intact, but not a result."),
    "not valid": Sign(symbol="✕", tone="bad", meaning="The bundle was changed or is damaged."),
}


def show(verdict: BundleVerdict, name: str) -> None:
    """Draw the verdict on a bundle of this name."""
    word = "not valid" if not verdict.ok else "valid, labelled partial" if verdict.partial else "valid"
    with st.container(border=True):
        digest = f" · content {verdict.content_sha256}" if verdict.content_sha256 else ""
        cause = headline(verdict)
        st.html(
            f'<div class="tp-head">{markup.sign(_SIGNS, word)}<b>{markup.safe(name)}</b></div>'
            f'{f"""<p class="tp-answer">{markup.safe(cause)}</p>""" if cause else ""}'
            f'<p class="tp-sub">{markup.words(verdict.proven)}</p>'
            f'<p class="tp-sub">{markup.safe(formats.count(verdict.files))} files, '
            f"{markup.safe(formats.size(verdict.size_bytes))} unpacked{markup.safe(digest)}</p>"
        )
        if verdict.runs:
            markup.table(
                ["Run", "Grade found", "Grade stated", "Because"],
                [
                    (
                        run.name,
                        label(GRADES, run.grade.name) + run.grade.describe().removeprefix(run.grade.name),
                        run.stated_grade or formats.NOTHING,
                        " ".join(run.grade.reasons),
                    )
                    for run in verdict.runs
                ],
            )
        _findings("of the bundle", verdict.findings)
        for run in verdict.runs:
            _findings(f"of {run.name}", run.findings)


def _findings(of_what: str, found: Sequence[Problem]) -> None:
    """Draw findings folded under the headline that they follow from."""
    if found:
        with st.expander(f"{quantity(len(found), 'finding')} {plain(of_what)}"):
            problems.show(found)
