"""Settings as other tools write them: lines of `key: value`, and command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Any

from foreign.readers.keys import RESULTS, TEXT_FACTS, fact_of, is_score, plain
from foreign.readers.statement import Scalar
from foreign.readers.text import NUMBER, finite, number_of

_KEY_VALUE = re.compile(r"^[^A-Za-z]{0,60}([A-Za-z][\w /.-]{1,60}?)\s*(?:\([^)]*\))?\s*[:=]\s+(\S.*)$")
_DEVICES = re.compile(r"\b(?:cpu|gpu|tpu|cuda|rocm|metal|mps|xla)\b", re.IGNORECASE)
_RATIO = re.compile(r"(\d+)\s*(?:/|of|out of)\s*(\d+)\b")


def key_value(text: str) -> tuple[str, Scalar] | None:
    """Return the fact that a line of the form `key: value` states, by our name; None where it states none.

    Example:
        >>> key_value("   Model: gpt2 (revision: main)"), key_value("  Num examples = 1,000"), key_value("Hint: no")
        (('model.name', 'gpt2'), ('dataset.rows', 1000), None)
    """
    match = _KEY_VALUE.match(text)
    if match is None or len(text) > 200:
        return None
    key, value = match.groups()
    name = fact_of(key)
    if plain(key) == "platform" and _DEVICES.search(value):
        name = "device.platform"
    if name is None or name.startswith("run."):
        return None
    word = value.split(" (")[0].strip().strip("`'\"")
    if name in TEXT_FACTS:
        is_one_word = " " not in word or name in ("device.kind", "device.gpu")
        return (name, word) if is_one_word and 0 < len(word) <= 100 and not word.endswith((":", "...")) else None
    number = number_of(word.split()[0].rstrip(",;")) if word.split() else None
    return (name, number) if number is not None and finite(number) is not None else None


def score_of(text: str) -> tuple[str, float, str | None] | None:
    """Return name, value and note of the score that a line states: `Accuracy: 12/50 (24 %)` is 0.24.

    Example:
        >>> score_of("Accuracy: 12/50 (24.00%)"), score_of("Exact match = 41.5%")
        (('accuracy', 0.24, '12 of 50.'), ('exact_match', 0.415, '41.5 % in the source.'))
    """
    match = _KEY_VALUE.match(text)
    if match is None or len(text) > 200 or not is_score(match.group(1)):
        return None
    name, value = plain(match.group(1)), match.group(2)
    if (ratio := _RATIO.match(value)) and int(ratio.group(2)[:15]) > 0 and len(ratio.group()) < 40:
        return name, int(ratio.group(1)) / int(ratio.group(2)), f"{ratio.group(1)} of {ratio.group(2)}."
    number = re.match(rf"({NUMBER})\s*(%?)", value, re.IGNORECASE)
    found = number_of(number.group(1)) if number else None
    if number is None or found is None or finite(found) is None:
        return None
    if number.group(2):
        return name, round(found / 100, 12), f"{number.group(1)} % in the source."
    return name, float(found), None


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


def echoed_command(text: str) -> str:
    """Return the command that a shell printed before it ran it (`set -x`), or empty if the line is not one.

    Example:
        >>> echoed_command("+ python train.py --lr 1e-4"), echoed_command("+ 3 more")
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
