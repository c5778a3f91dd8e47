"""Who can reach the dashboard, and who may do what there.

The dashboard starts processes, so without a login only this machine may reach it. Once a login is configured, operators
start, stop, pack and note; viewers see everything. The `[roles]` section of Streamlit's secrets file lists both by
e-mail address, `*@example.com` for everyone of a host:

    [roles]
    operators = ["ann@example.com"]
    viewers = ["*@example.com"]

Who is in neither list sees nothing: with most providers anyone in the world can log in.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from typing import Any, Literal

from schemas.problems import Problem, problem_of

LOOPBACK = "127.0.0.1"
Role = Literal["operator", "viewer"]

_LISTS: Mapping[Role, str] = {"operator": "operators", "viewer": "viewers"}


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
    return problem_of(
        "TP080",
        file="",
        what=f"The dashboard will not listen on {address or 'every interface'} without a login.",
        next=f"Leave the address at {LOOPBACK} and reach it through an SSH tunnel, or configure a login: "
        "an [auth] section in .streamlit/secrets.toml, as Streamlit's st.login describes.",
    )


def role_of(claims: Mapping[str, Any], section: Mapping[str, Any]) -> Role | None:
    """Return the role of a user who has logged in, None for none.

    `claims` is what the provider states; an address that it calls unverified counts for nothing. `section`: `[roles]`.
    """
    email = claims.get("email")
    if not isinstance(email, str) or "@" not in email or claims.get("email_verified") in {False, "false"}:
        return None
    address = email.strip().lower()
    for role, name in _LISTS.items():
        listed = section.get(name)
        if not isinstance(listed, str) and any(_is_meant(address, str(entry)) for entry in listed or ()):
            return role
    return None


def no_role(claims: Mapping[str, Any]) -> Problem:
    """Return why a user who has logged in sees nothing."""
    email = claims.get("email")
    who = email if isinstance(email, str) and email else "an account without an e-mail address"
    verified = claims.get("email_verified") not in {False, "false"}
    return problem_of(
        "TP085",
        file="",
        what=f"You are logged in as {who}, and that account has no role here.",
        why="Only accounts that are listed may see runs."
        if verified
        else "The provider says that this address was never verified.",
    )


def _is_meant(address: str, entry: str) -> bool:
    """Return whether an entry of a list means an address: the same address, or `*@` and its host."""
    wanted = entry.strip().lower()
    if wanted.startswith("*@"):
        return len(wanted) > 2 and address.rpartition("@")[2] == wanted[2:]
    return address == wanted
