"""Reads weights that bitsandbytes has quantised, without bitsandbytes: 4-bit blocks (NF4, FP4) and 8-bit rows.

A 4-bit weight is a tensor of packed codes with companions behind its name: `.absmax`, `.quant_map`, with double
quantisation `.nested_absmax` and `.nested_quant_map`, and `.quant_state.bitsandbytes__nf4`, a JSON document in bytes.
An 8-bit weight has `SCB` beside it, the largest magnitude of each row. The formulas are those of bitsandbytes' own
`functional.py`; the result is equal to the bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

STATE = ".quant_state.bitsandbytes__"
"""Between the name of a 4-bit weight and its kind."""

KINDS = ("nf4", "fp4")
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
"""What bitsandbytes makes."""

DTYPES: Mapping[str, tuple[str, Any]] = {
    "float32": ("F32", np.float32),
    "float16": ("F16", np.float16),
    "bfloat16": ("BF16", ml_dtypes.bfloat16),
}
"""For each dtype that a weight was quantised from: its name in safetensors, and NumPy's."""


class QuantisationError(ValueError):
    """A quantised weight cannot be read; the text states which one and why."""


@dataclass(frozen=True, kw_only=True)
class FourBit:
    """A weight in 4-bit blocks, with the face of a `StoredTensor`."""

    name: str
    codes: Any
    """The packed codes, a `StoredTensor`; the first of two is in the high half of a byte."""
    companions: Mapping[str, Any]
    """Stored tensors by what follows the weight's name."""
    state: Mapping[str, Any]
    """The JSON document."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight."""
        return tuple(self.state["shape"])

    @property
    def dtype(self) -> str:
        """The element type that the weight was quantised from."""
        return DTYPES[self.state["dtype"]][0]

    def read(self) -> NDArray[Any]:
        """Return the weight, `code's value · block's magnitude`, in the type that it was quantised from."""
        packed = self.codes.read().reshape(-1).view(np.uint8)
        count = math.prod(self.shape)
        values = self.companions["quant_map"].read()[unpack(packed, count)]
        size = self.state["blocksize"]
        spread = np.repeat(self.magnitudes(), size)[:count]
        weight: NDArray[Any] = (values * spread).reshape(self.shape).astype(DTYPES[self.state["dtype"]][1])
        return weight

    def magnitudes(self) -> NDArray[np.float32]:
        """Return the largest magnitude of each block, itself quantised to 8 bits or not."""
        absmax: NDArray[Any] = self.companions["absmax"].read()
        if "nested_absmax" not in self.companions:
            return absmax.astype(np.float32)
        spread = np.repeat(self.companions["nested_absmax"].read(), self.state["nested_blocksize"])[: len(absmax)]
        nested: NDArray[np.float32] = self.companions["nested_quant_map"].read()[absmax] * spread
        return nested + np.float32(self.state["nested_offset"])

    def arrays(self, dtype: str, blocks: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return codes and magnitudes as `trainer.model.quantised` keeps a kernel `[inputs outputs]`, if it can.

        Args:
            dtype: of the codes that are wanted.
            blocks: shape of the magnitudes that are wanted.
        """
        outputs, inputs = self.shape
        if (
            self.state["quant_type"] != "nf4"
            or dtype != "uint4"
            or blocks != (inputs // self.state["blocksize"], outputs)
        ):
            return None
        codes = unpack(self.codes.read().reshape(-1).view(np.uint8), inputs * outputs).reshape(self.shape)
        scales = self.magnitudes().reshape(blocks[::-1])
        return np.ascontiguousarray(codes.T).astype(ml_dtypes.uint4), np.ascontiguousarray(scales.T)

    def checked(self) -> FourBit:
        """Return this weight, if it can be read.

        Raises:
            QuantisationError: something is missing, or sizes do not agree.
        """
        wanted = {"absmax", "quant_map"} | ({"nested_absmax", "nested_quant_map"} if self.is_nested else set())
        self.require(not (lacking := wanted - set(self.companions)), f"it has no {', '.join(sorted(lacking))}")
        kind, size, dtype = (self.state.get(key) for key in ("quant_type", "blocksize", "dtype"))
        self.require(kind in KINDS, f"its quant_type is {kind!r}; {' and '.join(KINDS)} are read")
        self.require(size in BLOCK_SIZES, f"its blocksize is {size!r}; {', '.join(map(str, BLOCK_SIZES))} are read")
        self.require(
            isinstance(dtype, str) and dtype in DTYPES, f"its dtype is {dtype!r}; {', '.join(DTYPES)} are read"
        )
        shape = self.state.get("shape")
        is_shape = isinstance(shape, list) and all(type(each) is int and each > 0 for each in shape)
        self.require(is_shape, f"its shape is {shape!r}")
        count, stored = math.prod(self.shape), math.prod(self.codes.shape) * ITEM_BYTES.get(self.codes.dtype, 0)
        wanted_bytes = -(-count // 2)
        self.require(stored == wanted_bytes, f"its codes need {wanted_bytes:,} bytes, and {stored:,} are there")
        blocks, found = -(-count // int(self.state["blocksize"])), math.prod(self.companions["absmax"].shape)
        self.require(found == blocks, f"{blocks:,} blocks need as many magnitudes, and {found:,} are there")
        self.require(math.prod(self.companions["quant_map"].shape) == 16, "its quant_map does not have 16 values")
        if self.is_nested:
            self.check_nested(blocks)
        return self

    def check_nested(self, blocks: int) -> None:
        """Refuse magnitudes that were quantised again and cannot be read."""
        size, offset = self.state.get("nested_blocksize"), self.state.get("nested_offset")
        self.require(type(size) is int and size > 0, f"its nested_blocksize is {size!r}")
        self.require(isinstance(offset, float | int), f"its nested_offset is {offset!r}")
        wanted, found = -(-blocks // int(size or 1)), math.prod(self.companions["nested_absmax"].shape)
        self.require(found == wanted, f"{wanted:,} nested magnitudes are needed, and {found:,} are there")
        self.require(self.companions["absmax"].dtype == "U8", "its absmax is not in 8 bits, although it is nested")
        self.require(math.prod(self.companions["nested_quant_map"].shape) == 256, "its nested map has not 256 values")

    @property
    def is_nested(self) -> bool:
        """Whether magnitudes are quantised too."""
        return "nested_absmax" in self.companions or "nested_blocksize" in self.state

    def require(self, holds: object, otherwise: str) -> None:
        """Raise unless something holds."""
        if not holds:
            message = f"{self.name} is quantised by bitsandbytes and cannot be read: {otherwise}"
            raise QuantisationError(message)


ITEM_BYTES = {"U8": 1, "I8": 1, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""Bytes of an element of the types that codes may be stored as."""


@dataclass(frozen=True, kw_only=True)
class EightBit:
    """A weight in 8-bit rows (LLM.int8(), arXiv 2208.07339), with the face of a `StoredTensor`."""

    name: str
    codes: Any
    """Numbers from −127 to 127, `[outputs inputs]`, a `StoredTensor`."""
    magnitudes: Any
    """The largest magnitude of each row, a `StoredTensor`."""
    dtype: str = "F32"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the weight."""
        return tuple(self.codes.shape)

    def read(self) -> NDArray[Any]:
        """Return the weight, `code · magnitude / 127`, in float32."""
        rows: NDArray[np.float32] = self.magnitudes.read().astype(np.float32).reshape(-1, 1)
        weight: NDArray[Any] = self.codes.read().astype(np.float32) * rows * np.float32(1 / 127)
        return weight

    def arrays(self, dtype: str, blocks: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]] | None:
        """Return codes and magnitudes as `trainer.model.quantised` keeps a kernel `[inputs outputs]`, if it can."""
        if dtype != "int8" or blocks != (1, self.shape[0]):
            return None
        scales = self.magnitudes.read().astype(np.float32).reshape(1, -1)
        return np.ascontiguousarray(self.codes.read().T), scales

    def checked(self) -> EightBit:
        """Return this weight, if it can be read.

        Raises:
            QuantisationError: the two tensors do not fit together.
        """
        rows = math.prod(self.magnitudes.shape)
        if self.codes.dtype != "I8" or len(self.shape) != 2 or rows != self.shape[0]:
            message = (
                f"{self.name} is quantised by bitsandbytes and cannot be read: it is {self.codes.dtype} of shape "
                f"{list(self.shape)} and has {rows:,} magnitudes"
            )
            raise QuantisationError(message)
        return self


def unpack(packed: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
    """Return the codes of packed bytes: `[0x1F, 0x20]` and 3 give `[1, 15, 2]`."""
    codes = np.empty((len(packed), 2), np.uint8)
    codes[:, 0], codes[:, 1] = packed >> 4, packed & 15
    return codes.reshape(-1)[:count]


def with_quantised(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors by name, each quantised weight with its companions as one that reads as what it stands for.

    Args:
        tensors: `StoredTensor` by name.

    Raises:
        QuantisationError: a quantised weight cannot be read.
    """
    found = dict(tensors)
    for name in [name for name in tensors if STATE in name]:
        weight = name[: name.index(STATE)]
        state = state_of(tensors[name], weight)
        companions = {each[len(weight) + 1 :]: tensors[each] for each in tensors if each.startswith(f"{weight}.")}
        for each in companions:
            del found[f"{weight}.{each}"]
        if weight not in tensors:
            message = f"{weight} is not in the files, although how it was quantised is"
            raise QuantisationError(message)
        found[weight] = FourBit(name=weight, codes=tensors[weight], companions=companions, state=state).checked()
    for name in [name for name in tensors if name.endswith(".SCB")]:
        module = name.removesuffix(".SCB")
        magnitudes, codes = found.pop(name), tensors.get(f"{module}.weight")
        found.pop(f"{module}.weight_format", None)
        if codes is None:
            message = f"{module}.weight is not in the files, although {name} is"
            raise QuantisationError(message)
        weight = f"{module}.weight"
        found[weight] = EightBit(name=weight, codes=codes, magnitudes=magnitudes).checked()
    return found


def state_of(tensor: Any, weight: str) -> dict[str, Any]:
    """Return the JSON document that states how a 4-bit weight was quantised."""
    try:
        state = json.loads(tensor.read().tobytes())
    except (ValueError, RecursionError) as error:
        message = f"{weight} is quantised by bitsandbytes and cannot be read: its quant_state is not JSON"
        raise QuantisationError(message) from error
    if not isinstance(state, dict):
        message = f"{weight} is quantised by bitsandbytes and cannot be read: its quant_state is not an object"
        raise QuantisationError(message)
    return state
