"""GGUF, the single-file format of llama.cpp: header, tensors, and its metadata as a config.json.

The header is read here, within limits, because a stranger may have written it, and 20 times as fast as by the `gguf`
package. llama.cpp reorders the rows of Llama's queries and keys, because its rotary positions pair neighbours, not
halves, adds 1 to the norm gains of Gemma and transposes the kernels of GPT-2: `GgufLayout` converts both ways.
"""

from __future__ import annotations

import functools
import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from schemas.problems import ProblemError, problem_of
from trainer.config.names import refuse_other_content
from trainer.model.families import FAMILIES, StoredTensor, TensorLink, Tensors
from trainer.model.rope import llama3_frequencies
from trainer.model.spec import ModelSpec, Rope

MAX_HEADER_BYTES = 64 * 2**20  # longest accepted header; vocabularies of 262,144 tokens take less than 10 MiB
MAX_TENSORS = 2**16
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Codes of `struct` and NumPy by the type numbers of the format."""
STRING, ARRAY = 8, 9
READABLE_TYPES = (
    *("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"),
)
CHUNK = 2**22  # numbers that are dequantized together, to keep intermediate arrays small


class GgufError(ValueError):
    """A GGUF file that cannot be read, or whose tokenizer cannot be built."""


def fail(message: str) -> NoReturn:
    """Raise a `GgufError`."""
    raise GgufError(message)


def _read_blocks(path: Path, kind: str, shape: tuple[int, ...], offset: int, size: int) -> NDArray[np.float32]:
    """Read and dequantize a tensor; offset and size are in bytes."""
    from gguf.constants import GGMLQuantizationType
    from gguf.quants import dequantize

    width = shape[-1]
    rows = np.memmap(path, np.uint8, "r", offset=offset, shape=(size,)).reshape(math.prod(shape[:-1]), -1)
    values = np.empty((len(rows), width), np.float32)
    step = max(CHUNK // width, 1)
    for start in range(0, len(rows), step):
        part = np.ascontiguousarray(rows[start : start + step])
        values[start : start + step] = dequantize(part, GGMLQuantizationType[kind])
    return values.reshape(shape)


@dataclass(frozen=True, kw_only=True)
class Gguf:
    """The header of a file. In the metadata, lists of numbers are arrays."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Tensors

    @property
    def architecture(self) -> str:
        """Name of the architecture, empty if missing."""
        return str(self.metadata.get("general.architecture", ""))

    def get(self, key: str) -> Any:
        """Return the value of a key of the architecture, such as `block_count`, as JSON would have it, or None.

        A list with the same number for each layer becomes that number.
        """
        value = self.metadata.get(f"{self.architecture}.{key}")
        if isinstance(value, np.ndarray):
            return value[0].item() if len(value) and (value == value[0]).all() else value[:1024].tolist()
        return value


def read_gguf(path: Path) -> Gguf:
    """Read the header of a complete file, or raise a ProblemError with exit code 2."""
    try:
        refuse_other_content(path, "TP038")
        state = path.stat()
        return _read_header(path, state.st_size, state.st_mtime_ns)
    except (GgufError, UnicodeDecodeError, OSError) as error:
        what = f"{path.name} cannot be read: {error}."
        raise ProblemError([problem_of("TP038", file=str(path), what=what)], exit_code=2) from error


