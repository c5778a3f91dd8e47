"""From YAML files and flags to a `Config`: every problem found at once, nothing ignored.

The order of precedence, weakest first: defaults, the file, the smoke file, flags such as `--dataset`, `--set`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from schemas.reading.limits import MOST_DIGITS
from schemas.reading.yaml_text import write_yaml
from schemas.validate import check_value
from trainer.config.seed_names import PRESENT_NAMES, set_at
from trainer.config.sources import FLAGS, locate_problem, read_file, source_of_setting
from trainer.config.tree import Config, config_of, document_of

SETTING_WITHOUT_KEY = Rule(
    "TP002",
    "Setting without key",
    "A --set is not of the form key=value.",
    "Write the key, an equals sign and the value, without spaces around the sign.",
)

USAGE = 2
"""Exit code of a configuration that cannot be used."""

SETTING = re.compile(r"(?P<key>[^=]+)=(?P<value>.*)", re.DOTALL)
"""What follows `--set`."""


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
        SETTING_WITHOUT_KEY,
        file="--set",
        what=f"{text!r} names no setting",
        expected="key=value, as in --set optimizer.learning_rate=1e-4",
        why=None,
    )
