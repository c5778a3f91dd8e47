"""Which states of a run a judge's number names, and the maker's answer: exactly these, and those of the chain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.problems import ProblemError, problem_of
from trainer.evaluation.evaluate import build_held_out
from trainer.loop.kept_states import kept_steps, write_state
from trainer.loop.programs import compiled_steps
from trainer.loop.rollouts import rollouts_of
from trainer.loop.segments import parts_of
from trainer.loop.stop import StopRequest
from trainer.replay.draw import Draw, draw_segments
from trainer.replay.place import REFUSED, place_of
from trainer.replay.recorded import RecordedRun, ReplayRequest, read_recorded
from trainer.replay.repetition import Repetition
from trainer.replay.states import States, frozen_of


@dataclass(frozen=True, kw_only=True)
class AskedStates:
    """The states that a judge requests of a run's maker."""

    run_id: str
    draw: Draw
    steps: tuple[int, ...]
    """The states that the number names, and that did not come with the run."""

    def document(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return {
            "run_id": self.run_id,
            "number": self.draw.number,
            "parts": [[part.first_step, part.last_step] for part in self.draw.order],
            "states": list(self.steps),
            "caught_half": self.draw.caught(0.5),
        }

    def lines(self, name: str) -> Iterator[str]:
        """Yield what to send to the run's maker, and what to do with the answer.

        Args:
            name: of the run or bundle, as the judge has it.
        """
        yield f"{self.run_id}: {self.draw.said}"
        for part in self.draw.order:
            yield f"  steps {part.first_step + 1:,} to {part.last_step:,}"
        if not self.steps:
            yield "Every state that they begin with is here: repeat the run with this number."
            return
        named = ",".join(map(str, self.steps))
        yield f"Ask the run's maker for: trainproof answer RUN --states {named} --output states.zip"
        yield f"Then: trainproof replay {name} --seed {self.draw.number} --states states.zip"


def states_asked(run: RecordedRun, request: ReplayRequest) -> AskedStates:
    """Return the states that a judge's number names among all parts of a run, its last part's among them."""
    draw = draw_segments(parts_of(run.segments), None, count=request.segments, number=request.seed or 0)
    there = {run.first_step, *kept_steps(run.folder)}
    steps = tuple(part.first_step for part in draw.order if part.first_step not in there)
    return AskedStates(run_id=run.manifest["run_id"], draw=draw, steps=steps)


def write_states(folder: Path, steps: Sequence[int], target: Path, say: Callable[[str], None]) -> str:
    """Write the states of a run that a judge named below a folder, and return the hash of the run's manifest.

    What the run has kept is read; what it has not is trained again from the nearest state before it, on the maker's
    own machine. Either way a state is written only if it has the hash that the chain states.

    Args:
        folder: of the run.
        steps: which.
        target: where they are written.
        say: shows a line.

    Raises:
        ProblemError: exit code 2, the chain states none at such a step; 3, it cannot be repeated here, or another state
            comes out.
    """
    run = read_recorded(folder)
    if unknown := [step for step in steps if step not in run.states]:
        what = f"The chain has no state at step {', '.join(map(str, unknown))}."
        raise ProblemError([problem_of("TP760", file=str(folder), what=what)], exit_code=2)
    place = place_of(run, ReplayRequest(folder=folder))
    states = States(run=run, task=place.task, frozen=frozen_of(place.task))
    absent = []
    for step in sorted(steps):
        state = states.at(step) if step in states.steps else None
        if state is None:
            absent.append(step)
        else:
            write_state(target, state)
    if absent:
        say(f"the run has kept none of step {', '.join(map(str, absent))}: training again up to there")
        repetition = Repetition(
            run=run,
            task=place.task,
            steps=compiled_steps(place.task, place.data.source.lengths_in_use),
            source=place.data.source,
            rollouts=rollouts_of(place.task, place.data),
            held_out=build_held_out(place.task, place.data),
            states=states,
            stop=StopRequest(max_minutes=None),
            is_exact=place.fitness.is_exact,
            progress=lambda done, total, loss: None,
        )
        for segment in run.segments:
            if segment.last_step in absent:
                for came in repetition.repeat(segment):
                    say(f"{came.segment.name}: {came.verdict}")
                state = repetition.at(segment.last_step)
                if state is None or not repetition.is_stated(state):
                    what = f"The state of step {segment.last_step} cannot be made again here: its hash is another one."
                    problem = problem_of("TP764", file=str(folder), what=what)
                    raise ProblemError([problem], exit_code=REFUSED)
                write_state(target, state)
    return run.sha256
