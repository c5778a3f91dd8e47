"""Load a `Config` from YAML files and flags, and report all problems together.

Precedence, lowest first: defaults, the file, the smoke file, flags such as `--dataset`, `--set`.
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
from trainer.config.seed_names import CURRENT_NAMES, MISSING, get_path, rename_keys, set_path
from trainer.config.tree import Config, config_of, document_of

USAGE = 2
"""Exit code for an invalid configuration."""

SETTING = re.compile(r"(?P<key>[^=]+)=(?P<value>.*)", re.DOTALL)
"""Argument of `--set`."""


def load_config(
    path: Path, *, overlay: Path | None = None, flags: Mapping[str, Any] | None = None, settings: Sequence[str] = ()
) -> Config:
    """Load a YAML file.

    Args:
        path: Configuration file.
        overlay: Second file that takes precedence, from `--smoke_config`.
        flags: Values of flags such as `--dataset` by dotted key; None values are ignored.
        settings: `key=value` arguments of `--set`, which take precedence over everything else.

    Raises:
        ProblemError: exit code 2, with all problems of files and settings.
    """
    files = [read_file(file) for file in (path, overlay) if file is not None]
    sources = [source for source, _ in files if source is not None]
    problems = [problem for _, found in files for problem in found]
    problems += [invalid_setting(text) for text in settings if not SETTING.fullmatch(text)]
    document: dict[str, Any] = {}
    for source in sources:
        document = merge(document, source.document)
    for name, key, value in iter_settings(flags or {}, settings):
        set_path(document, CURRENT_NAMES.get(key, key), value)
        sources.append(setting_source(name, key, value))
    # If a file cannot be read, its own problem explains everything.
    if all(source is not None for source, _ in files):
        known = {(problem.file, problem.pointer) for problem in problems}
        found = [
            locate_problem(problem, document, sources)
            for problem in check_value("train_config", document, file=str(path))
        ]
        problems += [problem for problem in found if (problem.file, problem.pointer) not in known]
    if problems:
        raise ProblemError(advise_conversion(problems), exit_code=USAGE)
    return config_of(document)


def advise_conversion(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems with the advice to convert a file whose unknown keys are those of another trainer."""
    from trainer.config.convert import is_foreign_key

    unknown = [each for each in problems if each.code == "TP123"]
    foreign = {each.file for each in unknown if is_foreign_key(str(each.pointer).removeprefix("/"))}
    return [
        replace(each, next=f"Convert the file: `trainproof init --from {each.file}`.")
        if each in unknown and each.file in foreign
        else each
        for each in problems
    ]


def iter_settings(flags: Mapping[str, Any], settings: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield name, key and value of flags and `--set`, lowest precedence first."""
    for key, value in flags.items():
        if value is not None:
            yield FLAGS.get(key, key), key, value
    for text in settings:
        if setting := SETTING.fullmatch(text):
            yield "--set", setting["key"], parse_setting(setting["value"])


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge two documents; keys of `above` take precedence, group by group."""
    result = deepcopy(below)
    for key, value in above.items():
        both_groups = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if both_groups else value
    return result


def parse_setting(text: str) -> Any:
    """Parse a value as JSON (`1e-5`, `true`, `null`), or return the text itself."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
    except ValueError:
        # Python rejects integers of more than a few thousand digits; the schemas reject this shorter one too.
        return 10**MOST_DIGITS


def config_text(config: Config) -> str:
    """Return a configuration as YAML; loading it gives the same `Config`."""
    return write_yaml(document_of(config))


def invalid_setting(text: str) -> Problem:
    """Return the problem of a `--set` argument without key or value."""
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
"""Flags that set a key."""


@dataclass(frozen=True, kw_only=True)
class ConfigSource:
    """A source of values: a file, a flag or one `--set`."""

    name: str
    """File name, flag, or `--set`."""
    document: dict[str, Any]
    """Values, under current key names."""
    original: Mapping[str, str] = field(default_factory=dict)
    """Pointers in the source of values with an older key name, by their pointer in the document."""
    lines: Lines = unknown_lines


def read_file(path: Path) -> tuple[ConfigSource | None, list[Problem]]:
    """Read a YAML file; return None instead of the source if it is not a mapping, and the problems."""
    try:
        data = path.read_bytes()
    except OSError as error:
        return None, [unreadable(path, error)]
    parsed = parse_yaml(data, file=str(path))
    if not parsed.is_read:
        return None, list(parsed.problems)
    if not isinstance(parsed.value, dict):
        return None, [*parsed.problems, *check_value("train_config", parsed.value, file=str(path))]
    document, original, problems = rename_keys(parsed.value, file=str(path), lines=parsed.lines)
    source = ConfigSource(name=str(path), document=document, original=original, lines=parsed.lines)
    return source, [*parsed.problems, *problems]


def setting_source(name: str, key: str, value: Any) -> ConfigSource:
    """Return the source of a flag or one `--set`; its key may have an older name."""
    document: dict[str, Any] = {}
    present = CURRENT_NAMES.get(key, key)
    set_path(document, present, value)
    return ConfigSource(
        name=name, document=document, original={pointer_to(present.split(".")): pointer_to(key.split("."))}
    )


def locate_problem(problem: Problem, document: dict[str, Any], sources: Sequence[ConfigSource]) -> Problem:
    """Attribute a problem to the source of the value, with its line; a missing key to the first source of its group."""
    parts = [part.replace("~1", "/").replace("~0", "~") for part in (problem.pointer or "").split("/")[1:]]
    value = get_path(document, parts)
    stated = [(source, get_path(source.document, parts)) for source in sources]
    if isinstance(value, dict):
        blamed = [source for source, own in stated if isinstance(own, dict)][:1]
    else:
        blamed = [source for source, own in stated if own is not MISSING and own == value][-1:]
    for source in blamed:
        pointer = source.original.get(problem.pointer or "", problem.pointer or "")
        return replace(problem, file=source.name, pointer=pointer, line=source.lines(pointer) if parts else None)
    return problem


def unreadable(path: Path, error: OSError) -> Problem:
    """Return the problem of a configuration file that cannot be opened."""
    return problem_of("TP001", file=str(path), what=f"The configuration cannot be read: {error.strerror}.", why=None)
