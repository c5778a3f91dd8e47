"""Whether the scores of two runs may be compared: only if both answered the same questions in the same way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence

from evidence.judge.record import Record
from evidence.records.facts import Document, Facts
from evidence.run import layout

NAMED = 3
"""How many items a reason names before it only counts them."""


def refusals(first: str, a: Record, second: str, b: Record) -> tuple[str, ...]:
    """Return why the scores of two runs cannot be compared, as sentences; empty if they can."""
    missing = [*_missing(first, a), *_missing(second, b)]
    if missing:
        return tuple(missing)
    asked = _item_reasons(first, a.facts.predictions or [], second, b.facts.predictions or [])
    return (*asked, *_generation_reasons(a.facts, b.facts))


def _missing(name: str, record: Record) -> Iterator[str]:
    """Yield what a run lacks for any comparison of scores."""
    facts = record.facts
    if record.unscored:
        yield f"{name} is {record.unscored}."
    elif layout.PREDICTIONS not in facts.files:
        yield f"{name} was not evaluated: it has no {layout.PREDICTIONS}."
    elif facts.predictions is None:
        yield f"{name}: {layout.PREDICTIONS} has errors; `trainproof check` names them."
    elif not facts.predictions:
        yield f"{name}: {layout.PREDICTIONS} is empty."
    elif facts.eval_summary is None and layout.EVAL_SUMMARY in facts.files:
        yield f"{name}: what it states of its evaluation does not hold; `trainproof check` says why."
    elif facts.eval_summary is None:
        yield f"{name}: no valid {layout.EVAL_SUMMARY} says how its outputs were generated."
    elif repeated := _repeated([row["id"] for row in facts.predictions]):
        yield f"{name}: {_counted(repeated, 'item')} answered more than once ({_listed(repeated)})."


def _item_reasons(first: str, a: Sequence[Document], second: str, b: Sequence[Document]) -> Iterator[str]:
    """Yield in what the two sets of items differ."""
    ones, others = {row["id"]: row for row in a}, {row["id"]: row for row in b}
    for name, only in ((first, ones.keys() - others.keys()), (second, others.keys() - ones.keys())):
        if only:
            yield f"{_counted(only, 'item')} asked of {name} only ({_listed(only)})."
    shared = sorted(ones.keys() & others.keys())
    for field, noun in (("prompt", "another prompt"), ("expected", "another expected answer")):
        if differing := [item for item in shared if ones[item][field] != others[item][field]]:
            yield f"{_counted(differing, 'item', 'has', 'have')} {noun} ({_listed(differing)})."
    # A run of an older version states no groups; those of the other are taken.
    stated = [item for item in shared if ones[item].get("group") and others[item].get("group")]
    if differing := [item for item in stated if ones[item]["group"] != others[item]["group"]]:
        yield f"{_counted(differing, 'item', 'has', 'have')} another group ({_listed(differing)})."


def _generation_reasons(a: Facts, b: Facts) -> Iterator[str]:
    """Yield which settings of generation differ."""
    one: Document = a.eval_summary["generation"] if a.eval_summary else {}
    other: Document = b.eval_summary["generation"] if b.eval_summary else {}
    for field in one:
        # The hash follows from the other fields and would only repeat them.
        if field != "sha256" and one[field] != other.get(field):
            yield f"Outputs were generated with {field} {one[field]!r} and {other.get(field)!r}."


def _repeated(ids: Sequence[str]) -> list[str]:
    """Return the ids that occur more than once."""
    return sorted(item for item, times in Counter(ids).items() if times > 1)


def _counted(items: Collection[str], noun: str, one: str = "was", many: str = "were") -> str:
    """Return `1 item was`, `3 items were`."""
    return f"1 {noun} {one}" if len(items) == 1 else f"{len(items):,} {noun}s {many}"


def _listed(items: Collection[str]) -> str:
    """Return the first few ids, and that there are more: `a, b, c, …`."""
    names = sorted(items)
    return ", ".join([*names[:NAMED], *(["…"] if len(names) > NAMED else [])])
