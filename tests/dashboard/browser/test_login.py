"""A real login at a real provider of OpenID Connect, small and on this machine, with a role each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import serving
from playwright.sync_api import Browser, Page, expect
from synthetic import write_run

pytestmark = [
    pytest.mark.browser,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of the provider's own libraries
]

SECRETS = """
[auth]
redirect_uri = "http://127.0.0.1:{{port}}/oauth2callback"
cookie_secret = "a secret of this test that is long enough"
client_id = "trainproof"
client_secret = "anything"
server_metadata_url = "http://localhost:{port}/.well-known/openid-configuration"

[roles]
operators = ["ann@example.com"]
viewers = ["bob@example.com"]
"""


@pytest.fixture
def served(tmp_path: Path) -> Iterator[str]:
    """Serve one run with a login, and the provider that it asks."""
    import oidc_provider_mock as provider

    write_run(tmp_path / "runs", "alpha")
    people = [
        provider.User(sub=email, claims={"email": email, "email_verified": True})
        for email in ("ann@example.com", "bob@example.com", "eve@elsewhere.org")
    ]
    with provider.run_server_in_thread(user_claims=people) as server:
        (tmp_path / ".streamlit").mkdir()
        (tmp_path / ".streamlit" / "secrets.toml").write_text(SECRETS.format(port=server.server_port))
        with serving(tmp_path / "runs", tmp_path) as address:
            yield address


def log_in(browser: Browser, address: str, email: str) -> Page:
    """Return a fresh browser's page after a login."""
    page = browser.new_context(viewport={"width": 1400, "height": 900}).new_page()
    page.route("**/*jsdelivr*/**", lambda route: route.abort())  # The provider's own looks; no matter here.
    page.goto(f"{address}/launch")
    page.get_by_role("button", name="Log in").click()
    page.get_by_role("button", name=email).click()
    return page


def test_operators_start_viewers_look_and_strangers_see_nothing(served: str, browser: Browser) -> None:
    page = log_in(browser, served, "ann@example.com")
    expect(page.get_by_text("Logged in as ann@example.com, operator.")).to_be_visible()
    page.get_by_role("link", name="Launch").click()
    expect(page.get_by_role("button", name="Start Shortcut")).to_be_visible()
    page.get_by_role("button", name="Log out").click()
    page.get_by_role("button", name="End session").click()
    expect(page.get_by_role("button", name="Log in")).to_be_visible()

    page = log_in(browser, served, "bob@example.com")
    expect(page.get_by_text("Logged in as bob@example.com, viewer.")).to_be_visible()
    page.get_by_role("link", name="Launch").click()
    expect(page.get_by_text("You are logged in as a viewer")).to_be_visible()
    expect(page.get_by_role("button", name="Start Shortcut")).to_have_count(0)
    page.goto(f"{served}/run?run=alpha&view=Play")
    expect(page.get_by_text("Only operators can start a model")).to_be_visible()
    expect(page.get_by_role("button", name="Ask", exact=True)).to_have_count(0)

    page = log_in(browser, served, "eve@elsewhere.org")
    expect(page.get_by_text("You are logged in as eve@elsewhere.org, and this account has no role.")).to_be_visible()
    expect(page.get_by_text("alpha")).to_have_count(0)
