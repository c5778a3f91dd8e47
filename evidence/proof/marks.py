"""Of what a run was repeated, and how much of it: its score, and its training. The word `verified` needs both.

The two are distinguished, since one states nothing of the other. Whose weights give the stated answers again may have
bought them; who repeats the first steps has not seen where the training ended. So `verified` needs every answer of the
trained model, the end of the training (whose parameters were evaluated), and either every step or parts that a number
of the judge drew among all of the run (docs/replay.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.run import layout
from schemas.formats import quantity
from schemas.validate import read_document

ENOUGH = 0.95
"""With this chance at least, drawn parts have to catch a run of which half of the training was invented."""

REPEATED = ("identical", "within tolerance")
"""Verdicts of what came out again."""

Steps = tuple[int, int]
"""The step after which a part begins, and the step with which it ends."""


@dataclass(frozen=True, kw_only=True)
class Repeatable:
    """How much there is of a run to be repeated."""

    first_step: int = 0
    last_step: int = 0
    evaluated_step: int | None = None
    """The step whose parameters gave the answers. None: there are no answers."""
    trained: int = 0
    """Answers of the trained model."""
    untrained: int = 0
    """Answers of the model before training."""


@dataclass(frozen=True, kw_only=True)
class Marks:
    """What was repeated of a run, by one receipt or by several."""

    of: Repeatable
    trained: int = 0
    """Answers of the trained model that were given again."""
    untrained: int = 0
    """Answers of the model before training that were given again."""
    parts: tuple[Steps, ...] = ()
    """Parts of the training that were repeated: apart from each other, in order."""
    caught_half: float = 0.0
    """The chance with which drawn parts catch a run of which half of the training was invented; 0 if nothing was
    drawn among all parts of the run."""

    @property
    def steps(self) -> int:
        """Steps that were repeated."""
        return sum(last - first for first, last in self.parts)

    @property
    def steps_of(self) -> int:
        """Steps of the run."""
        return self.of.last_step - self.of.first_step

    @property
    def is_nothing(self) -> bool:
        """Whether nothing that the training made was repeated: no step, and no answer of the trained model."""
        return self.trained == 0 and self.steps == 0

    @property
    def is_score_repeated(self) -> bool:
        """Whether every stated answer of the trained model was given again."""
        return 0 < self.of.trained <= self.trained

    @property
    def is_last_step_repeated(self) -> bool:
        """Whether the last step of the training was repeated."""
        return any(first < self.of.last_step <= last for first, last in self.parts)

    @property
    def is_end_reached(self) -> bool:
        """Whether the end of the training was repeated, and its parameters are those that were evaluated."""
        return self.of.evaluated_step == self.of.last_step and self.is_last_step_repeated

    @property
    def is_training_repeated(self) -> bool:
        """Whether enough of the training was repeated for the word `verified`."""
        return self.is_end_reached and (self.steps >= self.steps_of or self.caught_half >= ENOUGH)

    @property
    def is_enough(self) -> bool:
        """Whether the run is verified by what was repeated."""
        return self.is_score_repeated and self.is_training_repeated

    @property
    def brief(self) -> str:
        """How much was repeated, in a few words: `score: 100 of 100 answers; training: 4 of 2,800 steps`."""
        return f"score: {self._answers}; training: {self._steps}"

    @property
    def said(self) -> str:
        """How much was repeated, in two sentences, the answers of both models distinguished."""
        score = f"{_how_much(self.trained, self.of.trained)}: {self._answers} of the trained model"
        if self.of.untrained:
            score += f", {self.untrained:,} of {self.of.untrained:,} of the untrained one"
        training = f"{_how_much(self.steps, self.steps_of)}: {self._steps}"
        if self.steps:
            is_end = self.is_last_step_repeated and self.of.evaluated_step in (None, self.of.last_step)
            training += ", its end among them" if is_end else ", its end not among them"
        return f"Score {score}. Training {training}."

    def document(self) -> dict[str, Any]:
        """Return the receipt's group `marks`."""
        return {
            "score": {
                "repeated": self.is_score_repeated,
                "trained": self.trained,
                "trained_of": self.of.trained,
                "untrained": self.untrained,
                "untrained_of": self.of.untrained,
            },
            "training": {
                "repeated": self.is_training_repeated,
                "steps": self.steps,
                "steps_of": self.steps_of,
                "end_reached": self.is_end_reached,
                "caught_half": self.caught_half,
            },
            "said": self.said,
            "lacking": list(self.lacking()),
        }

    def lacking(self) -> Iterator[str]:
        """Yield what keeps the run from being verified, as sentences."""
        if self.of.evaluated_step is None:
            yield "The run states no answer of the trained model: it was not evaluated, and has no score to repeat."
            return
        if not self.is_score_repeated:
            yield (
                "Not every answer of the trained model was given again: `trainproof challenge` and `trainproof replay` "
                "do it, where the run's parameters are kept."
            )
        if not self.is_end_reached:
            yield "The end of the training, whose parameters were evaluated, was not reached."
        elif not self.is_training_repeated:
            yield (
                f"{self._steps} were repeated, and no number of a judge drew them among all parts of the run: "
                "`trainproof replay --ask` names the states to ask for, --all repeats every step."
            )

    @property
    def _answers(self) -> str:
        return f"{self.trained:,} of {quantity(self.of.trained, 'answer')}"

    @property
    def _steps(self) -> str:
        return f"{self.steps:,} of {quantity(self.steps_of, 'step')}"


