"""The story of a repetition: read → see whether it can be → begin → segments → answers → receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evidence.records.effective import effective_of
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import problem_of
from trainer.config.tree import Config
from trainer.inputs import read_inputs
from trainer.loop.step import TrainState
from trainer.loop.steps import compiled_steps
from trainer.loop.stop import StopRequest
from trainer.loop.task import Task
from trainer.model.files.source import of_somebody_else
from trainer.objectives.data import Data
from trainer.planning.devices import Devices, choose_devices
from trainer.recorder.failure import explain_full_device
from trainer.recorder.receipt import receipt_of
from trainer.replay.answers import Answers, answered_again, items_asked, trained_params
from trainer.replay.fitness import OTHER_DATA, OTHER_SOFTWARE, Fitness, fitness_of
from trainer.replay.parts import Segment, drawn_items, drawn_segments
from trainer.replay.recorded import NOTHING_TO_REPEAT, Recorded, recorded
from trainer.replay.repetition import Repeated, Repetition, ends, line_of
from trainer.replay.start import start_differences
from trainer.replay.states import States, frozen_of
from trainer.replay.verdict import Found, result_of, said_of

REFUSED = 3
INTERRUPTED = 5

Tell = Callable[[dict[str, Any]], None]
"""Takes what happens, as JSON values: what a page draws while it goes on."""


@dataclass(frozen=True, kw_only=True)
class ReplayRequest:
    """What somebody asked for."""

    folder: Path
    whole: bool = False
    """Every segment from the seed, and every answer."""
    segments: int = 3
    """Segments besides the first."""
    items: int = 10
    """Answers."""
    minutes: float | None = None
    """Time to spend: as many segments as it allows. None: those asked for, however long they take."""
    seed: int | None = None
    """Decides what is drawn. None: it follows from the run's hash."""
    anyway: bool = False
    """Repeat it although versions differ."""
    dataset: str | None = None
    """Where the run's dataset lies here."""
    model: str | None = None
    """Where its model lies here."""

    def document(self) -> dict[str, Any]:
        """Return the receipt's group `asked`."""
        return {
            "whole": self.whole,
            "segments": self.segments,
            "items": self.items,
            "minutes": self.minutes,
            "seed": self.seed,
        }


@dataclass(frozen=True, kw_only=True)
class Place:
    """Where and with what a run is repeated."""

    devices: Devices
    task: Task
    data: Data
    fitness: Fitness


def replay(request: ReplayRequest, say: Callable[[str], None], tell: Tell) -> tuple[dict[str, Any], int]:
    """Repeat a run and return the receipt, not sealed yet, and the exit code.

    Args:
        request: what was asked for.
        say: shows a line.
        tell: takes what happens as JSON values.

    Returns:
        The document `receipt`, and 0 if nothing differs, 1 if anything does, 5 if a signal ended it.

    Raises:
        ProblemError: exit code 2, it is no run that can be read; 3, refused, since a difference would say nothing
            about the run; 4, the device has no room.
    """
    run = recorded(request.folder)
    place = place_of(run, request)
    for remark in place.fitness.remarks:
        say(f"differs, and may not matter: {remark}")
    with StopRequest(max_minutes=request.minutes) as stop, explain_full_device(str(request.folder)):
        found = carried_out(run, place, request, stop, say, tell)
    if not any(each.verdict != "not tried" for each in found.segments) and not found.answers.found:
        raise ProblemError([nothing_reached(run, found)], exit_code=REFUSED)
    covered = {
        "start": {"verdict": "different" if found.start else "identical", "differences": list(found.start)},
        "segments": [each.document() for each in found.segments],
        "items": found.answers.document(),
    }
    receipt = receipt_of(
        request.folder,
        "replay",
        device=place.devices.document(),
        asked=request.document(),
        covered=covered,
        result=result_of(found),
        said=said_of(found),
    )
    code = INTERRUPTED if stop.is_signalled else int(receipt["result"] == "different")
    return receipt | {"run_id": run.manifest["run_id"]}, code


def place_of(run: Recorded, request: ReplayRequest) -> Place:
    """Return where and with what the run is repeated.

    Raises:
        ProblemError: exit code 3; something that decides the numbers is not here or is another one.
    """
    if run.manifest["status"] == "running":
        what = "The run is not sealed: it is under way, or was killed."
        then = "Wait for its end, or continue it with trainproof train --resume."
        raise ProblemError([problem_of(NOTHING_TO_REPEAT, file=str(run.folder), what=what, next=then)], exit_code=2)
    config = config_here(run, request)
    devices = choose_devices(config.mesh.device, config.mesh.devices)
    fitness = fitness_of(run.manifest, devices, file=str(run.folder))
    if refused := [each for each in fitness.refusals if not (request.anyway and each.code == OTHER_SOFTWARE.code)]:
        raise ProblemError(refused, exit_code=REFUSED)
    try:
        task, data = read_inputs(config, devices)
    except ProblemError as error:
        unread = error if request.model else of_somebody_else(error)
        raise ProblemError(unread.problems, exit_code=REFUSED) from error
    if problems := other_data(run, data):
        raise ProblemError(problems, exit_code=REFUSED)
    return Place(devices=devices, task=task, data=data, fitness=fitness)


def config_here(run: Recorded, request: ReplayRequest) -> Config:
    """Return the run's configuration with its layers as they lay, its own number of devices and the files named."""
    layers = effective_of(run.manifest).get("memory.layers", "unrolled")
    config = replace(run.config, memory=replace(run.config.memory, layers=layers))
    if request.dataset is not None:
        config = replace(config, data=replace(config.data, dataset=request.dataset))
    if request.model is not None:
        config = replace(config, model=replace(config.model, name=request.model))
    there, here = run.manifest["devices"]["count"], len(choose_devices(config.mesh.device, None).list)
    return replace(config, mesh=replace(config.mesh, devices=min(there, here)))


