"""Every fact that a run states more than once, each repetition compared with the place that leads.

Rules that check formulas have files of their own; a fact that is only repeated gets a line here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from evidence.records.facts import Document, Facts, finding, same, value_at
from evidence.run import layout
from foreign.readers.statement import Citation, Kind, Statement
from schemas.formats import format_value
from schemas.problems import Problem, key_path, truncate_problems


@dataclass(frozen=True, kw_only=True)
class FactPlace:
    """Where a fact stands: in a document, or in the field of an event of the log."""

    document: str
    """Name of the file."""
    at: str
    """Pointer in a document; in the log, `event/field`."""
    if_stated: bool = False
    """Whether null means nothing."""

    @property
    def event(self) -> tuple[str, str]:
        """Event and field of a place in the log."""
        event, _, field = self.at.partition("/")
        return event, field


@dataclass(frozen=True, kw_only=True)
class FactPlaces:
    """One fact of a run: the place that leads, and those that repeat it."""

    name: str
    leads: FactPlace
    also: tuple[FactPlace, ...]


def _manifest(at: str) -> FactPlace:
    return FactPlace(document=layout.MANIFEST, at=at, if_stated=True)


def _logged_at(at: str) -> FactPlace:
    return FactPlace(document=layout.LOG, at=at)


def _planned_at(at: str, *, if_stated: bool = False) -> FactPlace:
    return FactPlace(document=layout.PLAN, at=at, if_stated=if_stated)


def _summary(at: str) -> FactPlace:
    return FactPlace(document=layout.EVAL_SUMMARY, at=at, if_stated=True)


TABLE = (
    FactPlaces(
        name="device.platform",
        leads=_manifest("/devices/platform"),
        also=(_planned_at("/target/platform"), _logged_at("devices_chosen/platform")),
    ),
    FactPlaces(name="device.kind", leads=_manifest("/devices/kind"), also=(_planned_at("/target/name"),)),
    FactPlaces(
        name="device.memory_bytes",
        leads=_manifest("/devices/memory_bytes"),
        also=(_planned_at("/target/memory_bytes", if_stated=True),),
    ),
    FactPlaces(
        name="device.count",
        leads=_manifest("/devices/count"),
        also=(_planned_at("/target/devices"), _logged_at("devices_chosen/count")),
    ),
    FactPlaces(name="run.forced", leads=_manifest("/training/forced"), also=(_planned_at("/forced"),)),
    FactPlaces(
        name="plan.need_bytes",
        leads=_planned_at("/need_bytes", if_stated=True),
        also=(_logged_at("planned/need_bytes"),),
    ),
    FactPlaces(
        name="result.compile_seconds",
        leads=_manifest("/result/compile_seconds"),
        also=(_logged_at("compiled/compile_seconds"),),
    ),
    FactPlaces(name="model.family", leads=_manifest("/model/family"), also=(_logged_at("compiled/family"),)),
    FactPlaces(
        name="model.weights_sha256",
        leads=_manifest("/model/weights_sha256"),
        also=(_logged_at("compiled/weights_sha256"),),
    ),
    FactPlaces(
        name="training.state_bytes",
        leads=_manifest("/training/donation/state_bytes"),
        also=(_logged_at("compiled/state_bytes"),),
    ),
    FactPlaces(
        name="training.aliased_bytes",
        leads=_manifest("/training/donation/aliased_bytes"),
        also=(_logged_at("compiled/aliased_bytes"),),
    ),
    FactPlaces(
        name="result.train_seconds",
        leads=_manifest("/result/train_seconds"),
        also=(_logged_at("trained/train_seconds"),),
    ),
    FactPlaces(
        name="result.peak_memory_bytes",
        leads=_manifest("/result/peak_memory_bytes"),
        also=(_logged_at("trained/peak_memory_bytes"),),
    ),
    FactPlaces(
        name="evaluation.set_sha256",
        leads=_summary("/eval_set/sha256"),
        also=(_logged_at("evaluated/eval_set_sha256"),),
    ),
    FactPlaces(
        name="evaluation.params_sha256",
        leads=_summary("/checkpoint/params_sha256"),
        also=(_logged_at("evaluated/params_sha256"),),
    ),
)
"""Every fact that documents and log repeat."""


_OF_FLAGS = {"--smoke_steps": "limits.steps", "--smoke-steps": "limits.steps"}
"""Settings that a flag of their own gives; `--set` wins over them."""


def pairs_of(facts: Facts) -> Iterator[tuple[Statement, Statement]]:
    """Yield each repetition of a fact: what the leading place states of it, and what the other one states."""
    for fact in TABLE:
        for lead in _statements_at(facts, fact.name, fact.leads):
            for place in fact.also:
                for other in _statements_at(facts, fact.name, place):
                    yield lead, other
    yield from _settings(facts)


def _statements_at(facts: Facts, name: str, place: FactPlace) -> Iterator[Statement]:
    if place.document == layout.LOG:
        event, field = place.event
        for line, record in enumerate(facts.log or (), start=1):
            if record["event"] == event and field in record["fields"]:
                yield _statement(name, record["fields"][field], layout.LOG, place.at, line=line)
        return
    document = _document(facts, place.document)
    try:
        value = None if document is None else value_at(document, place.at)
    except KeyError:
        return  # Some groups of the manifest were never built.
    if document is not None and not (place.if_stated and value is None):
        yield _statement(name, value, place.document, place.at)


def _settings(facts: Facts) -> Iterator[tuple[Statement, Statement]]:
    """Yield each setting that the command line gave, which wins over every file, beside config.yaml's."""
    command = facts.manifest["command"] if facts.manifest is not None else []
    given: dict[str, tuple[int, str]] = {}
    for index, word in enumerate(command):
        flag, _, beside = word.partition("=")
        if flag in _OF_FLAGS and (beside or index + 1 < len(command)):
            given.setdefault(_OF_FLAGS[flag], (index, beside or command[index + 1]))
        text = command[index + 1] if word == "--set" and index + 1 < len(command) else word.removeprefix("--set=")
        if word.startswith("--set") and "=" in text:
            key, _, value = text.partition("=")
            given[key] = (index + (word == "--set"), value)
    for key, (index, text) in given.items():
        pointer = "/" + key.replace(".", "/")
        for lead in _statements_at(facts, f"setting.{key}", FactPlace(document=layout.CONFIG, at=pointer)):
            value = _value(text)
            if not isinstance(value, dict | list):
                pointer = f"/command/{index}"
                yield lead, _statement(lead.fact, value, layout.MANIFEST, pointer, kind="declared")


