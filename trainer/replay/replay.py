"""The story of a repetition: read → see whether it can be → begin → parts → answers → receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from schemas.problems import Problem, ProblemError, problem_of
from trainer.data.conversations import untrusted_model
from trainer.evaluation.evaluate import build_held_out
from trainer.loop.base import refuse_other_base
from trainer.loop.chain import Segment, split_spans
from trainer.loop.programs import compiled_steps
from trainer.loop.rollouts import build_rollouts
from trainer.loop.session import StopRequest
from trainer.loop.step import TrainState
from trainer.recorder.failure import explain_full_device
from trainer.recorder.manifest import build_receipt
from trainer.replay.answers import RegeneratedAnswers, answered_again, items_asked, trained_params
from trainer.replay.draw import Draw, draw_segments, drawn_items
from trainer.replay.place import REFUSED, ReplaySetup, place_of
from trainer.replay.recorded import RecordedRun, ReplayRequest, read_recorded
from trainer.replay.repetition import Repetition, SegmentResult, ends, line_of
from trainer.replay.start import start_differences
from trainer.replay.states import States, frozen_of
from trainer.replay.verdict import ReplayFindings, result_of, said_of

INTERRUPTED = 5

Say = Callable[[str], None]
"""Shows a line."""

Tell = Callable[[dict[str, Any]], None]
"""Takes what happens, as JSON values: what a page draws while it goes on."""


@untrusted_model()
def replay(request: ReplayRequest, say: Say, tell: Tell) -> tuple[dict[str, Any], int]:
    """Repeat a run and return the receipt, not sealed yet, and the exit code.

    Args:
        request: of the judge.
        say: shows a line.
        tell: called with each event as JSON values.

    Returns:
        The document `receipt`, and 0 if nothing differs, 1 if anything does, 5 if a signal ended it.

    Raises:
        ProblemError: exit code 2, it is not a run that can be read; 3, refused, since a difference would state nothing
            about the run; 4, the device has no room.
    """
    request, run = request.numbered(), read_recorded(request.folder)
    place = place_of(run, request)
    for remark in place.fitness.remarks:
        say(f"differs, and may not matter: {remark}")
    with StopRequest(max_minutes=request.minutes) as stop, explain_full_device(str(request.folder)):
        found = carried_out(run, place, request, stop, say, tell)
    if found.is_nothing:
        raise ProblemError([nothing_reached(run, found)], exit_code=REFUSED)
    covered = {
        "start": {"verdict": "different" if found.start else "identical", "differences": list(found.start)},
        "segments": [each.document() for each in found.segments],
        "items": found.answers.document(),
        **({"draw": drew} if (drew := found.draw_document()) else {}),
    }
    receipt = build_receipt(
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


def carried_out(
    run: RecordedRun, place: ReplaySetup, request: ReplayRequest, stop: StopRequest, say: Say, tell: Tell
) -> ReplayFindings:
    """Repeat the parts and answers that are requested, and return what came of them."""
    task, data = place.task, place.data
    say(f"reading or drawing the parameters of {task.config.model.name}")
    refuse_other_base(run.manifest, task, file=str(run.folder), trains=True)
    states = States(run=run, task=task, frozen=frozen_of(task), answered=request.states)
    draw = drawn_parts(run, states, request)
    say("repeating the whole run" if draw is None else draw.said)
    tell({"event": "planned", "segments": [ends(each) for each in run.segments], "items": request.items})
    say(f"compiling the steps of the run for {len(place.devices.list)} × {place.devices.kind}")
    steps = compiled_steps(task, data.source.lengths_in_use)
    start = states.at(run.first_step)
    found = ReplayFindings(run=run, draw=draw, elsewhere=place.fitness.elsewhere)
    found.answers = RegeneratedAnswers(trained_of=len(run.answers), untrained_of=len(run.baseline))
    give_again = partial(answer, found=found, request=request, place=place, tell=tell)
    if start is not None:
        found.start += start_differences(run, task, data, steps, start, states.frozen)
        for difference in found.start:
            say(f"the start differs: {difference}")
        if run.baseline:
            say(f"giving the {len(run.baseline)} answers of the untrained model again")
        found.answers.untrained += give_again(run.baseline, states.params_of(start))
    del start
    repetition = Repetition(
        run=run,
        task=task,
        steps=steps,
        source=data.source,
        rollouts=build_rollouts(task, data),
        held_out=build_held_out(task, data),
        states=states,
        stop=stop,
        is_exact=place.fitness.is_exact,
        progress=lambda done, total, loss: tell({"event": "step", "step": done, "of": total, "loss": loss}),
    )
    for segment in segments_asked(run, draw, states, request):
        if segment.number not in repetition.found and stop.reason() is None:
            say(f"repeating {segment.name}")
            for each in repetition.repeat(segment):
                say(line_of(each))
                tell({"event": "segment", "number": each.segment.number, **each.document()})
    if repetition.part is not None:
        say(line_of(repetition.part))
    found.segments = [each for segment in run.segments for each in came_of(segment, repetition)]
    if not stop.is_signalled and run.answers:
        found.answers.trained += answers_of_trained(run, states, repetition.at(run.last_step), give_again, say)
    for remark in states.remarks:
        say(remark)
    found.is_out_of_time = stop.reason() is not None
    return found


def answers_of_trained(
    run: RecordedRun, states: States, ended: TrainState | None, give_again: Callable[..., Sequence[Any]], say: Say
) -> Sequence[Any]:
    """Give the answers of the trained model again, or report why none is."""
    params, where = trained_params(run, states, ended)
    if params is None:
        say("no answer of the trained model is given again: its parameters are not here")
        return []
    say(f"giving the {len(run.answers)} answers of the trained model again, with the parameters of {where}")
    return give_again(run.answers, params)


def came_of(segment: Segment, repetition: Repetition) -> list[SegmentResult]:
    """Return what came of a segment; of one that was stopped, or could be judged, only up to a step: of both parts."""
    part = repetition.found.get(segment.number, repetition.part)
    if part is None or part.segment.number != segment.number:
        return [SegmentResult(segment=segment, verdict="not tried")]
    if part.segment.last_step == segment.last_step:
        return [part]
    rest = replace(segment, first_step=part.segment.last_step)
    return [part, SegmentResult(segment=rest, verdict="not tried")]


def drawn_parts(run: RecordedRun, states: States, request: ReplayRequest) -> Draw | None:
    """Return what the judge's number draws, or None if the whole run is repeated.

    Of a run whose maker sent states, it draws among all parts, and the states that it names must be here.

    Raises:
        ProblemError: exit code 3; a state that it names is not here, or is not the one that the chain states.
    """
    if request.whole or request.seed is None:
        return None
    starts = states.steps
    among = None if request.states is not None else starts
    draw = draw_segments(split_spans(run.segments), among, count=request.segments, number=request.seed)
    if request.states is not None:
        states.refuse_others()
        if absent := [part.first_step for part in draw.order if part.first_step not in starts]:
            raise ProblemError([not_sent(run, draw.number, absent)], exit_code=REFUSED)
    return draw


def segments_asked(run: RecordedRun, draw: Draw | None, states: States, request: ReplayRequest) -> Iterator[Segment]:
    """Yield the segments to repeat, in order: all, or those that can be reached of the parts that are drawn.

    Where the number drew nothing, the first parts of the run are repeated in their place; where time is given, all
    others after them.
    """
    if draw is None:
        yield from run.segments
        return
    starts = set(states.steps)
    parts = [part for part in draw.order if part.first_step in starts or part is draw.parts[0]]
    parts += () if draw.named else draw.parts[1 : 1 + request.segments]
    wanted = sorted({segment.number for part in parts for segment in part.segments})
    yield from (run.segments[number] for number in wanted)
    if request.minutes is not None:
        yield from (segment for segment in run.segments if segment.number not in wanted)


def answer(
    stated: Sequence[dict[str, Any]],
    params: Any,
    *,
    found: ReplayFindings,
    request: ReplayRequest,
    place: ReplaySetup,
    tell: Tell,
) -> Sequence[Any]:
    """Give answers again and return what came of them: drawn ones written anew, the others followed in one pass."""
    items = items_asked(found.run, place.data)
    if items is None:
        return []
    ids = [row["id"] for row in stated]
    anew = set(ids) if request.whole else drawn_items(ids, count=request.items, seed=request.seed or 0)

    def progress(done: int, total: int) -> None:
        tell({"event": "items", "done": done, "of": total})

    return answered_again(params, stated, anew, place.task, place.data, items, progress)


def not_sent(run: RecordedRun, number: int, steps: Sequence[int]) -> Problem:
    """Return the problem of states that a number names and that are not here."""
    named = ",".join(map(str, steps))
    what = f"The number {number} names states that are not here: of the steps {named.replace(',', ', ')}."
    then = f"Ask the run's maker for `trainproof answer RUN --states {named}`."
    return problem_of("TP760", file=str(run.folder), what=what, next=then)


def nothing_reached(run: RecordedRun, found: ReplayFindings) -> Problem:
    """Return the problem of a run of which no part could be repeated."""
    parent = run.manifest["parent"]
    if parent is not None and not found.is_out_of_time:
        what = f"The run goes on from step {parent['step']} of {parent['run_id']}, whose checkpoint is not here."
        then = f"Repeat {parent['run_id']}, or put its folder with the checkpoint beside this one."
    elif said := next((each.difference for each in found.segments if each.difference), ""):
        what, then = f"No step could be judged. {said}", "Repeat it on such a machine."
    else:
        what, then = "The time was over before a step was repeated.", "Give more --minutes."
    return problem_of("TP760", file=str(run.folder), what=what, next=then)
