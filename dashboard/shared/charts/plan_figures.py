"""What the pictures of a plan have in common: colours of either theme, units, words that are safe inside a picture."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import plotly.graph_objects as go

from dashboard.shared.words.grades import Tone
from dashboard.shared.words.text import shorten
from dashboard.shared.words.verdicts import VERDICTS
from evidence.bundle.secrets import strip_invisible
from schemas.reading import get_number

MOST_BYTES = 2**60
"""More than any machine has: a stranger's document that states more states nothing."""

_LONGEST = 60
_STANDOFF_PIXELS = 5
_FONT = '"Source Sans", sans-serif'
_BYTES = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_SECONDS = ((2 * 3600, 3600, "hours"), (120, 60, "minutes"))

Kind = str
"""What a part of the memory is held for: kept, worked on, cached."""

_KINDS: Mapping[str, Kind] = {
    "params": "params",
    "opt_state": "opt_state",
    "gradients": "gradients",
    "table_gradient": "gradients",
    "activations": "activations",
    "layer_inside": "activations",
    "layer_inputs": "activations",
    "logits": "logits",
    "key_value_cache": "cache",
    "cache": "cache",
}

KIND_NAMES: Mapping[Kind, str] = {
    "params": "parameters",
    "opt_state": "optimizer state",
    "gradients": "gradients",
    "activations": "activations",
    "logits": "logits",
    "cache": "key-value cache",
    "other": "other",
}
"""What each colour of the memory means, in the order in which a legend names them."""

_TIMES = ("install", "compile", "load", "train", "save", "evaluate", "export")
"""Parts of the time of a run."""

PATTERNS: Mapping[str, str] = {"fits": "", "tight": "/", "does not fit": "x", "unsupported": ".", "unknown": "."}
"""How a verdict's bar is hatched, so that it is distinguished without colour."""


@dataclass(frozen=True, kw_only=True)
class Palette:
    """The colours of one theme; the same names mean the same in both."""

    ink: str
    quiet: str
    line: str
    paper: str
    tones: Mapping[Tone, str]
    backs: Mapping[Tone, str]
    parts: Mapping[Kind, str]
    times: Mapping[str, str]

    def verdict(self, verdict: str) -> str:
        """Return the colour of a verdict."""
        return self.tones[VERDICTS[verdict].tone]

    def part(self, name: str | None) -> str:
        """Return the colour of a part of the memory: blues are kept, oranges are worked on, purple is the cache."""
        return self.parts[kind_of(name)]

    def on(self, ground: str) -> str:
        """Return white or black, whichever is read better on a colour."""
        return "#ffffff" if _luminance(ground) < 0.179 else "#0d1a26"


def kind_of(name: str | None) -> Kind:
    """Return what a part of the memory is held for, by its name in a plan."""
    return _KINDS.get(name or "", "other")


def _parts(tints: list[str]) -> Mapping[Kind, str]:
    return dict(zip(KIND_NAMES, tints, strict=True))


def _times(tints: list[str]) -> Mapping[str, str]:
    return dict(zip(_TIMES, tints, strict=True))


LIGHT = Palette(
    ink="#111920",
    quiet="#4a5761",
    line="#d8dee2",
    paper="#ffffff",
    tones={"good": "#1f7a54", "fair": "#1f5b8f", "poor": "#b3681b", "bad": "#bb3a3a", "quiet": "#5c6973"},
    backs={"good": "#e4f3eb", "fair": "#e6eff7", "poor": "#fbefdf", "bad": "#fbe9e8", "quiet": "#eef1f3"},
    parts=_parts(["#1f5b8f", "#5b8fbf", "#a9c8e3", "#c0721d", "#e6b37a", "#8a4a9e", "#aab4bb"]),
    # Greys are what comes before the first step.
    times=_times(["#8c979f", "#aab4bb", "#c8d0d5", "#1f5b8f", "#c0721d", "#1f7a54", "#8a4a9e"]),
)
DARK = Palette(
    ink="#e4e9ec",
    quiet="#b4bfc7",
    line="#343e46",
    paper="#13181c",
    tones={"good": "#6ec79d", "fair": "#7fb4e3", "poor": "#e0a25a", "bad": "#ee8a86", "quiet": "#9aa7b0"},
    backs={"good": "#17342a", "fair": "#1a2f42", "poor": "#38290f", "bad": "#402022", "quiet": "#242c32"},
    parts=_parts(["#7fb4e3", "#4c83b5", "#2e567b", "#e0a25a", "#96682f", "#c99adb", "#5f6b74"]),
    times=_times(["#7d8a93", "#5f6b74", "#46525b", "#7fb4e3", "#e0a25a", "#6ec79d", "#c99adb"]),
)


