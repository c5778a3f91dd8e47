"""A smoke run beside the full run that it rehearsed: stages, figures that must agree, should scale or may differ."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from evidence.compare.smoke import SmokeCheck, smoke_check
from evidence.compare.stages import RunStage, stages_of
from evidence.judge.record import record_of
from evidence.judge.report import RunReport
from evidence.records.facts import Facts, facts_of
from evidence.records.observed import observed_memory
from evidence.records.ours import Run
from schemas import formats
from schemas.formats import join_words
from schemas.reading import column, get_number, get_path, get_str

Band = Literal["must agree", "should scale", "may differ"]

_SAME_LOSS = {"float32": 1e-3, "bfloat16": 2e-2, "float16": 2e-2}
"""How far first losses of the same parameters and rows may be apart, as a share, by the type of the products."""

_SINGULAR = {"parameters": "number of parameters", "number types": "type of numbers"}
_NOTHING = "Anything: the manifest of one of the two is not valid."
_PROGRAM = {
    "device": ("devices", "kind"),
    "devices": ("devices", "count"),
    "mesh": ("training", "mesh", "devices"),
    "sequences of a batch": ("training", "batch_size"),
    "tokens of a sequence": ("training", "sequence_length"),
    "remat": ("training", "remat"),
    "model": ("model", "parameters"),
}
"""What makes another program of a train step, by the fields of the manifest that state it."""


@dataclass(frozen=True, kw_only=True)
class Value:
    """A figure of one run: as a number, as a text, and what was planned for it. None: not stated."""

    number: float | None
    text: str
    planned: tuple[float, float] | None = None


@dataclass(frozen=True, kw_only=True)
class RehearsedFigure:
    """One figure of both runs.

    Attributes:
        name: What it is, with its unit.
        band: What is to be expected of the two.
        smoke: Of the smoke run.
        full: Of the full run.
        agrees: Whether they are the same. None: they need not be, or one is not stated.
        remark: Why nothing follows from it; empty if something does.
    """

    name: str
    band: Band
    smoke: Value
    full: Value
    agrees: bool | None = None
    remark: str = ""


@dataclass(frozen=True, kw_only=True)
class Rehearsal:
    """A smoke run as rehearsal of a full run.

    Attributes:
        said: What it shows, as a sentence.
        smoke: The stages of the smoke run.
        full: Those of the full run.
        figures: In the order of the bands.
        not_proved: What it leaves open, as sentences.
        check: The questions to both, and what the smoke run proves. None: a manifest is not valid.
    """

    said: str
    smoke: tuple[RunStage, ...]
    full: tuple[RunStage, ...]
    figures: tuple[RehearsedFigure, ...]
    not_proved: tuple[str, ...]
    check: SmokeCheck | None


def rehearsal(smoke: Run, smoke_report: RunReport, full: Run, full_report: RunReport) -> Rehearsal:
    """Return what a smoke run shows of a full run."""
    reports = (smoke_report, full_report)
    ours, theirs = (
        record_of(facts_of(run), report.findings).facts for run, report in zip((smoke, full), reports, strict=True)
    )
    names = (smoke.path.name, full.path.name)
    stages = stages_of(ours)
    figures = (*_must_agree(ours, theirs), *_should_scale(ours, theirs), *_may_differ(ours, theirs))
    check = smoke_check(names, (ours, theirs), [report.grade for report in reports])
    return Rehearsal(
        said=_describe(*names, smoke_report, stages, figures),
        smoke=stages,
        full=stages_of(theirs),
        figures=figures,
        not_proved=(*_other_program(ours, theirs), *(check.not_proved if check else (_NOTHING,))),
        check=check,
    )


def _describe(
    smoke: str, full: str, report: RunReport, stages: tuple[RunStage, ...], figures: tuple[RehearsedFigure, ...]
) -> str:
    if report.grade.name == "contradictory":
        return f"The smoke run {smoke} contradicts itself, so it rehearsed nothing of {full}."
    passed = sum(stage.state == "passed" for stage in stages)
    said = f"The smoke run rehearsed {passed} of {len(stages)} stages of {full}"
    if other := [_SINGULAR.get(figure.name, figure.name) for figure in figures if figure.agrees is False]:
        return f"{said}, but of another {join_words(other, last='and')}."
    return f"{said}."


def _other_program(smoke: Facts, full: Facts) -> Iterator[str]:
    """Yield that the full run's program is another one, with what differs; nothing where it is the same."""
    pairs = {name: (get_path(smoke.manifest, *path), get_path(full.manifest, *path)) for name, path in _PROGRAM.items()}
    differing = [
        f"{name} {_plain(theirs)}, not {_plain(ours)}"
        for name, (ours, theirs) in pairs.items()
        if ours is not None and theirs is not None and ours != theirs
    ]
    if differing:
        yield f"That the full run's program compiles and fits: it is another one ({'; '.join(differing)})."


def _plain(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value)


