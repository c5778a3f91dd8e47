"""How much of a run was reproduced: its score and its training. The grade `verified` needs both.

Neither implies the other: weights that give the stated answers again may have been bought, and whoever repeats the
first steps has not seen where training ended. So `verified` needs every answer of the trained model, the end of the
training (whose parameters were evaluated), and either every step or segments that a judge's random number drew from the
whole run (docs/replay.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence import layout
from schemas.formats import quantity
from schemas.validate import read_document

MIN_DETECTION_PROBABILITY = 0.95
"""Probability with which drawn segments must detect a run of which half of the training was invented."""

REPRODUCED = ("identical", "within tolerance")
"""Verdicts of a segment that came out again."""

Steps = tuple[int, int]
"""The step after which a segment begins, and the step with which it ends."""


@dataclass(frozen=True, kw_only=True)
class RunExtent:
    """How much of a run there is to reproduce.

    Attributes:
        evaluated_step: Step whose parameters gave the answers, or None if the run was not evaluated.
        trained: Number of answers of the trained model.
        untrained: Number of answers of the model before training.
    """

    first_step: int = 0
    last_step: int = 0
    evaluated_step: int | None = None
    trained: int = 0
    untrained: int = 0

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last_step - self.first_step


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of a run was reproduced, by one receipt or by several.

    Attributes:
        of: How much there is.
        trained: Answers of the trained model that were given again.
        untrained: Answers of the model before training that were given again.
        segments: Disjoint segments of the training that were repeated, in order.
        detection_probability: Probability that drawn segments detect a run of which half of the training was invented;
            0 if nothing was drawn from the whole run.
    """

    of: RunExtent
    trained: int = 0
    untrained: int = 0
    segments: tuple[Steps, ...] = ()
    detection_probability: float = 0.0

    @property
    def steps(self) -> int:
        """Number of steps that were repeated."""
        return sum(last - first for first, last in self.segments)

    @property
    def is_score_reproduced(self) -> bool:
        """Whether every answer of the trained model was given again."""
        return 0 < self.of.trained <= self.trained

    @property
    def is_last_step_repeated(self) -> bool:
        """Whether the last step of the training was repeated."""
        return any(first < self.of.last_step <= last for first, last in self.segments)

    @property
    def is_end_reached(self) -> bool:
        """Whether the end of the training was repeated, and its parameters are those that were evaluated."""
        return self.of.evaluated_step == self.of.last_step and self.is_last_step_repeated

    @property
    def is_training_reproduced(self) -> bool:
        """Whether enough of the training was repeated for `verified`."""
        is_drawn = self.detection_probability >= MIN_DETECTION_PROBABILITY
        return self.is_end_reached and (self.steps >= self.of.steps or is_drawn)

    @property
    def is_sufficient(self) -> bool:
        """Whether the run is verified."""
        return self.is_score_reproduced and self.is_training_reproduced

    @property
    def summary(self) -> str:
        """Coverage in a few words: `score: 100 of 100 answers; training: 4 of 2,800 steps`."""
        return f"score: {self._answers}; training: {self._steps}"

    @property
    def description(self) -> str:
        """Coverage in two sentences, with the answers of both models."""
        score = f"{_degree(self.trained, self.of.trained)}: {self._answers} of the trained model"
        if self.of.untrained:
            score += f", {self.untrained:,} of {self.of.untrained:,} of the untrained one"
        training = f"{_degree(self.steps, self.of.steps)}: {self._steps}"
        if self.steps:
            is_end = self.is_last_step_repeated and self.of.evaluated_step in (None, self.of.last_step)
            training += ", including its end" if is_end else ", without its end"
        return f"Score {score}. Training {training}."

    def to_document(self) -> dict[str, Any]:
        """Return the `marks` object of a receipt."""
        return {
            "score": {
                "repeated": self.is_score_reproduced,
                "trained": self.trained,
                "trained_of": self.of.trained,
                "untrained": self.untrained,
                "untrained_of": self.of.untrained,
            },
            "training": {
                "repeated": self.is_training_reproduced,
                "steps": self.steps,
                "steps_of": self.of.steps,
                "end_reached": self.is_end_reached,
                "caught_half": self.detection_probability,
            },
            "said": self.description,
            "lacking": list(self.missing()),
        }

    def missing(self) -> Iterator[str]:
        """Yield what keeps the run from being verified, as sentences."""
        if self.of.evaluated_step is None:
            yield "The run was not evaluated, so there is no score to reproduce."
            return
        if not self.is_score_reproduced:
            yield (
                "Not every answer of the trained model was given again. `trainproof challenge` and `trainproof replay` "
                "do this if the run's parameters were kept."
            )
        if not self.is_end_reached:
            yield "The end of the training, whose parameters were evaluated, was not reached."
        elif not self.is_training_reproduced:
            yield (
                f"Only {self._steps} were repeated, and they were not drawn at random from the whole run. "
                "`trainproof replay --ask` names the states to ask for; `--all` repeats every step."
            )

    @property
    def _answers(self) -> str:
        return f"{self.trained:,} of {quantity(self.of.trained, 'answer')}"

    @property
    def _steps(self) -> str:
        return f"{self.steps:,} of {quantity(self.of.steps, 'step')}"


