"""The pictures of the plan page that only it has: every target against its limit, and batch by length."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st

from dashboard.shared.parts import markup, plotted
from dashboard.views.plan.logic import grid, where
from schemas.reading.values import number_at


def targets(answer: Mapping[str, Any], *, chosen: str, plan: Mapping[str, Any] | None = None) -> None:
    """Draw where the configuration can run, and the same as a table.

    Args:
        answer: Of `--where`.
        chosen: The target that the rest of the page is about.
        plan: Of that target, which may be surer than the answer, or of a machine that the table has not.
    """
    found = where.places(answer, plan=plan, chosen=chosen)
    if not found:
        markup.note("The answer names no target.")
        return
    said = where.in_one_sentence(found)
    markup.note(said)
    plotted.show(where.bars(found, plotted.colours(), chosen=chosen), key="where", alt=said)
    for reason in where.why_unsupported(found):
        markup.note(reason)
    if known := where.known_by(found, chosen):
        st.caption(known)
    table = st.expander("The same as a table", type="compact", key="where table", on_change="rerun")
    if table.open:
        with table:
            markup.table(where.HEAD, where.rows(found), numbers=range(2, 7))


def sizes(answer: Mapping[str, Any], config: Mapping[str, Any]) -> None:
    """Draw which batches and lengths fit, round the one of the configuration a frame."""
    found = grid.grid(answer)
    if found is None:
        markup.note("The answer names no sizes.")
        return
    said = grid.in_one_sentence(found)
    markup.note(said)
    chosen = (number_at(config, "batch", "microbatch_size"), number_at(config, "data", "max_length"))
    batch, length = (None if one is None else int(one) for one in chosen)
    plotted.show(grid.heat_map(found, plotted.colours(), chosen=(batch, length)), key="sizes", alt=said)
    yours = " The dotted frame: yours." if grid.is_in(found, batch, length) else ""
    how = f" All {grid.method_of(found)}." if grid.method_of(found) else ""
    st.caption(f"✓ fits · ! tight · ✕ does not fit. The thick line: all sizes below it fit.{yours}{how}")
