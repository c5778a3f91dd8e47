"""Compare a smoke run with its full run, and pair smoke runs with full runs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from operator import attrgetter
from typing import Any, Literal

import numpy as np

from evidence.compare.settings import ABSENT, values_equal
from evidence.effective import peak_memory, planned_memory, scalar_settings, typical
from evidence.grade import Grade, RunReport
from evidence.index.summary import RunSummary
from evidence.report import build_record
from evidence.run import Document, Run
from schemas import formats
from schemas.formats import join_words
from schemas.reading import column, get_number, get_path, get_str, seconds_between

Band = Literal["must agree", "should scale", "may differ"]
State = Literal["passed", "not exercised", "failed"]
Lineage = Literal["same configuration", "same but for size"]
"""A smoke run has the configuration of the full run with fewer steps, or also a smaller model, batch or dataset."""

STAGES = ("load", "compile", "first step", "steps", "save", "resume", "evaluate", "seal")  # stages of a run in order

QUESTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("same model", ("model.name", "model.revision", "model.parameters")),
    ("same first parameters", ("model.weights_sha256",)),
    ("same training data", ("dataset.sha256", "dataset.generated_rows", "dataset.generator_seed")),
    ("same code", ("code.commit", "code.diff_sha256")),
    ("same kind of device", ("devices.platform", "devices.kind")),
    ("same number of devices", ("devices.count",)),
    ("same method and optimizer", ("training.method", "training.optimizer.name")),
    ("same number formats", ("model.dtypes.params", "model.dtypes.compute")),
    ("same shape of a step", ("training.microbatch_size", "training.sequence_length", "training.remat")),
)
"""Questions about both runs, and the manifest fields that are equal if the answer is yes."""
SIZES_QUESTION = "same sizes, steps and log interval"
SETTINGS_QUESTION = "same other settings"
_PROGRAM = frozenset(name for name, _ in QUESTIONS) - {"same first parameters", "same training data", "same code"}
"""Questions that concern the compiled train step."""

_NAMES = frozenset({"name", "mode", "schema_version"})
SIZE_SETTINGS = _NAMES | {
    "model.name", "model.revision", "model.weights", "model.shape", "data.generated_rows", "data.max_length",
    "batch.microbatch_size", "batch.accumulation_steps", "optimizer.warmup_steps", "checkpoint.save_every_steps",
    "recording.log_every_steps", "recording.first_examples", "mesh.device", "mesh.devices", "evaluation.eval_set",
    "evaluation.max_new_tokens", "evaluation.batch_size", "evaluation.samples", "evaluation.every_steps",
    "evaluation.during_items", "limits.steps", "limits.max_minutes",
}  # fmt: skip
"""Settings that change the size of a run, but not its pipeline."""
_LENGTH_SETTINGS = _NAMES | {"optimizer.warmup_steps", "mesh.device", "mesh.devices"}
_LENGTH_GROUPS = ("limits.", "recording.", "checkpoint.", "evaluation.")
"""Settings that may differ in a run of the same configuration with fewer steps on another machine."""
_KEY_SETTINGS = ("data.dataset", "method.kind", "optimizer.name", "optimizer.learning_rate", "optimizer.schedule")
_MAX_SMOKE_RUNS = 50  # newest smoke runs of a configuration among which the one of a full run is looked for

_SCALED = ("memory", "step time", "speed", "training time")
_BANDS: dict[str, Band] = {**dict.fromkeys(_SCALED, "should scale"), "last loss": "may differ", "score": "may differ"}
"""How figures of both runs should be related; the others must agree."""

_LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2, "float16": 2e-2}
"""Relative tolerance of the first losses of the same parameters and rows, by compute dtype."""


@dataclass(frozen=True, kw_only=True)
class SmokeAnswer:
    """Answer to one question about both runs (None if a value is missing), with the values of both."""

    question: str
    same: bool | None
    smoke: tuple[Any, ...]
    full: tuple[Any, ...]


@dataclass(frozen=True)
class FigureValue:
    """Figure of one run as a number and as text, with its planned range."""

    number: float | None
    text: str
    planned: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class SmokeFigure:
    """Figure of a smoke run and a full run, and how they should be related.

    `agrees` is None if the values need not agree or one is missing. The smoke run predicts the value `expected` of the
    full run; if it is None, `remark` may say why.
    """

    name: str
    band: Band
    smoke: FigureValue
    full: FigureValue
    agrees: bool | None = None
    remark: str = ""
    expected: FigureValue | None = None


@dataclass(frozen=True, kw_only=True)
class RunStage:
    """Stage of a run, `not exercised` if it was not requested or the run ended before it; seconds may be unknown."""

    name: str
    state: State
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class SmokeCheck:
    """What a smoke run shows about a full run. Answers are empty if a manifest is invalid."""

    smoke: str
    full: str
    summary: str
    answers: tuple[SmokeAnswer, ...]
    figures: tuple[SmokeFigure, ...]
    smoke_stages: tuple[RunStage, ...]
    full_stages: tuple[RunStage, ...]
    proved: tuple[str, ...]
    not_proved: tuple[str, ...]


def check_smoke_run(smoke: Run, smoke_report: RunReport, full: Run, full_report: RunReport) -> SmokeCheck:
    """Compare a smoke run with a full run."""
    pairs = ((smoke, smoke_report), (full, full_report))
    return check_smoke(*((run.path.name, build_record(run, found.findings).facts, found.grade) for run, found in pairs))


def check_smoke(smoke: tuple[str, Run, Grade], full: tuple[str, Run, Grade]) -> SmokeCheck:
    """Compare a smoke run with a full run, each with its name, what may be shown, and its grade."""
    (name, run, grade), (full_name, full_run, full_grade) = smoke, full
    answers = tuple(_answers(run, full_run))
    figures = tuple(_figures(run, full_run, answers))
    stages = run_stages(run)
    return SmokeCheck(
        smoke=name,
        full=full_name,
        summary=_summary(name, full_name, grade, stages, figures),
        answers=answers,
        figures=figures,
        smoke_stages=stages,
        full_stages=run_stages(full_run),
        proved=tuple(_proved(run, grade)) if answers else (),
        not_proved=tuple(_not_proved(run, full_run, answers, full_grade)),
    )


def _summary(smoke: str, full: str, grade: Grade, stages: Sequence[RunStage], figures: Sequence[SmokeFigure]) -> str:
    if grade.name == "contradictory":
        return f"The smoke run {smoke} contradicts itself, so it shows nothing about {full}."
    passed = sum(stage.state == "passed" for stage in stages)
    parts = [f"{smoke} passed {passed} of the {len(stages)} stages of {full}"]
    parts += [f"{stage.name} failed" for stage in stages if stage.state == "failed"]
    if untested := [stage.name for stage in stages if stage.state == "not exercised"]:
        parts.append(f"{join_words(untested, last='and')} {'was' if len(untested) == 1 else 'were'} not tested")
    if others := [figure.name for figure in figures if figure.agrees is False]:
        parts.append(f"{join_words(others, last='and')} {'differs' if len(others) == 1 else 'differ'}")
    return "; ".join(parts) + "."


def _answers(smoke: Run, full: Run) -> Iterator[SmokeAnswer]:
    if smoke.manifest is None or full.manifest is None:
        return
    for question, fields in QUESTIONS:
        one, other = (tuple(get_path(run.manifest, *name.split(".")) for name in fields) for run in (smoke, full))
        # Other fields may be null (no revision, no diff), but the first one is only null if it is unknown.
        same = None if None in (one[0], other[0]) else one == other
        yield SmokeAnswer(question=question, same=same, smoke=one, full=other)
    ours, theirs = scalar_settings(smoke), scalar_settings(full)
    differing = [name for name in sorted({*ours, *theirs}) if ours.get(name, ABSENT) != theirs.get(name, ABSENT)]
    is_known = smoke.config is not None and full.config is not None
    for question, of_size in ((SIZES_QUESTION, True), (SETTINGS_QUESTION, False)):
        names = [name for name in differing if name not in _NAMES and (name in SIZE_SETTINGS) is of_size]
        yield SmokeAnswer(
            question=question,
            same=not names if is_known else None,
            smoke=tuple(f"{name} = {ours.get(name)}" for name in names if is_known),
            full=tuple(f"{name} = {theirs.get(name)}" for name in names if is_known),
        )


def _proved(smoke: Run, grade: Grade) -> Iterator[str]:
    manifest: Document = smoke.manifest or {}
    if grade.name == "contradictory":
        yield "Nothing: the smoke run contradicts itself; run `trainproof check` for details."
        return
    if manifest["status"] != "succeeded":
        yield f"Nothing: the smoke run did not succeed (status {manifest['status']})."
        return
    training, result, devices = manifest["training"], manifest["result"], manifest["devices"]
    steps = f"{training['steps_done']:,} of {training['steps_planned']:,} steps"
    yield f"The pipeline runs to the end and seals its evidence: {steps} on {devices['count']} × {devices['kind']}."
    if result["last_loss"] is not None:
        yield f"The loss is finite: {result['first_loss']:.4f} at the start, {result['last_loss']:.4f} at the end."
    if training["donation"]["effective"]:
        yield "The train state is updated in place."
    if smoke.eval_summary is not None and smoke.eval_summary["status"] == "complete":
        yield f"The evaluation runs to the end, with {smoke.eval_summary['eval_set']['items']:,} items answered."


def _not_proved(smoke: Run, full: Run, answers: Sequence[SmokeAnswer], grade: Grade) -> Iterator[str]:
    if not answers:
        yield "Anything: one of the two runs lacks a valid manifest."
        return
    if grade.name == "contradictory":
        yield "Anything about the full run: it contradicts itself; run `trainproof check` for details."
    steps = get_number(smoke.manifest, "training", "steps_done")
    planned = get_number(full.manifest, "training", "steps_planned")
    of_full = "a run that ended before its first step" if planned is None else f"{int(planned):,}"
    yield f"That the model learns: {int(steps or 0):,} steps say nothing about {of_full}."
    if sizes := get_path(smoke.manifest, "model", "made_small"):
        made = join_words([f"{size['size']} {size['made']:,} of {size['own']:,}" for size in sizes], last="and")
        yield f"That the weights of the model can be loaded: the smoke run used a smaller random model ({made})."
    different = {answer.question: answer for answer in answers if not answer.same}
    of_program = [answer for name, answer in different.items() if name in _PROGRAM]
    if program := [text for answer in of_program for text in _field_changes(answer)]:
        yield f"That the full run compiles and fits in memory: its program differs ({'; '.join(program)})."
    if "same code" in different:
        yield "That the code of the full run works: it differs, or is unknown."
    if "same training data" in different:
        yield "That the data of the full run can be read: it differs, or is unknown."
    if SETTINGS_QUESTION in different:
        yield "That the settings of the full run work together: they differ in more than size, or are unknown."
    is_evaluated = scalar_settings(full).get("evaluation.eval_set") is not None or full.eval_summary is not None
    if is_evaluated and smoke.eval_summary is None:
        yield "That the evaluation works: the smoke run was not evaluated."


def _field_changes(answer: SmokeAnswer) -> Iterator[str]:
    """Yield the differing fields of two runs: `devices.count 8, not 1`."""
    for field, ours, theirs in zip(dict(QUESTIONS)[answer.question], answer.smoke, answer.full, strict=True):
        if answer.same is None and None in (ours, theirs):
            yield f"{field} is unknown"
        elif not values_equal(ours, theirs):
            one, other = (f"{value:,}" if isinstance(value, int) else str(value) for value in (theirs, ours))
            yield f"{field} {one}, not {other}"


def _figures(smoke: Run, full: Run, answers: Sequence[SmokeAnswer]) -> Iterator[SmokeFigure]:
    other_program = next((each.question for each in answers if each.question in _PROGRAM and not each.same), "")
    remarks = {
        "first loss": _other_start(smoke, full),
        "supervised share": "" if _rows(smoke) == _rows(full) else "other rows",
        **dict.fromkeys(_SCALED, other_program.replace("same", "different", 1)),
    }
    dtype = get_str(full.manifest, "model", "dtypes", "compute") or ""
    tolerances = {"first loss": _LOSS_TOLERANCE.get(dtype, 0.0), "supervised share": 1e-9}
    predicted, measured = _run_figures(smoke), _run_figures(full)
    for name, ours in predicted.items():
        theirs, band, remark, agrees = measured[name], _BANDS.get(name, "must agree"), remarks.get(name, ""), None
        if band == "must agree" and not remark and formats.NOTHING not in (ours.text, theirs.text):
            is_text = ours.number is None or theirs.number is None
            tolerance = tolerances.get(name, 0.0)
            agrees = ours.text == theirs.text if is_text else values_equal(ours.number, theirs.number, tolerance)
        expected = None if band == "may differ" or remark else ours
        if name == "training time" and expected:  # at the step time of the smoke run
            step, steps = predicted["step time"].number, get_number(full.manifest, "training", "steps_planned")
            seconds = None if step is None or steps is None else step * steps
            expected = FigureValue(seconds, formats.duration(seconds))
        if band == "should scale" and expected and expected.number is None:
            expected = None
        yield SmokeFigure(
            name=name, band=band, smoke=ours, full=theirs, agrees=agrees, remark=remark, expected=expected
        )


def _other_start(smoke: Run, full: Run) -> str:
    """Return the reason why the first losses of two runs need not be equal, or empty if they must be."""
    ours, theirs = (get_str(run.manifest, "model", "weights_sha256") for run in (smoke, full))
    if ours is None or ours != theirs:
        return "other first parameters"
    keys = ("seed", "batch_size", "sequence_length")
    batches = [[get_path(run.manifest, "training", key) for key in keys] for run in (smoke, full)]
    return "" if _rows(smoke) == _rows(full) and batches[0] == batches[1] else "other rows"


def _rows(run: Run) -> list[Any]:
    return [get_path(run.manifest, "dataset", key) for key in ("sha256", "generated_rows", "generator_seed")]


def _run_figures(run: Run) -> dict[str, FigureValue]:
    """Return the compared figures of a run by name. Memory and step time come with the range of the plan."""
    first, last = (get_number(run.manifest, "result", f"{name}_loss") for name in ("first", "last"))
    counts: Document = get_path(run.first_examples, "counts") or {}
    prompt, supervised = counts.get("prompt_tokens"), counts.get("supervised_tokens")
    share = supervised / (prompt + supervised) if prompt is not None and supervised else None
    dtypes = [get_str(run.manifest, "model", "dtypes", key) for key in ("params", "compute")]
    parameters, peak = get_number(run.manifest, "model", "parameters"), peak_memory(run.manifest)
    planned, memory = planned_memory(run.plan, peak.scope) if peak else None, None
    if planned is not None and (error := planned.error_fraction) is not None:
        memory = (planned.bytes * (1 - error), planned.bytes * (1 + error))
    low, high = (get_number(run.plan, "time", "step_seconds", end) for end in ("low", "high"))
    time = None if low is None or high is None else (low, high)
    seconds = get_number(run.manifest, "result", "train_seconds")
    step_seconds, rate = (typical(column(run.metrics or [], name)) for name in ("step_seconds", "tokens_per_second"))
    score = get_number(run.eval_summary, "metrics", "exact_match", "value")
    return {
        "first loss": FigureValue(first, formats.number(first, 5)),
        "supervised share": FigureValue(share, formats.percent(share)),
        "number types": FigureValue(None, formats.NOTHING if None in dtypes else ", ".join(map(str, dtypes))),
        "parameters": FigureValue(parameters, formats.count(parameters)),
        "memory": FigureValue(peak.bytes, peak.as_text(), memory) if peak else FigureValue(None, formats.NOTHING),
        "step time": FigureValue(step_seconds, formats.duration(step_seconds), time),
        "speed": FigureValue(rate, formats.rate(rate, "tokens")),
        "training time": FigureValue(seconds, formats.duration(seconds)),
        "last loss": FigureValue(last, formats.number(last, 4)),
        "score": FigureValue(score, formats.percent(score)),
    }


def run_stages(facts: Run) -> tuple[RunStage, ...]:
    """Return the stages of a run. If the run failed, the first stage without success is `failed`."""
    manifest, events = facts.manifest or {}, {record["event"]: record for record in facts.log or []}
    steps, losses = (column(facts.metrics or [], name) for name in ("step", "loss"))
    done, planned = get_number(manifest, "training", "steps_done"), get_number(manifest, "training", "steps_planned")
    has_rows, is_finite = bool(len(steps)), bool(np.isfinite(losses).all())
    has_run, first = has_rows or "compiled" in events, column(facts.metrics or [], "step_seconds")[:1]
    passed = {
        "load": (has_run or "planned" in events, _between(events, "run_started", "planned")),
        "compile": (has_run, get_number(manifest, "result", "compile_seconds")),
        "first step": (has_rows, float(first[0]) if has_rows and steps[0] == 1 else None),
        "steps": (bool(done) and done == planned and is_finite, get_number(manifest, "result", "train_seconds")),
        "save": ("checkpoint_saved" in events, get_number(events.get("checkpoint_saved"), "fields", "seconds")),
        "resume": (manifest.get("parent") is not None, None),
        "evaluate": (facts.eval_summary is not None, _between(events, "trained", "evaluated")),
        "seal": (facts.is_sealed and bool(facts.succeeded), _between(events, "evaluated", "run_sealed")),
    }
    optional = {
        "resume": True,
        "evaluate": get_str(facts.config, "evaluation", "eval_set") is None,
        "save": passed["evaluate"][0],
    }
    missed = (name for name in STAGES if not passed[name][0] and not optional.get(name))
    failed = next(missed, None) if facts.status in {"failed", "interrupted"} else None
    return tuple(
        RunStage(
            name=f"{int(done or 0):,} steps" if name == "steps" else name,
            state="passed" if passed[name][0] else "failed" if name == failed else "not exercised",
            seconds=passed[name][1] if passed[name][0] else None,
        )
        for name in STAGES
    )


def _between(events: Mapping[str, Mapping[str, Any]], first: str, last: str) -> float | None:
    """Return the seconds between two events of a log, or None if an event is missing."""
    return seconds_between(events[first]["time"], events[last]["time"]) if {first, last} <= events.keys() else None


def find_lineage(smoke: RunSummary, full: RunSummary) -> Lineage | None:
    """Return the relation of a smoke run's configuration to a full run's, or None if they are unrelated.

    Settings that only one run has, because of different versions, are ignored. demo.yaml for two steps has the same
    configuration as for 2,800; `--smoke_config smoke_tiny.yaml` is the same but for size.
    """
    ours, theirs = smoke.settings, full.settings
    is_pair = smoke.mode == "smoke" and full.mode == "full" and _key(smoke) is not None and _key(smoke) == _key(full)
    if not is_pair or (smoke.steps_planned or 0) >= (full.steps_planned or 1e18):
        return None
    differing = {
        name
        for name in ours.keys() & theirs.keys()
        if ours[name] != theirs[name] and name not in _LENGTH_SETTINGS and not name.startswith(_LENGTH_GROUPS)
    }
    if not differing:
        return "same configuration"
    return "same but for size" if differing <= SIZE_SETTINGS | {"seed"} else None


def find_smoke_runs(full: RunSummary, found: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the smoke runs of a full run, the best match first (`_rank`)."""
    return sorted((run for run in found if find_lineage(run, full)), key=lambda run: _rank(run, full), reverse=True)


