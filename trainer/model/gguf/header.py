"""Reads the header of a GGUF file: what it states about the model, and where each tensor lies.

A header is a list of counts and lengths that a stranger may have chosen, so none is believed before the bytes that it
promises are seen to be there, and no more than 64 MiB of them are looked at. No tensor is read.
"""

from __future__ import annotations

import functools
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from schemas.problems import ProblemError, problem_of
from trainer.config.other_content import refuse_other_content
from trainer.model.gguf.tensors import KINDS, GgufTensor, ReadableTensor

HEADER_BYTES = 64 * 2**20
"""Longest header that is looked at; those of vocabularies of 262,144 tokens are below 10 MiB."""

MOST_STRINGS = 2**22
"""Most elements of a list of texts; the largest vocabularies and merge tables have a tenth of it."""

MOST_TENSORS = 2**16
MOST_DIMENSIONS = 4

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""For each number of a type in the format: its letter in `struct` and NumPy."""
STRING, ARRAY = 8, 9


class GgufError(ValueError):
    """A file that cannot be read; the text states what is wrong with it."""


@dataclass(frozen=True, kw_only=True)
class Gguf:
    """A file whose header was read."""

    path: Path
    metadata: Mapping[str, Any]
    """Numbers, flags and texts by key; a list of numbers is an array, one of texts a list."""
    tensors: Mapping[str, ReadableTensor]

    @property
    def architecture(self) -> str:
        """The name of the architecture, with which keys of the model begin; empty if the file states none."""
        return str(self.metadata.get("general.architecture", ""))

    def model(self, key: str) -> Any:
        """Return what the file states about its model under a key such as `block_count`, or None."""
        return self.metadata.get(f"{self.architecture}.{key}")


def read_gguf(path: Path) -> Gguf:
    """Return a file's header.

    Raises:
        ProblemError: exit code 2; it cannot be opened, or is not a whole GGUF file of a kind that is read.
    """
    try:
        refuse_other_content(path, "TP038")
        state = path.stat()
        return _read(path, state.st_size, state.st_mtime_ns)
    except (GgufError, OSError) as error:
        what = f"{path.name} cannot be read: {error}."
        raise ProblemError([problem_of("TP038", file=str(path), what=what)], exit_code=2) from error


@functools.lru_cache(maxsize=4)
def _read(path: Path, size: int, _changed: int) -> Gguf:
    """Return a file's header; kept, because a plan needs the same model once for each change that it tries."""
    if size < 24:
        message = f"it has {size} bytes, and a GGUF file begins with 24"
        raise GgufError(message)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        cursor = Cursor(data, min(size, HEADER_BYTES))
        tensor_count, key_count = opening(cursor)
        metadata = read_metadata(cursor, key_count)
        split = metadata.get("split.count", 1)
        if split not in (0, 1):
            message = f"it is one of {split} parts of a model; join them with llama.cpp's `llama-gguf-split --merge`"
            raise GgufError(message)
        tensors = read_tensors(cursor, tensor_count, path=path, size=size, metadata=metadata)
    return Gguf(path=path, metadata=metadata, tensors=tensors)


class Cursor:
    """A place in the header, which moves on by what is taken, and never beyond the end."""

    def __init__(self, data: mmap.mmap, end: int) -> None:
        self.data, self.end, self.place = data, end, 0

    def take(self, count: int, what: str) -> bytes:
        """Return the next bytes.

        Args:
            count: how many.
            what: they are, for the message.
        """
        self.need(count, what)
        self.place += count
        return self.data[self.place - count : self.place]

    def need(self, count: int, what: str) -> None:
        """Raise unless so many bytes remain."""
        if count > self.end - self.place:
            message = f"{what} at byte {self.place:,} needs {count:,} bytes, and {self.end - self.place:,} remain"
            raise GgufError(message)

    def number(self, letter: str, what: str) -> Any:
        """Return the next number; one in 32 bits with no more digits than it has."""
        [value] = struct.unpack("<" + letter, self.take(struct.calcsize("<" + letter), what))
        return float(str(np.float32(value))) if letter == "f" else value

    def text(self, what: str) -> str:
        """Return the next text."""
        place = self.place
        taken = self.take(self.number("Q", f"the length of {what}"), what)
        try:
            return taken.decode("utf-8")
        except UnicodeDecodeError as error:
            message = f"{what} at byte {place:,} is not UTF-8"
            raise GgufError(message) from error


def opening(cursor: Cursor) -> tuple[int, int]:
    """Return the number of tensors and of keys, which stand behind the format's name and version."""
    if cursor.take(4, "the format's name") != b"GGUF":
        message = "it does not begin with GGUF"
        raise GgufError(message)
    version = cursor.number("I", "the version")
    if version not in (2, 3):
        turned = "; it was written for a machine of the other byte order" if version & 0xFFFF == 0 else ""
        message = f"its version is {version}, and 2 and 3 are read{turned}"
        raise GgufError(message)
    return cursor.number("Q", "the number of tensors"), cursor.number("Q", "the number of keys")


