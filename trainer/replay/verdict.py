"""What came of a repetition as a whole: its result, and a sentence that a judge understands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from evidence.proof.receipts import REPRODUCED
from trainer.replay.answers import RegeneratedAnswers
from trainer.replay.draw import Draw
from trainer.replay.recorded import RecordedRun
from trainer.replay.repetition import SegmentResult

Result = Literal["identical", "within tolerance", "different"]


@dataclass(kw_only=True)
class ReplayFindings:
    """What a repetition found."""

    run: RecordedRun
    start: list[str] = field(default_factory=list)
    """What differs before the first step, as sentences."""
    segments: Sequence[SegmentResult] = ()
    """Every segment of the run, those not tried among them."""
    answers: RegeneratedAnswers = field(default_factory=RegeneratedAnswers)
    draw: Draw | None = None
    """What the judge's number drew. None: the whole run was repeated."""
    elsewhere: str = ""
    """What may give other last bits here; empty if every bit must be equal."""
    is_out_of_time: bool = False
    """Whether the time was over before everything was done."""

    @property
    def tried(self) -> list[SegmentResult]:
        """The segments that were repeated, whole or in part."""
        return [each for each in self.segments if each.verdict != "not tried"]

    @property
    def is_nothing(self) -> bool:
        """Whether nothing came of it: no step and no answer, or the time was over before a step and nothing differs."""
        if self.tried:
            return False
        return not self.answers.found or (self.is_out_of_time and result_of(self) != "different")

    def draw_document(self) -> dict[str, Any] | None:
        """Return the receipt's group `draw`; a part that was named and not repeated counts for nothing drawn."""
        if self.draw is None:
            return None
        done = {each.segment for each in self.segments if each.verdict in REPRODUCED}
        whole = [part for part in self.draw.named if done >= set(part.segments)]
        return {
            "number": self.draw.number,
            "parts": len(self.draw.parts),
            "could_be_drawn": len(self.draw.among),
            "named": [part.first_step for part in self.draw.named],
            "repeated": len(whole),
            "caught_half": self.draw.caught(0.5) if len(whole) == len(self.draw.named) else 0.0,
        }


def result_of(found: ReplayFindings) -> Result:
    """Return the worst of what was repeated."""
    verdicts = {each.verdict for each in found.segments} | {each.verdict for each in found.answers.found}
    if "different" in verdicts or found.start:
        return "different"
    return "within tolerance" if "within tolerance" in verdicts or "identical" not in verdicts else "identical"


def said_of(found: ReplayFindings) -> str:
    """Return what was covered and what came of it.

    Example:
        `Replayed 5 of 5 segments (20 of 20 steps) and 10 of 100 answers: identical.`
    """
    tried, answers_of = found.tried, found.answers.trained_of + found.answers.untrained_of
    steps = sum(each.segment.last_step - each.segment.first_step for each in tried)
    total = found.run.last_step - found.run.first_step
    answers = f" and {len(found.answers.found)} of {answers_of} answers" if answers_of else ""
    ended = sum(each.segment in found.run.segments for each in tried)
    covered = f"Replayed {ended} of {len(found.run.segments)} segments ({steps:,} of {total:,} steps){answers}"
    late = " It was stopped before its end." if found.is_out_of_time else ""
    result = result_of(found)
    if result != "different":
        why = f" ({found.elsewhere})" if found.elsewhere and result != "identical" else ""
        return f"{covered}: {result}{why}.{late}"
    return f"{covered}: different. {' '.join(_differences(found))}{late}"


def _differences(found: ReplayFindings) -> list[str]:
    """Return what differs, the first of each kind in words."""
    said = [f"The start differs: {found.start[0]}."] if found.start else []
    other = [each for each in found.segments if each.verdict == "different"]
    if other:
        said.append(other[0].difference)
    answers = found.answers.different
    if answers:
        many = f"{len(answers)} answers are" if len(answers) > 1 else "1 answer is"
        said.append(f"{many} not the model's: {answers[0].id}: {answers[0].why}")
    return said
