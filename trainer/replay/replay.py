"""Replay a run: compare the environment, repeat segments, regenerate answers, and build the receipt."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from evidence import layout
from evidence.proof.receipts import REPRODUCED
from evidence.proof.signatures import problem_error
from evidence.scores.reading import read_scoring
from schemas.problems import ProblemError
from trainer.data.conversations import untrusted_model
from trainer.evaluation.answers import Sampler, VerifiedAnswer, receipt_items, verify_answers
from trainer.evaluation.recorded import recorded_items
from trainer.loop.chain import Segment, saved_state_steps, split_spans, write_state
from trainer.loop.checkpoints import state_sha256, to_stored
from trainer.loop.programs import compiled_steps
from trainer.loop.session import StopRequest
from trainer.loop.state import REFUSED, load_trained_params, refuse_other_base
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
from trainer.replay.repetition import RecordedStates, Repetition, SegmentResult

Say = Callable[[str], None]
"""Prints a line."""
Tell = Callable[[dict[str, Any]], None]
"""Receives progress events as JSON values."""
Result = Literal["identical", "within tolerance", "different"]


@dataclass(frozen=True, kw_only=True)
class Draw:
    """The parts of a run that a seed draws; the first and the last are always replayed if possible."""

    seed: int
    parts: tuple[Segment, ...]
    """All parts of the run, in order."""
    candidates: tuple[Segment, ...]
    """Parts between the first and the last that could be drawn."""
    drawn: tuple[Segment, ...]

    @property
    def selected(self) -> tuple[Segment, ...]:
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
        between them, `F` fabricated, and `m` in the shortest part, another honest part is drawn after `i` honest ones
        with probability at most `1 − F / (T − i m)`. For equal parts this is the hypergeometric distribution (W.
        Feller, An Introduction to Probability Theory and Its Applications, vol. 1, 3rd ed., §II.6): three of 18 drawn
        parts, of which 10 are fabricated, are all honest with probability 8/18 · 7/17 · 6/16 = 0.069.

        The probability is 0 unless every part between them can be drawn, because the author knows which ones can. It is
        1 if the fabricated steps do not fit between them, because then the first or the last part has some.
        """
        if not self.is_complete:
            return 0.0
        between = sum(part.steps for part in self.candidates)
        shortest = min((part.steps for part in self.candidates), default=0)
        fabricated_steps = share * (self.parts[-1].last_step - self.parts[0].first_step)
        missed = 1.0
        for already in range(len(self.drawn)):
            missed *= max(0.0, 1 - fabricated_steps / (between - already * shortest))
        return 1 - missed if fabricated_steps <= between else 1.0

    @property
    def description(self) -> str:
        """What was drawn and what that is worth, for messages."""
        between, percent = len(self.parts[1:-1]), math.floor(1000 * self.detection_probability(0.5)) / 10
        if not between:
            return "Nothing to draw: the run consists of a first and a last part only."
        if self.is_complete:
            return (
                f"Seed {self.seed} draws {len(self.drawn)} of {between} parts between the first and the last. If half "
                f"of the steps were fabricated, this replay detects it with a probability of at least {percent:g} %."
            )
        drew = f"{len(self.drawn)} of {len(self.candidates)} parts" if self.candidates else "nothing"
        return (
            f"Seed {self.seed} draws {drew}. Only {len(self.candidates)} of the {between} parts between the first and "
            "the last have a saved state, and the author knew which ones, so no detection probability can be stated. "
            f"Run `trainproof replay RUN --seed {self.seed} --ask` to list the states to request."
        )


def draw_segments(parts: tuple[Segment, ...], starts: Collection[int] | None, *, count: int, seed: int) -> Draw:
    """Draw `count` parts between the first and the last, each with a probability proportional to its steps.

    Each part gets an exponential waiting time from the hash of seed and part, with its steps as the rate, and the
    shortest times are drawn (P. S. Efraimidis and P. G. Spirakis, Information Processing Letters 97, 2006, p. 181–185).
    With `starts`, only parts that begin at one of these steps are drawn. The author of the run did not know the seed.
    """

    def waiting_time(part: Segment) -> float:
        share = (int(lot(seed, part.name), 16) + 1) / 2**256
        return -math.log(share) / part.steps

    candidates = tuple(part for part in parts[1:-1] if starts is None or part.first_step in starts)
    drawn = {part.first_step for part in sorted(candidates, key=waiting_time)[:count]}
    chosen = tuple(part for part in candidates if part.first_step in drawn)
    return Draw(seed=seed, parts=parts, candidates=candidates, drawn=chosen)


def lot(seed: int | None, name: str) -> str:
    """Return the hash of seed and name, by which items and parts are drawn."""
    return hashlib.sha256(f"{seed} {name}".encode()).hexdigest()


def request_states(run: RecordedRun, request: ReplayRequest, name: str) -> tuple[dict[str, Any], list[str]]:
    """Return which states of the run `name` a judge has to request from the author: as JSON values, and as lines."""
    draw = draw_segments(split_spans(run.segments), None, count=request.segments, seed=request.seed or 0)
    available = {run.first_step, *saved_state_steps(run.folder)}
    steps = [part.first_step for part in draw.selected if part.first_step not in available]
    document = {
        "run_id": run.manifest["run_id"],
        "number": draw.seed,
        "parts": [[part.first_step, part.last_step] for part in draw.selected],
        "states": steps,
        "caught_half": draw.detection_probability(0.5),
    }
    lines = [f"{run.manifest['run_id']}: {draw.description}"]
    lines += [f"  steps {part.first_step + 1:,} to {part.last_step:,}" for part in draw.selected]
    if not steps:
        return document, [*lines, "All states for these parts are available: replay the run with this seed."]
    wanted = ",".join(map(str, steps))
    ask = f"Ask the author to run: trainproof replay RUN --pack-states {wanted} --output states.zip"
    return document, [*lines, ask, f"Then run: trainproof replay {name} --seed {draw.seed} --states states.zip"]


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
            advice = f"Replay {parent['run_id']}, or put its folder with the checkpoint next to this one."
        elif difference := next((each.difference for each in self.segments if each.difference), ""):
            what, advice = f"No step could be judged. {difference}", "Replay the run on the same kind of processor."
        else:
            what, advice = "Time limit reached before any step was replayed.", "Raise --minutes."
        raise problem_error(self.run.folder, "TP760", what=what, next=advice, exit_code=REFUSED)

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
        segments = self.run.segments
        whole = [part for part in self.draw.drawn if reproduced.issuperset(each for each in segments if each in part)]
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
        """Return coverage and result in a sentence, with the first difference of each kind."""
        run, tried = self.run, self.tried
        steps = sum(each.segment.steps for each in tried)
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


