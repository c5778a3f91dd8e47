from __future__ import annotations

import pytest

from dashboard.shared.access.roles import no_role, role_of
from schemas.problems.render import as_sentence

SECTION = {"operators": ["Ann@Example.com"], "viewers": ["*@example.com", "bob@elsewhere.org"]}


@pytest.mark.parametrize(
    ("email", "role"),
    [
        ("ann@example.com", "operator"),
        (" ANN@EXAMPLE.COM", "operator"),
        ("carl@example.com", "viewer"),
        ("bob@elsewhere.org", "viewer"),
        ("eve@elsewhere.org", None),
        ("eve@notexample.com", None),
        ("eve@sub.example.com", None),
        ("ann@example.com@evil.org", None),
        ("example.com", None),
        ("", None),
        (None, None),
        (["ann@example.com"], None),
    ],
)
def test_a_role_is_what_the_lists_say(email: object, role: str | None) -> None:
    assert role_of({"email": email}, SECTION) == role


@pytest.mark.parametrize("verified", [False, "false"])
def test_an_address_that_was_never_verified_counts_for_nothing(verified: object) -> None:
    assert role_of({"email": "ann@example.com", "email_verified": verified}, SECTION) is None


@pytest.mark.parametrize(
    "section", [{}, {"operators": "*@example.com"}, {"operators": ["*", "*@", "@"]}, {"operators": None}]
)
def test_nobody_has_a_role_by_mistake(section: dict) -> None:
    assert role_of({"email": "ann@example.com"}, section) is None


def test_who_has_no_role_is_told_what_to_ask_for() -> None:
    assert as_sentence(no_role({"email": "eve@elsewhere.org"})) == (
        "You are logged in as eve@elsewhere.org, and that account has no role here. "
        "Only accounts that are listed may see runs. "
        "Next: Ask the owner of this dashboard to list the account under operators or viewers in the [roles] section "
        "of .streamlit/secrets.toml."
    )
    assert "never verified" in as_sentence(no_role({"email": "a@b.c", "email_verified": False}))
    assert "an account without an e-mail address" in as_sentence(no_role({}))
