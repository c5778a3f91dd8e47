"""Who can reach the dashboard, and who may do what there (docs/guides/dashboard.md).

The dashboard starts processes, so without a login only this machine may reach it. With a login, users in neither list
of the `[roles]` section see nothing: with most providers anyone in the world can log in.
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
    try:
        return address == "localhost" or ipaddress.ip_address(address.strip("[]")).is_loopback
    except ValueError:
        return False


def refusal(address: str | None, *, has_login: bool) -> Problem | None:
    """Return why the dashboard must not listen on an address, or None if it may."""
    if is_loopback(address) or has_login:
        return None
    return problem_of(
        "TP080",
        file="",
        what=f"The dashboard does not listen on {address or 'every interface'} without a login.",
        next=f"Leave the address at {LOOPBACK} and use an SSH tunnel, or configure a login: an [auth] section in "
        ".streamlit/secrets.toml, as described in Streamlit's documentation of st.login.",
    )


def find_role(claims: Mapping[str, Any], section: Mapping[str, Any]) -> Role | None:
    """Return the role of a logged-in user by the `[roles]` section, or None, also if the address is unverified."""
    email = claims.get("email")
    if not isinstance(email, str) or "@" not in email or not _is_verified(claims):
        return None
    address = email.strip().lower()
    for role, name in _LISTS.items():
        listed = section.get(name)
        if not isinstance(listed, str) and any(_matches(address, str(entry)) for entry in listed or ()):
            return role
    return None


def explain_missing_role(claims: Mapping[str, Any]) -> Problem:
    """Return why a logged-in user without a role sees nothing."""
    email = claims.get("email")
    user = email if isinstance(email, str) and email else "an account without an e-mail address"
    unlisted, unverified = "Only listed accounts may see runs.", "The provider states that the address is not verified."
    return problem_of(
        "TP085",
        file="",
        what=f"You are logged in as {user}, and this account has no role.",
        why=unlisted if _is_verified(claims) else unverified,
    )


def _is_verified(claims: Mapping[str, Any]) -> bool:
    return claims.get("email_verified") not in {False, "false"}


def _matches(address: str, entry: str) -> bool:
    """Return whether an entry is this address, or `*@` and its domain."""
    wanted = entry.strip().lower()
    if wanted.startswith("*@"):
        return len(wanted) > 2 and address.rpartition("@")[2] == wanted[2:]
    return address == wanted
