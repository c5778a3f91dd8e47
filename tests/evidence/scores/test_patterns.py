"""Patterns mean what `re` takes them to mean, and none takes long."""

from __future__ import annotations

import random
import re
import time
import warnings

import pytest

from evidence.scores.patterns.match import MOST_STEPS, could_read, machine_of
from evidence.scores.patterns.parse import PatternError

TEXTS = (
    "So it is 12.\n#### 1,234",
    "#### 4\n#### 5\n",
    "Answer: (B). Not C.",
    "the answer is \\boxed{3x+1} or \\boxed{42}",
    "aXbx aab abab -3.5 +7\n\tünder_score",
    "",
)


def by_re(pattern: str, text: str) -> str | None:
    """Return the same by the standard library: the independent truth."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = list(re.finditer(pattern, text))
    if not found:
        return None
    return found[-1][1] if found[-1].re.groups and found[-1][1] is not None else found[-1][0]


@pytest.mark.parametrize(
    "pattern",
    [
        r"#### (.*)",
        r"#### *(-?[\d,]+(?:\.\d+)?)",
        r"(?i)answer:\s*\(?([a-d])\)?",
        r"\\boxed\{([^}]*)\}",
        r"(?m)^#### (\d+)$",
        r"(?s)is (.+)$",
        r"\b([ab]+?)\b",
        r"(?:a|ab)(?:b|x)?",
        r"[^\]\s]+$",
        r"(ab){2}|a{1,2}b",
        r"x*?b",
        r"(a)|b",
        r"\w+\Z",
        r"\x61\u0062",
        r"(?:ab|a)(?:ab|b){1,}",
        r"a{,2}b",
        r"\A.",
        r"\Bb",
    ],
)
@pytest.mark.parametrize("text", TEXTS)
def test_the_last_match_is_that_of_re(pattern: str, text: str) -> None:
    assert machine_of(pattern).last(text) == by_re(pattern, text)


def written(choice: random.Random, depth: int) -> str:
    """Return a random pattern of few letters, so that it often matches."""
    atoms = ["a", "b", ".", "[ab]", "[^a]", r"\w", r"\b", "^", "$"]
    parts = []
    for _ in range(choice.randint(1, 3)):
        part = choice.choice(atoms)
        if depth and choice.random() < 0.4:
            inner = "|".join(written(choice, depth - 1) for _ in range(choice.randint(1, 2)))
            part = f"{choice.choice(['(', '(?:'])}{inner})"
        if part not in ("^", "$", r"\b"):
            part += choice.choice(["", "", "", "*", "+", "?", "{2}", "{1,2}", "*?", "+?", "??"])
        parts.append(part)
    return "".join(parts)


def test_random_patterns_find_what_re_finds() -> None:
    choice, compared = random.Random(4711), 0
    for _ in range(1500):
        pattern, text = written(choice, 2), "".join(choice.choices("ab \n", k=choice.randint(0, 9)))
        try:
            machine = machine_of(pattern)
        except PatternError:
            continue
        compared += 1
        assert machine.last(text) == by_re(pattern, text), (pattern, text)
    assert compared > 500


@pytest.mark.parametrize("pattern", [r"(?:a+)+b", r"(a|aa)+b", "a?" * 40 + "a{40}b"])
def test_what_never_ends_in_re_ends_here(pattern: str) -> None:
    """Thirty letters take `re` minutes with the first; twenty thousand take a bounded number of steps here."""
    before = time.process_time()
    assert machine_of(pattern).last("a" * 20_000) is None
    assert time.process_time() - before < 10


def test_a_pattern_beyond_the_steps_finds_nothing_and_a_long_text_is_looked_at_from_behind() -> None:
    assert machine_of("a").last("a" * (MOST_STEPS // 20)) == "a"
    assert machine_of("(?:a|b|c)*d|a").last("a" * 20_000) is None
    assert machine_of("#### (\\d)").last("#### 7" + "x" * 20_000) is None
    assert machine_of("#### (\\d)").last("x" * 30_000 + "#### 7") == "7"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("(a", "missing ), unterminated subpattern at position 0"),
        ("", "it matches nothing at all, which is everywhere"),
        ("a*", "it matches nothing at all, which is everywhere"),
        ("(a*)*b", "it repeats something that may be empty"),
        (r"(a)\1", r"\1 is not taken: neither what a group held before, nor codes and names of characters"),
        ("(?=a)a", "(?=a… is not taken, only (…) and (?:…), and (?i), (?m), (?s) at the beginning"),
        ("a{101}", "it repeats something 101 times; at most 100 are taken"),
        ("(?:a{100}){6}", "it becomes more than 500 steps; use fewer or smaller repetitions"),
        ("a" * 201, "it has 201 characters; at most 200 are taken"),
        ("a*+b", "a quantifier with + behind it (possessive) is not taken"),
    ],
)
def test_what_is_not_taken_is_said(pattern: str, why: str) -> None:
    with pytest.raises(PatternError) as caught:
        machine_of(pattern)
    assert str(caught.value) == why


@pytest.mark.parametrize(
    ("pattern", "text", "could"),
    [
        (r"#### (\d+)", "7", True),
        (r"#### (\d+)", "-7", False),
        (r"#### \d+", "7", False),
        (r"#### \d+", "#### 7", True),
        (r"(?i)answer: (yes|no)$", "YES", True),
        (r"answer:(\s\w+)", "yes", True),
        (r"(\d+)|none", "none", True),
        (r"[^\s\S]", "7", False),
        (r"^(a+)$", "aab", False),
    ],
)
def test_what_a_pattern_could_read_is_what_it_reads_in_some_output(pattern: str, text: str, could: bool) -> None:
    outputs = [text, f"#### {text}", f"answer: {text}", f"answer:{text}"]
    found = [match for output in outputs for match in re.finditer(pattern, output)]
    read = {(match[0] if not match.re.groups or match[1] is None else match[1]).strip() for match in found}
    assert (text in read) is could is could_read(pattern, text)
