"""A run judged and summed up, and its form as bytes: for the cache on disk, and between processes."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import msgspec

from evidence.index.summary import RunSummary
from evidence.judge.judgement import RunJudgement


@dataclass(frozen=True, kw_only=True)
class IndexEntry:
    """A run judged and summed up."""

    judged: RunJudgement
    summary: RunSummary


def encode(entry: IndexEntry) -> bytes | None:
    """Return an entry as msgpack; None: it holds a number or half a character that no other reader can hold."""
    try:
        return _encoder().encode(entry)
    except (OverflowError, UnicodeEncodeError):
        return None


def decode(data: bytes) -> IndexEntry | None:
    """Return an entry from its bytes, None where they are not one."""
    try:
        return _decoder().decode(data)
    except msgspec.MsgspecError:
        return None


@cache
def _encoder() -> msgspec.msgpack.Encoder:
    return msgspec.msgpack.Encoder(enc_hook=os.fsencode)


@cache
def _decoder() -> msgspec.msgpack.Decoder[IndexEntry]:
    return msgspec.msgpack.Decoder(IndexEntry, dec_hook=_path)


def _path(kind: type, value: Any) -> Path:
    """Return the path that stands as bytes, the one thing in an entry that msgpack does not know."""
    if kind is not Path or not isinstance(value, bytes):
        what = f"{kind} cannot be read"
        raise TypeError(what)
    return _path_of(value)


@lru_cache(maxsize=1)
def _path_of(name: bytes) -> Path:
    """Return a path, the same one for each time that an entry states it."""
    return Path(os.fsdecode(name))