@functools.lru_cache(maxsize=4)
def _read_header(path: Path, size: int, _modified: int) -> Gguf:
    if size < 24:
        fail(f"it has {size} bytes, and a GGUF file at least 24")
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        header = _Header(data, min(size, MAX_HEADER_BYTES))
        if header.take(4) != b"GGUF":
            fail("it does not start with GGUF")
        if (version := header.number("I")) not in (2, 3):
            order = ", written on a machine of the other byte order" if version & 0xFFFF == 0 else ""
            fail(f"version {version} is not supported{order}")
        tensor_count, key_count = header.number(), header.number()
        metadata: dict[str, Any] = {}
        for _ in range(key_count):
            if (key := header.text()) in metadata:
                fail(f"the key {key} is repeated")
            metadata[key] = header.value(key)
        if (parts := metadata.get("split.count", 1)) not in (0, 1):
            fail(f"it is one of {parts} parts; join them with llama.cpp's `llama-gguf-split --merge`")
        if tensor_count > MAX_TENSORS:
            fail(f"it has {tensor_count:,} tensors, more than {MAX_TENSORS:,}")
        rows = [header.tensor() for _ in range(tensor_count)]
    alignment = metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in [2**power for power in range(3, 17)]:
        fail(f"general.alignment is {alignment!r}, but must be a power of two from 8 to 65,536")
    start = -(-header.position // alignment) * alignment
    return Gguf(path=path, metadata=metadata, tensors=_locate_tensors(rows, path=path, size=size, start=start))


class _Header:
    """A position in a header. Nothing is read or allocated beyond its end."""

    def __init__(self, data: mmap.mmap, end: int) -> None:
        self.data, self.end, self.position = data, end, 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        if count > self.end - self.position:
            fail(f"its header is damaged or truncated at byte {self.position:,}")
        self.position += count
        return self.data[self.position - count : self.position]

    def number(self, code: str = "Q") -> Any:
        """Return the next number; 32-bit floats with no more digits than they have."""
        [value] = struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))
        return float(str(np.float32(value))) if code == "f" else value

    def text(self) -> str:
        """Return the next string."""
        return self.take(self.number()).decode("utf-8")

    def value(self, key: str) -> Any:
        """Return the next value, which starts with its type."""
        kind = self.number("I")
        if kind in SCALARS:
            return self.number(SCALARS[kind])
        if kind == STRING:
            return self.text()
        element, count = (self.number("I"), self.number()) if kind == ARRAY else (None, 0)
        if element in SCALARS:
            dtype = np.dtype("<" + SCALARS[element])
            return np.frombuffer(self.take(count * dtype.itemsize), dtype)
        if element != STRING:
            fail(f"the key {key} has an unsupported type")
        return [self.text() for _ in range(count)]

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Return name, dimensions, type and offset of the next tensor."""
        name, axes = self.text(), self.number("I")
        if not 1 <= axes <= 4:
            fail(f"the tensor {name} has {axes:,} dimensions instead of 1 to 4")
        dimensions = tuple(self.number() for _ in range(axes))
        if 0 in dimensions:
            fail(f"the tensor {name} has a dimension of 0")
        return name, dimensions, self.number("I"), self.number()


def _locate_tensors(
    rows: list[tuple[str, tuple[int, ...], int, int]], *, path: Path, size: int, start: int
) -> dict[str, StoredTensor]:
    """Return the tensors by name, each completely inside the file."""
    from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

    names = {kind.value: kind.name for kind in GGMLQuantizationType}
    if unknown := sorted({number for _, _, number, _ in rows if names.get(number) not in READABLE_TYPES}):
        named = ", ".join(names.get(number, f"number {number}") for number in unknown)
        fail(f"it has tensors of unsupported types ({named})")
    tensors: dict[str, StoredTensor] = {}
    for name, dimensions, number, offset in rows:
        block, block_bytes = GGML_QUANT_SIZES[GGMLQuantizationType(number)]
        if dimensions[0] % block:
            fail(f"the tensor {name} has rows of {dimensions[0]:,} in blocks of {block}")
        if name in tensors:
            fail(f"the tensor {name} is repeated")
        stored = math.prod(dimensions) // block * block_bytes
        if (end := start + offset + stored) > size:
            fail(f"it is truncated: the tensor {name} ends at byte {end:,} of {size:,}")
        shape = dimensions[::-1]
        read = functools.partial(_read_blocks, path, names[number], shape, start + offset, stored)
        tensors[name] = StoredTensor(shape=shape, dtype=names[number], read=read)
    return tensors


# Tensors: llama.cpp's names and layouts

INTERLEAVED = ("llama", "mistral", "smollm3")  # families whose queries and keys llama.cpp reorders


@dataclass(frozen=True, kw_only=True)
class GgufLayout:
    """Name and layout of a tensor in a GGUF file."""

    name: str
    heads: int | None = None  # number of heads whose rows are interleaved, first half and second half in turn
    plus_one: bool = False
    transposed: bool = False

    def decode(self, value: NDArray[Any]) -> NDArray[Any]:
        """Convert a tensor from llama.cpp's layout to Hugging Face's."""
        if self.heads is not None:
            value = value.reshape(self.heads, -1, 2, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        value = value - 1 if self.plus_one else value
        return value.T if self.transposed else value

    def encode(self, value: NDArray[Any]) -> NDArray[Any]:
        """Convert a tensor from Hugging Face's layout to llama.cpp's: the inverse of `decode`."""
        value = value.T if self.transposed else value
        if self.heads is not None:
            value = value.reshape(self.heads, 2, -1, *value.shape[1:]).swapaxes(1, 2).reshape(value.shape)
        return value + 1 if self.plus_one else value


def gguf_layout(tensor: str, spec: ModelSpec) -> GgufLayout:
    """Return the layout of a tensor by its name in Hugging Face's files: `model.layers.3.self_attn.q_proj.weight`."""
    stem, _, end = tensor.rpartition(".")
    module = ".".join(stem.split(".")[-2:])
    heads = {"self_attn.q_proj": spec.heads, "self_attn.k_proj": spec.kv_heads} if spec.family in INTERLEAVED else {}
    name = _name_map(architecture_name(spec.family), spec.layers).get_name(stem) or stem
    return GgufLayout(
        name=f"{name}.{end}",
        heads=heads.get(module),
        plus_one=spec.norm == "rms_one_plus" and stem.endswith("norm"),
        transposed=end == "weight" and stem.rpartition(".")[2].startswith("c_"),
    )


