"""From YAML files and flags to a `Config`: every problem found at once, nothing ignored.

The order of precedence, weakest first: defaults, the file, the smoke file, flags such as `--dataset`, `--set`.

Precedence is `load.py`'s: sources are handed around weakest first.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from schemas.problems import Lines, Problem, ProblemError, pointer_to, problem_of, unknown_lines
from schemas.reading import MOST_DIGITS, parse_yaml, write_yaml
from schemas.validate import check_value
from trainer.config.seed_names import NOT_STATED, PRESENT_NAMES, set_at, value_at, with_present_names
from trainer.config.tree import Config, config_of, document_of

USAGE = 2
"""Exit code of a configuration that cannot be used."""

SETTING = re.compile(r"(?P<key>[^=]+)=(?P<value>.*)", re.DOTALL)
"""What follows `--set`."""


def load_config(
    path: Path, *, overlay: Path | None = None, flags: Mapping[str, Any] | None = None, settings: Sequence[str] = ()
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
    files = [read_file(file) for file in (path, overlay) if file is not None]
    sources = [source for source, _ in files if source is not None]
    problems = [problem for _, found in files for problem in found]
    problems += [malformed_setting(text) for text in settings if not SETTING.fullmatch(text)]
    document: dict[str, Any] = {}
    for source in sources:
        document = merge(document, source.document)
    for name, key, value in single_values(flags or {}, settings):
        set_at(document, PRESENT_NAMES.get(key, key), value)
        sources.append(source_of_setting(name, key, value))
    # A file that could not be read leaves nothing to check; its own problem explains everything.
    if all(source is not None for source, _ in files):
        known = {(problem.file, problem.pointer) for problem in problems}
        found = [
            locate_problem(problem, document, sources)
            for problem in check_value("train_config", document, file=str(path))
        ]
        problems += [problem for problem in found if (problem.file, problem.pointer) not in known]
    if problems:
        raise ProblemError(problems, exit_code=USAGE)
    return config_of(document)


def single_values(flags: Mapping[str, Any], settings: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield what flags and `--set` state, weakest first: what it is called, the key as it is given, and the value."""
    for key, value in flags.items():
        if value is not None:
            yield FLAGS.get(key, key), key, value
    for text in settings:
        if setting := SETTING.fullmatch(text):
            yield "--set", setting["key"], setting_value(setting["value"])


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return `below` with the keys of `above` put over it, group by group."""
    result = deepcopy(below)
    for key, value in above.items():
        both_groups = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if both_groups else value
    return result


def setting_value(text: str) -> Any:
    """Return the value that a text names: JSON if it is JSON (`1e-5`, `true`, `null`), else the text itself."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
    except ValueError:
        # Python reads no whole number of more than a few thousand digits. The schemas refuse such a number for its
        # length; the shortest that they refuse stands for it.
        return 10**MOST_DIGITS


def config_text(config: Config) -> str:
    """Return the resolved configuration as YAML: what `config.yaml` holds; loading it gives the same `Config`."""
    return write_yaml(document_of(config))


def malformed_setting(text: str) -> Problem:
    """Return the problem of a `--set` without key or value."""
    return problem_of(
        "TP002",
        file="--set",
        what=f"{text!r} names no setting",
        expected="key=value, as in --set optimizer.learning_rate=1e-4",
        why=None,
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
    return problem_of("TP001", file=str(path), what=f"The configuration cannot be read: {error.strerror}.", why=None)
