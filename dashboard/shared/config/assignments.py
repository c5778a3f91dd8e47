"""Changes of a configuration as `--set` takes them: `optimizer.learning_rate=0.002`, for addresses and advice."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dashboard.shared.config import configs, form
from schemas.reading import get_number, get_path

MOST = 64
"""Assignments that are read of an address."""

_LONGEST = 500


def assignments(start: Mapping[str, Any], edited: Mapping[str, Any]) -> list[str]:
    """Return what turns one configuration into another, field by field in the order of the schema."""
    found = form.differing_fields(form.with_defaults(start), form.with_defaults(edited))
    return [f"{field.dotted}={_as_text(after)}" for field, _, after in found]


def edits(texts: Iterable[str]) -> dict[form.Path, Any]:
    """Return assignments as edits of a form; what names no field, or gives it a value it cannot hold, is left out."""
    fields = {field.dotted: field for field in form.fields()}
    found = {}
    for text in list(texts)[:MOST]:
        name, is_one, written = text[:_LONGEST].partition("=")
        field = fields.get(name.strip())
        if field is None or not is_one:
            continue
        value = _read(written.strip(), field)
        if form.can_be(field, value):
            found[field.path] = value
    return found


def full_of(
    smoke: Mapping[str, Any], run: str, *, rehearsed: Sequence[Path] = (), asked: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return source and assignments of the Launch page that make the full run of a smoke run's configuration.

    They are those of the shipped configuration or of the full run that it is the smoke run of, if it is of one; else
    its own, as large as it was before its model was made small.

    Args:
        smoke: The configuration of the smoke run.
        run: The smoke run.
        rehearsed: Folders of full runs that it may be of.
        asked: The configuration that was put into the queue. None: it is not known.
    """
    is_small = get_path(smoke, "model", "shape") == "small"
    replaced = configs.OF_SMOKE | (configs.OF_SMALL if is_small else frozenset())
    for source in configs.sources(rehearsed):
        whole = form.with_defaults(configs.read(source))
        differing = {field.dotted for field, *_ in form.differing_fields(form.with_defaults(smoke), whole)}
        if whole["limits"]["steps"] > configs.SMOKE_STEPS and differing <= replaced:
            return {"source": source.key}
    steps = get_number(smoke, "limits", "steps") or 0
    if steps <= configs.SMOKE_STEPS:
        steps = form.with_defaults({})["limits"]["steps"]
    name = str(smoke.get("name", "")).removesuffix("smoke").rstrip("-") or "full"
    before = [text for text in assignments(smoke, asked or smoke) if text.partition("=")[0] in configs.OF_SMALL]
    own = [f"name={name}", "mode=full", "model.shape=own", f"limits.steps={steps:.0f}"]
    return {"source": configs.same_as(run), "set": [*own, *before]}


def is_made(config: Mapping[str, Any], texts: Iterable[str]) -> bool:
    """Return whether a complete configuration has what all of these assignments set, of those that a form can hold."""
    return all(get_path(config, *path) == value for path, value in edits(texts).items())


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _read(written: str, field: form.FormField) -> Any:
    if field.kind == "text" and written != "null":
        return written
    try:
        return json.loads(written)
    except ValueError:
        return written