@functools.lru_cache(maxsize=4)
def _name_map(architecture: str, layers: int) -> Any:
    from gguf import MODEL_ARCH_NAMES, get_tensor_name_map

    number = next(number for number, name in MODEL_ARCH_NAMES.items() if name == architecture)
    return get_tensor_name_map(number, layers)


def map_tensors(tensors: Tensors, links: Mapping[str, TensorLink], spec: ModelSpec) -> dict[str, StoredTensor]:
    """Return a file's tensors in float32, with the names of `links` and Hugging Face's layout.

    Unknown tensors keep their own names.
    """
    layouts = {name: gguf_layout(link.tensor, spec) for name, link in links.items()}
    names = {layout.name: name for name, layout in layouts.items()}

    def convert(stored: StoredTensor, layout: GgufLayout) -> StoredTensor:
        shape = stored.shape[::-1] if layout.transposed else stored.shape
        return StoredTensor(shape=shape, dtype="F32", read=lambda: layout.decode(stored.read()))

    found = {names.get(name, name): stored for name, stored in tensors.items() if name != ROPE_DIVISORS}
    return {name: convert(stored, layouts.get(name, GgufLayout(name=name))) for name, stored in found.items()}


# Metadata. llama.cpp derives some facts from the architecture's name (`src/models/*.cpp`, `src/llama-model.cpp`): which
# layers have a window, the scale of Gemma's queries, activations.

ARCHITECTURES = {
    **{name: name for name in ("gpt2", "llama", "gemma", "gemma2", "qwen2", "qwen3", "smollm3")},
    "gemma3": "gemma3_text",
}
"""Families by architecture. Mistral's files state `llama`, for which llama.cpp computes no window."""
KEYS = {
    "embed": "embedding_length",
    "mlp": "feed_forward_length",
    "layers": "block_count",
    "heads": "attention.head_count",
    "max_positions": "context_length",
    "norm_epsilon": "attention.layer_norm_rms_epsilon",
}
"""Keys by field of `ModelSpec`, after the name of the architecture."""
GPT2_KEYS = KEYS | {"norm_epsilon": "attention.layer_norm_epsilon"}
GEMMA_27B_LAYERS = {"gemma2": 46, "gemma3": 62}
"""Layers of the models that scale queries by `hidden_size / heads` instead of `head_dim`."""
ROPE_DIVISORS = "rope_freqs.weight"  # divisors of Llama 3's frequencies: a tensor without parameters


def architecture_name(family: str) -> str:
    """Return llama.cpp's architecture of a family."""
    return {"mistral": "llama", "gemma3_text": "gemma3"}.get(family, family)


