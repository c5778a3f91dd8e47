"""Who can reach the dashboard. It starts processes, so without a login only this machine may."""

from __future__ import annotations

import ipaddress

from schemas.problems.problem import Problem

LOOPBACK = "127.0.0.1"


def is_loopback(address: str | None) -> bool:
    """Return whether only this machine can connect to a listening address; None means every interface."""
    if address is None:
        return False
    if address == "localhost":
        return True
    try:
        return ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def refusal(address: str | None, *, has_login: bool) -> Problem | None:
    """Return why the dashboard must not listen on an address, None where it may."""
    if is_loopback(address) or has_login:
        return None
    return Problem(
        code="TP080",
        severity="error",
        file="",
        what=f"The dashboard will not listen on {address or 'every interface'} without a login.",
        why="Anyone who reaches it can start and stop runs on this machine.",
        next=f"Leave the address at {LOOPBACK} and reach it through an SSH tunnel, or configure a login: "
        "an [auth] section in .streamlit/secrets.toml, as Streamlit's st.login describes.",
    )
