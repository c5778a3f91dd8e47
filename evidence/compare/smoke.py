"""Compare a smoke run with the full run that it rehearses, and find which smoke run belongs to which full run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import numpy as np

from evidence.compare.settings import ABSENT, values_equal
from evidence.effective import observed_memory, scalar_settings
from evidence.grade import Grade, RunReport
from evidence.index.summary import RunSummary
from evidence.report import build_record
from evidence.run import Document, Run
from schemas import formats
from schemas.formats import join_words
from schemas.reading import column, get_number, get_path, get_str, parse_time, seconds_between

Band = Literal["must agree", "should scale", "may differ"]
State = Literal["passed", "not exercised", "failed"]
Lineage = Literal["same configuration", "same but for size"]
"""Whether a smoke run has the full run's configuration with fewer steps, or also a smaller model, batch or dataset."""

STAGES = ("load", "compile", "first step", "steps", "save", "resume", "evaluate", "seal")
"""Stages of a run, in their order."""

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
"""Questions to both runs, and the fields of the manifest that must be equal for a yes."""
SETTINGS_QUESTION = "same settings apart from model, rows, batch and length"
_PROGRAM = frozenset(name for name, _ in QUESTIONS) - {"same first parameters", "same training data", "same code"}
"""Questions about what makes another program of a train step."""

_NAMES = frozenset({"name", "mode", "schema_version"})
SIZE_SETTINGS = _NAMES | {
    "model.name", "model.revision", "model.weights", "model.shape", "data.generated_rows", "data.max_length",
    "batch.microbatch_size", "batch.accumulation_steps", "optimizer.warmup_steps", "checkpoint.save_every_steps",
    "recording.log_every_steps", "recording.first_examples", "mesh.device", "mesh.devices", "evaluation.eval_set",
    "evaluation.max_new_tokens", "evaluation.batch_size", "evaluation.samples", "evaluation.every_steps",
    "evaluation.during_items", "limits.steps", "limits.max_minutes",
}  # fmt: skip
"""Settings that make a run smaller without making it another pipeline."""
_LENGTH_SETTINGS = _NAMES | {"optimizer.warmup_steps", "mesh.device", "mesh.devices"}
_LENGTH_GROUPS = ("limits.", "recording.", "checkpoint.", "evaluation.")
"""Settings in which a run of the same configuration with fewer steps, on another machine, may differ."""
_KEY_SETTINGS = ("data.dataset", "method.kind", "optimizer.name", "optimizer.learning_rate", "optimizer.schedule")
_MAX_SMOKE_RUNS = 50

_LOSS_TOLERANCE = {"float32": 1e-3, "bfloat16": 2e-2, "float16": 2e-2}
"""Relative tolerance of the first losses of the same parameters and rows, by the type of the products."""


@dataclass(frozen=True, kw_only=True)
class SmokeAnswer:
    """Answer to one question about a smoke run and a full run.

    Attributes:
        question: The question, as a noun phrase.
        same: Whether the runs agree, or None if one of them does not state it.
        smoke: Values of the smoke run.
        full: Values of the full run.
    """

    question: str
    same: bool | None
    smoke: tuple[Any, ...]
    full: tuple[Any, ...]


@dataclass(frozen=True, kw_only=True)
class FigureValue:
    """Figure of one run: as a number or None, as text, and its planned range or None."""

    number: float | None
    text: str
    planned: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class SmokeFigure:
    """Figure of a smoke run and a full run.

    Attributes:
        name: Name of the figure.
        band: What to expect of the two values.
        smoke: Value of the smoke run.
        full: Value of the full run.
        agrees: Whether the values agree, or None if they need not or one is missing.
        remark: Why the values need not agree, or empty.
    """

    name: str
    band: Band
    smoke: FigureValue
    full: FigureValue
    agrees: bool | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class RunStage:
    """Stage of a run.

    Attributes:
        name: One of `STAGES`; `steps` with their number, such as `2 steps`.
        state: `not exercised` if it was not requested, or the run ended before it.
        seconds: Duration, or None if the run does not state it.
    """

    name: str
    state: State
    seconds: float | None = None


@dataclass(frozen=True, kw_only=True)
class SmokeCheck:
    """What a smoke run shows of a full run.

    Attributes:
        smoke: Name of the smoke run.
        full: Name of the full run.
        summary: One sentence.
        answers: Answers to the questions, or empty if a manifest is invalid.
        figures: Figures of both runs, by band.
        smoke_stages: Stages of the smoke run.
        full_stages: Stages of the full run.
        proved: What the smoke run shows, as sentences.
        not_proved: What it leaves open, as sentences.
    """

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
    ours = build_record(smoke, smoke_report.findings).facts
    theirs = build_record(full, full_report.findings).facts
    return _check((smoke.path.name, full.path.name), (ours, theirs), (smoke_report.grade, full_report.grade))