def _value(text: str) -> object:
    """Return the value that a setting's text names: JSON if it is JSON, else the text itself."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text


def _document(facts: Facts, name: str) -> Document | None:
    documents = {
        layout.MANIFEST: facts.manifest,
        layout.CONFIG: facts.config,
        layout.PLAN: facts.plan,
        layout.EVAL_SUMMARY: facts.eval_summary,
    }
    return documents[name]


def _statement(
    name: str, value: object, file: str, pointer: str, *, line: int | None = None, kind: Kind = "effective"
) -> Statement:
    scalar = value if value is None or isinstance(value, str | int | float | bool) else json.dumps(value)
    return Statement(fact=name, value=scalar, source=Citation(file=file, line=line, pointer=pointer), kind=kind)


def repetitions_agree(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each place that states a fact otherwise than the place that leads."""
    differing = [(lead, other) for lead, other in pairs_of(facts) if not same(other.value, lead.value)]
    logged = sorted((pair for pair in differing if pair[1].source.file == layout.LOG), key=_line)
    yield from (_of_plan(facts, lead, other) for lead, other in differing if other.source.file == layout.PLAN)
    yield from (_of_command(facts, lead, other) for lead, other in differing if other.source.file == layout.MANIFEST)
    yield from truncate_problems(_of_log(facts, lead, other) for lead, other in logged)


def _line(pair: tuple[Statement, Statement]) -> int:
    return pair[1].source.line or 0


def _path(statement: Statement) -> str:
    return key_path(statement.source.file, statement.source.pointer or "")


def _of_plan(facts: Facts, lead: Statement, other: Statement) -> Problem:
    what = (
        f"The manifest states {format_value(lead.value)}; plan.json states "
        f"{format_value(other.value)} at {other.source.pointer}."
    )
    expected, pointer = format_value(other.value), lead.source.pointer
    return finding(facts.folder, "TP305", layout.MANIFEST, what, expected=expected, pointer=pointer)


def _of_command(facts: Facts, lead: Statement, other: Statement) -> Problem:
    what = (
        f"The command line sets {lead.fact.removeprefix('setting.')} to "
        f"{format_value(other.value)}; config.yaml states "
        f"{format_value(lead.value)} at {_path(lead)}."
    )
    expected, pointer = format_value(lead.value), other.source.pointer
    return finding(facts.folder, "TP303", layout.MANIFEST, what, expected=expected, pointer=pointer)


def _of_log(facts: Facts, lead: Statement, other: Statement) -> Problem:
    event, _, field = (other.source.pointer or "").partition("/")
    what = (
        f"The event {event} states {field} {format_value(other.value)}; "
        f"{lead.source.file} states {format_value(lead.value)} at {_path(lead)}."
    )
    line = other.source.line
    return finding(facts.folder, "TP360", layout.LOG, what, expected=format_value(lead.value), line=line)


CHECKS = (repetitions_agree,)
