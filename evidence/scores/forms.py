r"""Numbers and letters of choices as texts write them, in plain words and in LaTeX.

A number is read whole or not at all: `2` in `\frac{1}{2}`, `(1, 2)`, `2^3`, `3:2`, `3.1.2` or `2024-01-02` is a part of
something else. Reading takes time in proportion to the text, whatever stands in it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from dataclasses import dataclass
from fractions import Fraction

TOLERANCE = 1e-6
"""Of numbers that are written in two ways."""
LONGEST_TEXT = 20_000
"""Characters of a text, the last ones, in which a number is looked for."""
LONGEST_NUMBER = 4_000
"""Characters of a number; a longer text is not a number."""
CONTEXT = 80
"""Characters beside a number that tell whether it is a part of something else."""

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]{1,3}(?![0-9]))?|\.[0-9]+"
# A sign belongs to a number unless it stands between two things, as in 5-3.
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
# What ends before a number of which it is not the answer: an exponent, an index, a digit of a name such as CO2.
_NAME_BEFORE = re.compile(r"(?:\^\{?|_\{?|[A-Za-z]|[A-Za-z]{2}-)\Z")
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


@dataclass(frozen=True, kw_only=True)
class Number:
    """The value of a number that is written in a text."""

    value: Fraction
    is_whole: bool
    """Whether it is written without a fraction and an exponent."""
    is_percent: bool = False

    def is_near(self, other: Number, tolerance: float, *, least: int = 1) -> bool:
        """Return whether it is at most a tolerance away from another, as a share of that where it is above `least`.

        Two whole numbers are compared exactly unless a larger tolerance than the usual one is set. 50 % is 50 and 0.5.
        """
        pairs = [(self.value, other.value)]
        if self.is_percent != other.is_percent:
            by = 100 if self.is_percent else 1
            pairs.append((self.value / by, other.value / (100 // by)))
        is_exact = self.is_whole and other.is_whole and tolerance <= TOLERANCE
        share = Fraction(0 if is_exact else tolerance) * Fraction(1 + 1e-9)
        return any(abs(one - two) <= share * max(Fraction(least), abs(two)) for one, two in pairs)


def last_number(text: str) -> str | None:
    r"""Return the last number of a text without its currency, or None if there is none or it is a part of something.

    >>> [last_number(text) for text in ("3 + 4 = 7, so $1,234.50.", "x = −2", r"\frac{1}{2}", "5 m^2", "none")]
    ['1,234.50', '-2', '\\frac{1}{2}', '5', None]
    >>> [last_number(text) for text in ("(1, 2)", "3:4", "2024-01-02", "x^2 + 3", r"\sqrt{2}")]
    [None, None, None, None, None]
    """
    plain, is_cut = _tidy(text[-LONGEST_TEXT:]), len(text) > LONGEST_TEXT
    for found in reversed(list(_NUMBER.finditer(plain))):
        before, behind = plain[max(0, found.start() - CONTEXT) : found.start()], plain[found.end() :][:CONTEXT]
        if _NAME_BEFORE.search(before):
            continue
        is_part = (is_cut and not before) or _is_part(found, before, behind)
        return None if is_part or _number(found) is None else _shown(found)
    return None


def number_of(text: str) -> Number | None:
    r"""Return the number that a text is, or None if it is not one.

    A currency sign, a percent sign, a full stop and the marks of a formula may be beside it.

    >>> number_of(" $1,234.50 ").value, number_of("7.").value, number_of(r"$\frac{1}{2}$").value
    (Fraction(2469, 2), Fraction(7, 1), Fraction(1, 2))
    >>> number_of("7 apples"), number_of("nan"), number_of("1,2")
    (None, None, None)
    """
    if len(text) > LONGEST_TEXT:
        return None
    found = _NUMBER_ALONE.fullmatch(_tidy(text))
    return None if found is None else _number(found)


def same_number(one: str, other: str, tolerance: float, *, least: int = 1) -> bool:
    """Return whether two texts are numbers that are near each other, as `Number.is_near` has it.

    >>> same_number("1,000", "1000.0", 0), same_number("999999", "1000000", TOLERANCE), same_number("99", "100", 0.01)
    (True, False, True)
    """
    first, second = number_of(one), number_of(other)
    return first is not None and second is not None and first.is_near(second, tolerance, least=least)


def numbers_in(text: str) -> list[str]:
    """Return all numbers of a text in order, as they are written, those of sums and fractions one by one.

    >>> numbers_in("3 + 4 = 7, so $1,234.50.")
    ['3', '4', '7', '1,234.50']
    """
    return [match[0] for match in PLAIN_NUMBER.finditer(text.replace("\u2212", "-"))]


def _tidy(text: str) -> str:
    """Return a text in which minus signs, spaces, products, powers and LaTeX are written in one way."""
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
    """Return whether a number is a part of something larger: of a sum, power, tuple, ratio, version or date."""
    if found["sign"] and re.search(r"[0-9)\]}%][ \t]*\Z", before):
        return True
    if (found["by"] or found["top"]) and re.search(r"[0-9)][ ]\Z", before):  # 1 000 4/9
        return True
    if _PART_BEFORE.search(before) or _PART_BEHIND.match(behind):
        return True
    opened = re.search(r"[(\[{]([^()\[\]{}]*)\Z", _GROUP.sub("_", before))
    closed = re.match(r"([^()\[\]{}]*)[)\]}]", _GROUP.sub("_", behind))
    if opened is None or closed is None:
        return False
    left, right = opened[1].strip(), closed[1].strip()
    return bool(left or right) and left[-1:] in ("", ",", ";") and right[:1] in ("", ",", ";")


def _shown(found: re.Match[str]) -> str:
    sign = (found["sign"] or found["inner"] or "")[:1]
    return sign + found.string[found.start("body") : found.end()].strip()


def _number(found: re.Match[str]) -> Number | None:
    """Return the value of a number, or None where it has none: too long, divided by 0, or beyond what floats hold."""
    if len(found[0]) > LONGEST_NUMBER:
        return None
    ten, power, e = (int((found[name] or "0").strip("{}eE")) for name in ("ten", "power", "e"))
    if found["digits"]:
        top, of = Fraction(re.sub("[ ,'_]", "", found["digits"])), int(found["by"] or 1)
    elif found["mixed"]:
        of = int(found["of"])
        top = Fraction(int(found["mixed"]) * of + int(found["part"]))
        of = 0 if int(found["part"]) >= of else of  # 11 7/6 is no number
    else:
        of, whole = int(found["bottom"].strip("{ }")), int(found["whole"] or 0)
        top = Fraction(int(found["top"].strip("{ }")) + whole * of)
    is_negative = "-" in (found["sign"] or "") + (found["inner"] or "")
    is_whole = bool(found["digits"]) and not any(found[name] for name in ("by", "e", "ten", "power"))
    if not of or (power and (not top or len(found["body"]) > len("1000000"))):
        return None
    value = (top / of * Fraction(10) ** e) ** (power if found["power"] else 1)
    value *= Fraction(10) ** (ten + _SCALES.get(found["scale"] or "", 0)) * (-1 if is_negative else 1)
    is_whole = is_whole and "." not in found["digits"]
    if not is_whole and abs(value) >= Fraction(10) ** 308:
        return None
    return Number(value=value, is_whole=is_whole, is_percent=bool(found["percent"]))


LETTER = re.compile(r"\(?([A-Ja-j])\)?[.:]?")
# A and I also stand for words; they count as choices unless a word follows them.
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


def last_choice(text: str) -> str | None:
    """Return the letter of the choice that a text states, or None if it is missing.

    That is the whole text, a letter behind `answer is` or `answer:`, a letter with a separator at the very beginning,
    or the last capital alone. Small letters count in the first three places.

    >>> last_choice("b"), last_choice("(C)"), last_choice("B, not A. A cat sleeps."), last_choice("I do not know")
    ('B', 'C', 'B', None)
    >>> last_choice("The answer is b because A is less."), last_choice("b) Paris, not C"), last_choice("So A or C")
    ('B', 'B', 'C')
    """
    if whole := LETTER.fullmatch(text.strip()):
        return whole[1].upper()
    if stated := deque(_STATED_CHOICE.finditer(text), maxlen=1):
        return stated[0][1].upper()
    if first := _FIRST_CHOICE.match(text):
        return (first["letter"] or first["capital"]).upper()
    last = deque(CHOICE.finditer(text), maxlen=1)
    return last[0][0] if last else None


def is_choice(text: str) -> bool:
    """Return whether a text is the letter of a choice, A to J: `B`, `(B)`, `b.`."""
    return LETTER.fullmatch(text.strip()) is not None