def stated_of(folder: Path) -> Repeatable:
    """Return how much a run states; zeros for documents that cannot be read, or are not valid."""
    manifest = _valid(folder / layout.MANIFEST, "run_manifest")
    summary = _valid(folder / layout.EVAL_SUMMARY, "eval_summary")
    parent, training = manifest.get("parent"), manifest.get("training")
    baseline = summary.get("baseline")
    return Repeatable(
        first_step=parent["step"] if parent else 0,
        last_step=training["steps_done"] if training else 0,
        evaluated_step=summary["checkpoint"]["step"] if summary else None,
        trained=summary["predictions"]["rows"] if summary else 0,
        untrained=baseline["predictions"]["rows"] if baseline else 0,
    )


def _valid(path: Path, kind: str) -> dict[str, Any]:
    document = read_document(path, kind)
    return {} if document.value is None or document.problems else document.value


def marks_of(receipt: dict[str, Any], of: Repeatable) -> Marks:
    """Return what a receipt covers of a run.

    One of version 1.1 or before counts its drawn answers alone; a challenge drew them from the trained model's. What
    such a replay drew followed from the run's own hash, or could only begin at the start: it is not a draw of a judge.
    """
    covered, items = receipt["covered"], receipt["covered"]["items"]
    again = items.get("given_again")
    if again is None:
        trained = items["drawn"] if receipt["kind"] == "challenge" else items.get("trained", 0)
        again = {"trained": trained, "untrained": items["drawn"] - trained}
    tried = [(each["first_step"], each["last_step"]) for each in covered["segments"] if each["verdict"] in REPEATED]
    return Marks(
        of=of,
        trained=min(again["trained"], of.trained),
        untrained=min(again["untrained"], of.untrained),
        parts=merge_steps(tried, of),
        caught_half=covered.get("draw", {}).get("caught_half", 0.0),
    )


def together(marks: Sequence[Marks], of: Repeatable) -> Marks:
    """Return what several receipts cover of one run: the most answers, and all steps of any."""
    return Marks(
        of=of,
        trained=max((each.trained for each in marks), default=0),
        untrained=max((each.untrained for each in marks), default=0),
        parts=merge_steps([part for each in marks for part in each.parts], of),
        caught_half=max((each.caught_half for each in marks), default=0.0),
    )


def merge_steps(parts: Iterable[Steps], of: Repeatable) -> tuple[Steps, ...]:
    """Return parts of a training as parts that are apart, in order; none counts twice or lies outside of the run.

    Example:
        Steps 0 to 4, 2 to 6 and 8 to 9 are (0, 6) and (8, 9).
    """
    found: list[Steps] = []
    for first, last in sorted((max(first, of.first_step), min(last, of.last_step)) for first, last in parts):
        if last <= first:
            continue
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def _how_much(some: int, of: int) -> str:
    if some == 0:
        return "not repeated"
    return "repeated" if some >= of else "repeated in part"
