"""Which evaluation items stand among training texts: the same words, or most of an item's words with its answer.

A text is the same as an item where their words are the same (`words_of`). It is near an item where it holds

- a gram of the item, which is 13 words in a row, or half of a short item;
- the item's figures, all of them in a row; and
- the expected answer.

Items of one template share grams and are questions of their own. So a gram does not count if two items have it, nor if
it is everyday language: most texts that hold it, and more than a few, lack the item's figures or its answer. Of "Ann
has 12 apples and eats 5 of them. How many are left?" the same with 7 in place of 5 is not near, and "Ann had 12 apples
and eats 5 of them. What remains?" is.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.scores.reading import accepted_of

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


RowTexts = tuple[tuple[str, ...], str]
"""The question of a row, in each form that may be an item's, the longest last; and all that is learned."""


def row_texts(row: Mapping[str, Any]) -> RowTexts:
    """Return of a row of `dataset_row.schema.json`, or of a pair of answers, its question, and what it teaches.

    The question of a conversation is its last one, and all that stands before the answer. A plain text is its own
    question and answer.
    """
    if isinstance(row.get("chosen"), Mapping):
        return row_texts(row["chosen"])
    if "messages" in row:
        *before, last = [turn["content"] for turn in row["messages"]]
        return (before[-1] if before else "", "\n".join(before)), last
    [asked, *_] = [str(row[name]) for name in ("text", "begun", "prompt") if name in row]
    steps = [step["content"] for step in row.get("steps", ())]
    learned = [str(row[name]) for name in ("text", "completion", "chosen", "final_answer") if name in row]
    return (asked,), "\n".join((*steps, *learned))


MOST_WORDS = 13
"""Words of a gram of a long item, as in the study of contamination of GPT-3 (Brown et al. 2020, appendix C)."""
FEWEST_WORDS = 4
"""Words of the shortest gram; an item with fewer is only compared as a whole."""
MOST_OTHERS = 10
"""Texts without an item's figures or answer that may hold a gram before it can be everyday language."""
NAMED = 20
"""Items named by their id."""

Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """What training texts and evaluation items share."""

    rows_same: int
    """Texts with the question of an item."""
    rows_near: int
    """Further texts that are near an item."""
    items_same: tuple[str, ...]
    """Ids of the items in a text, in the order of the set."""
    items_near: tuple[str, ...]
    """Ids of the others that a text is near."""

    def document(self) -> dict[str, Any]:
        """Return the manifest's field `overlap`."""
        return {
            "rows_same": self.rows_same,
            "rows_near": self.rows_near,
            "items_same": len(self.items_same),
            "items_near": len(self.items_near),
            "items": [*self.items_same, *self.items_near][:NAMED],
        }


def overlap_of(items: Sequence[Mapping[str, Any]], texts: Iterable[RowTexts]) -> Overlap:
    """Return what texts and items share.

    Args:
        items: with `id`, `prompt` and `expected`.
        texts: of each row.
    """
    by_words: dict[Words, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        by_words[words_of(item["prompt"])].append(number)
    grams = _Grams(items, by_words)
    same_rows, same_items = 0, set[int]()
    for row, (asked, learned) in enumerate(texts):
        words: Words = ()
        found = [number for one in asked if (words := words_of(one)) for number in by_words.get(words, ())]
        same_rows += bool(found)
        same_items.update(found)
        if not found:
            grams.look_at(row, words, learned)
    near = {number: rows for number, rows in grams.near() if number not in same_items}
    return Overlap(
        rows_same=same_rows,
        rows_near=len(set().union(*near.values())),
        items_same=tuple(items[number]["id"] for number in sorted(same_items)),
        items_near=tuple(items[number]["id"] for number in sorted(near)),
    )


class _Grams:
    """The grams of items, and which texts hold them."""

    def __init__(self, items: Sequence[Mapping[str, Any]], by_words: Mapping[Words, Sequence[int]]) -> None:
        self._item: dict[Words, int] = {}
        held = Counter[Words]()
        for words, (number, *_) in by_words.items():
            size = min(MOST_WORDS, max(FEWEST_WORDS, -(-len(words) // 2)))
            of_item = set(in_a_row(words, size))
            held.update(of_item)
            self._item.update(dict.fromkeys(of_item, number))
        self._item = {gram: number for gram, number in self._item.items() if held[gram] == 1}
        self._sizes = sorted({len(gram) for gram in self._item})
        self._figures = {number: figures_of(words_of(items[number]["prompt"])) for number in self._item.values()}
        self._answers = {number: _as_words(words_of(accepted_of(items[number])[0])) for number in self._item.values()}
        self._near: dict[Words, list[int]] = defaultdict(list)
        self._others = Counter[Words]()

    def look_at(self, row: int, words: Words, learned: str) -> None:
        """Note which grams the text of a row holds, and whether figures and answer stand there too."""
        held = [gram for size in self._sizes for gram in filter(self._item.__contains__, in_a_row(words, size))]
        if not held:
            return
        figures, whole = figures_of(words), _as_words((*words, *words_of(learned)))
        for gram in set(held):
            number = self._item[gram]
            if self._figures[number] in figures and self._answers[number] in whole:
                self._near[gram].append(row)
            else:
                self._others[gram] += 1

    def near(self) -> Iterator[tuple[int, set[int]]]:
        """Yield each item that texts are near, by its number, with their rows."""
        rows: dict[int, set[int]] = defaultdict(set)
        for gram, near in self._near.items():
            if self._others[gram] <= max(MOST_OTHERS, len(near)):
                rows[self._item[gram]].update(near)
        yield from rows.items()


def in_a_row(words: Words, size: int) -> Iterator[Words]:
    """Return each `size` words that follow each other."""
    return zip(*(words[start:] for start in range(size)), strict=False)


def _as_words(words: Words) -> str:
    """Return words in one text that is found in another only as whole words; nothing is in every text."""
    return f" {' '.join(words)} " if words else ""
