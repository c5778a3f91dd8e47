"""Several settings in one line of a log, as Unsloth draws them: `Num examples = 9 | Total steps = 60`."""

from __future__ import annotations

import re

_SLOTH = re.compile(r"""^\s*(?:==\(\(=+\)\)==|\\\\\s*/\||O\^O/\s*\\_/\s*\\|\\\s+/|"-_+-")\s+""")
_BETWEEN = re.compile(r"\s+\|\s+|\.\s+(?=[A-Z])")
_SETTING = re.compile(r"^[A-Za-z][\w /-]{1,40}(?:\([^)]*\))?\s*[:=]\s*\S")
_TRAINED = re.compile(r"Trainable parameters\s*=\s*([\d,]+)\s*(?:/|of)\s*([\d,]+)")

_ORDERLY = 2
"""Settings from which on a line is taken for several."""


def pieces_of(text: str) -> list[str]:
    """Return the settings of a line that holds several, else the line itself.

    Example:
        >>> pieces_of("Num examples = 1,000 | Num Epochs = 1 | Total steps = 60")
        ['Num examples = 1,000', 'Num Epochs = 1', 'Total steps = 60']
        >>> pieces_of("Step 10 | loss: 2.5")
        ['Step 10 | loss: 2.5']
    """
    drawn = _SLOTH.match(text)
    bare = text[drawn.end() :] if drawn else text
    parts = [part.strip(" .") for part in _BETWEEN.split(bare)]
    settings = [part for part in parts if _SETTING.match(part)]
    if len(settings) >= _ORDERLY and (drawn or len(settings) == len(parts)):
        return settings
    return [bare]


def trained_of(text: str) -> tuple[int, int] | None:
    """Return trainable and all parameters as Unsloth states them; None where a line does not."""
    found = _TRAINED.search(text)
    if found is None:
        return None
    trained, everything = (int(number.replace(",", "")[:15] or 0) for number in found.groups())
    return trained, everything
