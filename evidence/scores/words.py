"""The words of a text, as they are compared: spelling aside, figures not."""

from __future__ import annotations

import re
import unicodedata

_NOT_A_WORD = re.compile(r"[^\w\s]|_")
_ONE_LETTER_WORDS = re.compile("([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])")
"""Kana and Han: these scripts set no spaces."""


def words_of(text: str) -> tuple[str, ...]:
    """Return the words of a text: of "What is 1,200 - ５ ?" `what`, `is`, `1200`, `-`, `5`.

    Compatibility forms (NFKC), case, white space and punctuation do not count. Numbers do, and so do signs of
    arithmetic, other symbols, and marks that belong to a letter: "12 - 5" and "12 + 5" are not the same.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-")
    words = _ONE_LETTER_WORDS.sub(r" \1 ", _NOT_A_WORD.sub(_kept_part, plain)).split()
    return tuple(words) or ((plain.strip(),) if plain.strip() else ())


def figures_of(words: tuple[str, ...]) -> str:
    """Return the numbers and signs of a text in their order, each between blanks: ` 12 - 5 `."""
    return "".join(f" {word}" for word in words if not word[0].isalpha()) + " "


def _kept_part(match: re.Match[str]) -> str:
    """Return what stays of a character that is neither letter, digit nor white space."""
    sign, text, at = match[0], match.string, match.start()
    before, after = text[at - 1 : at], text[at + 1 : at + 2]
    category = unicodedata.category(sign)[0]
    if category == "M":
        return sign
    if sign in ".:" and before.isdigit() and after.isdigit():
        return sign
    if sign == "," and before.isdigit() and re.match(r"\d{3}(?!\d)", text[at + 1 : at + 5]):
        return ""
    is_minus = sign == "-" and (
        before.isdigit() or before == ")" or (before in " (" and after.isdigit()) or (before == after == " ")
    )
    is_times = sign == "*" and "*" not in (before, after) and (before + after).strip().isalnum()
    return f" {sign} " if category == "S" or sign in "/%" or is_minus or is_times else " "
