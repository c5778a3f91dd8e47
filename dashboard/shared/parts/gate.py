"""Whether a user may see the pages, and whether they may change anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from dashboard.shared import configs, state
from dashboard.shared.access import Role, explain_missing_role, find_role, refusal
from dashboard.shared.parts import markup
from dashboard.shared.parts.problems import show
from launch import queue
from launch.jobs import LOCAL
from schemas.problems import ProblemError


def close_if_refused() -> bool:
    """Draw a refusal or the login instead of the pages if necessary, and return whether it was.

    `trainproof dashboard` refuses before it listens; this covers `streamlit run` with other flags too.
    """
    has_login = _section("auth") is not None
    problem = refusal(st.get_option("server.address"), has_login=has_login)
    if problem is not None:
        show([problem])
        return True
    if not has_login or _role() is not None:
        return False
    st.title("trainproof")
    if st.user.is_logged_in:
        show([explain_missing_role(st.user.to_dict())])
        st.button("Log out", icon=":material/logout:", on_click=st.logout)
    else:
        st.button("Log in", type="primary", icon=":material/login:", on_click=st.login)
    return True


def may_operate() -> bool:
    """Return whether this user may start, stop, pack and annotate: operators, or anyone if no login is configured.

    Everything that changes something calls this on the server; hiding a button is not enough.
    """
    return _section("auth") is None or _role() == "operator"


def viewer_note() -> None:
    """Tell viewers what they may not do."""
    if not may_operate():
        markup.note("You are logged in as a viewer: you can see everything, but not start, stop or package runs.")


def draw_account() -> None:
    """Draw who is logged in, and the button to log out."""
    if _section("auth") is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        markup.note(f"Logged in as {st.user.get('email')}, {_role()}.")
        st.button("Log out", icon=":material/logout:", type="tertiary", on_click=st.logout)


def _role() -> Role | None:
    return find_role(st.user.to_dict(), _section("roles") or {}) if st.user.is_logged_in else None


def _section(name: str) -> Mapping[str, Any] | None:
    try:
        found = st.secrets.get(name)
    except StreamlitSecretNotFoundError:
        return None
    return found if isinstance(found, Mapping) else None


def smoke_button() -> None:
    """Draw the button that starts the smallest smoke run."""
    with st.container(horizontal=True, horizontal_alignment="center"):
        if may_operate() and st.button("Start a smoke run", type="primary", icon=":material/play_arrow:"):
            start(configs.quick_smoke())
        if st.button("Choose a configuration"):
            state.go(state.LAUNCH)


def start(*configs: Mapping[str, Any], force: bool = False, place: str = LOCAL) -> None:
    """Queue valid configurations and open the first run, or show why that failed."""
    if not may_operate():
        return
    with trying("The run could not be started"):
        jobs = [queue.start(state.root(), config, force=force, place=place) for config in configs]
        state.go(state.RUN, run=jobs[0].run)


@contextmanager
def trying(failed: str) -> Iterator[None]:
    """Show an `OSError` or a `ProblemError` of an action on the page."""
    try:
        yield
    except OSError as error:
        markup.note(f"{failed}: {error}. Fix the error and try again.")
    except ProblemError as error:
        show(error.problems)


def act(label: str, action: Callable[[], object], failed: str, **button: Any) -> None:
    """Draw a button for operators. A press runs the action and reruns the page, or shows why the action failed."""
    if may_operate() and st.button(label, **button):
        with trying(failed):
            action()
            st.rerun()
