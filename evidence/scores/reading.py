"""How the answer in an output is read and compared: strictly, as an evaluation is set, and leniently beside it.

A `Scoring` alone states what an output is worth: the trainer states what it gives, the checker computes it again, and
whatever else rewards answers can use it.
"""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any, Literal

from evidence.scores import earlier, forms
from evidence.scores.forms import TOLERANCE, is_choice, last_choice, last_number, number_of, same_number
from evidence.scores.patterns.match import machine_of

__all__ = ["is_choice", "last_choice", "last_number", "number_of", "same_number"]

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


def last_boxed(text: str) -> str | None:
    r"""Return what stands in the last `\boxed{…}`, trimmed, or None if it is missing or its brace is never closed.

    >>> last_boxed(r"\boxed{1} no, $\boxed{\frac{1}{2}}$."), last_boxed(r"\boxed{\frac{1}{2}")
    ('\\frac{1}{2}', None)
    """
    opened = deque(re.finditer(r"\\f?boxed\s{0,9}\{", text), maxlen=1)
    depth, start = 1, opened[0].end() if opened else len(text)
    for brace in re.finditer(r"\\.|[{}]", text[start:]):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[start : start + brace.start()].strip()
    return None


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


Answer = Literal["tags", "boxed", "whole", "last_number", "last_line", "choice", "regex"]
Compare = Literal["exact", "folded", "numeric"]

VERSION = 2
"""Of the readers of numbers and choices; 1 is that of runs that state none."""
_LENIENT_CHARACTERS = 2_000
"""Of an output, the last ones, in which a lenient reader looks."""


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How answers are read and compared. The defaults are what versions before 1.2 did, read as they are now."""

    answer: Answer = "tags"
    answer_regex: str | None = None
    """A pattern that `machine_of` takes, where answers are read by one."""
    compare: Compare = "exact"
    tolerance: float = TOLERANCE
    """Of numbers that are compared, as a share of the expected one where that is above 1."""
    version: int = VERSION
    """Of the readers; a run is scored again by the version that it was scored with."""

    @property
    def reader(self) -> ModuleType:
        """The functions that read numbers and choices."""
        return earlier if self.version == 1 else forms

    @property
    def depends_on_version(self) -> bool:
        """Whether versions of the readers can take another answer for right; tags, lines and whole outputs are one."""
        return self.answer in ("last_number", "choice") or self.compare == "numeric"

    def stated(self) -> dict[str, Any]:
        """Return it as documents state it; one of the first version has no version."""
        return {key: value for key, value in asdict(self).items() if key != "version" or value != 1}

    def read(self, text: str) -> str | None:
        """Return the answer in an output, or None if it is missing."""
        if self.answer == "tags":
            return extract_answer(text)
        if self.answer == "boxed":
            return last_boxed(text)
        found: str | None
        if self.answer in ("last_number", "choice"):
            found = (self.reader.last_number if self.answer == "last_number" else self.reader.last_choice)(text)
            return found
        if self.answer == "regex":
            found = machine_of(self.answer_regex or "").last(text)
            return None if found is None else found.strip()
        plain = text.strip()
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
        return self.compare != "numeric" or self.reader.number_of(self.number_in(answer)) is not None

    def is_near(self, answer: str, expected: str, tolerance: float, *, least: int = 1) -> bool:
        """Return whether an answer is a number within a share of the expected one, or of `least` where that is more."""
        return bool(self.reader.same_number(self.number_in(answer), expected, tolerance, least=least))

    def verdict(
        self, text: str, finish_reason: str, accepted: Sequence[str], *, stop: str | None = None
    ) -> dict[str, Any]:
        """Return what an output is worth, as its prediction row states it.

        Args:
            text: of the output.
            finish_reason: stop, length or error.
            accepted: the answers of which each is right, one at least.
            stop: the text that ended it, which is no part of an answer; None for no such text.
        """
        if stop and self.version > 1:
            text = text.partition(stop)[0]
        answer = self.read(text)
        correct = self.is_right(answer, accepted)
        return {
            "extracted_answer": answer,
            "correct": correct,
            "format_ok": self.has_form(text, finish_reason),
            "lenient_correct": correct or any(is_right_leniently(text, one, self.reader) for one in accepted),
        }

    def in_words(self) -> str:
        """Return it in a few words: `last_number, compared numeric`."""
        return f"{self.answer}, compared {self.compare}"

    def _same(self, answer: str, expected: str) -> bool:
        if self.compare == "numeric":
            return self.is_near(answer, expected, self.tolerance)
        if self.compare == "folded":
            return fold(answer) == fold(expected)
        return answer.strip() == expected.strip()

    def number_in(self, answer: str) -> str:
        """Return the number in a box, beside which a unit or an unknown may stand; any other answer as it is."""
        return forms.last_number(answer) or "" if self.answer == "boxed" else answer


def scoring_of(summary: Mapping[str, Any] | None) -> Scoring:
    """Return how the answers of a valid eval_summary.json were read; one of an earlier version does not states it."""
    stated = (summary or {}).get("scoring")
    if stated is None:
        return Scoring(version=1)
    return Scoring(**{key: stated[key] for key in Scoring(version=1).stated()}, version=stated.get("version", 1))


def accepted_of(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the answers that count as right, of an evaluation item or of a row of predictions."""
    expected = row["expected"]
    first = (expected,) if isinstance(expected, str) else tuple(expected)
    return (*first, *row.get("also_expected", ()))


def expected_line(row: Mapping[str, Any]) -> str:
    """Return the answers that count as right as one text, of which a set's hash is made: several as a JSON array."""
    accepted = accepted_of(row)
    return accepted[0] if len(accepted) == 1 else json.dumps(accepted, ensure_ascii=False)


def is_right_leniently(text: str, expected: str, reader: ModuleType = forms) -> bool:
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
    if reader.number_of(expected) is not None:
        return bool(reader.same_number(reader.last_number(plain) or "", expected, TOLERANCE))
    if is_choice(expected):
        return fold(reader.last_choice(plain) or "") == fold(expected.strip("(). "))
    if not any(character.isalpha() for character in expected):
        spaced = r"\s*".join(re.escape(character) for character in expected if not character.isspace())
        return re.search(rf"(?<![0-9.]){spaced}\s*\Z", plain) is not None
    words = re.findall(r"\w+", expected.casefold())
    return re.findall(r"\w+", plain.casefold())[-len(words) :] == words


def fold(text: str) -> str:
    """Return a text without case, and with one space for any white space."""
    return " ".join(text.casefold().split())
