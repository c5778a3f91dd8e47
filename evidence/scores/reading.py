"""Read the answer in a model's output and compare it with the expected one, strictly and leniently in its form."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import product
from typing import Any, Literal

import re2

from evidence.scores.forms import READERS, TOLERANCE, NumberReader, is_choice, last_number

REASONING_OPEN, REASONING_CLOSE, ANSWER_OPEN, ANSWER_CLOSE = "<reasoning>", "</reasoning>", "<answer>", "</answer>"
TAGS = (REASONING_OPEN, REASONING_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)

Answer = Literal["tags", "boxed", "whole", "last_number", "last_line", "choice", "regex"]
Compare = Literal["exact", "folded", "numeric"]

VERSION = 2  # current version of the number and choice readers; runs without a stated version used version 1
_LENIENT_CHARACTERS = 2_000  # number of characters at the end of an output that the lenient reader searches


def extract_answer(text: str) -> str | None:
    """Return the stripped text between the last `<answer>` and its `</answer>`, or None without both."""
    _, opened, rest = text.rpartition(ANSWER_OPEN)
    answer, closed, _ = rest.partition(ANSWER_CLOSE)
    return answer.strip() if opened and closed else None


def last_boxed(text: str) -> str | None:
    r"""Return the stripped content of the last `\boxed{…}`, or None if it is missing or not closed.

    >>> last_boxed(r"\boxed{1} no, $\boxed{\frac{1}{2}}$."), last_boxed(r"\boxed{\frac{1}{2}")
    ('\\frac{1}{2}', None)
    """
    opened = deque(re.finditer(r"\\f?boxed\s{0,9}\{", text), maxlen=1)
    depth = 1
    start = opened[0].end() if opened else len(text)
    for brace in re.finditer(r"\\.|[{}]", text[start:]):
        depth += {"{": 1, "}": -1}.get(brace[0], 0)
        if not depth:
            return text[start : start + brace.start()].strip()
    return None


def format_ok(output_text: str, finish_reason: str) -> bool:
    r"""Return whether an output is `<reasoning>…</reasoning>\n<answer>…</answer>`, each tag once, and not cut off."""
    return (
        finish_reason == "stop"
        and output_text.startswith(REASONING_OPEN)
        and output_text.endswith(ANSWER_CLOSE)
        and f"{REASONING_CLOSE}\n{ANSWER_OPEN}" in output_text
        and all(output_text.count(tag) == 1 for tag in TAGS)
    )


MAX_PATTERN_CHARS = 200
MAX_PATTERN_SIZE = 2_000  # instructions of a compiled pattern
MAX_SEARCHED_CHARS = 20_000  # only this many characters at the end of a text are searched
MAX_SEARCH_WORK = 200_000_000
"""Characters searched again after each match, times instructions; a search that exceeds it finds nothing. Finding
every match can be quadratic, and a limit of time would give different answers on different machines."""
_EDGES = ("", " ", "\n", "\t")
_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


class PatternError(Exception):
    """Raised for a regular expression that is invalid, unsupported or too large."""


@lru_cache(maxsize=64)
def compile_pattern(pattern: str) -> Any:
    r"""Compile a regular expression with RE2, because the pattern of a run is untrusted input.

    RE2 has no catastrophic backtracking, look-around or back-references, and `\d`, `\w`, `\s` and `\b` are ASCII only.
    A pattern that is invalid, unsupported or too large, or matches the empty string, raises a PatternError.
    """
    if len(pattern) > MAX_PATTERN_CHARS:
        message = f"the pattern has {len(pattern)} characters, and at most {MAX_PATTERN_CHARS} are allowed"
        raise PatternError(message)
    try:
        compiled = re2.compile(pattern, _OPTIONS)
    except (re2.error, UnicodeEncodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error, re2.error) else "it is not valid Unicode"
        message = f"{reason} (RE2 syntax: no look-around, no back-references)"
        raise PatternError(message) from error
    if compiled.programsize > MAX_PATTERN_SIZE:
        message = "the pattern is too large; use fewer or smaller repetitions"
        raise PatternError(message)
    if compiled.search("") is not None:
        message = "the pattern matches the empty string"
        raise PatternError(message)
    return compiled


def find_last_match(pattern: str, text: str) -> str | None:
    """Return the last match (its first group, if the pattern has groups) of a valid pattern, or None without a match.

    >>> find_last_match("#### ([0-9]+)", "#### 3, no: #### 4"), find_last_match("[0-9]+", "none")
    ('4', None)
    """
    compiled = compile_pattern(pattern)
    text = _encodable(text[-MAX_SEARCHED_CHARS:].removesuffix("\n"))  # as in Python, `$` ignores a final line break
    work = MAX_SEARCH_WORK
    found = None
    for match in compiled.finditer(text):
        work -= (len(text) - match.end()) * compiled.programsize
        if work < 0:
            return None
        if match[0]:
            found = match[1] if compiled.groups and match[1] is not None else match[0]
    return found


def matches_whole(pattern: str, text: str) -> bool:
    r"""Return whether a valid pattern matches a whole text.

    >>> matches_whole("a+", "aa"), matches_whole("a+$", "aa\n"), matches_whole("(?m)^a$", "a\nb")
    (True, False, False)
    """
    return len(text) <= MAX_SEARCHED_CHARS and compile_pattern(pattern).fullmatch(_encodable(text)) is not None


def can_capture(pattern: str, text: str) -> bool:
    """Return whether a valid pattern could extract a text from some output, with or without surrounding white space.

    >>> can_capture("#### ([0-9]+)", "7"), can_capture("#### ([0-9]+)", "seven")
    (True, False)
    """
    patterns = [compile_pattern(pattern)]
    if (group := _first_group(pattern)) is not None:
        patterns.append(re2.compile(group))
    texts = [_encodable(f"{before}{text}{after}") for before in _EDGES for after in _EDGES]
    return any(each.fullmatch(one) is not None for each in patterns for one in texts)


def _first_group(pattern: str) -> str | None:
    """Return the first capturing group of a valid pattern as a pattern with the same flags, or None without a group."""
    flags = re.match(r"\(\?[a-zA-Z]+\)", pattern)
    found = re.finditer(r"\\.|\((?!\?)|\(\?P?<\w+>", pattern, re.DOTALL)
    opened = [group.end() for group in found if not group[0].startswith("\\")]
    closed = [group.start() for group in re.finditer(r"\)", pattern)]
    for begin, end in product(opened, closed):
        with suppress(re2.error):
            if begin <= end and re2.compile(pattern[begin:end], _OPTIONS):
                return (flags[0] if flags else "") + f"(?:{pattern[begin:end]})"
    return None


def _encodable(text: str) -> str:
    """Return a text without lone surrogates, which RE2 cannot read."""
    return text.encode("utf-8", "replace").decode("utf-8")


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """How answers are extracted and compared.

    The tolerance of numbers is relative to the expected one if that is above 1, else absolute. `version` selects the
    readers, so that old runs are scored as before.
    """

    answer: Answer = "tags"
    answer_regex: str | None = None
    compare: Compare = "exact"
    tolerance: float = TOLERANCE
    version: int = VERSION

    @property
    def reader(self) -> NumberReader:
        """The functions that read numbers and choices."""
        return READERS[1 if self.version == 1 else VERSION]

    @property
    def depends_on_version(self) -> bool:
        """Whether reader versions can disagree about an answer."""
        return self.answer in ("last_number", "choice") or self.compare == "numeric"

    def document(self) -> dict[str, Any]:
        """Return the field `scoring` of eval_summary.json; version 1 is omitted."""
        return {key: value for key, value in asdict(self).items() if key != "version" or value != 1}

    def describe(self) -> str:
        """Return a short description, such as `last_number, numeric match`."""
        return f"{self.answer}, {self.compare} match"

    def read(self, text: str) -> str | None:
        """Extract the answer of an output, or return None without one."""
        match self.answer:
            case "tags":
                return extract_answer(text)
            case "boxed":
                return last_boxed(text)
            case "last_number":
                return self.reader.last_number(text)
            case "choice":
                return self.reader.last_choice(text)
            case "regex":
                found = find_last_match(self.answer_regex or "", text)
                return None if found is None else found.strip()
        plain = text.rpartition("</think>")[2].strip()  # some chat templates include the reasoning
        return (plain.splitlines()[-1].strip() if self.answer == "last_line" else plain) if plain else None

    def is_right(self, answer: str | None, accepted: Sequence[str]) -> bool:
        """Return whether an answer is one of the accepted ones."""
        return answer is not None and any(self._is_equal(answer, one) for one in accepted)

    def has_form(self, text: str, finish_reason: str) -> bool:
        """Return whether an output was not cut off and has the expected form: the exact tags, or a readable answer."""
        if self.answer == "tags":
            return format_ok(text, finish_reason)
        answer = self.read(text)
        return finish_reason == "stop" and answer is not None and self.can_compare(answer)

    def can_compare(self, answer: str) -> bool:
        """Return whether an answer can be compared: it must be a number if numbers are compared."""
        return self.compare != "numeric" or self.reader.parse_number(self.unboxed_number(answer)) is not None

    def is_near(self, answer: str, expected: str, tolerance: float, *, least: int = 1) -> bool:
        """Return whether an answer is a number within a relative tolerance; `least` bounds the scale from below."""
        return self.reader.same_number(self.unboxed_number(answer), expected, tolerance, least=least)

    def verdict(
        self, text: str, finish_reason: str, accepted: Sequence[str], *, stop: str | None = None
    ) -> dict[str, Any]:
        """Return the verdict fields of a prediction row; the stop string and everything after it are ignored."""
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

    def _is_equal(self, answer: str, expected: str) -> bool:
        if self.compare == "numeric":
            return self.is_near(answer, expected, self.tolerance)
        if self.compare == "folded":
            return fold(answer) == fold(expected)
        return answer.strip() == expected.strip()

    def unboxed_number(self, answer: str) -> str:
        """Return the number in a boxed answer, without its unit or variable. Other answers are returned unchanged."""
        return last_number(answer) or "" if self.answer == "boxed" else answer


def read_scoring(summary: Mapping[str, Any] | None) -> Scoring:
    """Return the scoring of a valid eval_summary.json. Summaries before schema version 1.2 use the defaults."""
    stated = (summary or {}).get("scoring")
    if stated is None:
        return Scoring(version=1)
    return Scoring(**{key: stated[key] for key in Scoring(version=1).document()}, version=stated.get("version", 1))


def accepted_answers(row: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the accepted answers of an evaluation item or a prediction row."""
    expected = row["expected"]
    first = (expected,) if isinstance(expected, str) else tuple(expected)
    return (*first, *row.get("also_expected", ()))


