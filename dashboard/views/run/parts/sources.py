"""A run of another tool: what its files state, each thing with its source, and what was only inferred."""

from __future__ import annotations

import streamlit as st

from dashboard.shared.charts import foreign_run
from dashboard.shared.parts import markup
from evidence.records.foreign.view import ForeignRun

_MOST_FACTS = 500


def section(view: ForeignRun) -> None:
    """Draw the facts, the scores and the files of a run that trainproof did not carry out."""
    tools = ", ".join(view.tools) or "no tool that is known here"
    markup.note(f"Written by {tools}. ≈ inferred, not stated.")
    facts = foreign_run.fact_rows(view)
    if facts:
        markup.table(
            ["Fact", "Value", "How", "Source", "Note"],
            facts[:_MOST_FACTS],
            quiet=[index for index, row in enumerate(facts[:_MOST_FACTS]) if row[2] != "stated"],
        )
    if len(facts) > _MOST_FACTS:
        st.caption(f"Not shown: {len(facts) - _MOST_FACTS:,} more. `trainproof show --json` prints them all.")
    scores = foreign_run.score_rows(view)
    if scores:
        st.header("Scores, as stated", anchor=False)
        markup.table(["Score", "Value", "Checkpoint", "How", "Source", "Note"], scores, numbers=[1])
    st.header("Files", anchor=False)
    markup.table(["File", "Written by", "What it gave"], foreign_run.file_rows(view))
