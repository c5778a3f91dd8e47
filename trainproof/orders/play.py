"""`trainproof play`: load the models and answer each question as it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.problems import ProblemError
from trainer.play import (
    ChatModel,
    Event,
    Question,
    answer,
    find_question,
    load_models,
    open_models,
    read_question,
    ready_event,
    refused_event,
)
from trainer.recorder.progress import Watch


@dataclass(frozen=True, kw_only=True)
class PlayFlags:
    """Arguments of `trainproof play`."""

    run: Path | None
    """Run folder, or None for a model without a run."""
    model: str | None = None
    prompt: str | None = None
    item: str | None = None
    beside: Path | None = None
    untrained: bool = False
    as_lines: bool = False
    """Read and write lines of JSON."""


def play_on(flags: PlayFlags, tell: Callable[[Event], None]) -> None:
    """Answer the given question, or each line of standard input.

    Args:
        flags: The arguments.
        tell: Receives events.

    Raises:
        ProblemError: Exit code 2; a run or the given question cannot be read. Exit code 3: a run has no parameters.
            Exit code 4: the device is full. Problems of a line of standard input are events.
    """
    with Watch(quiet=flags.as_lines) as watch:
        models = open_models(flags.run, model=flags.model, beside=flags.beside, untrained=flags.untrained, watch=watch)
    given: Question | None = None
    questions: Iterable[Question | ProblemError]
    if flags.prompt is not None or flags.item is not None:
        given = find_question(flags.prompt, flags.item, models[0])
        for model in models:
            given.encode(model)  # refused before the models are loaded
        questions = [given]
    else:
        questions = read_questions(models[0], as_json=flags.as_lines)
    params = load_models(models)
    tell(ready_event(models))
    for question in questions:
        try:
            if isinstance(question, ProblemError):
                raise question
            for event in answer(question, models, params, in_turn=not flags.as_lines):
                tell(event)
        except ProblemError as error:
            if question is given:
                raise
            tell(refused_event(error))


def read_questions(model: ChatModel, *, as_json: bool) -> Iterator[Question | ProblemError]:
    """Yield the question of each line of standard input, or why there is none."""
    for number, line in enumerate(sys.stdin, start=1):
        if not line.strip():
            continue
        try:
            text = line.removesuffix("\n")
            yield read_question(line, number, model) if as_json else find_question(text, None, model)
        except ProblemError as error:
            yield error
