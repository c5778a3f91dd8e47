"""Loading a model's parameters from its files, one tensor at a time, onto their devices.

Files are memory-mapped safetensors, in one file or several with an index, or a GGUF (`gguf.py`). Weights quantized by
bitsandbytes are read without it, equal to the bit. Files with missing, unexpected or misshapen tensors are refused: a
model with a random layer would train unnoticed.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import ml_dtypes
import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from schemas.problems import Problem, ProblemError, collect_problems, problem_of
from trainer.config.names import refuse_other_content
from trainer.distributed import place
from trainer.model.families import HEAD, Family, StoredTensor, TensorLink, Tensors
from trainer.model.gguf import map_tensors
from trainer.model.layers import Kind, quantise_on_device, quantised_names
from trainer.model.source import WEIGHTS, WEIGHTS_INDEX, ModelSource, read_json
from trainer.model.stacks import Params, device_copy

DTYPES = ("F64", "F32", "F16", "BF16")  # supported element types of safetensors
SHARD_NAME = re.compile(r"[\w-][\w.-]*\.safetensors")
"""File names that an index may contain: files in the same folder, never paths."""

Wanted = Mapping[str, jax.ShapeDtypeStruct]
"""For each parameter its shape, its dtype in memory and, on several devices, its sharding."""

TRANSPOSE_BLOCK = 64  # rows and columns transposed together: 16 KiB of float32, which fits into a processor's cache


def load_params(source: ModelSource, wanted: Wanted, *, on_devices: bool = True) -> Params:
    """Return the parameters in a model's files, sorted by name.

    `wanted` are the shapes of `flatten(abstract(...))`, with shardings on several devices. Besides the parameters, at
    most one tensor is in host memory; without `on_devices` all parameters stay in host memory, to be stacked. Tensors
    that are missing, unexpected, of another shape or not finite raise a ProblemError with exit code 2.
    """
    params: Params = {}
    not_finite: list[str] = []
    with ExitStack() as stack:
        tensors, links = open_tensors(source, wanted, stack)
        for name, link in links.items():
            arrays = _stored_arrays(tensors[name], link, wanted) or split_tensor(tensors[name].read(), link, wanted)
            for param, value in arrays:
                if not _is_finite(value) and name not in not_finite:
                    not_finite.append(name)
                params |= _put_on_devices(param, value, wanted) if on_devices or param not in wanted else {param: value}
    if not_finite:
        what = f"Tensors of {source.name} are not finite: {', '.join(sorted(not_finite))}."
        raise _problem_error(source.folder, what)
    return dict(sorted(params.items()))


def refuse_unusable_weights(source: ModelSource, wanted: Wanted) -> None:
    """Refuse files that `load_params` would refuse, by their headers; values that are not finite are not found.

    The only tensors that are read are a repeated head and the token table, to compare them.
    """
    with ExitStack() as stack:
        open_tensors(source, wanted, stack)


def open_tensors(source: ModelSource, wanted: Wanted, stack: ExitStack) -> tuple[Tensors, dict[str, TensorLink]]:
    """Open a model's files until the stack closes; return tensors and links by name, without the family's prefix."""
    links = {link.tensor.removeprefix(source.family.prefix): link for link in source.family.links(source.spec)}
    tensors: Tensors
    if source.gguf is None:
        tensors = _open_folder(source.folder, source.family, stack)
    else:
        tensors = map_tensors(source.gguf.tensors, links, source.spec)
    if problems := _mismatches(tensors, links, wanted, source):
        raise ProblemError(problems, exit_code=2)
    return tensors, links


def _stored_arrays(tensor: StoredTensor, link: TensorLink, wanted: Wanted) -> list[tuple[str, NDArray[Any]]]:
    """Return codes and magnitudes of a tensor if file and model store them in the same form, else an empty list."""
    codes, scales = quantised_names(link.params[0].removesuffix(".kernel"))
    if not link.transposed or codes not in wanted:
        return []
    arrays = tensor.read_codes(str(wanted[codes].dtype), wanted[scales].shape)
    return [] if arrays is None else list(zip((codes, scales), arrays, strict=True))


def _put_on_devices(name: str, value: NDArray[Any], wanted: Wanted) -> Params:
    """Put a parameter on its devices, quantized if the model stores it in few bits."""
    if name in wanted:
        return {name: device_copy(place(value, wanted[name].sharding))}
    names = quantised_names(name.removesuffix(".kernel"))
    kind: Kind = "int8" if wanted[names[0]].dtype == np.int8 else "nf4"
    arrays = quantise_on_device(value, kind)
    return {each: place(array, wanted[each].sharding) for each, array in zip(names, arrays, strict=True)}


def split_tensor(tensor: NDArray[Any], link: TensorLink, wanted: Wanted) -> Iterator[tuple[str, NDArray[Any]]]:
    """Split a tensor into its parameters, each in its dtype."""
    joined = tensor.T if link.transposed else tensor
    ends = np.cumsum([_param_shape(name, wanted)[-1] for name in link.params])[:-1]
    for name, part in zip(link.params, np.split(joined, ends, axis=-1), strict=True):
        with np.errstate(over="ignore"):  # infinite values are reported with the tensor's name
            dtype = wanted[name].dtype if name in wanted else np.float32
            yield name, _contiguous(part, np.dtype(dtype))


def _param_shape(name: str, wanted: Wanted) -> tuple[int, ...]:
    return tuple(wanted[name if name in wanted else quantised_names(name.removesuffix(".kernel"))[0]].shape)


def _contiguous(part: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a tensor in its dtype, in C order; transposing block by block is three times as fast."""
    if part.ndim != 2 or part.flags.c_contiguous:
        return np.asarray(part, dtype=dtype, order="C")
    result, source = np.empty(part.shape, dtype), part.T.astype(dtype)
    for row in range(0, part.shape[0], TRANSPOSE_BLOCK):
        for column in range(0, part.shape[1], TRANSPOSE_BLOCK):
            block = source[column : column + TRANSPOSE_BLOCK, row : row + TRANSPOSE_BLOCK]
            result[row : row + TRANSPOSE_BLOCK, column : column + TRANSPOSE_BLOCK] = block.T
    return result


