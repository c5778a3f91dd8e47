"""A model's own chat template at work, and what it states where it cannot write a conversation.

Templates are programs of the model's authors, in jinja2, and run in a process of their own. They refuse roles and
orders of turns that the model never saw, each in its own words, and some are broken. Both concern rows of the user, so
they are reported with the row's line.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Protocol, TypeVar, runtime_checkable

from schemas.problems import Problem, ProblemError, problem_of
from trainer.data.template_process import TEMPLATES

ADVICE = "Correct chat_template in the model's tokenizer_config.json, or take it out: a turn is a line of text then."

SHOWN_ROWS = 5
"""Rows named one by one when many have the same problem."""

NOTHING: Mapping[str, Any] = MappingProxyType({})

Row = TypeVar("Row")
Rendered = TypeVar("Rendered")


@runtime_checkable
class ChatTokenizer(Protocol):
    """What rendering a conversation needs of a tokenizer."""

    chat_template: str | dict[str, str] | None
    """The program, or several by name."""

    @property
    def special_tokens_map(self) -> Mapping[str, Any]:
        """Special tokens by their names, which templates use."""


class TemplateRefusedError(Exception):
    """A conversation that the template does not write; the text is the template's own reason."""


class TurnNotFoundError(TemplateRefusedError):
    """A turn of the assistant that cannot be told from what stands before it; the text shows both texts."""


class TemplateBrokenError(Exception):
    """A template that writes nothing at all; the text states why."""

    def __init__(self, reason: str, *, advice: str) -> None:
        super().__init__(reason)
        self.advice = advice


def has_template(tokenizer: ChatTokenizer) -> bool:
    """Return whether the tokenizer has a chat template of its own."""
    return bool(tokenizer.chat_template)


def writes_date(tokenizer: ChatTokenizer) -> bool:
    """Return whether the chat template asks for the time."""
    return "strftime_now" in str(tokenizer.chat_template)


def rendered_at(manifest: Mapping[str, Any]) -> str:
    """Return the time that a run's chat template was given: that of its start, or of the run that it continues."""
    return str(manifest["dataset"].get("rendered_at") or manifest["started_at"])


def written_by_template(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: ChatTokenizer,
    *,
    opened: bool = True,
    variables: Mapping[str, Any] = NOTHING,
) -> str:
    """Return the turns as the template writes them, at the time that the tokenizer was loaded for.

    Args:
        messages: the turns.
        tokenizer: the model's.
        opened: begin the assistant's next turn after them.
        variables: what the template is given besides, such as tools.

    Raises:
        TemplateRefusedError: not these turns.
        TemplateBrokenError: not any.
    """
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if find_spec("jinja2") is None:  # a part of transformers, but not of what it always brings along
        reason = "jinja2, which runs it, is not installed"
        raise TemplateBrokenError(reason, advice="Install it: `pip install jinja2`.")
    if template is None:
        reason = "there are several, and none is named default"
        raise TemplateBrokenError(reason, advice=ADVICE)
    given = {**tokenizer.special_tokens_map, **variables}
    now = getattr(tokenizer, "rendered_at", None)
    written = TEMPLATES.written(messages, template, given, opened=opened, now=now)
    if "refused" in written:
        raise TemplateRefusedError(written["refused"])
    if "text" not in written:
        taken = f"it takes {written.get('beyond')} for one conversation"
        raise TemplateBrokenError(written.get("broken", taken), advice=ADVICE)
    return written["text"]


def each_rendered(
    rows: Iterable[Row], render: Callable[[Row], Rendered], *, file: str, lines: Sequence[int | None]
) -> Iterator[tuple[int, Rendered]]:
    """Yield each row's number and the row as `render` gives it.

    Args:
        rows: the rows or items of a file.
        render: may call a chat template.
        file: the file, for messages.
        lines: where each row stands in it; None where it stands in none.

    Raises:
        ProblemError: exit code 2; the template is broken, or refuses rows: the first of them with their lines, after
            all others were yielded.
    """
    refused: list[tuple[int, TemplateRefusedError]] = []
    for index, row in enumerate(rows):
        try:
            yield index, render(row)
        except TemplateRefusedError as error:
            refused.append((index, error))
        except TemplateBrokenError as error:
            raise ProblemError([broken_template(error, file)], exit_code=2) from error
    if refused:
        raise ProblemError(refusals(refused, file=file, lines=lines), exit_code=2)


def refusals(
    refused: Sequence[tuple[int, TemplateRefusedError]], *, file: str, lines: Sequence[int | None]
) -> list[Problem]:
    """Return a problem for each of the first rows that the template refuses, and one for the rest."""
    problems = []
    for index, error in refused[:SHOWN_ROWS]:
        reason = str(error).rstrip(".")
        what = f"The model's chat template refuses row {index}: {reason}."
        why = "These are the template's own words; it says which turns the model was trained for."
        fix = None
        if isinstance(error, TurnNotFoundError):
            what = f"The answer of row {index} cannot be found in what the model's chat template writes: {reason}."
            why = "Prompt and answer together must be what the template writes of the whole conversation."
            fix = "Correct the template, or write the row as prompt and completion."
        found = problem_of("TP022", file=file, line=lines[index], what=what, why=why, next=fix)
        problems.append(found)
    rest = len(refused) - len(problems)
    if rest:
        problems.append(
            problem_of(
                "TP022",
                file=file,
                what=f"The model's chat template refuses {rest} further rows.",
                next="Write them as the template wants them, or remove them.",
                why=None,
            )
        )
    return problems


def broken_template(error: TemplateBrokenError, file: str) -> Problem:
    """Return the problem of a template that can write no row."""
    return problem_of(
        "TP022",
        file=file,
        what=f"The model's chat template cannot be used: {str(error).rstrip('.')}.",
        why="Rows with messages are written by it, as chat_template of the model's tokenizer.",
        next=error.advice,
    )
