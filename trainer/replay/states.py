"""The states of a run from which a repetition can begin: its start, checkpoints, states it kept, those of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from safetensors import SafetensorError

from evidence import layout
from schemas.problems import ProblemError, problem_of
from trainer.loop.chain import read_state, saved_state_steps, state_path
from trainer.loop.checkpoints import UNREADABLE, checkpoint_steps, restore_checkpoint, state_sha256, to_stored
from trainer.loop.state import initial_params, start_program, state_shapes
from trainer.loop.step import TrainState
from trainer.loop.task import Task, reference_of, without_reference
from trainer.model.decoder import params_sha256
from trainer.model.model import combine, partition
from trainer.model.stacks import Params, unstack_on_devices
from trainer.replay.recorded import RecordedRun

Read = Callable[[], TrainState]


@dataclass(kw_only=True)
class States:
    """Where a repetition can begin."""

    run: RecordedRun
    task: Task
    frozen: Params
    """The parameters that do not learn."""
    answered: Path | None = None
    """Folder with states that the run's maker sent when a judge named them."""
    remarks: list[str] = field(default_factory=list)
    """States that could not be used, and why."""

    @property
    def steps(self) -> list[int]:
        """Steps at which there is a state, by their names: those of the run's segments only."""
        places = {segment.first_step for segment in self.run.segments} | {self.run.last_step}
        kept = {step for step, _, _ in self.kept() if step in places and step in self.run.states}
        return sorted(kept | ({0} if self.run.first_step == 0 else set()))

    def kept(self) -> Iterator[tuple[int, str, Read]]:
        """Yield step, name and reader of each state at hand: of an answer, in the run's folder, of its parent."""
        shapes = state_shapes(self.task)
        places = [] if self.answered is None else [(self.answered, "sent")]
        for place, kind in (*places, (self.run.folder, "kept")):
            for step in saved_state_steps(place):
                yield step, f"the state {kind} of step {step}", partial(read_state, state_path(place, step), shapes)
        for step in checkpoint_steps(self.run.folder):
            yield step, f"the checkpoint at step {step}", partial(restore_checkpoint, self.run.folder, step, shapes)
        parent = self.run.manifest["parent"]
        if parent is not None:
            step, beside = parent["step"], self.run.folder.resolve().parent / parent["run_id"]
            if (beside / layout.CHECKPOINTS / str(step)).is_dir():
                yield step, f"the checkpoint at step {step}", partial(restore_checkpoint, beside, step, shapes)

    def at(self, step: int) -> TrainState | None:
        """Return the state after a step, or None if no state at hand is the one that the chain states."""
        if step == 0 and self.run.first_step == 0:
            return self.first()
        for found, name, read in self.kept():
            if found != step:
                continue
            try:
                state = read()
            except (*UNREADABLE, SafetensorError) as error:
                error.with_traceback(None)
                self.remarks.append(f"{name} cannot be used ({type(error).__name__})")
                continue
            if state_sha256(to_stored(state)) == self.run.states.get(step):
                return state
            self.remarks.append(f"{name} is not the state that the chain states there")
        return None

    def refuse_others(self) -> None:
        """Refuse states that the run's maker sent and that are not those of the chain.

        Raises:
            ProblemError: exit code 3; with both hashes.
        """
        if self.answered is None:
            return
        problems = []
        for step in saved_state_steps(self.answered):
            path, stated = state_path(self.answered, step), self.run.states.get(step)
            try:
                found = state_sha256(to_stored(read_state(path, state_shapes(self.task))))
            except (*UNREADABLE, SafetensorError) as error:
                what = f"The state of step {step} that was sent cannot be read as one of this run: {error}."
                problems.append(problem_of("TP764", file=str(self.run.folder), what=what))
                continue
            if found != stated:
                states = f"the chain states {stated} there" if stated else "the chain states none there"
                what = f"The state of step {step} that was sent has the SHA-256 {found}; {states}."
                problems.append(problem_of("TP764", file=str(self.run.folder), what=what))
        if problems:
            raise ProblemError(problems, exit_code=3)

    def first(self) -> TrainState:
        """Return the state before the first step, drawn or read anew."""
        trained, _ = partition(self.task.model.method, initial_params(self.task))
        state: TrainState = start_program(self.task).compile().call(trained)
        return state

    def params_of(self, state: TrainState) -> Params:
        """Return all parameters of the model in a state, every layer by itself."""
        return unstack_on_devices(combine(state.trained, without_reference(self.frozen)))

    def params_sha256(self, state: TrainState) -> str:
        """Return the hash of all parameters of the model in a state."""
        return params_sha256(self.params_of(state))


def frozen_of(task: Task) -> Params:
    """Return the parameters that do not learn, drawn or read anew, with those of a reference."""
    if not task.frozen:
        return {}
    trained, frozen = partition(task.model.method, initial_params(task))
    return frozen | (reference_of(trained) if task.reference else {})
