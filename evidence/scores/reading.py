"""How the answer in an output is read and compared: strictly, as an evaluation is set, and leniently beside it.

A `Scoring` alone states what an output is worth: the trainer states what it gives, the checker computes it again, and
whatever else rewards answers can use it.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from decimal import Decimal
from typing import Any, Literal

from evidence.scores.patterns.match import machine_of

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?|\.[0-9]+"
# A sign belongs to a number unless it stands between two things, as in 5-3.
_NUMBER = re.compile(rf"(?:(?<![0-9A-Za-z)\].])[-+])?(?:{_DIGITS})")
_LONGEST = 400
"""Characters of a number; a longer text is not a number."""


def last_number(text: str) -> str | None:
    """Return the last number of a text as it is written, or None if it is missing.

    >>> last_number("3 + 4 = 7, so $1,234.50."), last_number("5-3"), last_number("x = −2"), last_number("none")
    ('1,234.50', '3', '-2', None)
    """
    found = numbers_in(text)
    return found[-1] if found else None


def numbers_in(text: str) -> list[str]:
    """Return all numbers of a text in order, as they are written.

    >>> numbers_in("3 + 4 = 7, so $1,234.50.")
    ['3', '4', '7', '1,234.50']
    """
    return [match[0] for match in _NUMBER.finditer(text.replace("\u2212", "-"))]


def number_of(text: str) -> Decimal | None:
    """Return the number that a text is, or None if it is not one.

    A currency sign, a percent sign or a stop may be beside it.

    >>> number_of(" $1,234.50 "), number_of("7."), number_of("12 %"), number_of("7 apples"), number_of("nan")
    (Decimal('1234.50'), Decimal('7'), Decimal('12'), None, None)
    """
    plain = text.strip().replace("\u2212", "-").removesuffix("%").rstrip().removesuffix(".")
    plain = re.sub(r"^([-+]?)[$€£]", r"\1", plain)
    if len(plain) > _LONGEST or not _NUMBER.fullmatch(plain):
        return None
    number = Decimal(plain.replace(",", ""))
    return number if math.isfinite(float(number)) else None


def same_number(one: str, other: str, tolerance: float) -> bool:
    """Return whether two texts are numbers at most a tolerance apart, as a share of the second where that is above 1.

    >>> same_number("1,000", "1000.0", 0), same_number("99", "100", 0.01), same_number("0.02", "0.03", 0.01)
    (True, True, True)
    """
    first, second = number_of(one), number_of(other)
    if first is None or second is None:
        return False
    if first == second:
        return True
    apart = abs(float(first) - float(second))
    return apart <= tolerance * max(1.0, abs(float(second))) * (1 + 1e-9)


REASONING_OPEN = "<reasoning>"
REASONING_CLOSE = "</reasoning>"
ANSWER_OPEN = "<answer>"
ANSWER_CLOSE = "</answer>"
TAGS = (REASONING_OPEN, REASONING_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)


def extract_answer(text: str) -> str | None:
    """Return the text between the last `<answer>` and its `</answer>`, trimmed, or None if it is missing.

    For `<answer>1</answer> no, <answer> 2 </answer>` that is `2`. A last `<answer>` that is never closed gives None:
    the output was cut before the model committed itself.
    """
    opened = text.rfind(ANSWER_OPEN)
    if opened < 0:
        return None
    start = opened + len(ANSWER_OPEN)
    closed = text.find(ANSWER_CLOSE, start)
    return None if closed < 0 else text[start:closed].strip()


def is_correct(extracted: str | None, expected: str) -> bool:
    """Return whether the extracted answer equals the expected one after trimming white space, letter for letter."""
    return extracted is not None and extracted.strip() == expected.strip()


def format_ok(output_text: str, finish_reason: str) -> bool:
    r"""Return whether the output is exactly `<reasoning>…</reasoning>\n<answer>…</answer>`, ended by the end token.

    Nothing may stand before, between or after the two blocks, and no tag may occur twice.
    """
    return (
        finish_reason == "stop"
        and output_text.startswith(REASONING_OPEN)
        and output_text.endswith(ANSWER_CLOSE)
        and f"{REASONING_CLOSE}\n{ANSWER_OPEN}" in output_text
        and all(output_text.count(tag) == 1 for tag in TAGS)
    )


Answer = Literal["tags", "whole", "last_number", "last_line", "choice", "regex"]
Compare = Literal["exact", "folded", "numeric"]

TOLERANCE = 1e-6
"""Of numbers that are written in two ways."""
_LENIENT_CHARACTERS = 2_000
"""Of an output, the last ones, in which a lenient reader looks."""

_LETTER = re.compile(r"\(?([A-Ja-j])\)?[.:]?")
# A and I also stand for words; they count as choices unless a word follows them.
_CHOICE = re.compile(r"(?<![A-Za-z0-9'])(?:[B-HJ]|[AI](?! (?!is\b)[a-z]))(?![A-Za-z0-9'])")


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How answers are read and compared. The defaults are what versions before 1.2 did."""

    answer: Answer = "tags"
    answer_regex: str | None = None
    """A pattern that `machine_of` takes, where answers are read by one."""
    compare: Compare = "exact"
    tolerance: float = TOLERANCE
    """Of numbers that are compared, as a share of the expected one where that is above 1."""

    def read(self, text: str) -> str | None:
        """Return the answer in an output, or None if it is missing."""
        if self.answer == "tags":
            return extract_answer(text)
        if self.answer == "last_number":
            return last_number(text)
        if self.answer == "choice":
            return last_choice(text)
        if self.answer == "regex":
            found = machine_of(self.answer_regex or "").last(text)
            return None if found is None else found.strip()
        plain = text.rpartition("</think>")[2].strip()  # behind the thought, which a chat template may write
        return (plain.splitlines()[-1].strip() if self.answer == "last_line" else plain) if plain else None

    def is_right(self, answer: str | None, accepted: Sequence[str]) -> bool:
        """Return whether an answer that was read is one of those that are accepted."""
        return answer is not None and any(self._same(answer, one) for one in accepted)

    def has_form(self, text: str, finish_reason: str) -> bool:
        """Return whether an output has the form that is read: of tags the exact one, else an answer, and its end."""
        if self.answer == "tags":
            return format_ok(text, finish_reason)
        answer = self.read(text)
        return finish_reason == "stop" and answer is not None and self.can_compare(answer)

    def can_compare(self, answer: str) -> bool:
        """Return whether an answer is of the kind that is compared."""
        return self.compare != "numeric" or number_of(answer) is not None

    def verdict(self, text: str, finish_reason: str, accepted: Sequence[str]) -> dict[str, Any]:
        """Return what an output is worth, as its prediction row states it.

        Args:
            text: of the output.
            finish_reason: stop, length or error.
            accepted: the answers of which each is right, one at least.
        """
        answer = self.read(text)
        correct = self.is_right(answer, accepted)
        return {
            "extracted_answer": answer,
            "correct": correct,
            "format_ok": self.has_form(text, finish_reason),
            "lenient_correct": correct or any(is_right_leniently(text, one) for one in accepted),
        }

    def in_words(self) -> str:
        """Return it in a few words: `last_number, compared numeric`."""
        return f"{self.answer}, compared {self.compare}"

    def _same(self, answer: str, expected: str) -> bool:
        if self.compare == "numeric":
            return same_number(answer, expected, self.tolerance)
        if self.compare == "folded":
            return fold(answer) == fold(expected)
        return answer.strip() == expected.strip()