def _is_finite(value: NDArray[Any]) -> bool:
    """Return whether all values are finite, without a boolean array: NaN propagates through min and max."""
    if value.dtype.kind not in "fV":
        return True
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(value.min()) and np.isfinite(value.max()))


def _mismatches(
    tensors: Tensors, links: Mapping[str, TensorLink], wanted: Wanted, source: ModelSource
) -> list[Problem]:
    """Return a problem for each kind of difference between files and model, with all tensors concerned."""
    spec, family = source.spec, source.family
    reshaped, unsupported = [], []
    for name in sorted(set(links) & set(tensors)):
        first = _param_shape(links[name].params[0], wanted)
        shape = (*first[:-1], sum(_param_shape(param, wanted)[-1] for param in links[name].params))
        shape = shape[::-1] if links[name].transposed else shape
        if tensors[name].shape != shape:
            reshaped.append(f"{name} {list(tensors[name].shape)} instead of {list(shape)}")
        if tensors[name].dtype not in DTYPES:
            unsupported.append(f"{name} {tensors[name].dtype}")
    table = next(name for name, link in links.items() if link.params == ("tokens.table",))
    is_head_repeated = spec.tied_head and HEAD in tensors
    heads = [tensors[name].read() for name in (HEAD, table) if is_head_repeated and name in tensors]
    is_untied = len(heads) == 2 and not np.array_equal(heads[0], heads[1])
    known = {*links, HEAD} if is_head_repeated else {*links}
    kinds = {
        "missing tensors": sorted(set(links) - set(tensors)),
        "unexpected tensors": sorted(name for name in set(tensors) - known if not re.fullmatch(family.buffers, name)),
        "tensors whose shape differs from config.json": reshaped,
        f"tensors of unsupported types (supported: {', '.join(DTYPES)})": unsupported,
        "tied head that differs from the token table": [HEAD] if is_untied else [],
    }
    return [
        problem_of("TP044", file=str(source.folder), what=f"{source.name}: {kind}: {', '.join(names)}.")
        for kind, names in kinds.items()
        if names
    ]


