"""A judge's own questions: drawn from the built-in generator, or read from a file; none that training has seen."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from evidence.hashes import sha256_json
from evidence.scores.overlap import row_texts
from schemas.problems import ProblemError, problem_of
from trainer.config.tree import Config
from trainer.data.builtin.reasoning import fresh_items
from trainer.data.builtin.reasoning import prompt_key
from trainer.data.rows import RowFile, read_eval_set
from trainer.objectives.data import read_training_rows


@dataclass(frozen=True, kw_only=True)
class Questions:
    """A judge's questions."""

    items: RowFile
    source: Literal["generated", "file"]
    seed: int | None
    """Under which they were drawn. None: they were read."""
    in_training: int | None
    """Questions left out a training row holds the same. None: the training rows are not here."""

    def document(self) -> dict[str, Any]:
        """Return it as a receipt states it."""
        return {
            "source": self.source,
            "name": self.items.name,
            "seed": self.seed,
            "n": len(self.items.rows),
            "sha256": self.items.sha256,
            "in_training": self.in_training,
        }


def drawn_questions(config: Config, count: int, seed: int) -> Questions:
    """Return questions of the kinds that a run was evaluated with, else of those it was trained on.

    Args:
        config: the run's.
        count: how many.
        seed: the judge's.

    Raises:
        ProblemError: exit code 2; no generator knows the kinds, or it has fewer questions.
    """
    training = training_questions(config)
    name = config.evaluation.eval_set
    try:
        drawn = fresh_items(name, config.data.dataset, count, seed, training=training or ())
    except ValueError as error:
        what = f"{count:,} questions were asked for, and the generator has fewer that are new: {error}"
        raise ProblemError([problem_of("TP059", file="--generate", what=what)], exit_code=2) from error
    if drawn is None:
        what = f"Neither the evaluation set {name} nor the dataset {config.data.dataset} is built in."
        raise ProblemError([problem_of("TP059", file="--generate", what=what)], exit_code=2)
    items, left_out = drawn
    title = f"{count} generated, seed {seed}"
    file = RowFile(
        name=title,
        path=Path("--generate"),
        rows=tuple(items),
        lines=tuple(range(1, len(items) + 1)),
        sha256=sha256_json(items),
        warnings=(),
    )
    return Questions(items=file, source="generated", seed=seed, in_training=None if training is None else left_out)


def read_questions(path: Path, config: Config) -> Questions:
    """Return the questions of a file without those that a training row holds too.

    Raises:
        ProblemError: exit code 2; the file cannot be read, has rows of another shape, or the training rows hold all of
            them.
    """
    file, training = read_eval_set(str(path)), training_questions(config)
    if training is None:
        return Questions(items=file, source="file", seed=None, in_training=None)
    seen = set(map(prompt_key, training))
    new = [place for place, item in enumerate(file.rows) if prompt_key(item["prompt"]) not in seen]
    if not new:
        what = f"Training asks each of the {len(file.rows):,} questions of {path} too."
        raise ProblemError([problem_of("TP059", file=str(path), what=what)], exit_code=2)
    kept = replace(file, rows=tuple(file.rows[place] for place in new), lines=tuple(file.lines[place] for place in new))
    return Questions(items=kept, source="file", seed=None, in_training=len(file.rows) - len(new))


def training_questions(config: Config) -> set[str] | None:
    """Return the questions of the training rows of a run, or None where they are not on this machine."""
    try:
        _, rows = read_training_rows(config)
    except ProblemError:
        return None
    return {row_texts(row)[0][0] for row in rows}
