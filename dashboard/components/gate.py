"""Whether this visitor may see the pages at all."""

from __future__ import annotations

import streamlit as st
from streamlit.errors import StreamlitSecretNotFoundError

from dashboard.components.problems import show
from dashboard.logic.exposure import refusal


def closed() -> bool:
    """Draw the refusal or the login where one is due, and return whether one was.

    `trainproof dashboard` refuses before it listens; this holds for `streamlit run` with other flags too.
    """
    has_login = _has_login()
    problem = refusal(st.get_option("server.address"), has_login=has_login)
    if problem is not None:
        show([problem])
        return True
    if has_login and not st.user.is_logged_in:
        st.title("trainproof")
        st.button("Log in", type="primary", icon=":material/login:", on_click=st.login)
        return True
    return False


def _has_login() -> bool:
    try:
        return "auth" in st.secrets
    except StreamlitSecretNotFoundError:
        return False
