"""TP507: templates that were never filled in. Looked for in every document, of the right shape or not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from evidence.records.facts import finding
from evidence.records.ours import Run
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem, pointer_to, truncate_problems

_TEXT = re.compile(
    r"<\s*(?i:pending|todo|tbd|fill[ _-]?in|insert|placeholder|your)\b[^>]*>"
    r"|\b(?:TBD|TODO|FIXME)\b|\bX+\.X{2,}\b"
    r"|(?i:paste (?:your |the )?(?:outputs?|logs?|results?) here)"
)

_SIGNS = ("<", "tbd", "todo", "fixme", "x.xx", "paste")
"""Every placeholder holds one of them, most texts hold none, and they are found many times faster than a pattern."""

_NOT_LOOKED_INTO = {"examples", "prompt_template", "flags"}
"""Keys below which the text is data or the user's environment."""


def placeholders(run: Run) -> Iterator[Problem]:
    """Yield a problem for each placeholder in a document."""
    documents = (
        (layout.MANIFEST, run.manifest),
        (layout.CONFIG, run.config),
        (layout.PLAN, run.plan),
        (layout.FIRST_EXAMPLES, run.first_examples),
        (layout.EVAL_SUMMARY, run.eval_summary),
    )
    for name, document in documents:
        if not _is_placeholder("\n".join(_texts(document))):
            continue
        yield from truncate_problems(
            finding(run.path, "TP507", name, f"The value is still {format_value(text)}.", pointer=pointer)
            for pointer, text in _placeholders(document, ())
        )


def _is_placeholder(text: str) -> bool:
    folded = text.casefold()
    return any(sign in folded for sign in _SIGNS) and _TEXT.search(text) is not None


def _texts(document: Any) -> list[str]:
    """Return every text of a document, to be searched at once: placeholders are rare and documents many."""
    found, waiting = [], [document]
    for value in waiting:
        if isinstance(value, str):
            found.append(value)
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
    return found


def _placeholders(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str, str]]:
    if isinstance(value, str):
        if _is_placeholder(value):
            yield pointer_to(path), value
        return
    if isinstance(value, dict):
        members: Any = [(key, item) for key, item in value.items() if key not in _NOT_LOOKED_INTO]
    else:
        members = enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        if isinstance(item, str | dict | list):
            yield from _placeholders(item, (*path, key))