def _problem_error(path: Path, what: str, fix: str | None = None) -> ProblemError:
    return ProblemError([problem_of("TP043", file=str(path), what=what, next=fix)], exit_code=2)


# Safetensors


def stored_tensor(handle: Any, name: str) -> StoredTensor:
    """Return a tensor in an open safetensors file."""
    stored = handle.get_slice(name)
    shape, dtype = tuple(stored.get_shape()), str(stored.get_dtype())
    return StoredTensor(shape=shape, dtype=dtype, read=lambda: handle.get_tensor(name))


def _open_folder(folder: Path, family: Family, stack: ExitStack) -> dict[str, StoredTensor]:
    """Open a model's files until the stack closes; return tensors by name without the family's prefix."""
    index = folder / WEIGHTS_INDEX
    is_single = (folder / WEIGHTS).is_file() or not index.is_file()
    stated = {} if is_single else _read_index(index)  # file by tensor
    tensors: dict[str, StoredTensor] = {}
    found: set[tuple[str, str]] = set()
    duplicates: list[str] = []
    problems: list[Problem] = []
    for file in [WEIGHTS] if is_single else sorted(set(stated.values())):
        with collect_problems(problems):
            handle = open_safetensors(folder / file, stack)
            for name in handle.keys():  # noqa: SIM118 - not a dictionary
                plain = strip_prefix(name, family)
                duplicates += [plain] if plain in tensors else []
                tensors[plain] = stored_tensor(handle, name)
                found.add((name, file))
    if problems:
        raise ProblemError(problems, exit_code=2)
    if differing := [] if is_single else sorted({f"{name} in {file}" for name, file in found ^ set(stated.items())}):
        what = f"{WEIGHTS_INDEX} and the files differ in the place of tensors: {', '.join(differing[:5])}."
        raise _problem_error(folder, what)
    if duplicates:
        what = f"Tensors occur with and without the prefix {family.prefix!r}: {', '.join(duplicates)}."
        raise _problem_error(folder, what)
    try:
        return group_quantised(tensors)
    except QuantisationError as error:
        raise _problem_error(folder, f"{error}.") from error


def strip_prefix(name: str, family: Family) -> str:
    """Return a tensor's name without the family's prefix, whatever wraps the model."""
    for prefix, replacement in family.prefixes.items():
        if name.startswith(prefix):
            name = replacement + name.removeprefix(prefix)
            break
    return name.removeprefix(family.prefix)


def _read_index(index: Path) -> dict[str, str]:
    """Return the name of the file that holds each tensor."""
    stated = read_json(index, "TP043").get("weight_map")
    if not isinstance(stated, dict) or not stated:
        raise _problem_error(index, f"{index.name} has no weight_map from tensors to files.")
    if invalid := sorted({str(file) for file in stated.values() if not SHARD_NAME.fullmatch(str(file))}):
        raise _problem_error(index, f"{index.name} contains invalid file names: {', '.join(map(repr, invalid))}.")
    return {name: str(file) for name, file in stated.items()}


