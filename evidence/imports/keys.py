"""Decode other tools' files and recognise their keys, numbers and templates, with the tables in `keys.toml`."""

from __future__ import annotations

import json
import math
import re
import tomllib
from collections.abc import Container, Iterable, Iterator, Mapping
from importlib.resources import files
from typing import Any, NamedTuple

from evidence.imports.run import Scalar
from schemas.problems import pointer_to
from schemas.reading import UTF8_BOM, detect_utf16

TABLE: dict[str, Any] = tomllib.loads(files("evidence.imports").joinpath("keys.toml").read_text(encoding="utf-8"))
_FACT_OF_KEY: dict[str, str] = {key: name for name, keys in TABLE["facts"].items() for key in keys}
_METRIC_OF_KEY: dict[str, str] = {key: name for name, keys in TABLE["metrics"].items() for key in keys}

PATTERNS = {name: re.compile("|".join(parts), re.IGNORECASE) for name, parts in TABLE["patterns"].items()}
TEXT_FACTS = frozenset(TABLE["kinds"]["text"])
EVALUATION_NAMES: Mapping[str, str] = TABLE["evaluation"]
GRADED, EXACT = frozenset(TABLE["scores"]["graded"]), frozenset(TABLE["scores"]["exact"])
SCORES = GRADED | EXACT | frozenset(TABLE["scores"]["other"])
RESULTS = frozenset(name for name in TABLE["facts"] if name.startswith("result.")) | {"evaluation.scored"}
"""Facts that only a run can give; none is read from a template."""

_SCORE_PREFIX = re.compile(r"^(?:best_)?(?:eval|test|val|predict|final|overall|mean|avg|best|dev|validation|valid)_")
_BEST_LOSS = re.compile(r"best_(?:eval|val|valid|validation|dev|test)_loss")
_LIGHTNING_RATE = re.compile(r"lr_(?:adam|sgd|adafactor|lion|lamb|rmsprop)\w*")
_WORDS = {
    kind: re.compile(rf"(?:^|{between})(?:{'|'.join(words)})(?:{between}|$)")
    for group, between in (("in_keys", "_"), ("in_names", "[^a-z]"))
    for kind, words in TABLE[group].items()
}


def plain(key: str) -> str:
    """Write a key in lower case with underscores: `Grad Norm` is `grad_norm`, `pass@1` is `pass_at_1`."""
    text = re.sub(r"(?<=[a-z])(?=[A-Z][a-z])", "_", key).replace("@", "_at_")
    return re.sub(r"[^0-9A-Za-z_]+", "_", text).strip("_ ").lower() if not key.startswith("_") else key.lower()


def fact_name(key: str, group: str | None = None) -> str | None:
    """Return the fact that a key states inside a group, or None if it states none of ours.

    >>> fact_name("max_steps"), fact_name("name", "model"), fact_name("name"), fact_name("notes")
    ('training.steps_planned', 'model.name', None, None)
    """
    key, group = plain(key), plain(group or "")
    in_group = _FACT_OF_KEY.get(f"{group}.{key}") if group in TABLE["words"]["groups"] else None
    return in_group or _FACT_OF_KEY.get(key)


def is_set(name: str, value: Scalar) -> bool:
    """Return whether a value states something: `max_steps: -1` and `precision: auto` leave the choice open."""
    if isinstance(value, str):
        return value.strip().lower() not in TABLE["words"]["unset"]
    kinds = TABLE["kinds"]
    return not (name in kinds["positive"] and value <= 0) and not (name in kinds["not_negative"] and value < 0)


def is_unused_device(name: str, value: object) -> bool:
    """Return whether a device name says that the device did not do the work: `RTX 5090 (Detected but ...)`."""
    return name.startswith("device.") and isinstance(value, str) and PATTERNS["unused_device"].search(value) is not None


def has_word(kind: str, name: str) -> bool:
    """Return whether a key, group or file name has one of the words of this kind in `keys.toml`."""
    return _WORDS[kind].search(name.lower() if kind in TABLE["in_names"] else plain(name)) is not None


def metric_name(key: str) -> str:
    """Return our name of a measured value.

    >>> metric_name("train/loss"), metric_name("eval/loss"), metric_name("lr"), metric_name("rewards/format")
    ('loss', 'eval_loss', 'learning_rate', 'rewards_format')
    """
    name = plain(key)
    if re.match(r"(?:train|training|trainer)[/ .]", key):
        name = plain(re.split(r"[/ .]", key, maxsplit=1)[1])
    return "learning_rate" if _LIGHTNING_RATE.fullmatch(name) else _METRIC_OF_KEY.get(name, name)


