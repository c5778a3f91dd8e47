"""Replay a run: read it, compare the environment, repeat segments, regenerate answers, and build the receipt."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evidence import layout
from evidence.proof.signatures import refuse
from evidence.scores.reading import read_scoring
from schemas.problems import ProblemError
from trainer.data.conversations import untrusted_model
from trainer.evaluation.answers import Sampler
from trainer.evaluation.reanswer import VerifiedAnswer, verify_answers
from trainer.evaluation.recorded import recorded_items
from trainer.loop.chain import Segment, load_trained_params, split_spans, write_state
from trainer.loop.checkpoints import state_sha256, to_stored
from trainer.loop.programs import compiled_steps
from trainer.loop.session import StopRequest
from trainer.loop.state import REFUSED, refuse_other_base
from trainer.loop.step import TrainState
from trainer.loop.task import drop_reference_params
from trainer.model.decoder import params_sha256
from trainer.model.model import combine
from trainer.model.stacks import Params, unstack_on_devices
from trainer.recorder.recorder import INTERRUPTED, build_receipt, explain_full_device
from trainer.replay.recorded import (
    RecordedRun,
    ReplayRequest,
    ReplaySetup,
    prepare_replay,
    read_recorded,
    start_differences,
)
from trainer.replay.repetition import RecordedStates, Repetition, SegmentResult, segment_document
from trainer.replay.report import Draw, ReplayFindings, draw_items, draw_segments

Say = Callable[[str], None]
"""Prints a line."""

Tell = Callable[[dict[str, Any]], None]
"""Receives progress events as JSON values."""


@untrusted_model()
def replay(request: ReplayRequest, say: Say, tell: Tell) -> tuple[dict[str, Any], int]:
    """Replay a run and return the receipt, not sealed yet, and the exit code.

    Args:
        request: Arguments of the command.
        say: Prints a line.
        tell: Called with each progress event.

    Returns:
        The document `receipt`, and 0 if nothing differs, 1 if anything does, 5 if a signal ended the replay.

    Raises:
        ProblemError: Exit code 2; the run cannot be read. Exit code 3; refused, because a difference would prove
            nothing. Exit code 4; the device ran out of memory.
    """
    request, run = request.with_seed(), read_recorded(request.folder)
    setup = prepare_replay(run, request)
    for note in setup.environment.notes:
        say(f"environment differs (may not affect results): {note}")
    with StopRequest(max_minutes=request.minutes) as stop, explain_full_device(str(request.folder)):
        findings = _replay(run, setup, request, stop, say, tell)
    findings.check()
    receipt = build_receipt(
        request.folder,
        "replay",
        device=setup.devices.document(),
        asked=request.document(),
        covered=findings.document(),
        result=findings.result,
        said=findings.summarize(),
    )
    code = INTERRUPTED if stop.is_signalled else int(receipt["result"] == "different")
    return receipt | {"run_id": run.manifest["run_id"]}, code


def _replay(
    run: RecordedRun, setup: ReplaySetup, request: ReplayRequest, stop: StopRequest, say: Say, tell: Tell
) -> ReplayFindings:
    """Compare the start, repeat the requested segments and regenerate answers."""
    task, data = setup.task, setup.data
    say(f"loading the parameters of {task.config.model.name}")
    refuse_other_base(run.manifest, task, file=str(run.folder), trains=True)
    states = RecordedStates(run=run, task=task, sent=request.states)
    draw = draw_parts(run, states, request)
    say("replaying the whole run" if draw is None else draw.description)
    segments = [segment_document(each) for each in run.segments]
    tell({"event": "planned", "segments": segments, "items": request.items})
    say(f"compiling the training step for {len(setup.devices.list)} × {setup.devices.kind}")
    steps = compiled_steps(task, data.source.lengths_in_use)
    findings = ReplayFindings(run=run, draw=draw, tolerance_reason=setup.environment.tolerance_reason)

    def verify(model: str, answers: Sequence[dict[str, Any]], params: Params) -> Sequence[VerifiedAnswer]:
        """Regenerate the drawn answers of a model and check the others in one forward pass."""
        sampler, ids = Sampler.for_task(task, data), [row["id"] for row in answers]
        if data.items is not None:
            items = data.items.file
        elif run.summary is not None:  # evaluated after training
            sampler = replace(sampler, scoring=read_scoring(run.summary))
            items = recorded_items(run.summary, run.answers)
        else:
            return ()
        say(f"verifying {len(answers)} answers of the {model} model")
        return verify_answers(
            sampler,
            params,
            answers,
            items,
            regenerate=set(ids) if request.whole else draw_items(ids, count=request.items, seed=request.seed or 0),
            progress=lambda done, total: tell({"event": "items", "done": done, "of": total}),
        )

    start = states.load(run.first_step)
    if start is not None:
        for difference in start_differences(run, setup, steps, start, states.frozen):
            findings.start.append(difference)
            say(f"the start differs: {difference}")
        if run.baseline:
            findings.untrained = verify("untrained", run.baseline, states.model_params(start))
    del start  # frees its memory

    repetition = Repetition(
        states=states,
        data=data,
        steps=steps,
        is_exact=setup.environment.is_exact,
        stop=stop,
        progress=lambda done, total, loss: tell({"event": "step", "step": done, "of": total, "loss": loss}),
    )
    findings.segments = _repeat_segments(repetition, segments_to_replay(run, draw, states, request), say, tell)
    if not stop.is_signalled and run.answers:
        params = find_trained_params(run, states, repetition.current_state(run.last_step))
        if params is not None:
            findings.trained = verify("trained", run.answers, params)
    for warning in states.warnings:
        say(warning)
    findings.is_out_of_time = stop.reason() is not None
    return findings


def _repeat_segments(
    repetition: Repetition, segments: Iterator[Segment], say: Say, tell: Tell
) -> Sequence[SegmentResult]:
    for segment in segments:
        if segment.number not in repetition.found and repetition.stop.reason() is None:
            say(f"replaying {segment.name}")
            for each in repetition.repeat(segment):
                say(str(each))
                tell({"event": "segment", "number": each.segment.number, **each.document()})
    if repetition.interrupted is not None:
        say(str(repetition.interrupted))
    return repetition.results()


def draw_parts(run: RecordedRun, states: RecordedStates, request: ReplayRequest) -> Draw | None:
    """Draw the parts to replay, or return None if the whole run is replayed.

    If the author sent states, all parts can be drawn, and the states that the draw requires must be available.

    Raises:
        ProblemError: Exit code 3; such a state is missing, or is not the one in the chain.
    """
    if request.whole or request.seed is None:
        return None
    starts = states.steps
    among = starts if request.states is None else None
    draw = draw_segments(split_spans(run.segments), among, count=request.segments, seed=request.seed)
    if request.states is not None:
        states.require_sent_states()
        if missing := [str(part.first_step) for part in draw.selected if part.first_step not in starts]:
            what = f"Seed {draw.seed} requires states that are missing: steps {', '.join(missing)}."
            then = f"Ask the author to run `trainproof replay RUN --pack-states {','.join(missing)}`."
            raise refuse(run.folder, "TP760", what=what, next=then, exit_code=REFUSED)
    return draw


def segments_to_replay(
    run: RecordedRun, draw: Draw | None, states: RecordedStates, request: ReplayRequest
) -> Iterator[Segment]:
    """Yield the segments to replay: all, or only selected parts with an available state.

    If nothing was drawn, the first parts of the run are replayed instead. With a time limit, all other segments follow.
    """
    if draw is None:
        yield from run.segments
        return
    starts = set(states.steps)
    parts = [part for part in draw.selected if part.first_step in starts or part is draw.parts[0]]
    parts += () if draw.drawn else draw.parts[1 : 1 + request.segments]
    wanted = sorted({segment.number for part in parts for segment in part.segments})
    yield from (run.segments[number] for number in wanted)
    if request.minutes is not None:
        yield from (segment for segment in run.segments if segment.number not in wanted)


def find_trained_params(run: RecordedRun, states: RecordedStates, final: TrainState | None) -> Params | None:
    """Return the parameters that have the hash in the evaluation, or None if they are missing.

    Candidates are the state at the end of the replay, the last checkpoint and the run's file of trained parameters.
    """

    def candidates() -> Iterator[Params]:
        if final is not None:
            yield states.model_params(final)
        if run.last_step in states.steps and (state := states.load(run.last_step)) is not None:
            yield states.model_params(state)
        try:
            trained = load_trained_params(run.folder, states.task)
        except ProblemError as error:
            states.warnings.append(f"{layout.TRAINED_PARAMS} cannot be used: {error.problems[0].what}")
        else:
            if trained is not None:
                yield combine(trained, unstack_on_devices(drop_reference_params(states.frozen)))

    expected = None if run.summary is None else run.summary["checkpoint"]["params_sha256"]
    for params in candidates():
        if params_sha256(params) == expected:
            return params
    states.warnings.append("answers of the trained model are not verified: the run lacks the evaluated parameters")
    return None


def write_states(folder: Path, steps: Sequence[int], target: Path, say: Say) -> str:
    """Write the states of a run at some steps into a folder, and return the hash of the run's manifest.

    Saved states are copied; others are trained again from the nearest state before them. A state is written only if it
    has the hash in the chain.

    Raises:
        ProblemError: Exit code 2; the chain lacks such a step. Exit code 3; the run cannot be replayed here, or
            leads to another state.
    """
    run = read_recorded(folder)
    if unknown := [step for step in steps if step not in run.states]:
        raise refuse(folder, "TP760", what=f"The chain lacks a state for step {', '.join(map(str, unknown))}.")
    setup = prepare_replay(run, ReplayRequest(folder=folder))
    states = RecordedStates(run=run, task=setup.task)
    missing = []
    for step in sorted(steps):
        state = states.load(step) if step in states.steps else None
        if state is None:
            missing.append(step)
        else:
            write_state(target, state)
    if not missing:
        return run.sha256
    say(f"no saved state for step {', '.join(map(str, missing))}; retraining up to step {missing[-1]}")
    compiled = compiled_steps(setup.task, setup.data.source.lengths_in_use)
    repetition = Repetition(states=states, data=setup.data, steps=compiled, is_exact=setup.environment.is_exact)
    for segment in run.segments:
        if (step := segment.last_step) not in missing:
            continue
        for result in repetition.repeat(segment):
            say(f"{result.segment.name}: {result.verdict}")
        state = repetition.current_state(step)
        if state is None or state_sha256(to_stored(state)) != run.states[step]:
            what = f"The state of step {step} cannot be reproduced here: retraining leads to another hash."
            raise refuse(folder, "TP764", what=what, exit_code=REFUSED)
        write_state(target, state)
    return run.sha256