def other_data(run: Recorded, data: Data) -> list[Problem]:
    """Return what is another file than the run's: its dataset, its evaluation set."""
    stated = run.manifest["dataset"]
    found = []
    if data.dataset.sha256 != stated["sha256"]:
        what = f"{data.dataset.name} has the SHA-256 {data.dataset.sha256}; the run learned from {stated['sha256']}."
        found.append(problem_of(OTHER_DATA, file=str(run.folder), pointer="/dataset/sha256", what=what))
    if run.summary is not None and data.items is not None:
        asked, items = run.summary["eval_set"], data.items.file
        if items.sha256 != asked["sha256"]:
            what = f"{items.name} has the SHA-256 {items.sha256}; the run was asked {asked['sha256']}."
            then = "Have the run's own evaluation set where its configuration names it."
            found.append(problem_of(OTHER_DATA, file=str(run.folder), pointer="/eval_set/sha256", what=what, next=then))
    return found


def carried_out(
    run: Recorded, place: Place, request: ReplayRequest, stop: StopRequest, say: Callable[[str], None], tell: Tell
) -> Found:
    """Repeat the segments and answers that are asked for, and return what came of them."""
    task, data = place.task, place.data
    states = States(run=run, task=task, frozen=frozen_of(task))
    seed = request.seed if request.seed is not None else int(run.sha256[:8], 16)
    order = segments_asked(run, states, request, seed)
    tell({"event": "planned", "segments": [ends(each) for each in run.segments], "items": request.items})
    steps = compiled_steps(task, data.source.lengths_in_use)
    start = states.at(run.first_step)
    found = Found(run=run, answers=Answers(of=len(run.baseline) + len(run.answers)))
    if start is not None:
        found.start += start_differences(run, task, data, steps, start, states.frozen)
        for difference in found.start:
            say(f"the start differs: {difference}")
        answer(found, run.baseline, states.params_of(start), request, place, seed, tell)
        found.answers.untrained = len(found.answers.found)
    del start
    repetition = Repetition(
        run=run,
        task=task,
        steps=steps,
        source=data.source,
        states=states,
        stop=stop,
        is_exact=place.fitness.is_exact,
        progress=lambda done, total, loss: tell({"event": "step", "step": done, "of": total, "loss": loss}),
    )
    for segment in order:
        if segment.number not in repetition.found and stop.reason() is None:
            for each in repetition.repeat(segment):
                say(line_of(each))
                tell({"event": "segment", "number": each.segment.number, **each.document()})
    if repetition.part is not None:
        say(line_of(repetition.part))
    found.segments = [each for segment in run.segments for each in came_of(segment, repetition)]
    if not stop.is_signalled:
        answer_trained(found, states, repetition.ended(), request, place, seed, say, tell)
    for remark in states.remarks:
        say(remark)
    found.is_out_of_time = stop.reason() is not None
    return found


def answer_trained(
    found: Found,
    states: States,
    ended: TrainState | None,
    request: ReplayRequest,
    place: Place,
    seed: int,
    say: Callable[[str], None],
    tell: Tell,
) -> None:
    """Answer drawn items again as the trained model, or say why none is."""
    run = found.run
    if not run.answers:
        return
    params, where = trained_params(run, states, ended)
    if params is None:
        say("no answer of the trained model is given again: its parameters are not here")
        return
    say(f"answers are given again with the parameters of {where}")
    answer(found, run.answers, params, request, place, seed, tell)


def came_of(segment: Segment, repetition: Repetition) -> list[Repeated]:
    """Return what came of a segment; of one that was stopped within it, of both its parts."""
    part = repetition.part
    if segment.number in repetition.found:
        return [repetition.found[segment.number]]
    if part is None or part.segment.number != segment.number:
        return [Repeated(segment=segment, verdict="not tried")]
    rest = replace(segment, first_step=part.segment.last_step)
    return [part, Repeated(segment=rest, verdict="not tried")]


def segments_asked(run: Recorded, states: States, request: ReplayRequest, seed: int) -> Iterable[Segment]:
    """Return the segments to repeat, in order: all, or those drawn; where time is given, the others after them."""
    if request.whole:
        return run.segments
    drawn = drawn_segments(run.segments, states.steps, count=request.segments, seed=seed)
    if request.minutes is None:
        return drawn
    return [*drawn, *(each for each in run.segments if each not in drawn)]


def answer(
    found: Found,
    stated: Any,
    params: Any,
    request: ReplayRequest,
    place: Place,
    seed: int,
    tell: Tell,
) -> None:
    """Answer drawn items again and keep what came of them."""
    items = items_asked(found.run, place.data)
    if items is None:
        return
    drawn = None if request.whole else drawn_items([row["id"] for row in stated], count=request.items, seed=seed)
    found.answers.found += answered_again(
        params,
        stated,
        drawn,
        place.task,
        place.data,
        items,
        lambda done, total: tell({"event": "items", "done": done, "of": total, **found.answers.document()}),
    )
    tell({"event": "items", **found.answers.document()})


def nothing_reached(run: Recorded, found: Found) -> Problem:
    """Return the problem of a run of which no part could be repeated."""
    parent = run.manifest["parent"]
    if parent is not None and not found.is_out_of_time:
        what = f"The run goes on from step {parent['step']} of {parent['run_id']}, whose checkpoint is not here."
        then = f"Repeat {parent['run_id']}, or put its folder with the checkpoint beside this one."
    else:
        what, then = "The time was over before a segment was repeated.", "Give more --minutes."
    return problem_of(NOTHING_TO_REPEAT, file=str(run.folder), what=what, next=then)
