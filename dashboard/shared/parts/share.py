"""The Share button, which downloads runs as one HTML page.

It does not open the page in a tab, because Streamlit would serve it from the dashboard's own origin without a content
security policy and without a login.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from dashboard.shared.parts import markup
from evidence.bundle.page import shared_report

_HELP = "Download figures, grades and findings as one HTML page without scripts. Secrets are masked."


def button(folders: Sequence[Path]) -> None:
    """Draw the button. The page is only created when it is pressed."""
    name = folders[0].name if len(folders) == 1 else "comparison"
    markup.download(
        "Share",
        lambda: shared_report(folders),
        f"{name}.html",
        mime="text/html",
        icon=":material/ios_share:",
        help=_HELP,
    )