def config_from_gguf(gguf: Gguf) -> dict[str, Any]:
    """Return a file's model as a Hugging Face config.json, or raise a ProblemError if it is not supported."""
    name = gguf.architecture
    if name not in ARCHITECTURES:
        raise _unsupported(gguf, f"its general.architecture is {name!r}" if name else "general.architecture is missing")
    keys = GPT2_KEYS if name == "gpt2" else KEYS
    missing = [f"{name}.{key}" for key in keys.values() if gguf.get(key) is None]
    missing += [] if "token_embd.weight" in gguf.tensors else ["the tensor token_embd.weight"]
    if missing:
        raise _unsupported(gguf, f"it lacks {', '.join(missing)}")
    size_keys = FAMILIES[ARCHITECTURES[name]].size_keys
    config: dict[str, Any] = {size_keys[field]: gguf.get(key) for field, key in keys.items()} | {
        "model_type": ARCHITECTURES[name],
        "vocab_size": gguf.tensors["token_embd.weight"].shape[0],
        "tie_word_embeddings": "output.weight" not in gguf.tensors,
        "bos_token_id": gguf.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token_id": gguf.metadata.get("tokenizer.ggml.eos_token_id"),
    }
    if name == "gpt2":
        return config
    head_dim = gguf.get("attention.key_length") or gguf.get("rope.dimension_count")
    theta = gguf.get("rope.freq_base") or (1_000_000.0 if name == "gemma3" else 10_000.0)
    if head_dim is not None and (rotated := gguf.get("rope.dimension_count")) not in (None, head_dim):
        raise _unsupported(gguf, f"it rotates {rotated} of the {head_dim} numbers of a head")
    optional = {
        "num_key_value_heads": gguf.get("attention.head_count_kv") or config["num_attention_heads"],
        "head_dim": head_dim,
        "attention_bias": "blk.0.attn_q.bias" in gguf.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in gguf.tensors,
        "rope_theta": theta,
        "rope_scaling": _rope_scaling(gguf, theta),
    }
    if name in GEMMA_27B_LAYERS:
        is_largest = config["num_hidden_layers"] == GEMMA_27B_LAYERS[name]
        width = config["hidden_size"] // config["num_attention_heads"] if is_largest else head_dim
        optional |= {"query_pre_attn_scalar": width, "sliding_window": gguf.get("attention.sliding_window")}
        optional |= {"final_logit_softcapping": gguf.get("final_logit_softcapping")}
    if name == "gemma2":
        optional["attn_logit_softcapping"] = gguf.get("attn_logit_softcapping")
    if name == "gemma3":
        optional["sliding_window_pattern"] = gguf.get("attention.sliding_window_pattern")
        optional["rope_local_base_freq"] = gguf.get("rope.freq_base_swa")
    return config | {key: value for key, value in optional.items() if value is not None}


def _rope_scaling(gguf: Gguf, theta: float) -> dict[str, Any] | None:
    """Return the context extension as `rope_scaling`."""
    if ROPE_DIVISORS in gguf.tensors:  # all published models interpolate from 1 to 4 turns in 8,192 positions
        divisors = gguf.tensors[ROPE_DIVISORS].read()
        rope = Rope(theta=theta, kind="llama3", factor=float(divisors.max()), positions=8192)
        if divisors.ndim != 1 or not np.allclose(divisors, llama3_divisors(rope, 2 * divisors.size), rtol=1e-4):
            raise _unsupported(gguf, f"its {ROPE_DIVISORS} differs from Llama 3.1's")
        own = {key: getattr(rope, key) for key in ("factor", "low_freq_factor", "high_freq_factor")}
        return {"rope_type": "llama3", "original_max_position_embeddings": rope.positions, **own}
    kind, factor = gguf.get("rope.scaling.type"), gguf.get("rope.scaling.factor")
    trained = gguf.get("rope.scaling.original_context_length")
    if kind in (None, "none") or (kind == "linear" and factor in (None, 1.0)):
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": factor}
    if kind == "yarn" and factor is not None and trained is not None:
        return {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": trained}
    raise _unsupported(gguf, f"its context extension is {kind!r}; linear, yarn and Llama 3's are supported")


def llama3_divisors(rope: Rope, head_dim: int) -> NDArray[np.float32]:
    """Return the divisor of each rotary frequency, as llama.cpp stores them."""
    plain = rope.theta ** (-np.arange(head_dim // 2, dtype=np.float64) * 2 / head_dim)
    divisors: NDArray[np.float64] = plain / llama3_frequencies(plain, rope)
    return divisors.astype(np.float32)


def _unsupported(gguf: Gguf, reason: str) -> ProblemError:
    what, expected = f"{gguf.path.name} is not a supported model: {reason}.", ", ".join(ARCHITECTURES)
    return ProblemError([problem_of("TP039", file=str(gguf.path), what=what, expected=expected)], exit_code=2)
