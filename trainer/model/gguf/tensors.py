"""A tensor in a GGUF file, made float32 when it is read.

The converter of llama.cpp reorders the rows of Llama's queries and keys, because its rotary positions turn neighbours
and not halves; it adds Gemma's 1 to the gains of norms; and it transposes GPT-2's kernels. Each is undone here on the
way in and done on the way out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from trainer.model.families.layout import TensorLink
from trainer.model.spec import ModelSpec

OUTSIDE = {
    "model.embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "transformer.wte": "token_embd",
    "transformer.wpe": "position_embd",
    "transformer.ln_f": "output_norm",
}
"""Tensors outside of layers, without `.weight`: Hugging Face's name and llama.cpp's."""

INSIDE = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
    "ln_1": "attn_norm",
    "ln_2": "ffn_norm",
}
"""Tensors of a layer."""

WITH_POST_NORMS = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
"""Where layers normalise what they give too, as from Gemma 2 on, the same words mean other norms."""

INTERLEAVED = ("llama", "mistral", "smollm3")
"""Families whose queries and keys llama.cpp reorders."""

LAYER = re.compile(r"(?:model\.layers|transformer\.h)\.(\d+)\.(.+)")


@dataclass(frozen=True, kw_only=True)
class GgufLayout:
    """The name of a tensor in a GGUF file, and its form there."""

    name: str
    heads: int | None = None
    """Rows of each of so many heads are kept as neighbours: first half and second half by turns. None: in order."""
    plus_one: bool = False
    transposed: bool = False

    def undone(self, value: NDArray[Any]) -> NDArray[Any]:
        """Return a tensor of the file as Hugging Face's files have it."""
        if self.heads is not None:
            value = value.reshape(self.heads, -1, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        value = value - 1 if self.plus_one else value
        return value.T if self.transposed else value

    def done(self, value: NDArray[Any]) -> NDArray[Any]:
        """Return a tensor of Hugging Face's files as llama.cpp keeps it; the inverse of `undone`."""
        value = value.T if self.transposed else value
        if self.heads is not None:
            value = value.reshape(self.heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        return value + 1 if self.plus_one else value


def place_of(tensor: str, spec: ModelSpec) -> GgufLayout:
    """Return the place of a tensor.

    Args:
        tensor: Hugging Face's name, with the family's prefix: `model.layers.3.self_attn.q_proj.weight`.
        spec: the model.
    """
    stem, _, end = tensor.rpartition(".")
    layer = LAYER.fullmatch(stem)
    plus_one = spec.norm == "rms_one_plus" and stem.endswith("norm")
    if layer is None:
        return GgufLayout(name=f"{OUTSIDE[stem]}.{end}", plus_one=plus_one)
    names = INSIDE | (WITH_POST_NORMS if spec.blocks[0].post_norms else {})
    heads = {"self_attn.q_proj": spec.heads, "self_attn.k_proj": spec.kv_heads} if spec.family in INTERLEAVED else {}
    return GgufLayout(
        name=f"blk.{layer[1]}.{names[layer[2]]}.{end}",
        heads=heads.get(layer[2]),
        plus_one=plus_one,
        transposed=end == "weight" and layer[2].partition(".")[2].startswith("c_"),
    )


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