def open_safetensors(path: Path, stack: ExitStack) -> Any:
    """Open a safetensors file, memory-mapped, until the stack closes."""
    refuse_other_content(path, "TP043")
    if not path.is_file():
        if path.name == WEIGHTS and (shards := sorted(path.parent.glob("*-of-*.safetensors"))):
            what = f"{path.parent.name} contains {shards[0].name}, but no {WEIGHTS_INDEX}."
            raise _problem_error(path, what, f"Download {WEIGHTS_INDEX} as well.")
        pickles = sorted(file.name for file in path.parent.glob("*model*.bin"))
        why = f"; {pickles[0]} is a pickle, which can run code when it is read" if pickles else ""
        raise _problem_error(path, f"{path.name} does not exist in its folder{why}.")
    try:
        return stack.enter_context(safe_open(path, framework="numpy"))
    except (SafetensorError, OSError) as error:
        fix = "Download or export the adapter again." if path.name.startswith("adapter") else None
        raise _problem_error(path, f"{path.name} cannot be read: {error}.", fix) from error


# Weights quantized by bitsandbytes. A 4-bit weight is a tensor of packed codes, with companions named after it:
# `.absmax`, `.quant_map`, for double quantization `.nested_absmax` and `.nested_quant_map`, and a JSON document in
# `.quant_state.bitsandbytes__nf4`. An 8-bit weight has `SCB`, the largest magnitude of each row. Formulas:
# bitsandbytes' functional.py.

QUANT_STATE = ".quant_state.bitsandbytes__"
BLOCK_SIZES = (32, 64, 128, 256, 512, 1024, 2048, 4096)
SOURCE_DTYPES: Mapping[str, tuple[str, Any]] = {
    "float32": ("F32", np.float32),
    "float16": ("F16", np.float16),
    "bfloat16": ("BF16", ml_dtypes.bfloat16),
}
"""Types before quantization: their names in safetensors and NumPy."""
ITEM_BYTES = {"U8": 1, "I8": 1, "F16": 2, "BF16": 2, "F32": 4, "F64": 8}
"""Bytes of the types that packed codes are stored as."""


class QuantisationError(ValueError):
    """A quantized weight that cannot be read."""