def check_smoke_pair(names: Sequence[str], facts: Sequence[Run], grades: Sequence[Grade]) -> SmokeCheck | None:
    """Compare two runs, or return None if they are not one smoke run and one full run with valid manifests."""
    every = zip(names, facts, grades, strict=True)
    found = {fact.manifest["mode"]: (name, fact, grade) for name, fact, grade in every if fact.manifest}
    if len(facts) != 2 or set(found) != {"smoke", "full"}:
        return None
    smoke, full = found["smoke"], found["full"]
    return _check((smoke[0], full[0]), (smoke[1], full[1]), (smoke[2], full[2]))


def _check(names: tuple[str, str], facts: tuple[Run, Run], grades: tuple[Grade, Grade]) -> SmokeCheck:
    answers = tuple(_answers(*facts))
    stages = [run_stages(each) for each in facts]
    figures = tuple(_figures(*facts))
    return SmokeCheck(
        smoke=names[0],
        full=names[1],
        summary=_summary(names, grades[0], stages[0], figures),
        answers=answers,
        figures=figures,
        smoke_stages=stages[0],
        full_stages=stages[1],
        proved=tuple(_proved(facts[0], grades[0])) if answers else (),
        not_proved=tuple(_not_proved(facts[0], facts[1], answers, grades[1])),
    )


def _summary(names: tuple[str, str], grade: Grade, stages: Sequence[RunStage], figures: Sequence[SmokeFigure]) -> str:
    smoke, full = names
    if grade.name == "contradictory":
        return f"The smoke run {smoke} contradicts itself, so it shows nothing about {full}."
    passed = sum(stage.state == "passed" for stage in stages)
    others = [figure.name for figure in figures if figure.agrees is False]
    but = f", but with different {join_words(others, last='and')}" if others else ""
    return f"The smoke run rehearsed {passed} of {len(stages)} stages of {full}{but}."