def read_metadata(cursor: Cursor, count: int) -> dict[str, Any]:
    """Return what the file states, by key."""
    cursor.need(13 * count, f"a list of {count:,} keys")  # a length, a type, a value of one byte
    found: dict[str, Any] = {}
    for _ in range(count):
        key = cursor.text("a key")
        if key in found:
            message = f"the key {key} stands in it twice"
            raise GgufError(message)
        found[key] = read_value(cursor, cursor.number("I", f"the type of {key}"), key)
    return found


def read_value(cursor: Cursor, kind: int, key: str) -> Any:
    """Return the value of a key."""
    if kind in SCALARS:
        return cursor.number(SCALARS[kind], key)
    if kind == STRING:
        return cursor.text(key)
    if kind != ARRAY:
        message = f"the key {key} is of type {kind}, which the format does not have"
        raise GgufError(message)
    element, count = cursor.number("I", key), cursor.number("Q", key)
    if element in SCALARS:
        dtype = np.dtype("<" + SCALARS[element])
        return np.frombuffer(cursor.take(count * dtype.itemsize, f"the list {key} of {count:,} numbers"), dtype)
    if element != STRING:
        message = f"the key {key} is a list of type {element}, which is not read"
        raise GgufError(message)
    if count > MOST_STRINGS:
        message = f"the list {key} has {count:,} texts, and {MOST_STRINGS:,} are the most that are read"
        raise GgufError(message)
    cursor.need(8 * count, f"the list {key} of {count:,} texts")
    return [cursor.text(key) for _ in range(count)]


def read_tensors(
    cursor: Cursor, count: int, *, path: Path, size: int, metadata: Mapping[str, Any]
) -> dict[str, GgufTensor]:
    """Return the tensors by name, each of which lies in the file as a whole."""
    if count > MOST_TENSORS:
        message = f"it has {count:,} tensors, and {MOST_TENSORS:,} are the most that are read"
        raise GgufError(message)
    stated = [tensor_row(cursor) for _ in range(count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in [2**power for power in range(3, 17)]:
        message = f"general.alignment is {alignment!r}, and a power of two from 8 to 65,536 is read"
        raise GgufError(message)
    start = -(-cursor.place // alignment) * alignment
    refuse_kinds(stated)
    found: dict[str, GgufTensor] = {}
    for name, dimensions, number, offset in stated:
        kind, block, block_bytes = KINDS[number]
        elements = math.prod(dimensions)
        if dimensions[0] % block:
            message = f"the tensor {name} has rows of {dimensions[0]:,} in blocks of {block}"
            raise GgufError(message)
        tensor = GgufTensor(
            name=name,
            path=path,
            kind=kind,
            shape=dimensions[::-1],
            offset=start + offset,
            size=elements // block * block_bytes,
        )
        if tensor.offset + tensor.size > size:
            end = tensor.offset + tensor.size
            message = f"it is cut: the tensor {name} ends at byte {end:,}, and the file has {size:,}"
            raise GgufError(message)
        if name in found:
            message = f"the tensor {name} stands in it twice"
            raise GgufError(message)
        found[name] = tensor
    return found


def tensor_row(cursor: Cursor) -> tuple[str, tuple[int, ...], int, int]:
    """Return what the header states of the next tensor: name, dimensions, type and offset."""
    name = cursor.text("the name of a tensor")
    count = cursor.number("I", f"the number of dimensions of {name}")
    if not 1 <= count <= MOST_DIMENSIONS:
        message = f"the tensor {name} has {count:,} dimensions, and 1 to {MOST_DIMENSIONS} are read"
        raise GgufError(message)
    dimensions = tuple(cursor.number("Q", f"a dimension of {name}") for _ in range(count))
    if 0 in dimensions:
        message = f"the tensor {name} has a dimension of 0"
        raise GgufError(message)
    return name, dimensions, cursor.number("I", f"the type of {name}"), cursor.number("Q", f"the offset of {name}")


def refuse_kinds(stated: list[tuple[str, tuple[int, ...], int, int]]) -> None:
    """Refuse tensors of a type that is not read, all of them at once."""
    strange = {number for _, _, number, _ in stated if number not in KINDS}
    if not strange:
        return
    from gguf.constants import GGMLQuantizationType

    known = {kind.value: kind.name for kind in GGMLQuantizationType}
    names = [known.get(number, f"number {number}") for number in sorted(strange)]
    count = sum(number in strange for _, _, number, _ in stated)
    tensors = "1 tensor is" if count == 1 else f"{count} tensors are"
    read = ", ".join(name for name, _, _ in KINDS.values())
    message = f"{tensors} of type {', '.join(names)}, and {read} are read"
    raise GgufError(message)
