"""Where a configuration's values come from: files, flags, `--set`; and which of them a problem is to name.

Precedence is `load.py`'s: sources are handed around weakest first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from schemas.problems.problem import Lines, Problem, pointer_to, unknown_lines
from schemas.problems.rule import Rule, problem_of
from schemas.reading.parse import parse_yaml
from schemas.validate import check_value
from trainer.config.seed_names import NOT_STATED, PRESENT_NAMES, set_at, value_at, with_present_names

NO_CONFIGURATION_FILE = Rule(
    "TP001",
    "No configuration file",
    "The YAML file named cannot be read.",
    "Name a YAML file; trainer/configs/demo.yaml is a complete one.",
)

FLAGS = {
    "data.dataset": "--dataset",
    "mesh.device": "--device",
    "checkpoint.save_every_steps": "--save-every-steps",
    "limits.steps": "--smoke-steps",
    "seed": "--seed",
}
"""The flag of the command that sets a key."""


@dataclass(frozen=True, kw_only=True)
class ConfigSource:
    """One place that states values."""

    name: str
    """The file as the user named it, a flag, or `--set`."""
    document: dict[str, Any]
    """What it states, under present names."""
    written: Mapping[str, str] = field(default_factory=dict)
    """Pointer of a value in the document to the one under which the source has it, where that is an older name."""
    lines: Lines = unknown_lines


def read_file(path: Path) -> tuple[ConfigSource | None, list[Problem]]:
    """Return what a YAML file states, None if there is no configuration in it, and what is wrong with it."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return None, [unreadable(path, error)]
    parsed = parse_yaml(data, file=str(path))
    if not parsed.is_read:
        return None, list(parsed.problems)
    if not isinstance(parsed.value, dict):
        return None, [*parsed.problems, *check_value("train_config", parsed.value, file=str(path))]
    document, written, problems = with_present_names(parsed.value, file=str(path), lines=parsed.lines)
    source = ConfigSource(name=str(path), document=document, written=written, lines=parsed.lines)
    return source, [*parsed.problems, *problems]


def source_of_setting(name: str, key: str, value: Any) -> ConfigSource:
    """Return what a flag or one `--set` states: a value at a dotted key, which may be an older name."""
    document: dict[str, Any] = {}
    present = PRESENT_NAMES.get(key, key)
    set_at(document, present, value)
    return ConfigSource(
        name=name, document=document, written={pointer_to(present.split(".")): pointer_to(key.split("."))}
    )


def locate_problem(problem: Problem, document: dict[str, Any], sources: Sequence[ConfigSource]) -> Problem:
    """Return a problem of the whole configuration as one of the source that stated the value, with its line.

    What is missing from a group is missing from the weakest source that has the group.
    """
    parts = parts_of(problem.pointer or "")
    value = value_at(document, parts)
    stated = [(source, value_at(source.document, parts)) for source in sources]
    if isinstance(value, dict):
        blamed = [source for source, own in stated if isinstance(own, dict)][:1]
    else:
        blamed = [source for source, own in stated if own is not NOT_STATED and own == value][-1:]
    for source in blamed:
        pointer = source.written.get(problem.pointer or "", problem.pointer or "")
        return replace(problem, file=source.name, pointer=pointer, line=source.lines(pointer) if parts else None)
    return problem


def parts_of(pointer: str) -> list[str]:
    """Return the keys on the way that a JSON Pointer describes; the inverse of `pointer_to`."""
    return [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]


def unreadable(path: Path, error: OSError) -> Problem:
    """Return the problem of a configuration file that cannot be opened."""
    return problem_of(
        NO_CONFIGURATION_FILE, file=str(path), what=f"The configuration cannot be read: {error.strerror}.", why=None
    )
