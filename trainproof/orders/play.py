"""What `play` was requested, carried out: memory planned, models loaded, each question answered as it comes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from schemas.problems import ProblemError
from trainer.play.player import Event, Player, open_entrants, plan_event, ready_event, refused_event
from trainer.play.question import PlayQuestion, question_of, read_question
from trainer.recorder.progress import Watch


@dataclass(frozen=True, kw_only=True)
class PlayFlags:
    """The flags of `play`, as they were given."""

    run: Path | None
    """None: the model is one by itself."""
    model: str | None = None
    prompt: str | None = None
    item: str | None = None
    beside: Path | None = None
    untrained: bool = False
    as_lines: bool = False
    """JSON lines, in and out."""


def play_on(flags: PlayFlags, tell: Callable[[Event], None]) -> None:
    """Answer the question that was given, or each line of standard input.

    Args:
        flags: what was given.
        tell: called with each event.

    Raises:
        ProblemError: exit code 2; a run, or the question that was given, cannot be read. Exit code 3: there is no room,
            or the run holds no parameters. Of a line only `tell` learns.
    """
    with Watch(quiet=flags.as_lines) as watch:
        player = open_entrants(
            flags.run, model=flags.model, beside=flags.beside, untrained=flags.untrained, watch=watch
        )
    first = player.entrants[0]
    questions: Iterator[PlayQuestion | ProblemError] = iter(())
    if flags.prompt is not None or flags.item is not None:
        begun = question_of(flags.prompt, flags.item, first)
        questions = iter([begun])
    else:
        begun = expected_question(player)
        questions = questions_read(player, as_json=flags.as_lines)
    tell(plan_event(player.plan(begun)))
    params = player.loaded()
    tell(ready_event(player))
    for question in questions:
        try:
            if isinstance(question, ProblemError):
                raise question
            for event in player.answers(question, params, in_turn=not flags.as_lines):
                tell(event)
        except ProblemError as error:
            if question is begun:
                raise
            tell(refused_event(error))


def expected_question(player: Player) -> PlayQuestion:
    """Return what is planned for before anything was asked: an item of the run's set, else a short prompt."""
    first = player.entrants[0]
    for row in () if first.items is None else first.items.rows:
        question = PlayQuestion(row=row, items=first.items)
        try:
            player.plan(question)
        except ProblemError as error:
            if error.exit_code != 2:
                raise
        else:
            return question
    return PlayQuestion(row={"prompt": "?"})


def questions_read(player: Player, *, as_json: bool) -> Iterator[PlayQuestion | ProblemError]:
    """Yield the question of each line of standard input, or why it asks nothing, until it ends."""
    for number, line in enumerate(sys.stdin, start=1):
        if not line.strip():
            continue
        try:
            text = line.removesuffix("\n")
            first = player.entrants[0]
            yield read_question(line, number, first) if as_json else question_of(text, None, first)
        except ProblemError as error:
            yield error
