"""TP388: under a built-in model every token id has one text, so that ids and texts can be compared with each other.

An answer's text is what its tokens spell, and a shown token of a training example is what its id stands for. Anyone who
writes another answer has to find its tokens too, and then has no fingerprint for them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from evidence.records.facts import Document, Facts, finding
from evidence.registry import built_in
from evidence.rules.contradiction.scores import answers_of, each_answer
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, first_few
from schemas.problems.words import show

OTHER_TOKENS = Rule(
    "TP388",
    "Text that its tokens do not spell",
    "The tokenizer of a built-in model gives every token one text, and a text follows from its tokens.",
    "Restore the file as the run wrote it, or name the model whose tokenizer was used.",
)


def texts_are_spelled_by_their_tokens(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each answer, and each token of a training example, whose ids spell another text."""
    known = built_in.model(facts.model["name"]) if facts.model else None
    if known is None:
        return
    for answers in answers_of(facts):
        yield from first_few(_of_answers(facts, answers.file, answers.rows))
    if facts.first_examples is not None:
        yield from first_few(_of_examples(facts, facts.first_examples))


def _of_answers(facts: Facts, file: str, rows: Sequence[Document]) -> Iterator[Problem]:
    generation = facts.eval_summary["generation"] if facts.eval_summary else {}
    text = generation.get("stop")
    for line, pointer, row in each_answer(rows):
        ids = [int(each) for each in row.get("output_token_ids", "").split()]
        if not ids or row["error"] is not None:
            continue
        ended = row["finish_reason"] == "stop" and (text is None or ids[-1] == generation["stop_token_id"])
        spelled = built_in.spell(ids[:-1] if ended else ids)
        if text is not None and spelled is not None and text in spelled:
            spelled = spelled[: spelled.index(text) + len(text)]
        if spelled != row["output_text"]:
            what = f"The tokens of {row['id']} spell {show(spelled)}; its text is {show(row['output_text'])}."
            yield finding(facts.folder, OTHER_TOKENS, file, what, line=line, pointer=f"{pointer}/output_text")


def _of_examples(facts: Facts, document: Document) -> Iterator[Problem]:
    for place, example in enumerate(document["examples"]):
        for at, token in enumerate(example["tokens"]):
            if (spelled := built_in.spell([token["id"]])) != token["text"]:
                what = f"Token {token['id']} is {show(spelled)}; the example shows it as {show(token['text'])}."
                pointer = f"/examples/{place}/tokens/{at}/text"
                yield finding(facts.folder, OTHER_TOKENS, layout.FIRST_EXAMPLES, what, pointer=pointer)
                break


CHECKS = (texts_are_spelled_by_their_tokens,)
"""Rules of texts and tokens."""
