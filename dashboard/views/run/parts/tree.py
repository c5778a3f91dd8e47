"""A document as a tree of its values, opened where something is wrong, with the failing values lit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dashboard.shared.parts.markup import safe, words
from dashboard.shared.words.text import glimpse
from schemas.problems.problem import Problem, pointer_to

_MOST_NODES = 3_000
_DEEPEST = 40
_LONGEST = 400


def tree(value: object, problems: Sequence[Problem]) -> str:
    """Return a document as HTML: groups fold, those on the way to a problem are open, its value is lit.

    Args:
        value: What the document holds, as JSON has it.
        problems: What is wrong with it. A pointer to what is missing lights the group in which it is missing.
    """
    lit: dict[str, list[Problem]] = {}
    for problem in problems:
        if problem.pointer is not None:
            lit.setdefault(_nearest(value, problem.pointer), []).append(problem)
    left = iter(range(_MOST_NODES))
    return f'<div class="tp-tree">{"".join(_node("", value, "", lit, left, depth=0))}</div>'


def _nearest(value: object, pointer: str) -> str:
    """Return the longest beginning of a pointer at which the document has a value."""
    path: list[str | int] = []
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(value, dict) and key in value:
            value = value[key]
            path.append(key)
        elif isinstance(value, list) and key.isdecimal() and int(key) < len(value):
            value = value[int(key)]
            path.append(int(key))
        else:
            break
    return pointer_to(path)


def _node(
    key: str, value: object, pointer: str, lit: Mapping[str, Sequence[Problem]], left: Iterator[int], *, depth: int
) -> Iterator[str]:
    if next(left, None) is None:
        return
    found = lit.get(pointer, ())
    said = "".join(f'<p class="tp-lit">✕ {safe(one.code)}: {words(one.what)}</p>' for one in found)
    name = f"<b>{safe(glimpse(key, _LONGEST))}</b> " if key else ""
    if not isinstance(value, dict | list) or not value or depth >= _DEEPEST:
        shown = f"<div{' class=tp-lit' if found else ''}>{name}{safe(_as_text(value))}</div>"
        yield f"{shown}{said}"
        return
    leads = depth == 0 or bool(found) or any(other.startswith(f"{pointer}/") for other in lit)
    size = f"{len(value)} {'values' if isinstance(value, dict) else 'items'}"
    yield f'<details{" open" if leads else ""}><summary>{name}<span class="tp-dim">{size}</span></summary>{said}'
    children: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for child, inside in children:
        yield from _node(str(child), inside, pointer + pointer_to([child]), lit, left, depth=depth + 1)
    yield "</details>"


def _as_text(value: object) -> str:
    if isinstance(value, str):
        return glimpse(value, _LONGEST)
    if isinstance(value, dict | list):
        return "…" if value else "none"
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value)
