"""Settings given on a command line, `--learning_rate 2e-4` or `lr=2e-4`, as a list of arguments or as one text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from evidence.records.foreign.keys import RESULTS, TEXT_FACTS, fact_of
from evidence.records.foreign.numbers import finite, number_of
from evidence.records.foreign.statement import Scalar

_NAMES = ("args", "argv", "command", "cmd", "command_line", "commandline", "sys_argv")
_LONGEST = 20_000
_QUOTES = "'\""


def is_command(key: str, value: Any) -> bool:
    """Return whether a value is a list of arguments or a command line, by its key and its content."""
    if key.lower().strip("_") not in _NAMES:
        return False
    if isinstance(value, list):
        return bool(value) and all(isinstance(one, str | int | float) for one in value)
    return isinstance(value, str) and "--" in value and len(value) < _LONGEST


def settings_of(value: Any) -> Iterator[tuple[str, Scalar, str]]:
    """Yield our name, the value and the key of each setting that a command line gives.

    Example:
        >>> list(settings_of(["train.py", "--model_name_or_path", "gpt2", "--seed=3", "--fp16"]))
        [('model.name', 'gpt2', 'model_name_or_path'), ('training.seed', 3, 'seed')]
    """
    words = [str(one) for one in value] if isinstance(value, list) else _split(value)
    for index, word in enumerate(words):
        if not word.startswith("--"):
            continue
        key, equals, given = word.removeprefix("--").partition("=")
        if not equals:
            given = words[index + 1] if index + 1 < len(words) else ""
        key = key.replace("-", "_").rpartition(".")[2]
        name = fact_of(key)
        if name is None or not given or given.startswith("--") or name in RESULTS or name.startswith("run."):
            continue
        number = number_of(given)
        if name in TEXT_FACTS:
            yield name, given, key
        elif number is not None and finite(number) is not None:
            yield name, number, key


_ECHOED = re.compile(
    r"^(?:\++|\$) +((?:\S*/)?(?:python3?|accelerate|torchrun|deepspeed|axolotl|llamafactory-cli)\b.*)$"
)


def echoed(text: str) -> str:
    """Return the command that a shell printed before it ran it (`set -x`); empty where a line is none.

    Example:
        >>> echoed("+ python train.py --lr 1e-4"), echoed("+ 3 more")
        ('python train.py --lr 1e-4', '')
    """
    found = _ECHOED.match(text.strip())
    return found.group(1) if found else ""


_NAMESPACE = re.compile(r"\bNamespace\((.*)\)\s*$")
_ARGUMENT = re.compile(r"(?:^|,\s*)(\w+)=('[^']*'|\"[^\"]*\"|[^,()\[\]{}]+)(?=,\s*\w+=|$)")


def namespace_of(text: str) -> list[str]:
    """Return what a program printed of its arguments as a command line: `Namespace(lr=0.1)` is `--lr=0.1`.

    Example:
        >>> namespace_of("INFO Namespace(seed=42, model='gpt2')")
        ['--seed=42', '--model=gpt2']
    """
    found = _NAMESPACE.search(text)
    arguments = _ARGUMENT.findall(found.group(1)) if found else []
    return [f"--{key}={value.strip().strip(_QUOTES)}" for key, value in arguments if value.strip() != "None"]


def _split(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:
        return text.split()
