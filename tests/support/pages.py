"""What a page of the dashboard says, as AppTest sees it without a browser."""

from collections.abc import Callable
from pathlib import Path

from streamlit.testing.v1 import AppTest

import dashboard

APP = Path(dashboard.__file__).parent / "app.py"
Open = Callable[..., AppTest]


def said(app: AppTest) -> str:
    """Return all HTML and text of the page that somebody sees."""
    html = [element.proto.body for element in app.get("html") if not element.proto.unsafe_allow_javascript]
    figures = [f"{metric.label} {metric.value}" for metric in app.metric]
    return "\n".join(
        [*html, *figures, *(element.value for element in [*app.markdown, *app.caption, *app.header, *app.warning])]
    )


def press(app: AppTest, name: str) -> AppTest:
    """Press the button of this label or key, and have the page drawn."""
    app = next(button for button in app.button if name in {button.label, button.key}).click().run()
    assert not app.exception, app.exception
    return app


def labels(app: AppTest) -> list[str]:
    """Return the labels of the buttons that can be pressed."""
    return [button.label for button in app.button if not button.disabled]
