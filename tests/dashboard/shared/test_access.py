from __future__ import annotations

import socket
import tomllib
from pathlib import Path

import pytest

from dashboard import serve
from dashboard.shared.access import explain_missing_role, find_role, is_loopback, refusal
from schemas.problems import ProblemError
from schemas.render import render_sentence


@pytest.mark.parametrize("address", ["127.0.0.1", "127.1.2.3", "localhost", "::1", "[::1]"])
def test_this_machine_is_served(address: str) -> None:
    assert is_loopback(address)
    assert refusal(address, has_login=False) is None


@pytest.mark.parametrize("address", ["0.0.0.0", "::", "192.168.1.4", "example.org", "127.0.0.1.example.org", None])
def test_others_are_not_served_without_a_login(address: str | None) -> None:
    assert not is_loopback(address)
    assert refusal(address, has_login=False) is not None
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


def test_the_command_keeps_the_hosts_of_the_configuration_file_for_this_machine(tmp_path: Path) -> None:
    command = serve.command(tmp_path, port=8600, address="127.0.0.1", open_browser=False)
    assert command[:2] == ["run", str(serve.APP)]
    assert command[2:] == [
        "--server.port=8600",
        "--server.address=127.0.0.1",
        "--server.headless=true",
        "--logger.hideWelcomeMessage=true",
        "--logger.level=warning",
        "--",
        "--root",
        str(tmp_path),
    ]


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
    assert find_role({"email": email}, SECTION) == role


@pytest.mark.parametrize("verified", [False, "false"])
def test_an_address_that_was_never_verified_counts_for_nothing(verified: object) -> None:
    assert find_role({"email": "ann@example.com", "email_verified": verified}, SECTION) is None


@pytest.mark.parametrize(
    "section", [{}, {"operators": "*@example.com"}, {"operators": ["*", "*@", "@"]}, {"operators": None}]
)
def test_nobody_has_a_role_by_mistake(section: dict) -> None:
    assert find_role({"email": "ann@example.com"}, section) is None


def test_who_has_no_role_is_told_what_to_ask_for() -> None:
    assert "You are logged in as eve@elsewhere.org" in render_sentence(
        explain_missing_role({"email": "eve@elsewhere.org"})
    )
    assert "is not verified" in render_sentence(explain_missing_role({"email": "a@b.c", "email_verified": False}))
    assert "an account without an e-mail address" in render_sentence(explain_missing_role({}))
