"""Which paths may stand in a bundle: those that mean the same file on every system."""

from __future__ import annotations

import re
import unicodedata

LONGEST_PATH = 1024
LONGEST_PART_BYTES = 255

_DRIVE = re.compile(r"[A-Za-z]:")
_RESERVED = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|clock\$|com[0-9¹²³]|lpt[0-9¹²³])\s*(\..*)?", re.IGNORECASE)
_NOT_ON_WINDOWS = re.compile(r'[<>:"|?*]')
# Beside control characters: what is not shown, or turns the direction of reading, so that a name looks like another.
_INVISIBLE = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff]")


def portable_form(path: str) -> str:
    """Return what is left of a path on a file system that ignores case and Unicode form, as on Windows and macOS."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", path).casefold())


def escape_reason(path: str) -> str | None:
    """Return why unpacking this path would write outside the chosen folder, or None."""
    parts = re.split(r"[/\\]", path)
    if ".." in parts:
        return "The name climbs out of its folder with `..`."
    if path.startswith(("/", "\\")):
        return "The name is an absolute path."
    if _DRIVE.match(path):
        return "The name starts with a drive letter."
    return None


def unportable_reason(path: str) -> str | None:
    """Return why this path is not the same file on every system, or None."""
    if not path:
        return "The name is empty."
    if _INVISIBLE.search(path):
        return "The name has a character that cannot be seen."
    if "\\" in path:
        return "The name has a backslash, which is a separator on Windows only."
    if len(path) > LONGEST_PATH:
        return f"The name has {len(path):,} characters; {LONGEST_PATH:,} are the most."
    return next(filter(None, map(_part_reason, path.split("/"))), None)


def _part_reason(part: str) -> str | None:
    """Return why one part of a path is not the same on every system, or None."""
    if part in {"", "."}:
        return "The name has an empty part or a part `.`."
    if part != "..":  # which is its own refusal
        if part.endswith((".", " ")) or part.startswith(" "):
            return "A part of the name ends in a dot, or has a space at an end, which Windows drops."
        if _RESERVED.fullmatch(part):
            return f"`{part}` is the name of a device on Windows."
        if match := _NOT_ON_WINDOWS.search(part):
            return f"The name has the character `{match.group()}`, which Windows does not allow."
        if len(part.encode("utf-8")) > LONGEST_PART_BYTES:
            return f"A part of the name is longer than {LONGEST_PART_BYTES} bytes."
    return None
