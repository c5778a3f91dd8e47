"""Find evaluation items in training texts: the same question, or most of its words together with its answer.

A text repeats an item if their words are equal (`split_words`). It is near an item if it contains an n-gram of the item
(13 consecutive words, or half of a short item), the item's figures in order, and the expected answer. An n-gram that
two items share, or that is common in texts without the figures or answer, does not count: it is of a template.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.scores.reading import accepted_answers

Words = tuple[str, ...]
RowTexts = tuple[Words, str]  # the possible questions of a row, the longest last, and all of its target text

MAX_GRAM_WORDS = 13
"""Words of an n-gram of a long item, as in the contamination study of GPT-3 (Brown et al. 2020, appendix C)."""
MIN_GRAM_WORDS = 4  # words of the shortest n-gram; shorter items are only compared as a whole
MAX_OTHER_TEXTS = 10
"""An n-gram that at most this many texts contain without the item's figures or answer is not common."""
MAX_NAMED_ITEMS = 20

_NOT_A_WORD = re.compile(r"[^\w\s]|_")
_ONE_LETTER_WORDS = re.compile("([\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff])")
"""Kana and Han, which are written without spaces."""


def split_words(text: str) -> Words:
    """Split a text into normalized words: "What is 1,200 - ５ ?" gives `what`, `is`, `1200`, `-`, `5`.

    Compatibility forms (NFKC), case, white space and punctuation do not count; numbers, signs and marks do.
    """
    plain = unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-")
    words = _ONE_LETTER_WORDS.sub(r" \1 ", _NOT_A_WORD.sub(_normalize_sign, plain)).split()
    return tuple(words) or ((plain.strip(),) if plain.strip() else ())


def _normalize_sign(match: re.Match[str]) -> str:
    """Return the replacement of a character that is neither letter, digit nor white space."""
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


def row_texts(row: Mapping[str, Any]) -> RowTexts:
    """Return the questions and the target text of a dataset row (`dataset_row.schema.json` or a preference pair).

    The question of a conversation is its last turn before the answer, or all earlier turns; a plain text is both.
    """
    if isinstance(row.get("chosen"), Mapping):
        return row_texts(row["chosen"])
    if "messages" in row:
        *before, last = [turn["content"] for turn in row["messages"]]
        return (before[-1] if before else "", "\n".join(before)), last
    question = next(str(row[name]) for name in ("text", "begun", "prompt") if name in row)
    learned = [step["content"] for step in row.get("steps", ())]
    learned += [str(row[name]) for name in ("text", "completion", "chosen", "final_answer") if name in row]
    return (question,), "\n".join(learned)


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """Number of training rows that repeat or are near an item, and the ids of the items in the order of the set."""

    rows_same: int
    rows_near: int
    items_same: tuple[str, ...]
    items_near: tuple[str, ...]

    def document(self) -> dict[str, Any]:
        """Return the manifest's field `overlap`."""
        return {
            "rows_same": self.rows_same,
            "rows_near": self.rows_near,
            "items_same": len(self.items_same),
            "items_near": len(self.items_near),
            "items": [*self.items_same, *self.items_near][:MAX_NAMED_ITEMS],
        }


def find_overlap(items: Sequence[Mapping[str, Any]], texts: Iterable[RowTexts]) -> Overlap:
    """Find evaluation items (with `id`, `prompt` and `expected`) in training rows, given as `row_texts`."""
    by_words: dict[Words, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        by_words[split_words(item["prompt"])].append(number)
    grams = _item_grams(by_words)
    sizes = sorted({len(gram) for gram in grams})
    figures = {number: _figures(split_words(items[number]["prompt"])) for number in grams.values()}
    answers = {number: _joined(split_words(accepted_answers(items[number])[0])) for number in grams.values()}
    near_rows, other_texts = defaultdict[Words, list[int]](list), Counter[Words]()
    same_rows, same_items = 0, set[int]()
    for row, (questions, learned) in enumerate(texts):
        words: Words = ()
        found = [number for one in questions if (words := split_words(one)) for number in by_words.get(words, ())]
        if found:
            same_rows += 1
        same_items.update(found)
        held = set[Words]() if found else {gram for size in sizes for gram in _ngrams(words, size) if gram in grams}
        if not held:
            continue
        own_figures, whole = _figures(words), _joined((*words, *split_words(learned)))
        for gram in held:
            if figures[grams[gram]] in own_figures and answers[grams[gram]] in whole:
                near_rows[gram].append(row)
            else:
                other_texts[gram] += 1
    near: dict[int, set[int]] = defaultdict(set)
    for gram, rows in near_rows.items():
        if grams[gram] not in same_items and other_texts[gram] <= max(MAX_OTHER_TEXTS, len(rows)):
            near[grams[gram]].update(rows)
    return Overlap(
        rows_same=same_rows,
        rows_near=len(set().union(*near.values())),
        items_same=tuple(items[number]["id"] for number in sorted(same_items)),
        items_near=tuple(items[number]["id"] for number in sorted(near)),
    )


def _item_grams(by_words: Mapping[Words, Sequence[int]]) -> dict[Words, int]:
    """Return the n-grams that only one question has, with the number of its first item."""
    owners, held = dict[Words, int](), Counter[Words]()
    for words, (number, *_) in by_words.items():
        size = min(MAX_GRAM_WORDS, max(MIN_GRAM_WORDS, -(-len(words) // 2)))
        grams = set(_ngrams(words, size))
        held.update(grams)
        owners.update(dict.fromkeys(grams, number))
    return {gram: number for gram, number in owners.items() if held[gram] == 1}


def _ngrams(words: Words, size: int) -> Iterator[Words]:
    return zip(*(words[start:] for start in range(size)), strict=False)


def _figures(words: Words) -> str:
    """Return the numbers and signs among words, each between spaces: ` 12 - 5 `."""
    return "".join(f" {word}" for word in words if not word[0].isalpha()) + " "


def _joined(words: Words) -> str:
    """Join words so that a substring search finds whole words only; no words give the empty string."""
    return f" {' '.join(words)} " if words else ""