def scoring_of(summary: Mapping[str, Any] | None) -> Scoring:
    """Return how the answers of a valid eval_summary.json were read; one of an earlier version does not states it."""
    stated = (summary or {}).get("scoring")
    return Scoring() if stated is None else Scoring(**{key: stated[key] for key in asdict(Scoring())})


def accepted_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the answers that count as right, of an evaluation item or of a row of predictions."""
    expected = row["expected"]
    first = (expected,) if isinstance(expected, str) else tuple(expected)
    return (*first, *row.get("also_expected", ()))


def expected_line(row: Mapping[str, Any]) -> str:
    """Return the answers that count as right as one text, of which a set's hash is made: several as a JSON array."""
    accepted = accepted_of(row)
    return accepted[0] if len(accepted) == 1 else json.dumps(accepted, ensure_ascii=False)


def is_right_leniently(text: str, expected: str) -> bool:
    """Return whether the end of an output gives an answer, whatever its form.

    Of a number that is the last number, of a letter from A to J the last choice, of other words the last words. What
    has no word is a formula or signs, of which every character counts but white space.

    >>> [is_right_leniently("So the answer is 4.", "4"), is_right_leniently("It is (B).", "B")]
    [True, True]
    >>> [is_right_leniently("He is her husband!", "husband"), is_right_leniently("husband, I think", "husband")]
    [True, False]
    >>> [is_right_leniently(text, "2*(10+1)") for text in ("so 2 * (10+1)", "2+10*1", "12*(10+1)")]
    [True, False, False]
    """
    plain = text[-_LENIENT_CHARACTERS:]
    for tag in TAGS:
        plain = plain.replace(tag, " ")
    if number_of(expected) is not None:
        return same_number(last_number(plain) or "", expected, TOLERANCE)
    if is_choice(expected):
        return fold(last_choice(plain) or "") == fold(expected.strip("(). "))
    if not any(character.isalpha() for character in expected):
        spaced = r"\s*".join(re.escape(character) for character in expected if not character.isspace())
        return re.search(rf"(?<![0-9.]){spaced}\s*\Z", plain) is not None
    words = re.findall(r"\w+", expected.casefold())
    return re.findall(r"\w+", plain.casefold())[-len(words) :] == words


def last_choice(text: str) -> str | None:
    """Return the letter of the last choice of a text, or None if it is missing: the whole text, or a capital alone.

    >>> last_choice("b"), last_choice("(C)"), last_choice("B, not A. A cat sleeps."), last_choice("I do not know")
    ('B', 'C', 'A', None)
    """
    if whole := _LETTER.fullmatch(text.strip()):
        return whole[1].upper()
    found = None
    for match in _CHOICE.finditer(text):
        found = match[0]
    return found


def is_choice(text: str) -> bool:
    """Return whether a text is the letter of a choice, A to J: `B`, `(B)`, `b.`."""
    return _LETTER.fullmatch(text.strip()) is not None


def fold(text: str) -> str:
    """Return a text without case, and with one space for any white space."""
    return " ".join(text.casefold().split())
