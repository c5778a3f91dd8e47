"""The kinds of rows that are learned from, how the prompt of each is written, and what is odd about a mixture."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal

from schemas.formats import format_value
from schemas.problems import Problem, problem_of
from trainer.data.files.pairs import sides_of

Kind = Literal["trace", "pair", "conversation", "task", "text", "begun"]
"""`begun`: of two answers without a prompt of their own, what both begin with."""

AS_WRITTEN = "{prompt}"
"""How a prompt is written that comes with what follows it; {prompt} stands for it."""

WITH_NEWLINE = "{prompt}\n"
"""How a trace's prompt is written; up to schema version 1.1, any plain prompt."""

TEMPLATES: Mapping[Kind, str] = {
    "trace": WITH_NEWLINE,
    "pair": AS_WRITTEN,
    "task": AS_WRITTEN,
    "text": AS_WRITTEN,
    "begun": AS_WRITTEN,
}
"""How a plain prompt is written by default. Conversations are written by the model's chat template."""


_NAMES: Mapping[Kind, str] = {
    "trace": "reasoning traces",
    "pair": "prompts with completions",
    "conversation": "conversations",
    "task": "tasks",
    "text": "plain texts",
    "begun": "answers without a prompt",
}


def kind_of(row: Mapping[str, Any]) -> Kind:
    """Return the kind of a row that is learned; of two answers, that of the chosen one."""
    [row, *_] = sides_of(row)
    if "messages" in row:
        return "conversation"
    if "text" in row:
        return "text"
    if "begun" in row:
        return "begun"
    if "completion" in row:
        return "pair"
    return "task" if "task" in row else "trace"


def template_of(row: Mapping[str, Any], template: str | None) -> str | None:
    """Return how the prompt of a row is written, or None if it is missing or a chat template writes it.

    Args:
        row: of any shape.
        template: how plain prompts are written. None: by default.
    """
    kind = kind_of(row)
    if kind in ("trace", "pair", "task"):
        return TEMPLATES[kind] if template is None else template
    return None


def usual_template(kinds: Counter[Kind]) -> str:
    """Return how plain prompts are written by default where most plain rows are of one kind."""
    plain = [(count, kind) for kind, count in kinds.items() if kind != "conversation"]
    return TEMPLATES[max(plain)[1]] if plain else AS_WRITTEN


def kinds_in(rows: Iterable[Mapping[str, Any]]) -> Counter[Kind]:
    """Return how many rows there are of each kind."""
    return Counter(map(kind_of, rows))


def refused_template(template: str | None, file: str) -> list[Problem]:
    """Return the problem of a template in which no prompt stands.

    Args:
        template: of the configuration.
        file: the configuration, for messages.
    """
    if template is None or "{prompt}" in template:
        return []
    what = f"data.template is {format_value(template)}, in which {{prompt}} does not stand."
    return [problem_of("TP004", file=file, pointer="/data/template", what=what)]


def odd_kinds(kinds: Counter[Kind], template: str | None, file: str) -> Iterator[Problem]:
    """Yield what is odd about the kinds of rows: an error for a template that none of them uses, and a mixture.

    Args:
        kinds: how many rows there are of each.
        template: of the configuration. What runs of earlier versions did is not a statement.
        file: the dataset, for messages.
    """
    if template not in (None, WITH_NEWLINE) and set(kinds) == {"conversation"}:
        what = (
            f"data.template is {format_value(template)}, and every row is a conversation, "
            "which the chat template writes."
        )
        yield problem_of("TP006", file=file, pointer="/data/template", what=what)
    if len(kinds) > 1:
        counts = ", ".join(f"{count:,} {_NAMES[kind]}" for kind, count in kinds.most_common())
        yield problem_of("TP027", file=file, what=f"The rows are of several kinds: {counts}.")
