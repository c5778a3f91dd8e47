"""What is put to models: a prompt as a user wrote it, or an item of the set that a run was evaluated on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.problems import Problem, ProblemError, problem_of
from schemas.reading import read_json
from trainer.data.prompts import Asked
from trainer.data.rows import RowFile
from trainer.evaluation.answers import unanswered_row
from trainer.play.entrant import Entrant

FROM_INPUT = "standard input"


@dataclass(frozen=True, kw_only=True)
class PlayQuestion:
    """One thing to ask."""

    row: Mapping[str, Any]
    """Its prompt; of an item also its id, the expected answer and its groups."""
    items: RowFile | None = None
    """The set that it is an item of. None: it is a prompt of a user's own."""

    def prompt_of(self, entrant: Entrant) -> list[int]:
        """Return the prompt in token ids, in the form in which a model was taught to be asked.

        Raises:
            ProblemError: exit code 2; the chat template refuses it, or there is no room for an answer.
        """
        one = RowFile(name="", path=Path("--prompt"), rows=(dict(self.row),), lines=(1,), sha256="", warnings=())
        sampler = entrant.sampler
        [prompt] = sampler.encode_prompts(one)
        if not sampler.has_room(prompt):
            row = unanswered_row({"id": "", "expected": "", **self.row}, len(prompt), sampler)
            what = f"{entrant.name} cannot answer: {row['error']}."
            raise ProblemError([problem_of("TP118", file="--prompt", what=what)], exit_code=2)
        return prompt

    def asked(self, entrant: Entrant) -> Asked:
        """Return what decides the memory of an answer: an item is answered as among its whole set."""
        prompts = [self.prompt_of(entrant), *entrant.likes(self.items)]
        return Asked(prompts=max(len(prompts) - 1, 1), longest_tokens=max(map(len, prompts)))


def question_of(prompt: str | None, item: str | None, entrant: Entrant) -> PlayQuestion:
    """Return the question of a prompt, or of the item of that id in the run's set.

    Raises:
        ProblemError: exit code 2; the run was asked no set, or one without such an item.
    """
    if item is None:
        return PlayQuestion(row={"prompt": prompt or ""})
    items = entrant.items
    found = [] if items is None else [row for row in items.rows if row["id"] == item]
    if items is None or not found:
        which = "was asked no set" if items is None else f"was asked {items.name}, which has no item {item}"
        raise ProblemError(
            [problem_of("TP116", file=str(entrant.folder), what=f"{entrant.name} {which}.")], exit_code=2
        )
    return PlayQuestion(row=found[0], items=items)


def read_question(line: str, number: int, entrant: Entrant) -> PlayQuestion:
    """Return the question of a line of JSON.

    Raises:
        ProblemError: exit code 2; it asks nothing, or for an item that is not there.
    """
    value = read_json(line, file=FROM_INPUT).value
    given = value if isinstance(value, dict) else {}
    [(key, text)] = given.items() if len(given) == 1 else [("", None)]
    if key not in ("prompt", "item") or not isinstance(text, str):
        raise ProblemError([no_question(line, number)], exit_code=2)
    return question_of(text if key == "prompt" else None, text if key == "item" else None, entrant)


def no_question(line: str, number: int) -> Problem:
    """Return the problem of a line that asks nothing."""
    return problem_of("TP117", file=FROM_INPUT, line=number, what=f"{line.strip()[:80]!r} is not a question.")
