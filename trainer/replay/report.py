"""What a seed draws of a run, the states that it requires, and the receipt of a replay.

The first and the last part of a run are always replayed if possible. The seed draws among the others, with
probabilities proportional to their steps.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from evidence.proof.receipts import REPRODUCED
from evidence.proof.signatures import refuse
from trainer.evaluation.reanswer import VerifiedAnswer, receipt_items
from trainer.loop.chain import SegmentSpan, saved_state_steps, split_spans
from trainer.loop.state import REFUSED
from trainer.replay.recorded import RecordedRun, ReplayRequest
from trainer.replay.repetition import SegmentResult

Result = Literal["identical", "within tolerance", "different"]


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The parts of a run that a seed draws."""

    seed: int
    parts: tuple[SegmentSpan, ...]
    """All parts of the run, in order."""
    candidates: tuple[SegmentSpan, ...]
    """Parts between the first and the last that could be drawn."""
    drawn: tuple[SegmentSpan, ...]

    @property
    def selected(self) -> tuple[SegmentSpan, ...]:
        """The parts to replay, in order: the first, the drawn ones and the last."""
        ends = (self.parts[0], self.parts[-1])
        return tuple(part for part in self.parts if part in ends or part in self.drawn)

    @property
    def is_complete(self) -> bool:
        """Whether every part between the first and the last could be drawn."""
        return len(self.candidates) == len(self.parts[1:-1])

    def detection_probability(self, share: float) -> float:
        """Return a lower bound on the probability of detecting a run with a share of its steps fabricated.

        The first and the last part are always replayed, so fabricated steps are assumed between them. With `T` steps
        between, `F` fabricated, and `m` in the shortest part, another honest part is drawn after `i` honest ones with
        probability at most `1 − F / (T − i m)`. For equal parts this is the hypergeometric distribution,
        `C(N − f, k) / C(N, k)` for `k` drawn and `f` false parts among `N` (W. Feller, An Introduction to Probability
        Theory and Its Applications, vol. 1, 3rd ed., §II.6).

        The probability is 0 unless every part between could be drawn, because the author knows which ones could, and 1
        if fabricated steps do not fit between, because the first or the last part then has some.

        Example:
            2,000 steps in 20 parts, 18 between the first and the last. With half of all steps fabricated, 10 of
            the 18 are false. Three drawn parts are all honest with probability 8/18 · 7/17 · 6/16 = 0.069, so the run
            is detected with 0.931; five drawn parts detect it with 1 − 8·7·6·5·4 / (18·17·16·15·14) = 0.993.
        """
        if not self.is_complete:
            return 0.0
        between = sum(part.steps for part in self.candidates)
        shortest = min((part.steps for part in self.candidates), default=0)
        false = share * (self.parts[-1].last_step - self.parts[0].first_step)
        missed = 1.0
        for already in range(len(self.drawn)):
            missed *= max(0.0, 1 - false / (between - already * shortest))
        return 1 - missed if false <= between else 1.0

    @property
    def description(self) -> str:
        """What was drawn and what that is worth, for messages."""
        between = len(self.parts[1:-1])
        if not between:
            return "Nothing to draw: the run consists of a first and a last part only."
        if self.is_complete:
            percent = math.floor(1000 * self.detection_probability(0.5)) / 10
            return (
                f"Seed {self.seed} draws {len(self.drawn)} of {between} parts between the first and the last: detects "
                f"a run with half its steps fabricated with probability {percent:g} %."
            )
        drew = f"{len(self.drawn)} of {len(self.candidates)} parts" if self.candidates else "nothing"
        return (
            f"Seed {self.seed} draws {drew}: a state is available for {len(self.candidates)} of {between} parts "
            "between the first and the last, and the author knew which. Run `trainproof replay RUN --seed "
            f"{self.seed} --ask` to see which states to request."
        )


def draw_segments(parts: tuple[SegmentSpan, ...], starts: Collection[int] | None, *, count: int, seed: int) -> Draw:
    """Draw `count` parts between the first and the last, each with a probability proportional to its steps.

    Each part gets an exponential waiting time from the hash of seed and part, with its steps as the rate, and the
    shortest times are drawn (P. S. Efraimidis and P. G. Spirakis, Information Processing Letters 97, 2006, p. 181–185).
    With `starts`, only parts that begin at one of these steps are drawn. The author of the run did not know the seed.
    """

    def waiting_time(part: SegmentSpan) -> float:
        share = (int(lot(seed, f"steps {part.first_step + 1} to {part.last_step}"), 16) + 1) / 2**256
        return -math.log(share) / part.steps

    candidates = tuple(part for part in parts[1:-1] if starts is None or part.first_step in starts)
    drawn = {part.first_step for part in sorted(candidates, key=waiting_time)[:count]}
    chosen = tuple(part for part in candidates if part.first_step in drawn)
    return Draw(seed=seed, parts=parts, candidates=candidates, drawn=chosen)


def draw_items(ids: Collection[str], *, count: int, seed: int) -> set[str]:
    """Draw the ids of the items whose answers are regenerated; all if there are not more than `count`."""
    return set(sorted(ids, key=lambda each: lot(seed, each))[:count])


