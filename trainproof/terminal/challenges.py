"""What came of a challenge, in words for the terminal. No finding is made here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from evidence.proof.verification import explain_receipt
from schemas.formats import join_lines, quantity, visible

SHOWN = 5
"""Failures and differences that are shown; the receipt has more."""


def challenge_text(receipt: dict[str, Any]) -> str:
    """Return a receipt of a challenge as the terminal shows it."""
    return join_lines(list(lines_of(receipt)))


def lines_of(receipt: dict[str, Any]) -> Iterator[str]:
    """Yield the score as stated and as found, what follows, the answers given again, and the failures."""
    score, items = receipt["score"], receipt["covered"]["items"]
    questions, found = score["questions"], score["found"]
    yield f"{receipt['run_id']}: {'CANNOT BE TRUE' if receipt['result'] == 'different' else 'can be true'}."
    yield f"  stated  {figures(score['stated'])} on {score['eval_set']}"
    yield f"  found   {figures(found)} on {questions['name']}{left_out(questions)}"
    yield f"  {chance_of(score)}"
    same, near, others = items["identical"], items["within_tolerance"], items["different"]
    drawn = f"{items['drawn']:,} written anew: {same} identical, {near} within tolerance, {others} different"
    yield f"  {quantity(receipt['marks']['score']['trained_of'], 'stated answer')} held against the weights; {drawn}."
    for each in items.get("differences", [])[:SHOWN]:
        yield f"    {each['id']}: {each['why']}"
    yield from (f"  {line}" for line in explain_receipt(receipt))
    failures = score["failures"]
    if failures:
        yield f"  Failures, {min(SHOWN, len(failures))} of {found['n'] - round(found['value'] * found['n'])}:"
    for row in failures[:SHOWN]:
        answer = visible(row["output_text"][-80:]).replace("\n", " ")
        yield f"    {visible(row['prompt'])} expected {visible(row['expected'])}, written: {answer or 'nothing'}"


def chance_of(score: dict[str, Any]) -> str:
    """Return what follows from the two scores."""
    if score["found"]["value"] >= score["stated"]["value"]:
        return "The score found is not below the stated one."
    low = f"Were the stated score true, so low a one on items as hard would have a chance of {score['chance']:.2g}"
    return f"{low}: it can be true." if score["can_be_true"] else f"{low}, below {score['level']:g}: it cannot be."


def figures(score: dict[str, Any]) -> str:
    """Return a score with its interval and its number of items."""
    interval = f"{score['low']:.3f} to {score['high']:.3f}"
    return f"{score['value']:.3f} (95 % interval {interval}, {quantity(score['n'], 'item')})"


def left_out(questions: dict[str, Any]) -> str:
    """Return how many questions were left out because the training rows hold them too."""
    count = questions["in_training"]
    if count is None:
        return "; the training rows are not here, so it was not looked whether training asks them too"
    return f"; {count} more left out, which training asks too" if count else ""


def replay_text(receipt: dict[str, Any]) -> str:
    """Return a receipt of a repetition as the terminal shows it: what came of it, then a judge's questions."""
    return join_lines([f"{receipt['run_id']}: {receipt['said']}", *(f"  {line}" for line in explain_receipt(receipt))])
