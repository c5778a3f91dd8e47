"""From YAML files and flags to a `Config`: every problem found at once, nothing ignored.

The order of precedence, weakest first: defaults, the file, the smoke file, flags such as `--dataset`, `--set`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from schemas.parse import parse_yaml
from schemas.problems import Problem, ProblemError
from schemas.validate import check_value
from schemas.yaml_text import write_yaml
from trainer.config.seed_names import PRESENT_NAMES, set_at, with_present_names
from trainer.config.tree import Config, config_of, document_of

USAGE = 2
"""Exit code of a configuration that cannot be used."""

UNREADABLE = ("TP001",)
"""Codes after which there is no document to check; the shape codes of the schemas package say the same."""


def load_config(
    path: Path,
    *,
    overlay: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> Config:
    """Return the resolved configuration of a YAML file.

    Args:
        path: the configuration file.
        overlay: a second file whose keys win, as `--smoke_config` gives.
        flags: dotted key to value, for values given by flags of their own; None values are left out.
        settings: `key=value` texts of `--set`; they win over everything else.

    Raises:
        ProblemError: exit code 2, with every problem of the files and the settings.
    """
    document, problems = read_file(path)
    if overlay is not None:
        above, more = read_file(overlay)
        document = merged(document, above)
        problems += more
    for key, value in (flags or {}).items():
        if value is not None:
            set_at(document, key, value)
    for text in settings:
        problems += apply_setting(document, text)
    # A file that could not be read leaves nothing to check; its own problem explains everything.
    if not any(problem.code in UNREADABLE or problem.code.startswith("TP1") for problem in problems):
        problems += check_value("train_config", document, file=str(path))
    if problems:
        raise ProblemError(problems, exit_code=USAGE)
    return config_of(document)


def read_file(path: Path) -> tuple[dict[str, Any], list[Problem]]:
    """Return a YAML file's document under present names, and what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return {}, [unreadable(path, error)]
    parsed = parse_yaml(data, file=str(path))
    if not isinstance(parsed.value, dict):
        return {}, list(parsed.problems)
    document, problems = with_present_names(parsed.value, file=str(path))
    return document, [*parsed.problems, *problems]


def merged(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return `below` with the keys of `above` put over it, group by group."""
    result = deepcopy(below)
    for key, value in above.items():
        both_groups = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merged(result[key], value) if both_groups else value
    return result


def apply_setting(document: dict[str, Any], text: str) -> list[Problem]:
    """Put one `key=value` of `--set` into the document; `null`, `true` and `3` are values, not texts."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        return [malformed_setting(text)]
    present = PRESENT_NAMES.get(key, key)
    set_at(document, present, setting_value(value))
    return []


def setting_value(text: str) -> Any:
    """Return the value that a text names: JSON if it is JSON (`1e-5`, `true`, `null`), else the text itself."""
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return text


def config_text(config: Config) -> str:
    """Return the resolved configuration as YAML: what `config.yaml` holds; loading it gives the same `Config`."""
    return write_yaml(document_of(config))


def unreadable(path: Path, error: OSError) -> Problem:
    """Return the problem of a configuration file that cannot be opened."""
    return Problem(
        code="TP001",
        severity="error",
        file=str(path),
        what=f"The configuration cannot be read: {error.strerror}.",
        next="Name a YAML file; trainer/configs/demo.yaml is a complete one.",
    )


def malformed_setting(text: str) -> Problem:
    """Return the problem of a `--set` without key or value."""
    return Problem(
        code="TP002",
        severity="error",
        file="--set",
        what=f"{text!r} names no setting",
        expected="key=value, as in --set optimizer.learning_rate=1e-4",
        next="Write the key, an equals sign and the value, without spaces around the sign.",
    )
