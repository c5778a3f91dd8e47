"""Bytes to a value with everything that is wrong with the text: the front of `text`, `json_text` and `yaml_text`.

Whether the value has the right shape is for `validate`.
"""

from __future__ import annotations

from dataclasses import replace

from schemas.reading.fast_yaml import read_plain
from schemas.reading.json_text import read_json
from schemas.reading.text import UTF8_BOM, ParseResult, decode, unread


def parse_json(data: bytes, *, file: str) -> ParseResult:
    """Return the value of a JSON file and its problems; `file` is the name that they carry."""
    text, problems = decode(data, file=file)
    if text is None:
        return unread(*problems)
    parsed = read_json(text, file=file)
    return replace(parsed, problems=(*problems, *parsed.problems))


def parse_yaml(data: bytes, *, file: str) -> ParseResult:
    """Return the value of a YAML file and its problems, as `parse_json` does; YAML allows a byte order mark."""
    text, problems = decode(data.removeprefix(UTF8_BOM), file=file)
    if text is None:
        return unread(*problems)
    if plain := read_plain(text):
        value, lines = plain
        return ParseResult(value=value, is_read=True, problems=problems, lines=lines.get)
    # Configurations that people wrote; anyone who reads runs does not wait for this import.
    from schemas.reading.yaml_text import read_yaml

    parsed = read_yaml(text, file=file)
    return replace(parsed, problems=(*problems, *parsed.problems))
