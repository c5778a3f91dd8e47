from __future__ import annotations

import socket
import tomllib
from pathlib import Path

import pytest

from dashboard import serve
from dashboard.shared.access import explain_missing_role, find_role, is_loopback, refusal
from schemas.problems import ProblemError
from schemas.render import render_sentence

LOCAL = ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"]
OTHERS = ["0.0.0.0", "::", "192.168.1.4", "example.org", "127.0.0.1.example.org", None]


@pytest.mark.parametrize("address", [*LOCAL, *OTHERS])
def test_only_this_machine_is_served_without_a_login(address: str | None) -> None:
    assert is_loopback(address) == (refusal(address, has_login=False) is None) == (address in LOCAL)
    assert refusal(address, has_login=True) is None


def test_a_port_in_use_is_refused_with_its_number(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ProblemError) as refused:
            serve.serve(tmp_path, port=port, open_browser=False)
    assert refused.value.exit_code == 2
    assert refused.value.problems[0].what == f"Port {port} is in use on 127.0.0.1, or cannot be used."


def test_the_configuration_file_is_safe() -> None:
    found = tomllib.loads((serve.APP.parent / ".streamlit" / "config.toml").read_text("utf-8"))
    assert found["server"]["address"] == "127.0.0.1"
    assert found["server"]["allowedHosts"] == ["localhost", "127.0.0.1"]
    assert found["server"]["enableCORS"] is True
    assert found["server"]["enableXsrfProtection"] is True
    assert found["client"]["disableDataExport"] is True
    assert found["browser"]["gatherUsageStats"] is False


def test_a_login_is_found_where_streamlit_finds_it(tmp_path: Path) -> None:
    assert not serve.has_login(tmp_path)
    (tmp_path / ".streamlit").mkdir()
    (tmp_path / ".streamlit" / "secrets.toml").write_text("[auth]\nredirect_uri = 'x'\n")
    assert serve.has_login(tmp_path)


SECTION = {"operators": ["Ann@Example.com"], "viewers": ["*@example.com", "bob@elsewhere.org"]}


OPERATORS = ["ann@example.com", " ANN@EXAMPLE.COM"]
VIEWERS = ["carl@example.com", "bob@elsewhere.org"]
STRANGERS = ["eve@elsewhere.org", "eve@notexample.com", "eve@sub.example.com", "ann@example.com@evil.org"]
NOBODY = ["example.com", "", None, ["ann@example.com"]]


@pytest.mark.parametrize("email", [*OPERATORS, *VIEWERS, *STRANGERS, *NOBODY])
def test_a_role_is_what_the_lists_say(email: object) -> None:
    role = "operator" if email in OPERATORS else "viewer" if email in VIEWERS else None
    assert find_role({"email": email}, SECTION) == role


@pytest.mark.parametrize(
    ("claims", "section"),
    [
        ({"email_verified": False}, SECTION),
        ({"email_verified": "false"}, SECTION),
        ({}, {}),
        ({}, {"operators": "*@example.com"}),
        ({}, {"operators": ["*", "*@", "@"]}),
        ({}, {"operators": None}),
    ],
)
def test_nobody_has_a_role_by_mistake_or_by_an_address_that_was_never_verified(claims: dict, section: dict) -> None:
    assert find_role({"email": "ann@example.com"} | claims, section) is None


def test_who_has_no_role_is_told_what_to_ask_for() -> None:
    assert "is not verified" in render_sentence(explain_missing_role({"email": "a@b.c", "email_verified": False}))
    assert "an account without an e-mail address" in render_sentence(explain_missing_role({}))