def expected_line(row: Mapping[str, Any]) -> str:
    """Return the accepted answers as one text for the hash of a set: several answers become a JSON array."""
    accepted = accepted_answers(row)
    return accepted[0] if len(accepted) == 1 else json.dumps(accepted, ensure_ascii=False)


def is_right_leniently(text: str, expected: str, reader: NumberReader = READERS[VERSION]) -> bool:
    """Return whether an output ends with the expected answer in any form.

    A number is compared with the last number, a letter from A to J with the last choice, and words with the last
    words. A formula (any answer without letters) must match character by character, except for white space.

    >>> [is_right_leniently("He is her husband!", "husband"), is_right_leniently("husband, I think", "husband")]
    [True, False]
    >>> [is_right_leniently(text, "2*(10+1)") for text in ("so 2 * (10+1)", "2+10*1", "12*(10+1)")]
    [True, False, False]
    """
    plain = text[-_LENIENT_CHARACTERS:]
    for tag in TAGS:
        plain = plain.replace(tag, " ")
    if reader.parse_number(expected) is not None:
        return reader.same_number(reader.last_number(plain) or "", expected, TOLERANCE)
    if is_choice(expected):
        return fold(reader.last_choice(plain) or "") == fold(expected.strip("(). "))
    if not any(character.isalpha() for character in expected):
        spaced = r"\s*".join(re.escape(character) for character in expected if not character.isspace())
        return re.search(rf"(?<![0-9.]){spaced}\s*\Z", plain) is not None
    words = re.findall(r"\w+", expected.casefold())
    return re.findall(r"\w+", plain.casefold())[-len(words) :] == words


def fold(text: str) -> str:
    """Fold the case of a text and collapse white space."""
    return " ".join(text.casefold().split())