def find_full_runs(smoke: RunSummary, found: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the full runs of a smoke run, the best match first (`_rank`)."""
    return sorted((run for run in found if find_lineage(smoke, run)), key=lambda run: _rank(smoke, run), reverse=True)


def newest_smoke_pair(found: Sequence[RunSummary]) -> tuple[str, str] | None:
    """Return the names of a smoke run and the newest full run, preferably a successful one, or None."""
    newest_first = sorted(found, key=attrgetter("started"), reverse=True)
    smokes: dict[object, list[RunSummary]] = defaultdict(list)
    for run in newest_first:
        if run.mode == "smoke":
            smokes[_key(run)].append(run)
    fulls = [run for run in newest_first if run.mode == "full"]
    for full in sorted(fulls, key=lambda run: run.status != "succeeded"):
        if matches := find_smoke_runs(full, smokes[_key(full)][:_MAX_SMOKE_RUNS]):
            return matches[0].path.name, full.path.name
    return None


def _rank(smoke: RunSummary, full: RunSummary) -> tuple[bool, bool, bool, datetime, datetime]:
    """Return a sort key of a pair: the same configuration, then success, the smoke run first, and the newest."""
    return (
        find_lineage(smoke, full) == "same configuration",
        smoke.status == full.status == "succeeded",
        smoke.started <= full.started,
        full.started,
        smoke.started,
    )


def _key(run: RunSummary) -> tuple[object, ...] | None:
    """Return a key that most configurations do not share, or None for an invalid configuration."""
    return tuple(run.settings.get(name) for name in _KEY_SETTINGS) if "data.dataset" in run.settings else None


def find_counterparts(run: RunSummary, found: Sequence[RunSummary]) -> dict[str, RunSummary]:
    """Return the runs most worth comparing with a run, by their relation.

    For example, among three runs of one configuration the newest has the second as `previous run`, and the better of
    the other two as `best on its items`. Contradictory runs are skipped.
    """

    def agree(other: RunSummary, names: Sequence[str]) -> bool:
        return all(None is not run.settings.get(name) == other.settings.get(name) for name in names)

    others = [other for other in found if other.path != run.path and other.grade != "contradictory"]
    like = [other for other in others if other.mode == run.mode and agree(other, ("model.name", "data.dataset"))]
    scored = [other for other in others if other.score is not None and agree(other, ("evaluation.eval_set",))]
    match = find_full_runs(run, others) if run.mode == "smoke" else find_smoke_runs(run, others)
    counterparts = {
        "parent": next((other for other in others if other.run_id == run.parent), None),
        "full run" if run.mode == "smoke" else "smoke run": next(iter(match), None),
        "previous run": max(
            (other for other in like if other.started < run.started), key=attrgetter("started"), default=None
        ),
        "best on its items": max(scored, key=lambda other: (other.score, other.started), default=None),
    }
    return {name: other for name, other in counterparts.items() if other is not None}
