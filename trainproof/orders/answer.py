"""Carry out `answer`: the states found or made again, compared with the chain, packed."""

from __future__ import annotations

from pathlib import Path

from evidence.bundle.unpacked import MOST_STATES, pack_states
from evidence.run.scratch import scratch_folder
from evidence.run.write import not_written
from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.recorder.progress import Watch
from trainer.replay.asking import write_states

NO_STEPS = Rule(
    "TP766",
    "States that are not named",
    "A judge names steps; each is a place of the run's chain.",
    "Give them as `trainproof replay --ask` says: --states 280,1120.",
)


def pack_answer(run: Path, states: str, output: Path) -> int:
    """Pack the states of a run that a judge named, and return their number.

    Args:
        run: the run's folder.
        states: steps, with commas between.
        output: the file.

    Raises:
        ProblemError: exit code 2 or 3; see `write_states`. 2 also: the steps cannot be read, or the file not written.
    """
    steps = {int(each) for each in states.split(",") if each.strip().isdecimal() and len(each.strip()) <= 12}
    if not 0 < len(steps) <= MOST_STATES or len(steps) != len(states.split(",")):
        what = f"--states {states} does not name different steps, {MOST_STATES} at most."
        raise ProblemError([problem_of(NO_STEPS, file=str(run), what=what)], exit_code=2)
    try:
        with scratch_folder("trainproof-answer-") as scratch, Watch() as watch:
            sha256 = write_states(run, sorted(steps), scratch, watch.say)
            pack_states(scratch, sha256, output)
    except OSError as error:
        raise not_written(error, output, what="The answer") from error
    return len(steps)
