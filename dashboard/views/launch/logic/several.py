"""Several runs of one configuration, one for each value of a setting."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from dashboard.shared.config import assignments, form
from dashboard.shared.config.form import FormField

MOST = 32
"""Runs that one click puts into the queue."""

_LONGEST_NAME = 58


def variable() -> list[FormField]:
    """Return the settings that several values can be given to."""
    return [field for field in form.fields() if field.path not in {("name",), ("mode",)}]


def over(config: Mapping[str, Any], field: FormField, written: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a configuration for each value, named after it, and the values that the setting cannot have.

    Args:
        config: The configuration.
        field: The setting.
        written: The values, separated by commas; one that stands twice counts once.

    Example:
        Of `demo`, `optimizer.learning_rate` and `0.001, 0.002`: `demo-learning_rate-0.001`, `demo-learning_rate-0.002`.
    """
    texts = list(dict.fromkeys(text for part in written.split(",") if (text := part.strip())))
    configs, wrong = [], []
    for text in texts:
        edits = assignments.edits([f"{field.dotted}={text}"])
        if edits:
            configs.append({**form.edit(config, edits), "name": name_of_variant(config, field, text)})
        else:
            wrong.append(text)
    return configs, wrong


def name_of_variant(config: Mapping[str, Any], field: FormField, value: object) -> str:
    """Return the name of a configuration of which one setting has another value."""
    plain = re.sub("[^A-Za-z0-9._-]+", "-", f"{field.path[-1]}-{value}").strip("-")
    return f"{str(config.get('name', 'run'))[: max(1, _LONGEST_NAME - len(plain))]}-{plain}"[:_LONGEST_NAME]


def proposed_name(start: Mapping[str, Any], edited: Mapping[str, Any]) -> str | None:
    """Return a name that says what was changed, or None where nothing was, or the name itself."""
    changed = form.differing_fields(form.with_defaults(start), form.with_defaults(edited))
    if not changed or any(field.path == ("name",) for field, *_ in changed):
        return None
    field, _, value = changed[0]
    return name_of_variant(start, field, value)


def sentence(wrong: Sequence[str], field: FormField) -> str:
    """Return that a setting cannot have these values."""
    kind = ", ".join(field.options) if field.options else field.kind
    return f"{field.title} cannot be {', '.join(wrong)}; it takes: {kind}."