@untrusted_model()
def replay(request: ReplayRequest, say: Say, tell: Tell) -> tuple[dict[str, Any], int]:
    """Replay a run and return the receipt, not sealed yet, and the exit code.

    The exit code is 0 if nothing differs, 1 if anything does, and 5 if a signal ended the replay. Raises `ProblemError`
    with exit code 2 if the run cannot be read, 3 if a difference would prove nothing, and 4 if the device is full.
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
    code = INTERRUPTED if stop.signal else int(receipt["result"] == "different")
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
    segments = [each.document() for each in run.segments]
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
            regenerate=set(ids if request.whole else sorted(ids, key=partial(lot, request.seed))[: request.items]),
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
    _repeat_segments(repetition, segments_to_replay(run, draw, states, request), say, tell)
    findings.segments = repetition.results()
    if not stop.signal and run.answers:
        params = find_trained_params(run, states, repetition.current_state(run.last_step))
        if params is not None:
            findings.trained = verify("trained", run.answers, params)
    for warning in states.warnings:
        say(warning)
    findings.is_out_of_time = stop.reason() is not None
    return findings


def _repeat_segments(repetition: Repetition, segments: Sequence[Segment], say: Say, tell: Tell) -> None:
    for segment in segments:
        if segment.number not in repetition.found and repetition.stop.reason() is None:
            say(f"replaying {segment.name}")
            for each in repetition.repeat(segment):
                say(str(each))
                tell({"event": "segment", "number": each.segment.number, **each.document()})


def draw_parts(run: RecordedRun, states: RecordedStates, request: ReplayRequest) -> Draw | None:
    """Draw the parts to replay, or return None if the whole run is replayed.

    If the author sent states, all parts can be drawn; raises `ProblemError` with exit code 3 if a state that the draw
    requires is missing, or is not the one in the chain.
    """
    if request.whole or request.seed is None:
        return None
    starts = states.steps
    among = starts if request.states is None else None
    draw = draw_segments(split_spans(run.segments), among, count=request.segments, seed=request.seed)
    if request.states is not None:
        states.require_sent_states()
        if missing := ",".join(str(part.first_step) for part in draw.selected if part.first_step not in starts):
            what = f"Seed {draw.seed} requires states that are missing: steps {missing.replace(',', ', ')}."
            advice = f"Ask the author to run `trainproof replay RUN --pack-states {missing}`."
            raise problem_error(run.folder, "TP760", what=what, next=advice, exit_code=REFUSED)
    return draw


def segments_to_replay(
    run: RecordedRun, draw: Draw | None, states: RecordedStates, request: ReplayRequest
) -> Sequence[Segment]:
    """Return the segments to replay: all, or only selected parts with an available state.

    If nothing was drawn, the first parts of the run are replayed instead. With a time limit, all other segments follow.
    """
    if draw is None:
        return run.segments
    starts = set(states.steps)
    parts = [part for part in draw.selected if part.first_step in starts or part is draw.parts[0]]
    parts += () if draw.drawn else draw.parts[1 : 1 + request.segments]
    wanted = {segment: any(segment in part for part in parts) for segment in run.segments}
    ordered = sorted(wanted, key=lambda segment: not wanted[segment])
    return ordered if request.minutes is not None else ordered[: sum(wanted.values())]


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
            if (trained := load_trained_params(run.folder, states.task)) is not None:
                yield combine(trained, unstack_on_devices(drop_reference_params(states.frozen)))
        except ProblemError as error:
            states.warnings.append(f"{layout.TRAINED_PARAMS} cannot be used: {error.problems[0].what}")

    expected = None if run.summary is None else run.summary["checkpoint"]["params_sha256"]
    for params in candidates():
        if params_sha256(params) == expected:
            return params
    states.warnings.append("answers of the trained model are not verified: the run lacks the evaluated parameters")
    return None


def write_states(folder: Path, steps: Sequence[int], target: Path, say: Say) -> str:
    """Write the states of a run at some steps into a folder, and return the hash of the run's manifest.

    Saved states are copied; others are trained again from the nearest state before them. Raises `ProblemError` with
    exit code 2 if the chain lacks such a step, and 3 if the run cannot be replayed here or leads to another state.
    """
    run = read_recorded(folder)
    if unknown := [step for step in steps if step not in run.states]:
        raise problem_error(folder, "TP760", what=f"The chain lacks a state for step {', '.join(map(str, unknown))}.")
    setup = prepare_replay(run, ReplayRequest(folder=folder))
    states = RecordedStates(run=run, task=setup.task)
    missing = []
    for step in sorted(steps):
        if (state := states.load(step) if step in states.steps else None) is None:
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
            raise problem_error(folder, "TP764", what=what, exit_code=REFUSED)
        write_state(target, state)
    return run.sha256