def _answers(smoke: Run, full: Run) -> Iterator[SmokeAnswer]:
    if smoke.manifest is None or full.manifest is None:
        return
    for question, fields in QUESTIONS:
        ours, theirs = (tuple(get_path(facts.manifest, *name.split(".")) for name in fields) for facts in (smoke, full))
        # Both may state null for a good reason (no revision, no diff), but a first field that is null is unknown.
        same = None if None in (ours[0], theirs[0]) else ours == theirs
        yield SmokeAnswer(question=question, same=same, smoke=ours, full=theirs)
    asked, run = scalar_settings(smoke), scalar_settings(full)
    differing = [name for name in sorted({*asked, *run}) if asked.get(name, ABSENT) != run.get(name, ABSENT)]
    names = [name for name in differing if name not in SIZE_SETTINGS]
    is_same = None if smoke.config is None or full.config is None else not names
    # After a no the settings that differ; after a yes those that differ in size only.
    shown = [] if is_same is None else [name for name in differing if name not in _NAMES] if is_same else names
    yield SmokeAnswer(
        question=SETTINGS_QUESTION,
        same=is_same,
        smoke=tuple(f"{name} = {asked.get(name)}" for name in shown),
        full=tuple(f"{name} = {run.get(name)}" for name in shown),
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
        yield "Anything: one of the two runs has no valid manifest."
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
    """Yield the fields in which two runs differ: `devices.count 8, not 1`."""
    for field, ours, theirs in zip(dict(QUESTIONS)[answer.question], answer.smoke, answer.full, strict=True):
        if answer.same is None and None in (ours, theirs):
            yield f"{field} is unknown"
        elif not values_equal(ours, theirs):
            one, other = (f"{value:,}" if isinstance(value, int) else str(value) for value in (theirs, ours))
            yield f"{field} {one}, not {other}"


def _figures(smoke: Run, full: Run) -> Iterator[SmokeFigure]:
    """Yield the figures of both runs; a remark says why two values that must agree need not."""
    dtype = get_str(full.manifest, "model", "dtypes", "compute") or ""
    loss_tolerance, other_start = _LOSS_TOLERANCE.get(dtype, 0.0), _other_start(smoke, full)
    other_rows = "" if _rows(smoke) == _rows(full) else "other rows"
    table: tuple[tuple[str, Band, Callable[[Run], FigureValue], float, str], ...] = (
        ("first loss", "must agree", _loss("first_loss", 5), loss_tolerance, other_start),
        ("supervised share", "must agree", _supervised_share, 1e-9, other_rows),
        ("number types", "must agree", _number_types, 0.0, ""),
        ("parameters", "must agree", _parameters, 0.0, ""),
        ("memory", "should scale", _memory, 0.0, ""),
        ("step time", "should scale", _step_seconds, 0.0, ""),
        ("tokens a second", "should scale", _tokens_per_second, 0.0, ""),
        ("last loss", "may differ", _loss("last_loss", 4), 0.0, ""),
        ("score", "may differ", _score, 0.0, ""),
    )
    for name, band, get, tolerance, remark in table:
        ours, theirs = get(smoke), get(full)
        agrees: bool | None = None
        if band == "must agree" and not remark and formats.NOTHING not in (ours.text, theirs.text):
            is_text = ours.number is None or theirs.number is None
            agrees = ours.text == theirs.text if is_text else values_equal(ours.number, theirs.number, tolerance)
        yield SmokeFigure(name=name, band=band, smoke=ours, full=theirs, agrees=agrees, remark=remark)


def _other_start(smoke: Run, full: Run) -> str:
    """Return why the first losses of two runs need not be equal, or empty if they must be."""
    ours, theirs = (get_str(facts.manifest, "model", "weights_sha256") for facts in (smoke, full))
    if ours is None or ours != theirs:
        return "other first parameters"
    batches = [
        [get_path(facts.manifest, "training", key) for key in ("seed", "batch_size", "sequence_length")]
        for facts in (smoke, full)
    ]
    return "" if _rows(smoke) == _rows(full) and batches[0] == batches[1] else "other rows"


def _rows(facts: Run) -> list[Any]:
    return [get_path(facts.manifest, "dataset", key) for key in ("sha256", "generated_rows", "generator_seed")]


def _loss(name: str, digits: int) -> Callable[[Run], FigureValue]:
    def get(facts: Run) -> FigureValue:
        value = get_number(facts.manifest, "result", name)
        return FigureValue(number=value, text=formats.NOTHING if value is None else formats.number(value, digits))

    return get


def _score(facts: Run) -> FigureValue:
    value = get_number(facts.eval_summary, "metrics", "exact_match", "value")
    return FigureValue(number=value, text=formats.percent(value))


def _supervised_share(facts: Run) -> FigureValue:
    """Return the fraction of the training tokens that have a loss."""
    prompt = get_number(facts.first_examples, "counts", "prompt_tokens")
    supervised = get_number(facts.first_examples, "counts", "supervised_tokens")
    share = supervised / (prompt + supervised) if prompt is not None and supervised else None
    return FigureValue(number=share, text=formats.percent(share))


def _number_types(facts: Run) -> FigureValue:
    kinds = [get_str(facts.manifest, "model", "dtypes", key) for key in ("params", "compute")]
    return FigureValue(number=None, text=formats.NOTHING if None in kinds else ", ".join(map(str, kinds)))


def _parameters(facts: Run) -> FigureValue:
    count = get_number(facts.manifest, "model", "parameters")
    return FigureValue(number=count, text=formats.count(count))


def _memory(facts: Run) -> FigureValue:
    """Return the observed memory with the range of the plan."""
    seen = observed_memory(facts.plan, facts.manifest)
    if seen is None:
        return FigureValue(number=None, text=formats.NOTHING)
    planned, error = seen.planned_bytes, seen.error_fraction
    band = None if planned is None or error is None else (planned * (1 - error), planned * (1 + error))
    return FigureValue(number=seen.observed_bytes, text=formats.size(seen.observed_bytes), planned=band)


def _step_seconds(facts: Run) -> FigureValue:
    """Return the median time of a step with the range of the plan."""
    value = _median(facts, "step_seconds")
    low, high = (get_number(facts.plan, "time", "step_seconds", end) for end in ("low", "high"))
    band = None if low is None or high is None else (low, high)
    return FigureValue(number=value, text=formats.duration(value), planned=band)


def _tokens_per_second(facts: Run) -> FigureValue:
    value = _median(facts, "tokens_per_second")
    return FigureValue(number=value, text=formats.rate(value, "tokens"))


def _median(facts: Run, name: str) -> float | None:
    """Return the median of a metric, without the first step if there are others, since that one waits for devices."""
    values = column(facts.metrics or [], name)
    values = values[np.isfinite(values)]
    values = values[1:] if len(values) > 1 else values
    return float(np.median(values)) if len(values) else None


def run_stages(facts: Run) -> tuple[RunStage, ...]:
    """Return the stages of a run. If it failed, the first stage that it did not pass is `failed`."""
    manifest, events = facts.manifest or {}, {record["event"]: record for record in facts.log or []}
    steps, losses = (column(facts.metrics or [], name) for name in ("step", "loss"))
    done, planned = get_number(manifest, "training", "steps_done"), get_number(manifest, "training", "steps_planned")
    has_rows, is_finite = bool(len(steps)), bool(np.isfinite(losses).all())
    has_run = has_rows or "compiled" in events
    first = column(facts.metrics or [], "step_seconds")[:1]
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
    has_failed = get_str(manifest, "status") == "failed" or facts.status in {"failed", "interrupted"}
    optional = {"resume"}
    if get_str(facts.config, "evaluation", "eval_set") is None:
        optional.add("evaluate")
    if passed["evaluate"][0]:
        optional.add("save")
    missed = (name for name in STAGES if not passed[name][0] and name not in optional)
    failed = next(missed, None) if has_failed else None
    return tuple(
        RunStage(
            name=f"{int(done or 0):,} steps" if name == "steps" else name,
            state="passed" if passed[name][0] else "failed" if name == failed else "not exercised",
            seconds=passed[name][1] if passed[name][0] else None,
        )
        for name in STAGES
    )


def _between(events: Mapping[str, Mapping[str, Any]], first: str, last: str) -> float | None:
    """Return the seconds between two events of a log, or None if one of them is missing."""
    if first not in events or last not in events:
        return None
    return seconds_between(events[first]["time"], events[last]["time"])


def find_lineage(smoke: RunSummary, full: RunSummary) -> Lineage | None:
    """Return how a smoke run's configuration relates to that of a full run, or None if it is another one.

    A setting that only one of them knows, because their versions differ, does not count. For example, demo.yaml for two
    steps has the same configuration as for 2,800 steps. With `--smoke_config smoke_tiny.yaml` it is the same but for
    size. With another learning rate it is neither.
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
    """Return the smoke runs of a full run's configuration, the best match first (`_rank`)."""
    return sorted((run for run in found if find_lineage(run, full)), key=lambda run: _rank(run, full), reverse=True)


def find_full_runs(smoke: RunSummary, found: Iterable[RunSummary]) -> list[RunSummary]:
    """Return the full runs of a smoke run's configuration, the best match first (`_rank`)."""
    return sorted((run for run in found if find_lineage(smoke, run)), key=lambda run: _rank(smoke, run), reverse=True)


def newest_smoke_pair(found: Sequence[RunSummary]) -> tuple[str, str] | None:
    """Return the names of a smoke run and its full run, the newest that succeeded if there is one, or None."""
    smokes: dict[object, list[RunSummary]] = {}
    for run in sorted((run for run in found if run.mode == "smoke"), key=_start, reverse=True):
        smokes.setdefault(_key(run), []).append(run)
    fulls = sorted((run for run in found if run.mode == "full"), key=_start, reverse=True)
    for full in sorted(fulls, key=lambda run: run.status != "succeeded"):
        if matches := find_smoke_runs(full, smokes.get(_key(full), [])[:_MAX_SMOKE_RUNS]):
            return matches[0].path.name, full.path.name
    return None


def _rank(smoke: RunSummary, full: RunSummary) -> tuple[bool, bool, bool, datetime, datetime]:
    """Return a sort key of a pair: the same configuration, then success, the smoke run first, and the newest."""
    return (
        find_lineage(smoke, full) == "same configuration",
        smoke.status == full.status == "succeeded",
        _start(smoke) <= _start(full),
        _start(full),
        _start(smoke),
    )


def _key(run: RunSummary) -> tuple[object, ...] | None:
    """Return the settings that tell most configurations apart, or None if the run has no valid configuration."""
    return tuple(run.settings.get(name) for name in _KEY_SETTINGS) if "data.dataset" in run.settings else None


def _start(run: RunSummary) -> datetime:
    return parse_time(run.started_at or "") or datetime.min.replace(tzinfo=UTC)


def find_counterparts(run: RunSummary, found: Sequence[RunSummary]) -> dict[str, RunSummary]:
    """Return the runs that a reader most likely wants to compare with a run, by what each is to it.

    For example, of three runs of one configuration the newest has the second as `previous run`, and the better of the
    other two as `best on its items`. Contradictory runs are left out.
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
        "previous run": max((other for other in like if _start(other) < _start(run)), key=_start, default=None),
        "best on its items": max(scored, key=lambda other: (other.score, _start(other)), default=None),
    }
    return {name: other for name, other in counterparts.items() if other is not None}
