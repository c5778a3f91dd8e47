r"""Parse numbers and multiple-choice letters in plain text and LaTeX, in time linear in the length of the text.

A number is parsed as a whole or not at all: the `2` in `\frac{1}{2}`, `(1, 2)`, `2^3`, `3:2`, `3.1.2` or `2024-01-02`
is not a number on its own.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import deque
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import NamedTuple

TOLERANCE = 1e-6  # default relative tolerance of numeric comparison
MAX_TEXT = 20_000  # characters that are searched, at the end of a text
MAX_NUMBER = 4_000  # characters of a number
CONTEXT = 80  # characters before and after a number that decide whether it counts

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?|\.[0-9]+"
# In 5-3 the sign is an operator and not part of the number.
PLAIN_NUMBER = re.compile(rf"(?:(?<![0-9A-Za-z)\].])[-+])?(?:{_DIGITS})")

_CHARACTERS = str.maketrans(
    dict.fromkeys("\u2212\u2010\u2011\u2012\u2013\ufe63\uff0d", "-")
    | dict.fromkeys("\u00a0\u2007\u2009\u202f", " ")
    | dict.fromkeys("\u200b\u2060\ufeff", "")
    | {"×": "*", "·": "*", "⋅": "*", "÷": "/", "⁄": "/", "∕": "/", "’": "'"}
    | {chr(zero + digit): str(digit) for zero in (0xFF10, 0x0660, 0x06F0, 0x0966) for digit in range(10)}
)
_MARKUP = re.compile(r"\\(?P<word>[A-Za-z]+)|\\(?P<sign>.)|\{,\}|~|(?P<raised>[⁰¹²³⁴-⁹⁻]+)|(?P<part>[¼-¾⅐-⅞])")
_SIGNS = {"!": "", "%": "%", "$": "$", "{": "(", "}": ")", "(": "(", ")": ")", "[": "(", "]": ")", "\\": "&", "_": "_"}
_WORDS = (
    dict.fromkeys(("left", "right", "displaystyle", "text", "textbf", "textrm", "mbox", "boxed", "fbox"), "")
    | dict.fromkeys(("mathrm", "mathbf", "mathit", "bf", "rm", "bigl", "bigr", "big", "Big"), "")
    | dict.fromkeys(("dfrac", "tfrac", "cfrac", "frac"), r"\frac")
    | {"times": "*", "cdot": "*", "div": "/", "circ": "°", "degree": "°", "sqrt": "√", "pi": "π"}
    | {"pm": "±", "mp": "±", "le": "≤", "leq": "≤", "ge": "≥", "geq": "≥", "ne": "≠", "neq": "≠", "lt": "≤", "gt": "≥"}
    | {"langle": "(", "rangle": ")", "quad": " ", "qquad": " "}
)
_RAISED = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻", "0123456789-")
_TIDY = (
    (re.compile(r"\^\{?°\}?"), "°"),
    (re.compile(r"(?<=[0-9)])\*\*(?=[-0-9(])"), "^"),
    (re.compile(r"\*\*"), ""),
    (re.compile(r"(?<=[=≈({:])([ \t]{0,9})-[ \t]+(?=[0-9.$\\])"), r"\1-"),
    (re.compile(r"\b(?:minus|negative)[ \t]+(?=[0-9.$\\])", re.IGNORECASE), "-"),
)

_SCALES = {"k": 3, "hundred": 2, "thousand": 3, "million": 6, "billion": 9, "trillion": 12}
_NUMBER = re.compile(
    r"""(?P<sign>(?<![0-9A-Za-z)\]}.%])[-+]\{?)?(?:[$€£][ ]?(?P<inner>[-+])?)?
    (?P<body>
      (?P<whole>[0-9]+)?[ ]?\\frac[ ]?(?P<top>\{[ ]?[-+]?[0-9]+[ ]?\}|[0-9])[ ]?(?P<bottom>\{[ ]?[0-9]+[ ]?\}|[0-9])
      |(?P<mixed>[0-9]+)[ ](?P<part>[0-9]+)/(?P<of>[0-9]+)
      |(?P<digits>
         [0-9]{1,3}(?P<between>[,'_]|(?<![0-9][ ][0-9])(?<![0-9][ ][0-9]{2})(?<![0-9][ ][0-9]{3})[ ])[0-9]{3}
           (?:(?P=between)[0-9]{3})*(?![0-9])(?:\.[0-9]+)?
         |[0-9]{1,2}(?:,[0-9]{2})+,[0-9]{3}(?![0-9])
         |[0-9]+(?:\.[0-9]+)?|(?<![0-9.])\.[0-9]+)
       (?P<e>[eE][-+]?[0-9]{1,3}(?![0-9]))?(?:[ ]?/[ ]?(?P<by>[0-9]+))?
    )
    (?:[ ]?[*x][ ]?10\^(?P<ten>\{[-+]?[0-9]{1,3}\}|[-+]?[0-9]{1,3}))?
    (?:\^(?P<power>\{[-+]?[0-9]{1,3}\}|[-+]?[0-9]{1,3}))?
    (?P<percent>[ ]?(?:%|(?:percent|pct)\b))?(?:[ ]?(?P<scale>(?<![ ])k(?![A-Za-z])
      |\b(?:hundred|thousand|million|billion|trillion)\b))?""",
    re.VERBOSE,
)

_NUMBER_ALONE = re.compile(rf"[({{\s$]*{_NUMBER.pattern}[\s$€£]*[)}}\s]*\.?[\s$]*", re.VERBOSE)

_MONTH = (
    r"(?:Jan(?:uary)?|Feb(?:ruary)?|Mar(?:ch)?|Apr(?:il)?|May|June?|July?|Aug(?:ust)?|Sep(?:t|tember)?|Oct(?:ober)?"
    r"|Nov(?:ember)?|Dec(?:ember)?)\b"
)
# Text before a number that makes it an exponent, an index or a digit of a name such as CO2. It is skipped.
_NAME_BEFORE = re.compile(r"(?:\^\{?|_\{?|[A-Za-z]|[A-Za-z]{2}-)\Z")
# Text around a number that makes it a part of something larger, so that the text has no last number.
_PART_BEFORE = re.compile(
    rf"""(?:
      [0-9)\]}}%°][ \t]*[-+*/][ \t]*                          # 5 - 3, 2024-01-02
      |(?<![A-Za-z])(?:[A-Za-z][ \t]*[+*/]|[a-z][ \t]*-)[ \t]* # 2x + 3
      |[A-Za-z][ \t]+[+*][ \t]+                               # 5 cm * 4 cm
      |[A-Za-z]/|[0-9][ \t]*x[ \t]*|[0-9](?::|[ \t]+:[ \t]*)   # km/2, 5 x 3, 3:4
      |[0-9]\.|[^\s],                                         # 3.1.2, 1,2
      |[≤≥≠±√&][ \t]*[(\[{{]?|!=[ \t]*|\bnot[ \t]+             # \geq 3, \sqrt{{2}}
      |(?:\A|[\s$(])[A-Za-z0-9]{{1,2}}[ \t]*[<>]=?[ \t]*       # x > 3
      |[A-Za-z0-9]\(|\}}\{{[ ]?|\\[A-Za-z]+[ ]?\{{[ ]?          # f(2), \frac{{x}}{{2}}
      |\\(?:frac|log|ln|lg|sin|cos|tan|cot|exp|over)[ ]?[({{]?
      |[0-9)\]}}%][ \t]+(?:or|to)[ \t]+(?:\w[ \t]*=[ \t]*)?      # 1 or 2, 3 to 4
      |\bbetween[ \t]+\S{{1,20}}[ \t]+and[ \t]+
      |=[ \t]*[^\s=,]{{1,20}},[ \t]+                           # x = 1, 2
      |\b{_MONTH}\.?[ \t]+(?:[0-9]{{1,2}}(?:st|nd|rd|th)?,?[ \t]+)?
    )\Z""",
    re.VERBOSE,
)
_PART_BEHIND = re.compile(
    rf"""\^|_|[.,:/-][0-9]|[xyzni](?![A-Za-z'])|[ ][xyz](?![A-Za-z'])|[ \t]*±
    |[ \t]*[+*/-]?[ \t]*(?:√|π|sqrt\b|pi\b|\\(?:frac|log|ln|lg|sin|cos|tan|cot|exp|binom|over)\b)
    |[ \t]*[+*/-][ \t]*(?:[b-z](?![A-Za-z'])|\()
    |(?:st|nd|rd|th)?[ \t]+(?:of[ \t]+)?{_MONTH}""",
    re.VERBOSE,
)
_GROUP = re.compile(r"[(\[{][^()\[\]{}]*[)\]}]")


class Number(NamedTuple):
    """A number in a text: its exact value (50 for `50 %`), and how it is written."""

    value: Fraction
    is_whole: bool
    is_percent: bool


def last_number(text: str) -> str | None:
    r"""Return the last number of a text without its currency, or None if it is missing or part of a larger expression.

    >>> [last_number(text) for text in ("3 + 4 = 7, so $1,234.50.", "x = −2", r"\frac{1}{2}", "5 m^2", "none")]
    ['1,234.50', '-2', '\\frac{1}{2}', '5', None]
    >>> [last_number(text) for text in ("(1, 2)", "3:4", "2024-01-02", "x^2 + 3", r"\sqrt{2}")]
    [None, None, None, None, None]
    """
    plain, is_cut = _tidy(text[-MAX_TEXT:]), len(text) > MAX_TEXT
    for found in reversed(list(_NUMBER.finditer(plain))):
        before, behind = plain[max(0, found.start() - CONTEXT) : found.start()], plain[found.end() :][:CONTEXT]
        if _NAME_BEFORE.search(before):
            continue
        if (is_cut and not before) or _is_part(found, before, behind) or _number(found) is None:
            return None
        return (found["sign"] or found["inner"] or "")[:1] + plain[found.start("body") : found.end()].strip()
    return None


def parse_number(text: str) -> Number | None:
    r"""Parse a number with optional currency sign, percent sign, full stop and LaTeX delimiters, or return None.

    >>> parse_number(" $1,234.50 ").value, parse_number("7.").value, parse_number(r"$\frac{1}{2}$").value
    (Fraction(2469, 2), Fraction(7, 1), Fraction(1, 2))
    >>> parse_number("7 apples"), parse_number("nan"), parse_number("1,2")
    (None, None, None)
    """
    if len(text) > MAX_TEXT:
        return None
    found = _NUMBER_ALONE.fullmatch(_tidy(text))
    return None if found is None else _number(found)


def same_number(one: str, other: str, tolerance: float, *, least: int = 1) -> bool:
    """Return whether two texts are numbers within a relative tolerance of the second, or of `least` if that is larger.

    Whole numbers must be equal unless the tolerance is above the default. A percentage is both 50 and 0.5.

    >>> same_number("1,000", "1000.0", 0), same_number("999999", "1000000", TOLERANCE), same_number("99", "100", 0.01)
    (True, False, True)
    """
    first, second = parse_number(one), parse_number(other)
    if first is None or second is None:
        return False
    pairs = [(first.value, second.value)]
    if first.is_percent != second.is_percent:
        pairs.append((first.value / 100, second.value) if first.is_percent else (first.value, second.value / 100))
    is_exact = first.is_whole and second.is_whole and tolerance <= TOLERANCE
    share = Fraction(0 if is_exact else tolerance) * Fraction(1 + 1e-9)
    return any(abs(value - expected) <= share * max(Fraction(least), abs(expected)) for value, expected in pairs)


def _tidy(text: str) -> str:
    """Normalize minus signs, spaces, products, powers and LaTeX."""
    plain = _MARKUP.sub(_plain, text.translate(_CHARACTERS))
    for pattern, written in _TIDY:
        plain = pattern.sub(written, plain)
    return plain


def _plain(mark: re.Match[str]) -> str:
    if word := mark["word"]:
        return _WORDS.get(word, f"\\{word} ")
    if mark["raised"]:
        return f"^{{{mark['raised'].translate(_RAISED)}}}"
    if mark["part"]:
        return " " + unicodedata.normalize("NFKC", mark["part"]).replace("⁄", "/")
    return _SIGNS.get(mark["sign"], " ") if mark["sign"] else "," if mark[0] == "{,}" else " "


def _is_part(found: re.Match[str], before: str, behind: str) -> bool:
    """Return whether a number is part of a sum, power, tuple, ratio, version or date."""
    follows = (found["sign"] or found["by"] or found["top"]) and re.search(r"[0-9)\]}%][ \t]*\Z", before)  # 1 000 4/9
    if follows or _PART_BEFORE.search(before) or _PART_BEHIND.match(behind):
        return True
    opened = re.search(r"[(\[{]([^()\[\]{}]*)\Z", _GROUP.sub("_", before))
    closed = re.match(r"([^()\[\]{}]*)[)\]}]", _GROUP.sub("_", behind))
    if opened is None or closed is None:
        return False
    left, right = opened[1].strip(), closed[1].strip()
    return bool(left or right) and left[-1:] in ("", ",", ";") and right[:1] in ("", ",", ";")


def _number(found: re.Match[str]) -> Number | None:
    """Evaluate a matched number, or return None if it is too long, divides by 0 or exceeds the range of floats."""
    if len(found[0]) > MAX_NUMBER:
        return None
    ten, power, e = (int((found[name] or "0").strip("{}eE")) for name in ("ten", "power", "e"))
    part, of = (int((found[one] or found[two] or "1").strip("{ }")) for one, two in (("top", "part"), ("bottom", "of")))
    if found["digits"]:
        value, of = Fraction(re.sub("[ ,'_]", "", found["digits"])), int(found["by"] or 1)
    else:
        value = Fraction(part + of * int(found["whole"] or found["mixed"] or 0))
    if not of or (found["mixed"] and part >= of) or (power and (not value or len(found["body"]) > len("1000000"))):
        return None  # 5/0, 11 7/6, 0^-1
    value = (value / of * Fraction(10) ** e) ** (power if found["power"] else 1)
    value *= Fraction(10) ** (ten + _SCALES.get(found["scale"] or "", 0))
    is_whole = "." not in (found["digits"] or ".") and not any(map(found.group, ("by", "e", "ten", "power")))
    if not is_whole and abs(value) >= Fraction(10) ** 308:
        return None
    is_negative = "-" in (found["sign"] or "") + (found["inner"] or "")
    return Number(-value if is_negative else value, is_whole, bool(found["percent"]))


LETTER = re.compile(r"\(?([A-Ja-j])\)?[.:]?")
# A and I are also words; they are choices unless a word follows.
CHOICE = re.compile(r"(?<![A-Za-z0-9'])(?:[B-HJ]|[AI](?! (?!is\b)[a-z]))(?![A-Za-z0-9'])")
_STATED_CHOICE = re.compile(
    r"""\b(?i:answer(?:\s{1,9}is\b|\s{0,9}:))[\s:*_"'(\[{$\\]{0,20}
    (?:(?i:boxed|text|textbf|mathrm|option|choice)\b[\s*_({\\]{0,9}){0,3}
    ([B-HJb-hj]|[AIai](?![ \t]+(?!(?:because|since|as|for|and|but|due|so|given|is)\b)[a-z]))(?![A-Za-z0-9'])""",
    re.VERBOSE,
)
_FIRST_CHOICE = re.compile(
    r"""[\s>*_"'(\[]{0,20}(?:(?P<letter>[A-Ja-j])(?:[*_"')\]]{0,4}[).:!\]](?=[\s*_]|\Z)|[*_]{1,2}(?=\s|\Z)|[ \t]{0,9}\n)
    |(?P<capital>[A-J])(?:[,;](?=\s)(?!\s{1,9}[A-J]\b)|[ ][-–—][ ]))""",
    re.VERBOSE,
)


def last_choice(text: str, version: int = 2) -> str | None:
    """Return the multiple-choice letter of a text, or None without one.

    The first of: the whole text, the letter after the last `answer is` or `answer:`, a letter with a separator at the
    very beginning, the last single capital. Lower case is accepted in the first three. Version 1 skips the middle two.

    >>> [last_choice(text) for text in ("b", "The answer is b because A is less.", "b) Paris, not C", "So A or C")]
    ['B', 'B', 'B', 'C']
    """
    if whole := LETTER.fullmatch(text.strip()):
        return whole[1].upper()
    if version > 1 and (stated := deque(_STATED_CHOICE.finditer(text), maxlen=1)):
        return stated[0][1].upper()
    if version > 1 and (first := _FIRST_CHOICE.match(text)):
        return (first["letter"] or first["capital"]).upper()
    last = deque(CHOICE.finditer(text), maxlen=1)
    return last[0][0] if last else None


def is_choice(text: str) -> bool:
    """Return whether a text is a multiple-choice letter from A to J, such as `B`, `(B)` or `b.`."""
    return LETTER.fullmatch(text.strip()) is not None


class NumberReader(NamedTuple):
    """One version of the functions that parse numbers and choices."""

    last_number: Callable[[str], str | None]
    parse_number: Callable[[str], object | None]
    same_number: Callable[..., bool]
    last_choice: Callable[[str], str | None]


def _last_number_v1(text: str) -> str | None:
    found = deque(PLAIN_NUMBER.finditer(text.replace("\u2212", "-")), maxlen=1)
    return found[0][0] if found else None


def _number_v1(text: str) -> Decimal | None:
    plain = text.strip().replace("\u2212", "-").removesuffix("%").rstrip().removesuffix(".")
    plain = re.sub(r"^([-+]?)[$€£]", r"\1", plain)
    if len(plain) > 400 or not PLAIN_NUMBER.fullmatch(plain):
        return None
    number = Decimal(plain.replace(",", ""))
    return number if math.isfinite(float(number)) else None


def _same_number_v1(one: str, other: str, tolerance: float, *, least: int = 1) -> bool:
    first, second = _number_v1(one), _number_v1(other)
    if first is None or second is None:
        return False
    difference = abs(float(first) - float(second))
    return first == second or difference <= tolerance * max(float(least), abs(float(second))) * (1 + 1e-9)


READERS = {
    1: NumberReader(_last_number_v1, _number_v1, _same_number_v1, partial(last_choice, version=1)),
    2: NumberReader(last_number, parse_number, same_number, last_choice),
}
"""Readers by version. Version 1 stays so that older runs are scored as before."""