def is_score(key: str) -> bool:
    """Return whether a key names a score, with a split or a filter (`exact_match,strict-match`) or without.

    >>> is_score("best_eval_accuracy"), is_score("exact_match,strict-match"), is_score("accuracy_stderr")
    (True, True, False)
    """
    name = plain(key.partition(",")[0])
    return _SCORE_PREFIX.sub("", name) in SCORES or name in SCORES or _BEST_LOSS.fullmatch(name) is not None


def row_values(row: Mapping[str, Any]) -> dict[str, float | None]:
    """Return the numbers of a row by our names; text that is a number counts, true and false do not."""
    values: dict[str, float | None] = {}
    # Beside the steps of the training, W&B counts calls of its logger as `_step`, and LitGPT microbatches as `iter`.
    counters = {"_step", "iter", "iteration"}
    has_step = any(key not in counters and metric_name(key) == "step" for key in row)
    for key, value in row.items():
        if key in counters and has_step:
            continue
        number = parse_number(value) if isinstance(value, str) else value
        if isinstance(number, int | float) and not isinstance(number, bool):
            values.setdefault(metric_name(key), finite(number))
        elif value is None and "loss" in metric_name(key):
            values.setdefault(metric_name(key), None)
    return values


def is_metric_row(values: Mapping[str, Any]) -> bool:
    """Return whether numbers are a row of training metrics: a step or an epoch, and something measured there."""
    measured = values.keys() - {"step", "epoch", "time", "timestamp", "wall_time"}
    return bool({"step", "epoch"} & values.keys() and measured)


NUMBER = (
    r"[-+]?(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|(?:nan|inf(?:inity)?)\b)"
)
"""Pattern of a number: `1,234`, `0.5`, `1e-05`, `nan`."""

_NUMBER = re.compile(NUMBER, re.IGNORECASE)
_WHOLE = re.compile(r"[-+]?\d{1,15}")
_CONTROL = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|[\x00\x08]")

_SINGLE_PRECISION = 1.2e-7  # relative error of a number that is stored in 32 bits, as event files do


