"""What strangers wrote, made harmless to show: without invisible characters, with secrets hidden."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from evidence.bundle.secrets.patterns import BY_ANCHOR, PRIVATE_KEY

_PACKED = {
    anchor.decode(): kept
    for anchor, patterns in BY_ANCHOR.items()
    if (kept := [pattern for pattern in patterns if pattern.code == "TP846"])
}
"""What is never packed, by what it starts with."""
_LOOSE = re.compile(
    r"(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
    r"|((?:api[_-]?key|token|password|secret)[\"']?\s*[=:]\s*[\"']?)([^\s\"',;]{8,})",
    re.IGNORECASE,
)
"""What is hidden besides: nothing is lost where too much is, as it would be in a bundle."""
_HIDDEN = "[hidden]"


def visible(text: str) -> str:
    """Return the text without characters that hide or reorder what stands beside them (control, format, surrogate)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        letter for letter in text if letter in "\n\t" or unicodedata.category(letter) not in {"Cc", "Cf", "Cs"}
    )


def mask(text: str) -> str:
    """Return the text with what looks like a key or a password replaced: `token=abcdefgh…` becomes `token=[hidden]`."""
    lower = text.lower()
    # Most texts hold none of these, which a plain search states at once.
    if near := [anchor for anchor in _PACKED if anchor in lower]:
        text = _without(text, near)
    return _LOOSE.sub(lambda found: f"{found[2] or ''}{_HIDDEN}", text)


def _without(text: str, anchors: list[str]) -> str:
    whole = text.encode("utf-8", "surrogatepass")
    pieces, end = [], 0
    for start, stop in sorted(_secrets(whole, anchors)):
        if stop > end:
            pieces += [whole[end:start], _HIDDEN.encode()] if start >= end else []
            end = stop
    return b"".join([*pieces, whole[end:]]).decode("utf-8", "surrogatepass")


def _secrets(text: bytes, anchors: list[str]) -> Iterator[tuple[int, int]]:
    """Yield where secrets stand in a text, as the packer finds them; overlapping ones too."""
    lower = text.lower()
    for anchor in anchors:
        at = lower.find(anchor.encode())
        while at >= 0:
            for pattern in _PACKED[anchor]:
                if match := pattern.match(text, at):
                    group = next((name for name in ("secret", "alone") if match.groupdict().get(name)), 0)
                    start, stop = match.span(group)
                    key = PRIVATE_KEY.match(text, start)
                    yield start, key.end() if key else stop
            at = lower.find(anchor.encode(), at + 1)
