"""What a smoke run states of a full run, and what it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evidence.compare.settings import ABSENT
from evidence.judge.grade import Grade
from evidence.records.by_name import settings_of
from evidence.records.facts import Document, Facts
from schemas.formats import join_words

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
"""Each question, and the fields of the manifest that must be equal for a yes."""

SETTINGS_QUESTION = "same settings apart from model, rows, batch and length"
_TRIVIAL = frozenset({"name", "mode", "schema_version"})
SIZE_SETTINGS = frozenset(
    {
        "name",
        "mode",
        "schema_version",
        "model.name",
        "model.revision",
        "model.weights",
        "model.shape",
        "data.generated_rows",
        "data.max_length",
        "batch.microbatch_size",
        "batch.accumulation_steps",
        "optimizer.warmup_steps",
        "checkpoint.save_every_steps",
        "recording.log_every_steps",
        "recording.first_examples",
        "mesh.device",
        "mesh.devices",
        "evaluation.eval_set",
        "evaluation.max_new_tokens",
        "evaluation.batch_size",
        "evaluation.samples",
        "evaluation.every_steps",
        "evaluation.during_items",
        "limits.steps",
        "limits.max_minutes",
    }
)
"""Settings that make a run small without making it another pipeline; the devices have questions of their own."""


@dataclass(frozen=True, kw_only=True)
class SmokeComparison:
    """One question about two runs."""

    question: str
    """The question, as a noun phrase."""
    same: bool | None
    """Whether the runs agree. None: one of them does not state it."""
    smoke: tuple[Any, ...]
    """What the smoke run states in the fields requested."""
    full: tuple[Any, ...]
    """What the full run states."""


@dataclass(frozen=True, kw_only=True)
class SmokeCheck:
    """A smoke run as rehearsal of a full run."""

    smoke: str
    """Name of the smoke run."""
    full: str
    """Name of the full run."""
    answers: tuple[SmokeComparison, ...]
    """One for each question."""
    proved: tuple[str, ...]
    """What the smoke run showed, as sentences."""
    not_proved: tuple[str, ...]
    """What it could not show, as sentences."""


def smoke_check(names: Sequence[str], facts: Sequence[Facts], grades: Sequence[Grade]) -> SmokeCheck | None:
    """Return what the smoke run among two runs states of the full one; None if they are not one of each.

    A run that contradicts itself proves nothing, and nothing is proved about one.
    """
    every = zip(names, facts, grades, strict=True)
    found = {fact.manifest["mode"]: (name, fact, grade) for name, fact, grade in every if fact.manifest}
    if len(facts) != 2 or set(found) != {"smoke", "full"}:
        return None
    (smoke_name, smoke_facts, smoke_grade), (full_name, full_facts, full_grade) = found["smoke"], found["full"]
    smoke, full = smoke_facts.manifest or {}, full_facts.manifest or {}
    answers = (
        *(_answer(question, fields, smoke, full) for question, fields in QUESTIONS),
        _settings(smoke_facts, full_facts),
    )
    return SmokeCheck(
        smoke=smoke_name,
        full=full_name,
        answers=answers,
        proved=tuple(_proven(smoke, smoke_facts.eval_summary, smoke_grade)),
        not_proved=(*_not_proved(smoke, full, answers, full_grade), *_not_evaluated(smoke_facts, full_facts)),
    )


def _answer(question: str, fields: tuple[str, ...], smoke: Document, full: Document) -> SmokeComparison:
    ours, theirs = tuple(_field(smoke, name) for name in fields), tuple(_field(full, name) for name in fields)
    # A null that both state for a good reason (no revision, no diff) is equal; a first field that is null means
    # nothing.
    unknown = None in (ours[0], theirs[0])
    return SmokeComparison(question=question, same=None if unknown else ours == theirs, smoke=ours, full=theirs)


def _settings(smoke: Facts, full: Facts) -> SmokeComparison:
    """Return whether the two were requested the same apart from their size.

    The values are the settings that differ; after a yes those that are set aside, so that it states of what it is a
    yes.
    """
    ours, theirs = settings_of(smoke), settings_of(full)
    differing = [name for name in sorted({*ours, *theirs}) if ours.get(name, ABSENT) != theirs.get(name, ABSENT)]
    names = [name for name in differing if name not in SIZE_SETTINGS]
    same = None if smoke.config is None or full.config is None else not names
    told = [name for name in differing if name not in _TRIVIAL] if same else names if same is False else []
    return SmokeComparison(
        question=SETTINGS_QUESTION,
        same=same,
        smoke=tuple(f"{name} = {ours.get(name)}" for name in told),
        full=tuple(f"{name} = {theirs.get(name)}" for name in told),
    )


def _field(manifest: Document, path: str) -> Any:
    """Return a field of a manifest; None where it, or a group above it, is null: the run ended before it was known."""
    value: Any = manifest
    for key in path.split("."):
        value = None if value is None else value[key]
    return value


def _proven(smoke: Document, evaluation: Document | None, grade: Grade) -> list[str]:
    """Return what the smoke run showed by itself."""
    training, result = smoke["training"], smoke["result"]
    if grade.name == "contradictory":
        return ["Nothing: the smoke run contradicts itself; `trainproof check` says where."]
    if smoke["status"] != "succeeded":
        return [f"Nothing: the smoke run did not succeed ({smoke['status']})."]
    kind, count = smoke["devices"]["kind"], smoke["devices"]["count"]
    steps = f"{training['steps_done']:,} of {training['steps_planned']:,} steps"
    proved = [f"The pipeline runs to its end and seals its evidence: {steps} on {count} × {kind}."]
    if result["last_loss"] is not None:
        proved.append(f"The loss is finite: {result['first_loss']:.4f} at first, {result['last_loss']:.4f} at last.")
    if training["donation"]["effective"]:
        proved.append("The train state is updated in place.")
    if evaluation is not None and evaluation["status"] == "complete":
        proved.append(f"The evaluation runs to its end: {evaluation['eval_set']['items']:,} items were answered.")
    return proved


def _not_evaluated(smoke: Facts, full: Facts) -> list[str]:
    """Return that the evaluation was not rehearsed, if the full run has one that the smoke run has not."""
    asked = settings_of(full).get("evaluation.eval_set")
    if (asked is None and full.eval_summary is None) or smoke.eval_summary is not None:
        return []
    return ["That the evaluation works: the smoke run answered no items."]


def _shape_not_proved(smoke: Document) -> list[str]:
    """Return what a model whose shape was made small leaves open."""
    sizes = (smoke["model"] or {}).get("made_small") or ()
    if not sizes:
        return []
    made = join_words([f"{size['size']} {size['made']:,} of {size['own']:,}" for size in sizes], last="and")
    return [f"That the model's own weights can be read: the smoke run drew those of its shape made small ({made})."]


def _not_proved(smoke: Document, full: Document, answers: Sequence[SmokeComparison], grade: Grade) -> list[str]:
    """Return what the smoke run leaves open about the full one."""
    steps, planned = _field(smoke, "training.steps_done") or 0, _field(full, "training.steps_planned")
    of_full = f"{planned:,}" if planned is not None else "a run that did not come to its first step"
    left = [f"That the model learns: {steps:,} steps say nothing about {of_full}."]
    if grade.name == "contradictory":
        left.insert(0, "Anything about the full run: it contradicts itself; `trainproof check` says where.")
    differing = {answer.question for answer in answers if not answer.same}
    left.extend(_shape_not_proved(smoke))
    if differing & {"same model", "same shape of a step", "same number formats", "same method and optimizer"}:
        left.append("That the full run fits in memory: what fills it differs.")
    if differing & {"same kind of device", "same number of devices"}:
        left.append(
            f"That it runs on {full['devices']['count']} × {full['devices']['kind']}: the smoke run used "
            f"{smoke['devices']['count']} × {smoke['devices']['kind']}."
        )
    if "same code" in differing:
        left.append("That the code of the full run works: it is not known to be the same.")
    if "same training data" in differing:
        left.append("That the full run's data can be read: it is other data.")
    if SETTINGS_QUESTION in differing:
        left.append("That the full run's settings work together: they differ in more than size, or are not known.")
    return left