def lot(seed: int, name: str) -> str:
    """Return the hash of seed and name, by which items and parts are drawn."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


@dataclass(frozen=True, kw_only=True)
class StateRequest:
    """The states of a run that a judge requests from its author."""

    run_id: str
    draw: Draw
    steps: tuple[int, ...]
    """States that the seed requires and that did not come with the run."""

    def document(self) -> dict[str, Any]:
        """Return the request as JSON values."""
        return {
            "run_id": self.run_id,
            "number": self.draw.seed,
            "parts": [[part.first_step, part.last_step] for part in self.draw.selected],
            "states": list(self.steps),
            "caught_half": self.draw.detection_probability(0.5),
        }

    def lines(self, name: str) -> Iterator[str]:
        """Yield the request as text, with the commands for the author and for the judge of the run `name`."""
        yield f"{self.run_id}: {self.draw.description}"
        for part in self.draw.selected:
            yield f"  steps {part.first_step + 1:,} to {part.last_step:,}"
        if not self.steps:
            yield "All states for these parts are available: replay the run with this seed."
            return
        steps = ",".join(map(str, self.steps))
        yield f"Ask the author to run: trainproof replay RUN --pack-states {steps} --output states.zip"
        yield f"Then run: trainproof replay {name} --seed {self.draw.seed} --states states.zip"


def request_states(run: RecordedRun, request: ReplayRequest) -> StateRequest:
    """Return the states that the seed of a request requires, drawing among all parts of a run."""
    draw = draw_segments(split_spans(run.segments), None, count=request.segments, seed=request.seed or 0)
    available = {run.first_step, *saved_state_steps(run.folder)}
    steps = tuple(part.first_step for part in draw.selected if part.first_step not in available)
    return StateRequest(run_id=run.manifest["run_id"], draw=draw, steps=steps)


@dataclass(kw_only=True)
class ReplayFindings:
    """The findings of a replay."""

    run: RecordedRun
    draw: Draw | None = None
    """What the seed drew, or None if the whole run was replayed."""
    tolerance_reason: str = ""
    """Why the last bits may differ, or an empty string if every bit must be equal."""
    start: list[str] = field(default_factory=list)
    """Differences before the first step."""
    segments: Sequence[SegmentResult] = ()
    """Results of all segments, including those that were not tried."""
    untrained: Sequence[VerifiedAnswer] = ()
    trained: Sequence[VerifiedAnswer] = ()
    is_out_of_time: bool = False

    @property
    def answers(self) -> list[VerifiedAnswer]:
        """All verified answers."""
        return [*self.untrained, *self.trained]

    @property
    def tried(self) -> list[SegmentResult]:
        """Segments that were replayed, whole or in part."""
        return [each for each in self.segments if each.verdict != "not tried"]

    @property
    def result(self) -> Result:
        """The worst verdict."""
        verdicts = {each.verdict for each in self.segments} | {each.verdict for each in self.answers}
        if "different" in verdicts or self.start:
            return "different"
        return "within tolerance" if "within tolerance" in verdicts or "identical" not in verdicts else "identical"

    def check(self) -> None:
        """Raise ProblemError with exit code 3 if there is nothing to report: no step, and no answer or difference."""
        if self.tried or (self.answers and (not self.is_out_of_time or self.result == "different")):
            return
        parent = self.run.manifest["parent"]
        if parent is not None and not self.is_out_of_time:
            what = f"The run resumes {parent['run_id']} from step {parent['step']}, whose checkpoint is missing here."
            then = f"Replay {parent['run_id']}, or put its folder with the checkpoint next to this one."
        elif difference := next((each.difference for each in self.segments if each.difference), ""):
            what, then = f"No step could be judged. {difference}", "Replay the run on the same kind of processor."
        else:
            what, then = "Time limit reached before any step was replayed.", "Raise --minutes."
        raise refuse(self.run.folder, "TP760", what=what, next=then, exit_code=REFUSED)

    def document(self) -> dict[str, Any]:
        """Return the group `covered` of a receipt."""
        document = {
            "start": {"verdict": "different" if self.start else "identical", "differences": list(self.start)},
            "segments": [each.document() for each in self.segments],
            "items": receipt_items(self.trained, self.untrained),
        }
        if self.draw is None:
            return document
        reproduced = {each.segment for each in self.segments if each.verdict in REPRODUCED}
        whole = [part for part in self.draw.drawn if reproduced >= set(part.segments)]
        # A drawn part that was not replayed whole leaves the draw without a guarantee.
        probability = self.draw.detection_probability(0.5) if len(whole) == len(self.draw.drawn) else 0.0
        return document | {
            "draw": {
                "number": self.draw.seed,
                "parts": len(self.draw.parts),
                "could_be_drawn": len(self.draw.candidates),
                "named": [part.first_step for part in self.draw.drawn],
                "repeated": len(whole),
                "caught_half": probability,
            }
        }

    def summarize(self) -> str:
        """Return coverage and result in a sentence, with the first difference of each kind.

        Example:
            `Replayed 5 of 5 segments (20 of 20 steps) and 10 of 100 answers: identical.`
        """
        run, tried = self.run, self.tried
        steps = sum(each.segment.last_step - each.segment.first_step for each in tried)
        whole = sum(each.segment in run.segments for each in tried)
        recorded = len(run.answers) + len(run.baseline)
        answers = f" and {len(self.answers)} of {recorded} answers" if recorded else ""
        coverage = f"{whole} of {len(run.segments)} segments ({steps:,} of {run.last_step - run.first_step:,} steps)"
        text = f"Replayed {coverage}{answers}: {self.result}"
        if self.result == "within tolerance" and self.tolerance_reason:
            text += f" ({self.tolerance_reason})"
        sentences = [f"{text}."]
        if self.start:
            sentences.append(f"The start differs: {self.start[0]}.")
        sentences += [each.difference for each in self.segments if each.verdict == "different"][:1]
        if different := [each for each in self.answers if each.verdict == "different"]:
            count = f"{len(different)} answers are" if len(different) > 1 else "1 answer is"
            sentences.append(f"{count} not the model's: {different[0].id}: {different[0].why}")
        if self.is_out_of_time:
            sentences.append("Stopped before its end.")
        return " ".join(sentences)
