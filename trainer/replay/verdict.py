"""What came of a repetition as a whole: its result, and a sentence that a judge understands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from trainer.replay.answers import Answers
from trainer.replay.recorded import Recorded
from trainer.replay.repetition import Repeated

Result = Literal["identical", "within tolerance", "different"]


@dataclass(kw_only=True)
class Found:
    """What a repetition found."""

    run: Recorded
    start: list[str] = field(default_factory=list)
    """What differs before the first step, as sentences."""
    segments: Sequence[Repeated] = ()
    """Every segment of the run, those not tried among them."""
    answers: Answers = field(default_factory=Answers)
    is_out_of_time: bool = False
    """Whether the time was over before everything was done."""


def result_of(found: Found) -> Result:
    """Return the worst of what was repeated."""
    verdicts = {each.verdict for each in found.segments} | {each.verdict for each in found.answers.found}
    if "different" in verdicts or found.start:
        return "different"
    return "within tolerance" if "within tolerance" in verdicts else "identical"


def said_of(found: Found) -> str:
    """Return what was covered and what came of it.

    Example:
        `Replayed 5 of 5 segments (20 of 20 steps) and 10 of 100 answers: identical.`
    """
    tried = [each for each in found.segments if each.verdict != "not tried"]
    steps = sum(each.segment.last_step - each.segment.first_step for each in tried)
    total = found.run.last_step - found.run.first_step
    answers = f" and {len(found.answers.found)} of {found.answers.of} answers" if found.answers.of else ""
    ended = sum(each.segment in found.run.segments for each in tried)
    covered = f"Replayed {ended} of {len(found.run.segments)} segments ({steps:,} of {total:,} steps){answers}"
    late = " It was stopped before its end." if found.is_out_of_time else ""
    result = result_of(found)
    if result != "different":
        return f"{covered}: {result}.{late}"
    return f"{covered}: different. {' '.join(_differences(found))}{late}"


def _differences(found: Found) -> list[str]:
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