def _four_bit(name: str, codes: StoredTensor, companions: Tensors, state: Mapping[str, Any]) -> StoredTensor:
    """Return a weight in 4-bit blocks (NF4 or FP4); the first of two codes is in the high half of a byte."""
    sizes = {each: math.prod(tensor.shape) for each, tensor in companions.items()}
    is_nested = "nested_absmax" in sizes or "nested_blocksize" in state
    required = {"absmax", "quant_map"} | ({"nested_absmax", "nested_quant_map"} if is_nested else set())
    _require(name, not (missing := required - set(sizes)), f"{', '.join(sorted(missing))} missing")
    supported = {"quant_type": ("nf4", "fp4"), "blocksize": BLOCK_SIZES, "dtype": tuple(SOURCE_DTYPES)}
    for key, values in supported.items():
        _require(name, state.get(key) in values, f"unsupported {key} {state.get(key)!r}")
    kind, block, dtype, shape = ({"shape": None, **state}[key] for key in (*supported, "shape"))
    is_shape = isinstance(shape, list) and all(type(each) is int and each > 0 for each in shape)
    _require(name, is_shape, f"invalid shape {shape!r}")
    shape, count = tuple(shape), math.prod(shape)
    blocks = -(-count // block)
    expected = {
        "bytes of codes": (-(-count // 2), math.prod(codes.shape) * ITEM_BYTES.get(codes.dtype, 0)),
        "absmax": (blocks, sizes["absmax"]),
        "quant_map": (16, sizes["quant_map"]),
    }
    if is_nested:
        nested: Any = state.get("nested_blocksize")
        offset: Any = state.get("nested_offset")
        _require(name, type(nested) is int and nested > 0, f"invalid nested_blocksize {nested!r}")
        _require(name, isinstance(offset, float | int), f"invalid nested_offset {offset!r}")
        _require(name, companions["absmax"].dtype == "U8", "absmax is not stored in 8 bits")
        expected["nested_absmax"] = (-(-blocks // nested), sizes["nested_absmax"])
        expected["nested_quant_map"] = (256, sizes["nested_quant_map"])
    for part, (needed, given) in expected.items():
        _require(name, needed == given, f"{part}: {needed:,} expected, {given:,} found")

    def read_magnitudes() -> NDArray[np.float32]:
        absmax = companions["absmax"].read()
        if not is_nested:
            return absmax.astype(np.float32)
        spread = np.repeat(companions["nested_absmax"].read(), nested)[:blocks]
        values: NDArray[np.float32] = companions["nested_quant_map"].read()[absmax] * spread
        return values + np.float32(offset)

    def unpack() -> NDArray[np.uint8]:
        packed = codes.read().reshape(-1).view(np.uint8)
        return np.stack([packed >> 4, packed & 15], axis=-1).reshape(-1)[:count]

    def read() -> NDArray[Any]:
        values: NDArray[Any] = companions["quant_map"].read()[unpack()] * np.repeat(read_magnitudes(), block)[:count]
        return values.reshape(shape).astype(SOURCE_DTYPES[dtype][1])

    def read_codes(codes_dtype: str, scales: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]] | None:
        if (codes_dtype, kind, scales) != ("uint4", "nf4", (shape[1] // block, shape[0])):
            return None
        transposed = np.ascontiguousarray(unpack().reshape(shape).T)
        return transposed.astype(ml_dtypes.uint4), np.ascontiguousarray(read_magnitudes().reshape(scales[::-1]).T)

    return StoredTensor(shape=shape, dtype=SOURCE_DTYPES[dtype][0], read=read, read_codes=read_codes)


def _eight_bit(name: str, codes: StoredTensor, magnitudes: StoredTensor) -> StoredTensor:
    """Return a weight in 8-bit rows (LLM.int8(), arXiv 2208.07339): `code · magnitude / 127`, in float32."""
    rows, shape = math.prod(magnitudes.shape), codes.shape
    is_whole = codes.dtype == "I8" and len(shape) == 2 and rows == shape[0]
    _require(name, is_whole, f"{codes.dtype} codes of shape {list(shape)} with {rows:,} magnitudes")

    def read() -> NDArray[Any]:
        scales = magnitudes.read().astype(np.float32).reshape(-1, 1)
        return codes.read().astype(np.float32) * scales * np.float32(1 / 127)

    def read_codes(codes_dtype: str, scales: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]] | None:
        if (codes_dtype, scales) != ("int8", (1, rows)):
            return None
        return np.ascontiguousarray(codes.read().T), magnitudes.read().astype(np.float32).reshape(scales)

    return StoredTensor(shape=shape, dtype="F32", read=read, read_codes=read_codes)


def _require(name: str, is_valid: object, otherwise: str) -> None:
    if not is_valid:
        message = f"{name} was quantized by bitsandbytes and cannot be read: {otherwise}"
        raise QuantisationError(message)


def group_quantised(tensors: Tensors) -> dict[str, StoredTensor]:
    """Return tensors by name, with each quantized weight and its companions combined."""
    grouped: dict[str, StoredTensor] = dict(tensors)
    for name in [name for name in tensors if QUANT_STATE in name]:
        weight = name[: name.index(QUANT_STATE)]
        try:
            state = json.loads(tensors[name].read().tobytes())
        except (ValueError, RecursionError):
            state = None
        _require(weight, isinstance(state, dict), "its quant_state is not a JSON object")
        _require(weight, weight in tensors, "the weight itself is missing")
        companions = {each[len(weight) + 1 :]: tensors[each] for each in tensors if each.startswith(f"{weight}.")}
        for each in companions:
            del grouped[f"{weight}.{each}"]
        grouped[weight] = _four_bit(weight, tensors[weight], companions, state)
    for name in [name for name in tensors if name.endswith(".SCB")]:
        weight = f"{name.removesuffix('.SCB')}.weight"
        _require(weight, weight in tensors, "the weight itself is missing")
        grouped.pop(f"{weight}_format", None)
        del grouped[name]
        grouped[weight] = _eight_bit(weight, tensors[weight], tensors[name])
    return grouped
