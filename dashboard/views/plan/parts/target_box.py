"""The box of machines to plan for."""

from __future__ import annotations

from dataclasses import dataclass

import streamlit as st

from evidence.targets import target_names

FIRST = "kaggle-tpu-v5e-8"
"""The target that is planned for first: it costs nothing."""


@dataclass(frozen=True, kw_only=True)
class ChosenTarget:
    """A machine to plan for."""

    name: str

    @property
    def on(self) -> str:
        """Value of `--on`."""
        return self.name


def choose() -> ChosenTarget:
    """Draw the box and return what is chosen."""
    names = target_names()
    name = st.selectbox("On", names, index=list(names).index(FIRST), key="on", bind="query-params", width=280)
    return ChosenTarget(name=name)
