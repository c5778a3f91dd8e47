"""The button that gives runs as one page, to be sent to another person who has nothing installed.

It is a download and opens no tab: Streamlit serves a page only in the dashboard's own origin, without a policy that
forbids it scripts and without asking who is logged in; of its folder `static` every other site may read it too.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dashboard.shared.parts import markup
from evidence.bundle.page import shared_report

_HELP = "One page with figures, grades and findings, without script or network. Secrets in it are masked."


def button(folders: Sequence[Path]) -> None:
    """Draw the button; the page is written when it is pressed."""
    name = folders[0].name if len(folders) == 1 else "comparison"
    markup.download(
        "Share",
        lambda: shared_report(folders),
        f"{name}.html",
        mime="text/html",
        icon=":material/ios_share:",
        help=_HELP,
    )
