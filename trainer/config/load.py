"""Load a `Config` from YAML files and flags, and report all problems together.

Precedence, lowest first: defaults, the file, the smoke file, flags such as `--dataset`, `--set`. Key names of the
project's first YAML files are accepted; `config.yaml` of a run always has the current ones.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from schemas.formats import format_value
from schemas.problems import Lines, Problem, ProblemError, pointer_to, problem_of, unknown_lines
from schemas.reading import MOST_DIGITS, parse_yaml, write_yaml
from schemas.validate import check_value
from trainer.config.tree import Config, build_config, to_document

USAGE = 2
"""Exit code for an invalid configuration."""

SETTING = re.compile(r"(?P<key>[^=]+)=(?P<value>.*)", re.DOTALL)
"""Argument of `--set`."""

FLAGS = {
    "data.dataset": "--dataset",
    "mesh.device": "--device",
    "checkpoint.save_every_steps": "--save-every-steps",
    "limits.steps": "--smoke-steps",
    "seed": "--seed",
}
"""Flags that set a key."""

CURRENT_NAMES = {
    "model.max_length": "data.max_length",
    "model.max_seq_length": "data.max_length",
    "training.max_length": "data.max_length",
    "training.max_seq_length": "data.max_length",
    "training.num_steps": "limits.steps",
    "training.per_device_batch_size": "batch.microbatch_size",
    "training.batch_size": "batch.microbatch_size",
    "training.gradient_accumulation_steps": "batch.accumulation_steps",
    "training.optimizer": "optimizer.name",
    "training.learning_rate": "optimizer.learning_rate",
    "training.warmup_steps": "optimizer.warmup_steps",
    "training.weight_decay": "optimizer.weight_decay",
    "training.max_grad_norm": "optimizer.max_grad_norm",
    "training.schedule": "optimizer.schedule",
    "training.lr_scheduler_type": "optimizer.schedule",
    "training.dtype": "precision.compute",
    "training.device": "mesh.device",
    "training.save_every_steps": "checkpoint.save_every_steps",
    "training.seed": "seed",
}
"""Current key by the name in the project's first YAML files."""

MISSING = object()
"""Returned by `get_path` instead of a missing value; null is a value."""


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
        ProblemError: Exit code 2, with all problems of files and settings.
    """
    problems = [invalid_setting(text) for text in settings if not SETTING.fullmatch(text)]
    files = [read_file(file, problems) for file in (path, overlay) if file is not None]
    sources = [source for source in files if source is not None]
    document: dict[str, Any] = {}
    for source in sources:
        document = merge(document, source.document)
    for name, key, value in iter_settings(flags or {}, settings):
        set_path(document, CURRENT_NAMES.get(key, key), value)
        sources.append(setting_source(name, key, value))
    if None not in files:  # the problem of a file that cannot be read explains everything
        known = {(problem.file, problem.pointer) for problem in problems}
        found = [
            locate_problem(problem, document, sources)
            for problem in check_value("train_config", document, file=str(path))
        ]
        problems += [problem for problem in found if (problem.file, problem.pointer) not in known]
    if problems:
        raise ProblemError(advise_conversion(problems), exit_code=USAGE)
    return build_config(document)


def config_text(config: Config) -> str:
    """Return a configuration as YAML; loading it gives the same `Config`."""
    return write_yaml(to_document(config))


def read_file(path: Path, problems: list[Problem]) -> ConfigSource | None:
    """Read a YAML file and rename its keys, or return None if it is not a mapping; report problems."""
    try:
        data = path.read_bytes()
    except OSError as error:
        problems.append(unreadable(path, error))
        return None
    parsed = parse_yaml(data, file=str(path))
    problems += parsed.problems
    if not isinstance(parsed.value, dict):
        problems += check_value("train_config", parsed.value, file=str(path)) if parsed.is_read else ()
        return None
    document, original = rename_keys(parsed.value, str(path), parsed.lines, problems)
    return ConfigSource(name=str(path), document=document, original=original, lines=parsed.lines)


def unreadable(path: Path, error: OSError) -> Problem:
    """Return the problem of a configuration file that cannot be opened."""
    return problem_of("TP001", file=str(path), what=f"The configuration cannot be read: {error.strerror}.", why=None)


def rename_keys(
    document: dict[str, Any], file: str, lines: Lines, problems: list[Problem]
) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a document with current key names, and the original pointers of renamed values; report conflicts.

    `{"training": {"num_steps": 5}}` becomes `{"limits": {"steps": 5}}` with the original pointer
    `/training/num_steps`; another value of `limits.steps` in the same document is a conflict.
    """
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
            stated = (
                f"{old} is {format_value(value)}, but {new}, which is the same setting, is {format_value(current)}."
            )
            fix = f"Keep {new} and remove {old}."
            where: dict[str, Any] = {"file": file, "line": lines(pointer), "pointer": pointer}
            problems.append(problem_of("TP005", what=stated, expected="one value", next=fix, why=None, **where))
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


def iter_settings(flags: Mapping[str, Any], settings: Sequence[str]) -> Iterator[tuple[str, str, Any]]:
    """Yield name, key and value of flags and `--set`, lowest precedence first."""
    yield from ((FLAGS.get(key, key), key, value) for key, value in flags.items() if value is not None)
    matches = (SETTING.fullmatch(text) for text in settings)
    yield from (("--set", match["key"], parse_setting(match["value"])) for match in matches if match)


def parse_setting(text: str) -> Any:
    """Parse a value as JSON (`1e-5`, `true`, `null`), or return the text itself."""
    try:
        return json.loads(text)
    except (json.JSONDecodeError, RecursionError):
        return text
    except ValueError:
        # Python rejects integers of more than a few thousand digits; the schemas reject this shorter one too.
        return 10**MOST_DIGITS


def invalid_setting(text: str) -> Problem:
    """Return the problem of a `--set` argument without key or value."""
    what, expected = f"{text!r} names no setting", "key=value, as in --set optimizer.learning_rate=1e-4"
    return problem_of("TP002", file="--set", what=what, expected=expected, why=None)


def setting_source(name: str, key: str, value: Any) -> ConfigSource:
    """Return the source of a flag or one `--set`; its key may have an older name."""
    document: dict[str, Any] = {}
    current = CURRENT_NAMES.get(key, key)
    set_path(document, current, value)
    original = {pointer_to(current.split(".")): pointer_to(key.split("."))}
    return ConfigSource(name=name, document=document, original=original)


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


def advise_conversion(problems: Sequence[Problem]) -> list[Problem]:
    """Return problems; unknown keys and groups that resemble none of ours get the advice to convert the file."""
    return [
        replace(each, next=f"If it is the configuration of another trainer: `trainproof init --from {each.file}`.")
        if each.code == "TP123"
        and each.line
        and str(each.pointer).count("/") == 1
        and "Did you mean" not in str(each.next)
        else each
        for each in problems
    ]


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
