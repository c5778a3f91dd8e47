"""`format`: 1 where the whole text, from its first character to its end token, has a form, else 0."""

from __future__ import annotations

from functools import partial
from itertools import pairwise

from evidence.rewards.options import RewardOptions
from evidence.rewards.reward import Attempt, RewardRule
from evidence.scores.patterns.match import matches_whole
from evidence.scores.patterns.parse import PatternError
from evidence.scores.reading import Scoring
from schemas.formats import format_value

TAGS = ("reasoning", "answer")


def has_blocks(attempt: Attempt, *, tags: tuple[str, ...]) -> float:
    r"""Return 1 where the text is one block of each tag in order, a newline between them and nothing else, else 0.

    A further line behind the last block, a tag that stands twice or a text that was cut is worth 0. For the tags
    `think` and `answer`, `<think>a</think>\n<answer>4</answer>` is worth 1.
    """
    text, joints = attempt.text, [f"</{one}>\n<{other}>" for one, other in pairwise(tags)]
    marks = [mark for tag in tags for mark in (f"<{tag}>", f"</{tag}>")]
    is_exact = text.startswith(marks[0]) and text.endswith(marks[-1]) and all(joint in text for joint in joints)
    return float(attempt.finished and is_exact and all(text.count(mark) == 1 for mark in marks))


def has_pattern(attempt: Attempt, *, pattern: str) -> float:
    """Return 1 where a pattern matches the whole text, and not a part or a line of it, else 0."""
    return float(attempt.finished and matches_whole(pattern, attempt.text))


def format_of(options: RewardOptions, scoring: Scoring) -> RewardRule:
    """Return the reward: by `regex`, or by `tags`; with neither, those of the evaluation, where it reads tags."""
    if options.given("regex"):
        pattern = options.text("regex", ".+")
        try:
            matches_whole(pattern, "")
        except PatternError as error:
            options.refuse(f"is {format_value(pattern)}: {error}", "regex")
        return RewardRule(value=partial(has_pattern, pattern=pattern))
    if scoring.answer != "tags" and not options.given("tags"):
        options.refuse(f"has neither regex nor tags, and answers are read as {scoring.in_words()}")
    tags = options.texts("tags", TAGS)
    return RewardRule(value=partial(has_blocks, tags=tags))
