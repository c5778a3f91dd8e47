"""Whether this visitor may see the pages at all, and whether they may change anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from dashboard.shared.access import Role, no_role, refusal, role_of
from dashboard.shared.parts import markup
from dashboard.shared.parts.problems import show


def close_if_refused() -> bool:
    """Draw the refusal or the login where one is due, and return whether one was.

    `trainproof dashboard` refuses before it listens; this holds for `streamlit run` with other flags too.
    """
    has_login = _section("auth") is not None
    problem = refusal(st.get_option("server.address"), has_login=has_login)
    if problem is not None:
        show([problem])
        return True
    if not has_login:
        return False
    if not st.user.is_logged_in:
        st.title("trainproof")
        st.button("Log in", type="primary", icon=":material/login:", on_click=st.login)
        return True
    if _role() is None:
        st.title("trainproof")
        show([no_role(st.user.to_dict())])
        st.button("Log out", icon=":material/logout:", on_click=st.logout)
        return True
    return False


def may_operate() -> bool:
    """Return whether this visitor may start, stop, pack and note: anyone where no login is configured, else operators.

    What changes anything calls this on the server; a button that is not drawn for a user cannot be pressed by them.
    """
    return _section("auth") is None or _role() == "operator"


def viewer_note() -> None:
    """Show a viewer what is not for them; nothing for anyone else."""
    if not may_operate():
        markup.note("You are logged in as a viewer: you can look at everything, but not start, stop or pack.")


def signed_in() -> None:
    """Draw who is logged in, and the way out; nothing where no login is configured."""
    if _section("auth") is None:
        return
    with st.container(horizontal=True, vertical_alignment="center"):
        markup.note(f"Logged in as {st.user.get('email')}, {_role()}.")
        st.button("Log out", icon=":material/logout:", type="tertiary", on_click=st.logout)


def _role() -> Role | None:
    return role_of(st.user.to_dict(), _section("roles") or {}) if st.user.is_logged_in else None


def _section(name: str) -> Mapping[str, Any] | None:
    try:
        found = st.secrets.get(name)
    except StreamlitSecretNotFoundError:
        return None
    return found if isinstance(found, Mapping) else None