def palette(theme: str | None) -> Palette:
    """Return the colours of a theme, `dark` or any other word for the light one."""
    return DARK if theme == "dark" else LIGHT


def new_figure(colours: Palette, *, height: int) -> go.Figure:
    """Return an empty figure in the colours of a theme, with a template of our own."""
    # Plotly takes pandas as it finds it, half loaded too if another thread is at it; to import it is to wait for that.
    importlib.import_module("pandas")
    axis = {
        "gridcolor": colours.line,
        "linecolor": colours.line,
        "zeroline": False,
        "ticks": "",
        "tickfont": {"color": colours.quiet, "size": 12},
        "title": {"font": {"color": colours.quiet, "size": 12}, "standoff": 8},
        "ticklabelstandoff": _STANDOFF_PIXELS,
        "automargin": True,
        "fixedrange": True,
    }
    layout = {
        "font": {"family": _FONT, "size": 12, "color": colours.ink},
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "hoverlabel": {"bgcolor": colours.paper, "bordercolor": colours.line, "font": {"color": colours.ink}},
        "xaxis": axis,
        "yaxis": axis | {"gridcolor": "rgba(0,0,0,0)"},
        "uniformtext": {"minsize": 11, "mode": "hide"},
        "bargap": 0.35,
        "barmode": "overlay",
        "showlegend": False,
        "dragmode": False,
        "margin": {"l": 8, "r": 16, "t": 24, "b": 8},
    }
    return go.Figure(layout={"template": go.layout.Template(layout=layout), "height": height})


def limit_line(
    figure: go.Figure, colours: Palette, *, at: float, rows: tuple[float, float], words: str, panel: str = ""
) -> None:
    """Draw a vertical line that something must stay left of, and what it is above it.

    It ends at `rows`; `panel` is the number of the picture's axes, empty for the first.
    """
    low, high = rows
    axes = {"xref": f"x{panel}", "yref": f"y{panel}"}
    line = {"color": colours.ink, "width": 2, "dash": "dash"}
    figure.add_shape(type="line", x0=at, x1=at, y0=low, y1=high, line=line, **axes)
    font = {"color": colours.ink, "size": 12}
    figure.add_annotation(x=at, y=high, text=words, showarrow=False, yanchor="bottom", font=font, **axes)


def unit_of_bytes(largest: float) -> tuple[int, str]:
    """Return the divisor and the unit in which the largest figure of an axis reads well.

    >>> unit_of_bytes(15.75 * 2**30), unit_of_bytes(3e6)
    ((1073741824, 'GiB'), (1048576, 'MiB'))
    """
    return next(((divisor, unit) for divisor, unit in _BYTES if largest >= 0.95 * divisor), (1, "bytes"))


def unit_of_seconds(largest: float) -> tuple[float, str]:
    """Return the divisor and the unit of an axis of time.

    >>> unit_of_seconds(9 * 3600), unit_of_seconds(600), unit_of_seconds(8)
    ((3600, 'hours'), (60, 'minutes'), (1, 'seconds'))
    """
    return next(((divisor, unit) for least, divisor, unit in _SECONDS if largest >= least), (1, "seconds"))


def bytes_at(document: Mapping[str, Any] | None, *path: str) -> float | None:
    """Return a number of bytes that a machine can have, None for anything else."""
    value = get_number(document, *path)
    return value if value is not None and 0 <= value <= MOST_BYTES else None


def label(text: str | None) -> str:
    """Return words of a document as a picture shows them: Plotly reads `<a href=…>` and `<b>` in them otherwise."""
    cut = shorten(strip_invisible(text or "?"), _LONGEST)
    return cut.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _luminance(colour: str) -> float:
    """Return how light a colour is, from 0 to 1 (WCAG 2.2, relative luminance)."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue
