"""Load a `Config` from YAML files and flags, and report all problems together.

Precedence, lowest first: defaults, the file, the smoke file, flags such as `--dataset`, `--set`. Key names of the
project's first YAML files are accepted; `config.yaml` of a run always has the current ones.
"""

from __future__ import annotations

import json
import textwrap
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from importlib.resources import files
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from schemas.formats import format_value
from schemas.problems import Lines, Problem, ProblemError, pointer_to, problem_of, unknown_lines
from schemas.reading import LARGEST_DOCUMENT, MAX_DIGITS, parse_json, parse_yaml, write_yaml
from schemas.validate import check_value
from trainer.config.tree import Config, build_config, to_document

USAGE = 2  # exit code for an invalid configuration

FLAGS = {
    "data.dataset": "--dataset",
    "mesh.device": "--device",
    "checkpoint.save_every_steps": "--save-every-steps",
    "limits.steps": "--smoke-steps",
    "seed": "--seed",
}
"""Flags that set a key."""

TEXTS: dict[str, dict[str, Any]] = tomllib.loads(files("trainer").joinpath("settings.toml").read_text(encoding="utf-8"))
CURRENT_NAMES = TEXTS["older_names"]  # current key by the name in the project's first YAML files

COMMENT_COLUMNS = 110  # columns of a line with a comment

MISSING = object()  # returned by `get_path` instead of a missing value; null is a value


@dataclass(frozen=True, kw_only=True)
class ConfigSource:
    """A source of values: a file, a flag or one `--set`."""

    name: str  # file name, flag, or `--set`
    document: dict[str, Any]  # under current key names
    original: Mapping[str, str] = field(default_factory=dict)  # pointers in the source by pointers in the document
    lines: Lines = unknown_lines


class Setting(NamedTuple):
    """A key of a written configuration, its value, and a comment."""

    key: str
    value: Any
    comment: str


def load_config(
    path: Path | dict[str, Any],
    *,
    overlay: Path | None = None,
    flags: Mapping[str, Any] | None = None,
    settings: Sequence[str] = (),
) -> Config:
    """Load a YAML file, or its content.

    `overlay`, from `--smoke_config`, takes precedence over it, then `flags`, the values of flags such as `--dataset` by
    dotted key (None is ignored), then `settings`, the `key=value` arguments of `--set`. Problems of files and settings
    are raised together as a ProblemError with exit code 2.
    """
    problems: list[Problem] = []
    stated = read_settings(flags or {}, settings, problems)
    files = [_read_file(file, problems) for file in (path, overlay) if file is not None]
    sources = [source for source in files if source is not None]
    document: dict[str, Any] = {}
    for source in sources:
        document = merge(document, source.document)
    for key, value, source in stated:
        set_path(document, key, value)
        sources.append(source)
    if None not in files:  # the problem of a file that cannot be read explains everything
        known = {(problem.file, problem.pointer) for problem in problems}
        found = [
            locate_problem(problem, document, sources)
            for problem in check_value("train_config", document, file=sources[0].name)
        ]
        problems += [problem for problem in found if (problem.file, problem.pointer) not in known]
    if problems:
        raise ProblemError(map(_advise_conversion, problems), exit_code=USAGE)
    return build_config(document)


def config_text(config: Config) -> str:
    """Return a configuration as YAML; loading it gives the same `Config`."""
    return write_yaml(to_document(config))


def settings_text(settings: Iterable[Setting]) -> Iterator[str]:
    """Yield lines of YAML. A comment follows its setting if the line is not too long, and precedes it otherwise."""
    for group, members in groupby(settings, key=lambda each: each.key.partition(".")[0]):
        for place, (path, value, comment) in enumerate(members):
            key = path.rpartition(".")[2]
            indent = "  " * (path != group)
            if indent and not place:
                yield f"{group}:"
            line = write_yaml({key: value}).rstrip("\n")
            if "\n" in line:  # a long text
                line = f"{key}: {json.dumps(value, ensure_ascii=False)}"
            note = " ".join(comment.split())
            if len(line) + len(note) < COMMENT_COLUMNS:
                yield f"{indent}{line}  # {note}"
            else:
                yield from comment_lines(note, indent)
                yield indent + line


def comment_lines(text: str, indent: str = "") -> list[str]:
    """Return a text as lines of a comment."""
    return textwrap.wrap(text, COMMENT_COLUMNS, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def read_mapping(path: Path, problems: list[Problem]) -> tuple[dict[str, Any], Lines] | None:
    """Read a YAML or JSON file, or return None and report why it cannot be read or is not a mapping."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST_DOCUMENT + 1)
    except OSError as error:
        what = f"The configuration cannot be read: {error.strerror}."
        problems.append(problem_of("TP001", file=str(path), what=what, why=None))
        return None
    parsed = (parse_json if path.suffix.lower() == ".json" else parse_yaml)(data, file=str(path))
    problems += [problem for problem in parsed.problems if problem.severity == "error"]
    if not isinstance(parsed.value, dict):
        problems += check_value("train_config", parsed.value, file=str(path)) if parsed.is_read else ()
        return None
    return parsed.value, parsed.lines


def _read_file(path: Path | dict[str, Any], problems: list[Problem]) -> ConfigSource | None:
    """Read a file and rename its keys, or return None if it is not a mapping; report problems."""
    found = (path, unknown_lines) if isinstance(path, dict) else read_mapping(path, problems)
    if found is None:
        return None
    name = "config" if isinstance(path, dict) else str(path)
    document, original = rename_keys(found[0], name, found[1], problems)
    return ConfigSource(name=name, document=document, original=original, lines=found[1])


def rename_keys(
    document: dict[str, Any], file: str, lines: Lines, problems: list[Problem]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a document with current key names, and the original pointers of renamed values; report conflicts."""
    result, original = deepcopy(document), {}
    for old, new in CURRENT_NAMES.items():
        group, _, key = old.partition(".")
        if not isinstance(holder := result.get(group), dict) or key not in holder:
            continue
        value, current, pointer = holder.pop(key), get_path(result, new.split(".")), pointer_to(old.split("."))
        if current is MISSING:
            set_path(result, new, value)
            original[pointer_to(new.split("."))] = pointer
        elif current != value:
            what = f"{old} is {format_value(value)}, but {new}, which is the same setting, is {format_value(current)}."
            fix, line = f"Keep {new} and remove {old}.", lines(pointer)
            problems.append(problem_of("TP005", file=file, line=line, pointer=pointer, what=what, next=fix, why=None))
    if result.get("training") == {}:
        del result["training"]
    return result, original


def merge(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Merge two documents; keys of `above` take precedence, group by group."""
    result = deepcopy(below)
    for key, value in above.items():
        both_groups = isinstance(value, dict) and isinstance(result.get(key), dict)
        result[key] = merge(result[key], value) if both_groups else value
    return result


def read_settings(
    flags: Mapping[str, Any], settings: Sequence[str], problems: list[Problem]
) -> list[tuple[str, Any, ConfigSource]]:
    """Return current key, value and source of flags and `--set`, lowest precedence first; report invalid ones."""
    stated = [(FLAGS.get(key, key), key, value) for key, value in flags.items() if value is not None]
    for text in settings:
        key, equals, value = text.partition("=")
        if key and equals:
            stated.append(("--set", key, parse_setting(value)))
        else:
            what, expected = f"{text!r} names no setting", "key=value, as in --set optimizer.learning_rate=1e-4"
            problems.append(problem_of("TP002", file="--set", what=what, expected=expected, why=None))
    found = []
    for name, key, value in stated:
        document: dict[str, Any] = {}
        current = CURRENT_NAMES.get(key, key)
        set_path(document, current, value)
        original = {pointer_to(current.split(".")): pointer_to(key.split("."))}
        found.append((current, value, ConfigSource(name=name, document=document, original=original)))
    return found


def parse_setting(text: str) -> Any:
    """Parse a value as JSON (`1e-5`, `true`, `null`), or return the text itself."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
    except ValueError:
        # Python rejects integers of more than a few thousand digits; the schemas reject this shorter one too.
        return 10**MAX_DIGITS


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


def _advise_conversion(problem: Problem) -> Problem:
    """Advise to convert the file if an unknown key or group resembles none of ours."""
    is_near = "Did you mean" in problem.next or str(problem.pointer).count("/") != 1
    if problem.code != "TP123" or not problem.line or is_near:
        return problem
    advice = f"If this is the configuration of another tool, convert it with `trainproof init --from {problem.file}`."
    return replace(problem, next=advice)


def get_path(document: dict[str, Any], path: Sequence[str]) -> Any:
    """Return the value at a path, or `MISSING`."""
    value: Any = document
    for part in path:
        value = value.get(part, MISSING) if isinstance(value, dict) else MISSING
    return value


def set_path(document: dict[str, Any], path: str, value: Any) -> None:
    """Set the value at a dotted path and create groups; the schema reports groups that are not mappings."""
    *groups, key = path.split(".")
    holder: Any = document
    for group in groups:
        holder = holder.setdefault(group, {})
        if not isinstance(holder, dict):
            return
    holder[key] = value