def load_extent(folder: Path) -> RunExtent:
    """Load how much there is to reproduce of a run; zeros for documents that are missing or not valid."""
    manifest = _load_valid(folder / layout.MANIFEST, "run_manifest")
    summary = _load_valid(folder / layout.EVAL_SUMMARY, "eval_summary")
    parent, training = manifest.get("parent"), manifest.get("training")
    baseline = summary.get("baseline")
    return RunExtent(
        first_step=parent["step"] if parent else 0,
        last_step=training["steps_done"] if training else 0,
        evaluated_step=summary["checkpoint"]["step"] if summary else None,
        trained=summary["predictions"]["rows"] if summary else 0,
        untrained=baseline["predictions"]["rows"] if baseline else 0,
    )


def _load_valid(path: Path, kind: str) -> dict[str, Any]:
    document = read_document(path, kind)
    return {} if document.value is None or document.problems else document.value


def measure_coverage(receipt: dict[str, Any], of: RunExtent) -> Coverage:
    """Return how much of a run a receipt covers.

    Receipts of version 1.1 and before count only their drawn answers, which a challenge drew from the trained model.
    Their segments followed from the run's own hash or began at the start, so they do not count as drawn by a judge.
    """
    covered, items = receipt["covered"], receipt["covered"]["items"]
    again = items.get("given_again")
    if again is None:
        trained = items["drawn"] if receipt["kind"] == "challenge" else items.get("trained", 0)
        again = {"trained": trained, "untrained": items["drawn"] - trained}
    repeated = [
        (each["first_step"], each["last_step"]) for each in covered["segments"] if each["verdict"] in REPRODUCED
    ]
    return Coverage(
        of=of,
        trained=min(again["trained"], of.trained),
        untrained=min(again["untrained"], of.untrained),
        segments=merge_segments(repeated, of),
        detection_probability=covered.get("draw", {}).get("caught_half", 0.0),
    )


def merge_coverage(coverages: Sequence[Coverage]) -> Coverage | None:
    """Return what several receipts of one run cover together, or None if there are none.

    The answers are those of the receipt with the most, the steps those of all receipts.
    """
    if not coverages:
        return None
    of = coverages[0].of
    return Coverage(
        of=of,
        trained=max(each.trained for each in coverages),
        untrained=max(each.untrained for each in coverages),
        segments=merge_segments([segment for each in coverages for segment in each.segments], of),
        detection_probability=max(each.detection_probability for each in coverages),
    )


def merge_segments(segments: Iterable[Steps], of: RunExtent) -> tuple[Steps, ...]:
    """Merge overlapping segments of a training and cut off what lies outside of the run.

    Example:
        Steps 0 to 4, 2 to 6 and 8 to 9 are (0, 6) and (8, 9).
    """
    found: list[Steps] = []
    for first, last in sorted((max(first, of.first_step), min(last, of.last_step)) for first, last in segments):
        if last <= first:
            continue
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        else:
            found.append((first, last))
    return tuple(found)


def _degree(count: int, total: int) -> str:
    if count == 0:
        return "not reproduced"
    return "reproduced" if count >= total else "partly reproduced"
