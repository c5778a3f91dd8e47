"""Settings as other tools write them: lines of `key: value`, and command lines."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from foreign.readers.keys import RESULTS, TEXT_FACTS, fact_of, is_score, plain
from foreign.readers.statement import Scalar
from foreign.readers.text import NUMBER, LogLine, finite, number_of
from schemas.problems import pointer_to

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


FORM = re.compile(
    r"^[\W_]*(?:\w+ ){0,2}(?:example|sample|expected|template|placeholder|mock|dummy)\b(?: \w+){0,3}? ?"
    r"(?:outputs?|logs?|format|results?|runs?|console)\b(?!\s*[:=]\s*[^\s(])"
    r"|\bthis (?:log )?file (?:should|will|is to) (?:contain|be|hold)\b"
    r"|\bthis (?:log )?(?:file )?is (?:a|an|the|only a) (?:placeholder|template|example|sample)\b"
    r"|\b(?:should|to|will) be (?:filled in|filled|populated)\b"
    r"|\breplac(?:e|ing) (?:this|it)?\b.{0,20}\b(?:actual|real|template)\b"
    r"|\bpaste .{0,40}\b(?:outputs?|logs?|results?)\b.{0,20}\bhere\b"
    r"|\bnot yet (?:run|executed)\b|\bawaiting (?:a |the )?(?:real|actual)\b"
    r"|\blog template\b|^[\W_]*status\W+template\b|^[\W_]*placeholder\b|<\s*pending\b",
    re.IGNORECASE,
)
"""A line that opens an example or an empty form."""

REAL = re.compile(
    r"\b(?:paste|copy)\b.{0,50}\bbelow\b|^[\W_]*(?:actual|real) (?:\w+ ){0,2}(?:outputs?|logs?|results?)\b",
    re.IGNORECASE,
)
"""A line below which the real output stands."""

_BELOW = re.compile(r"\b(?:paste|copy)\b.{0,50}\bbelow\b", re.IGNORECASE)

UNFILLED = re.compile(
    r"\bX+\.X{2,}\b|<\s*(?i:pending|todo|tbd|fill[ _-]?in|insert|placeholder|your)\b[^>]*>|\b(?:TBD|TODO|FIXME)\b"
    r"|(?i:\b(?:loss|score|accuracy|n_scored|exact_match)\b)['\"]?\s*[:=]\s*(?:X{2,}|\?{2,}|\.{3})(?![\w.])"
)
"""A place where a value was to be put."""

_FORM_DOCUMENT = re.compile(
    r"\btemplate\b|\bplaceholder\b|\bnot yet (?:run|executed)\b|\bexpected (?:values?|results?|output)\b"
    r"|\bexample (?:values?|results?|output|only)\b|\bfill(?:ed)? (?:in|after)\b|\bupdate (?:with|after)\b",
    re.IGNORECASE,
)
"""A remark that states that a document is an empty form or an example."""

_REMARKS = ("note", "notes", "comment", "_comment", "description", "status", "readme", "_readme", "remark", "remarks")

EXAMPLE_KEY = re.compile(
    r"(?:^|_)(?:expected|example|template|placeholder|targets?|goals?|hypothetical|best_case|expectations?)(?:_|$)"
)
"""A key under which numbers are targets, not measurements."""

_EXAMPLE_NAME = re.compile(r"(?:^|[._ -])(?:expected|example|sample|template|placeholder)(?:[._ -]|$)", re.IGNORECASE)

_OPENING_LINES = 40
"""Lines at the top of a log in which any such words are believed; further down only a heading is."""

_DECORATED = re.compile(r"^\s*[#=*\-\[<_~]")


@dataclass
class Region:
    """Lines of a log that belong together: an example, or what a program printed."""

    form: LogLine | None
    """The line that states that it is an example; None: it is not."""
    lines: list[LogLine] = field(default_factory=list)
    """The lines, without headings."""

    @property
    def is_form(self) -> bool:
        """Whether nothing may be read from it."""
        return self.form is not None

    def closed(self) -> Region:
        """Return the region as what it turned out to be: one with an empty place in it is an example."""
        if self.form is None:
            self.form = next((line for line in self.lines if UNFILLED.search(line.text) and _is_value(line)), None)
        return self


def regions(lines: Sequence[LogLine]) -> list[Region]:
    """Return the regions of a log in order; a log without any such words is one region."""
    found = [Region(form=None)]
    for number, line in enumerate(lines):
        if REAL.search(line.text) and not re.search(r"\bhere\b", line.text):
            if _BELOW.search(line.text) and found[-1].form is None:
                found[-1].form = line  # What stands above such a line are instructions.
            found.append(Region(form=None))
        elif FORM.search(line.text) and (number < _OPENING_LINES or _DECORATED.match(line.text)):
            found.append(Region(form=line))
        else:
            found[-1].lines.append(line)
    return [region.closed() for region in found]


def is_example_name(path: str) -> bool:
    """Return whether the name of a file states that it is an example or a template."""
    return _EXAMPLE_NAME.search(path.rpartition("/")[2]) is not None


def remark_of(document: Any) -> str | None:
    """Return the pointer to the remark that states that a document is a form or an example; None where none does."""
    if not isinstance(document, dict):
        return None
    for key, value in document.items():
        if key.lower() in _REMARKS and isinstance(value, str) and _FORM_DOCUMENT.search(value):
            return pointer_to([key])
        if key.lower().strip("_") in ("is_template", "template", "example", "is_example") and value is True:
            return pointer_to([key])
    return None


def unfilled_places(value: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str, str]]:
    """Yield pointer and text of every place of a document where a value was to be put."""
    if isinstance(value, str):
        if UNFILLED.search(value) and len(value) < 200:
            yield pointer_to(path), value
        return
    members: Any = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in members:
        yield from unfilled_places(item, (*path, key))


def _is_value(line: LogLine) -> bool:
    # A TODO that a library prints in a warning is no empty place.
    return not re.search(r"\b(?:TODO|FIXME)\b", line.text) or bool(re.search(r"[:=]\s*(?:TODO|FIXME)\W*$", line.text))
