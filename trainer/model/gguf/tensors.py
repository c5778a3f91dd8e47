"""A tensor in a GGUF file, made float32 when it is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trainer.model.families.family import TensorLink
from trainer.model.gguf.places import GgufLayout, place_of
from trainer.model.spec import ModelSpec

KINDS = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    30: ("BF16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
}
"""Types of tensors that are read, by their number in the format: name, numbers and bytes of a block."""

PASSED_OVER = ("rope_freqs.weight",)
"""Tensors that hold no parameter."""

CHUNK = 2**22
"""Numbers that are made float32 at a time: the intermediate arrays stay far below the tensor itself."""


@runtime_checkable
class ReadableTensor(Protocol):
    """A tensor as llama.cpp keeps it: in a file, or about to be written."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        ...

    def read(self) -> NDArray[np.float32]:
        """Return its numbers."""
        ...


@dataclass(frozen=True, kw_only=True)
class GgufTensor:
    """Where a tensor lies."""

    name: str
    path: Path
    kind: str
    """Its type's name."""
    shape: tuple[int, ...]
    offset: int
    """Of its first byte in the file."""
    size: int
    """Its bytes in the file."""

    def read(self) -> NDArray[np.float32]:
        """Return its numbers."""
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize

        width = self.shape[-1]
        rows = np.memmap(self.path, np.uint8, "r", offset=self.offset, shape=(self.size,)).reshape(
            -1, self.size * width // int(np.prod(self.shape, dtype=np.int64))
        )
        found = np.empty((len(rows), width), np.float32)
        step = max(CHUNK // width, 1)
        for start in range(0, len(rows), step):
            part = np.ascontiguousarray(rows[start : start + step])
            found[start : start + step] = dequantize(part, GGMLQuantizationType[self.kind])
        return found.reshape(self.shape)


@dataclass(frozen=True, kw_only=True)
class PlacedTensor:
    """A tensor as Hugging Face's files have it, read from where llama.cpp keeps it; with the face of a `StoredTensor`.

    Its numbers are exact, whatever the file keeps: what a quantised one stands for is float32.
    """

    name: str
    stored: ReadableTensor
    place: GgufLayout
    dtype: str = "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, without reading it."""
        return self.stored.shape[::-1] if self.place.transposed else self.stored.shape

    def read(self) -> NDArray[np.float32]:
        """Return it."""
        return self.place.undone(self.stored.read())


def placed_tensors(
    tensors: Mapping[str, ReadableTensor], links: Mapping[str, TensorLink], spec: ModelSpec
) -> dict[str, PlacedTensor]:
    """Return a file's tensors by the names that Hugging Face's files have for them; others keep their own.

    Args:
        tensors: the file's.
        links: the model's tensors by their names without the family's prefix.
        spec: the model.
    """
    places = {name: place_of(link.tensor, spec) for name, link in links.items()}
    named = {place.name: name for name, place in places.items()}
    found = {}
    for theirs, stored in tensors.items():
        if theirs not in PASSED_OVER:
            name = named.get(theirs, theirs)
            found[name] = PlacedTensor(name=name, stored=stored, place=places.get(name, GgufLayout(name=theirs)))
    return found
