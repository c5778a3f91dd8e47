"""The states of a run from which a repetition can begin: its start, drawn or read anew, and the checkpoints it kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from evidence.run import layout
from trainer.loop.initial import initial_params
from trainer.loop.program import start_program
from trainer.loop.restoring import UNREADABLE, restored, steps_of
from trainer.loop.state import state_shapes
from trainer.loop.step import TrainState
from trainer.loop.stored import state_sha256, stored
from trainer.loop.task import Task, reference_of, without_reference
from trainer.methods.method import joined, split
from trainer.model.params import Params, params_sha256
from trainer.model.stacking import apart_on_devices
from trainer.replay.recorded import Recorded


@dataclass(kw_only=True)
class States:
    """Where a repetition can begin."""

    run: Recorded
    task: Task
    frozen: Params
    """The parameters that do not learn."""
    remarks: list[str] = field(default_factory=list)
    """Checkpoints that could not be used, and why."""

    @property
    def steps(self) -> list[int]:
        """Steps at which there is a state, as far as names tell: those of the run's segments only."""
        places = {segment.first_step for segment in self.run.segments} | {self.run.last_step}
        kept = {step for step, _ in self.kept() if step in places and step in self.run.states}
        return sorted(kept | ({0} if self.run.first_step == 0 else set()))

    def kept(self) -> Iterator[tuple[int, Path]]:
        """Yield each checkpoint that lies in the run's folder, and the one of the run that it goes on from."""
        yield from ((step, self.run.folder) for step in steps_of(self.run.folder))
        parent = self.run.manifest["parent"]
        if parent is not None:
            beside = self.run.folder.resolve().parent / parent["run_id"]
            if (beside / layout.CHECKPOINTS / str(parent["step"])).is_dir():
                yield parent["step"], beside

    def at(self, step: int) -> TrainState | None:
        """Return the state after a step, None where there is none that is the one the chain states."""
        if step == 0 and self.run.first_step == 0:
            return self.first()
        for found, folder in self.kept():
            if found != step:
                continue
            try:
                state = restored(folder, step, state_shapes(self.task))
            except UNREADABLE as error:
                error.with_traceback(None)
                self.remarks.append(f"the checkpoint at step {step} cannot be used ({type(error).__name__})")
                continue
            if state_sha256(stored(state)) == self.run.states.get(step):
                return state
            self.remarks.append(f"the checkpoint at step {step} is not the state that the chain states there")
        return None

    def first(self) -> TrainState:
        """Return the state before the first step, drawn or read anew."""
        trained, _ = split(self.task.model.method, initial_params(self.task))
        state: TrainState = start_program(self.task).compile().call(trained)
        return state

    def params_of(self, state: TrainState) -> Params:
        """Return all parameters of the model in a state, every layer by itself."""
        return apart_on_devices(joined(state.trained, without_reference(self.frozen)))

    def params_sha256(self, state: TrainState) -> str:
        """Return the hash of all parameters of the model in a state."""
        return params_sha256(self.params_of(state))


def frozen_of(task: Task) -> Params:
    """Return the parameters that do not learn, drawn or read anew, with those of a reference."""
    if not task.frozen:
        return {}
    trained, frozen = split(task.model.method, initial_params(task))
    return frozen | (reference_of(trained) if task.reference else {})
