"""Theme of the Plotly figures: colors of the light and the dark theme, layout, units, escaped labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from dashboard.shared.words import Tone, shorten
from evidence.bundle.secrets import strip_invisible

_MAX_LABEL = 60
_FONT = '"Source Sans", sans-serif'
_UNITS: Mapping[str, Sequence[tuple[float, float, str]]] = {
    "bytes": [(0.95 * 2**30, 2**30, "GiB"), (0.95 * 2**20, 2**20, "MiB"), (0.95 * 2**10, 2**10, "KiB")],
    "seconds": [(2 * 3600, 3600, "hours"), (120, 60, "minutes")],
    "tokens": [(1e9, 1e9, "billion tokens"), (1e6, 1e6, "million tokens"), (1e3, 1e3, "thousand tokens")],
}
"""By unit: smallest maximum, divisor and name of each larger unit."""
_USES = ("parameters", "optimizer state", "gradients", "activations", "logits", "key-value cache", "other")


class Palette(NamedTuple):
    """Colours of one theme."""

    ink: str
    quiet: str
    line: str
    paper: str
    tones: Mapping[Tone, str]
    backs: Mapping[Tone, str]
    parts: Mapping[str, str]
    """Colours of memory by use: blue is kept during training, orange is temporary, purple is the cache."""


LIGHT = Palette(
    ink="#111920",
    quiet="#4a5761",
    line="#d8dee2",
    paper="#ffffff",
    tones={"good": "#1f7a54", "fair": "#1f5b8f", "poor": "#b3681b", "bad": "#bb3a3a", "quiet": "#5c6973"},
    backs={"good": "#e4f3eb", "fair": "#e6eff7", "poor": "#fbefdf", "bad": "#fbe9e8", "quiet": "#eef1f3"},
    parts=dict(zip(_USES, ["#1f5b8f", "#5b8fbf", "#a9c8e3", "#c0721d", "#e6b37a", "#8a4a9e", "#aab4bb"], strict=True)),
)
DARK = Palette(
    ink="#e4e9ec",
    quiet="#b4bfc7",
    line="#343e46",
    paper="#13181c",
    tones={"good": "#6ec79d", "fair": "#7fb4e3", "poor": "#e0a25a", "bad": "#ee8a86", "quiet": "#9aa7b0"},
    backs={"good": "#17342a", "fair": "#1a2f42", "poor": "#38290f", "bad": "#402022", "quiet": "#242c32"},
    parts=dict(zip(_USES, ["#7fb4e3", "#4c83b5", "#2e567b", "#e0a25a", "#96682f", "#c99adb", "#5f6b74"], strict=True)),
)


def palette(theme: str | None) -> Palette:
    """Return the colors of a theme: `dark`, or light for anything else."""
    return DARK if theme == "dark" else LIGHT


def template(colours: Palette) -> go.layout.Template:
    """Build the Plotly template of a theme."""
    axis = {
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"color": colours.quiet, "size": 12},
        "title": {"font": {"color": colours.quiet, "size": 12}, "standoff": 8},
        "ticklabelstandoff": 5,
        "automargin": True,
        "fixedrange": True,
    }
    font = {"family": _FONT, "color": colours.ink}
    layout = {
        "font": font | {"size": 12},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": colours.paper, "bordercolor": colours.line, "font": font},
        "xaxis": axis,
        "yaxis": axis | {"gridcolor": "rgba(0,0,0,0)"},
        "uniformtext": {"minsize": 11, "mode": "hide"},
        "bargap": 0.35,
        "barmode": "overlay",
        "showlegend": False,
        "dragmode": False,
        "margin": {"l": 8, "r": 16, "t": 24, "b": 8},
    }
    return go.layout.Template(layout=layout)


def choose_unit(unit: str, largest: float) -> tuple[float, str]:
    """Return the divisor and the name of a unit that fits the largest value of an axis.

    >>> choose_unit("bytes", 15.75 * 2**30), choose_unit("seconds", 600), choose_unit("seconds", 8)
    ((1073741824, 'GiB'), (60, 'minutes'), (1, 'seconds'))
    """
    return next(((divisor, name) for least, divisor, name in _UNITS.get(unit, ()) if largest >= least), (1, unit))


def label(text: str | None) -> str:
    """Shorten and escape text for a figure, since Plotly interprets `<a href=…>` and `<b>`."""
    cut = shorten(strip_invisible(text or "?"), _MAX_LABEL)
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