def _must_agree(smoke: Facts, full: Facts) -> Iterator[RehearsedFigure]:
    def figure(name: str, ours: Value, theirs: Value, *, within: float = 0.0, remark: str = "") -> RehearsedFigure:
        return RehearsedFigure(
            name=name,
            band="must agree",
            smoke=ours,
            full=theirs,
            agrees=None if remark else _agree(ours, theirs, within),
            remark=remark,
        )

    both = (smoke, full)
    loss = [_number(get_number(facts.manifest, "result", "first_loss"), 5) for facts in both]
    within = _SAME_LOSS.get(get_str(full.manifest, "model", "dtypes", "compute") or "", 0.0)
    yield figure("first loss", loss[0], loss[1], within=within, remark=_other_start(smoke, full))
    share = [_percent(_supervised_share(facts)) for facts in both]
    other_rows = "" if _rows(smoke) == _rows(full) else "other rows"
    yield figure("supervised share", share[0], share[1], within=1e-9, remark=other_rows)
    types = [_types(facts) for facts in both]
    yield figure("number types", types[0], types[1])
    size = [get_number(facts.manifest, "model", "parameters") for facts in both]
    yield figure("parameters", *(Value(number=one, text=formats.count(one)) for one in size))


def _should_scale(smoke: Facts, full: Facts) -> Iterator[RehearsedFigure]:
    for name, value in (("memory", _memory), ("step time", _step_seconds), ("tokens a second", _tokens_per_second)):
        yield RehearsedFigure(name=name, band="should scale", smoke=value(smoke), full=value(full))


def _may_differ(smoke: Facts, full: Facts) -> Iterator[RehearsedFigure]:
    loss = [_number(get_number(facts.manifest, "result", "last_loss"), 4) for facts in (smoke, full)]
    yield RehearsedFigure(name="last loss", band="may differ", smoke=loss[0], full=loss[1])
    scores = [_percent(get_number(facts.eval_summary, "metrics", "exact_match", "value")) for facts in (smoke, full)]
    yield RehearsedFigure(name="score", band="may differ", smoke=scores[0], full=scores[1])


def _agree(ours: Value, theirs: Value, within: float) -> bool | None:
    if formats.NOTHING in (ours.text, theirs.text):
        return None
    if ours.number is None or theirs.number is None:
        return ours.text == theirs.text
    return abs(ours.number - theirs.number) <= within * max(abs(ours.number), abs(theirs.number))


def _other_start(smoke: Facts, full: Facts) -> str:
    """Return why first losses of two runs need not be the same; empty if they must be."""
    if _start(smoke) != _start(full) or get_str(smoke.manifest, "model", "weights_sha256") is None:
        return "other first parameters"
    return "" if _rows(smoke) == _rows(full) and _batch(smoke) == _batch(full) else "other rows"


def _start(facts: Facts) -> str | None:
    return get_str(facts.manifest, "model", "weights_sha256")


def _rows(facts: Facts) -> list[Any]:
    dataset = (facts.manifest or {}).get("dataset") or {}
    return [dataset.get(key) for key in ("sha256", "generated_rows", "generator_seed")]


def _batch(facts: Facts) -> list[Any]:
    training = (facts.manifest or {}).get("training") or {}
    return [training.get(key) for key in ("seed", "batch_size", "sequence_length")]


def _supervised_share(facts: Facts) -> float | None:
    """Return the share of the training tokens that are learned from, from 0 to 1."""
    prompt = get_number(facts.first_examples, "counts", "prompt_tokens")
    supervised = get_number(facts.first_examples, "counts", "supervised_tokens")
    return supervised / (prompt + supervised) if prompt is not None and supervised else None


def _types(facts: Facts) -> Value:
    kinds = [get_str(facts.manifest, "model", "dtypes", key) for key in ("params", "compute")]
    return Value(number=None, text=formats.NOTHING if None in kinds else ", ".join(map(str, kinds)))


def _memory(facts: Facts) -> Value:
    """Return the observed memory with the plan's band."""
    seen = observed_memory(facts.plan, facts.manifest)
    if seen is None:
        return Value(number=None, text=formats.NOTHING)
    planned, error = seen.planned_bytes, seen.error_fraction
    band = None if planned is None or error is None else (planned * (1 - error), planned * (1 + error))
    return Value(number=seen.observed_bytes, text=formats.size(seen.observed_bytes), planned=band)


def _step_seconds(facts: Facts) -> Value:
    """Return the median time of a step with the plan's band."""
    value = _median(facts, "step_seconds")
    low, high = (get_number(facts.plan, "time", "step_seconds", end) for end in ("low", "high"))
    band = None if low is None or high is None else (low, high)
    return Value(number=value, text=formats.duration(value), planned=band)


def _tokens_per_second(facts: Facts) -> Value:
    value = _median(facts, "tokens_per_second")
    return Value(number=value, text=formats.rate(value, "tokens"))


def _median(facts: Facts, name: str) -> float | None:
    """Return the median of a column, without the first step where there are others: that one waits for the devices."""
    values = column(facts.metrics or [], name)
    values = values[np.isfinite(values)]
    values = values[1:] if len(values) > 1 else values
    return float(np.median(values)) if len(values) else None


def _number(value: float | None, digits: int) -> Value:
    return Value(number=value, text=formats.number(value, digits) if value is not None else formats.NOTHING)


def _percent(value: float | None) -> Value:
    return Value(number=value, text=formats.percent(value))