def parse_number(text: str) -> int | float | None:
    """Parse a printed number, or return None if the text is not one.

    >>> parse_number("1,234"), parse_number("4e-07"), parse_number("twelve")
    (1234, 4e-07, None)
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return None
    plain = text.replace(",", "")
    return int(plain) if _WHOLE.fullmatch(plain) else float(plain)


def finite(value: float) -> float | None:
    """Return the number, or None for NaN, infinity and integers that a float cannot hold."""
    try:
        return value if math.isfinite(value) else None
    except OverflowError:
        return None


def to_number(value: Any) -> int | float | None:
    """Return a finite number, also from text (YAML reads `1e-5` as text), or None for anything else."""
    if isinstance(value, str):
        value = parse_number(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return finite(value)


def count_decimals(value: float) -> int:
    """Count the decimals that Python prints: 2 for 0.25, 5 for 1e-05, 0 for 3 and for infinity."""
    mantissa, _, exponent = repr(float(value)).partition("e")
    return max(0, len(mantissa.partition(".")[2].rstrip("0")) - int(exponent or 0))


def rounds_to(one: float, other: float, *, min_decimals: int = 0) -> bool:
    """Return whether one number is the other one, rounded or cut to fewer decimals (at least `min_decimals`).

    A number with one decimal may only be rounded: cutting would accept 0.8 for 0.88. A whole number counts as printed
    with three decimals.

    >>> rounds_to(4.146, 4.1463695), rounds_to(4.146, 4.1469), rounds_to(2.0, 1.99996), rounds_to(0.8, 0.88)
    (True, True, True, False)
    """
    (places, fewer), (more_places, more) = sorted((count_decimals(value) or 3, value) for value in (one, other))
    can_be_cut = 1 < places < more_places and fewer * more >= 0 and abs(fewer) < abs(more)
    places = max(places, min_decimals)
    slack = _SINGLE_PRECISION * max(abs(one), abs(other))
    if not math.isfinite(slack):
        return False
    if places > 12 or one == other:
        return abs(one - other) <= slack
    return abs(one - other) <= (1.0 if can_be_cut else 0.5) * 10.0**-places + slack


class Line(NamedTuple):
    """One line with its number, without colours; progress bars cut a line into several pieces."""

    number: int
    text: str


class Text(NamedTuple):
    """A decoded file and the name of its encoding."""

    text: str
    encoding: str

    def lines(self) -> Iterator[Line]:
        """Yield the lines that are not blank, split at carriage returns."""
        for number, line in enumerate(self.text.split("\n"), start=1):
            for piece in line.split("\r"):
                if (text := _CONTROL.sub("", piece).rstrip()).strip():
                    yield Line(number, text)


def decode_text(data: bytes) -> Text:
    """Decode a file: UTF-16 and UTF-32 by mark or NUL bytes, then UTF-8, then Windows-1252."""
    if data.startswith(UTF8_BOM):
        return Text(data[3:].decode("utf-8", "replace"), "UTF-8 with a byte order mark")
    if wide := detect_utf16(data):
        encoding = json.detect_encoding(data)
        little = encoding.endswith("le") or data.startswith(b"\xff\xfe")
        return Text(data.decode(encoding, "replace"), f"{wide}, {'little' if little else 'big'} endian")
    try:
        return Text(data.decode("utf-8"), "UTF-8")
    except UnicodeDecodeError:
        return Text(data.decode("cp1252", "replace"), "not UTF-8, read as Windows-1252")


_DECORATED = re.compile(r"^\s*[#=*\-\[<_~]")
_TODO = re.compile(r"\b(?:TODO|FIXME)\b")

PLACEHOLDER = re.compile(
    r"\bX+\.X{2,}\b|<\s*(?i:pending|todo|tbd|fill[ _-]?in|insert|placeholder|your)\b[^>]*>|\b(?:TBD|TODO|FIXME)\b"
    r"|(?i:\b(?:loss|score|accuracy|n_scored|exact_match)\b)['\"]?\s*[:=]\s*(?:X{2,}|\?{2,}|\.{3})(?![\w.])"
)
"""A value that was never filled in: `<PENDING>`, `TBD`, `X.XXXX`, `loss: ...`."""

_OPENING_LINES = 40  # at the top of a log, in which every template sentence counts; below, only a heading does


def is_example_file(path: str) -> bool:
    """Return whether a file is named as an example or a template."""
    return PATTERNS["example_file"].search(path.rpartition("/")[2]) is not None


def split_templates(lines: Iterable[Line]) -> tuple[list[Line], list[Line], Line | None]:
    """Return the printed lines, the lines of templates and examples, and the line that shows the first template."""
    regions: list[list[Line]] = [[]]
    openings: list[Line | None] = [None]
    for index, line in enumerate(lines):
        is_below = PATTERNS["paste_below"].search(line.text)
        if (is_below or PATTERNS["real_output"].search(line.text)) and not re.search(r"\bhere\b", line.text):
            if is_below and openings[-1] is None:
                openings[-1] = line  # Instructions precede such a line.
            regions.append([])
            openings.append(None)
        elif PATTERNS["template_line"].search(line.text) and (index < _OPENING_LINES or _DECORATED.match(line.text)):
            regions.append([])
            openings.append(line)
        else:
            regions[-1].append(line)
            # A TODO in a library's warning is not a placeholder.
            is_value = not _TODO.search(line.text) or re.search(r"[:=]\s*(?:TODO|FIXME)\W*$", line.text)
            if openings[-1] is None and is_value and PLACEHOLDER.search(line.text):
                openings[-1] = line  # The region is a template as a whole.
    kept = [line for opening, region in zip(openings, regions, strict=True) if opening is None for line in region]
    left_out = [line for opening, region in zip(openings, regions, strict=True) if opening for line in region]
    return kept, left_out, next(filter(None, openings), None)


def template_remark(document: Mapping[str, Any]) -> str | None:
    """Return the pointer to the remark that calls a document a template or an example, or None without one."""
    for key, value in document.items():
        is_flag = key.lower().strip("_") in ("is_template", "template", "example", "is_example") and value is True
        is_remark = key.lower() in TABLE["words"]["remarks"] and isinstance(value, str)
        if is_flag or (is_remark and PATTERNS["template_remark"].search(value)):
            return pointer_to([key])
    return None


def iter_texts(
    value: Any, path: tuple[str | int, ...] = (), skip: Container[str] = ()
) -> Iterator[tuple[tuple[str | int, ...], str]]:
    """Yield path and text of every string in a document, except below the keys in `skip`."""
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if key not in skip and isinstance(item, str | dict | list):
                yield from iter_texts(item, (*path, key), skip)
