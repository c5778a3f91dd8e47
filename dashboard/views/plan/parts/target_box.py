"""The box of machines to plan for: those of the table, and files of the user's own."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import streamlit as st

from dashboard.shared.parts import gate, markup, problems
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import state
from evidence.targets import target_names, targets
from launch import own_targets
from schemas.problems import ProblemError
from schemas.reading import write_yaml

FIRST = "kaggle-tpu-v5e-8"
"""The target that is planned for first: it costs nothing."""

_OWN = "own "
_BOX, _FILE = "on", "file of an own machine"
_WRONG = "problems of an own machine"


@dataclass(frozen=True, kw_only=True)
class ChosenTarget:
    """A machine to plan for."""

    name: str
    path: Path | None
    """The file of one's own. None: the machine is in the table."""

    @property
    def on(self) -> str:
        """Value of `--on`."""
        return self.name if self.path is None else str(self.path.resolve())

    @property
    def shown(self) -> str:
        """What a reader who has the file would give `--on`."""
        return self.name if self.path is None else f"{self.name}.yaml"


def choose() -> ChosenTarget:
    """Draw the box and return what is chosen."""
    own = {f"{_OWN}{name}": (name, path) for name, path in own_targets.own_targets(state.root()).items()}
    names = [*target_names(), *own]
    chosen = st.selectbox(
        "On",
        names,
        index=names.index(FIRST),
        key=_BOX,
        bind="query-params",
        width=280,
        help="A machine of the table, this one, or one of your own from a file.",
    )
    name, path = own.get(chosen, (chosen, None))
    return ChosenTarget(name=name, path=path)


def add_own(chosen: ChosenTarget) -> None:
    """Draw where the file of an own machine is put in, with the chosen one as a pattern to change."""
    if not gate.may_operate():
        return
    with st.popover("A machine of your own", icon=":material/memory:"):
        markup.note("A YAML file with what the machine has: memory, speed, how long you may use it.")
        pattern = targets().get(chosen.name)
        if pattern is not None and chosen.path is None:
            markup.download(f"{chosen.name}.yaml, to change", write_yaml(dict(pattern.document)), "my-machine.yaml")
        st.file_uploader("The file", type=["yaml", "yml", "json"], key=_FILE, on_change=_put_in)
        problems.show(st.session_state.get(_WRONG, ()))


def _put_in() -> None:
    """Keep the file that was just given and choose it, or report what is wrong with it."""
    given = st.session_state.get(_FILE)
    st.session_state[_WRONG] = ()
    if given is None or not gate.may_operate():
        return
    with trying("The file could not be kept"):
        try:
            name = own_targets.keep(state.root(), given.getvalue(), file=given.name)
            st.session_state[_BOX] = f"{_OWN}{name}"
        except ProblemError as error:
            st.session_state[_WRONG] = error.problems
