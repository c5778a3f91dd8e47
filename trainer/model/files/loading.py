"""Reads a model's parameters out of its files, one tensor at a time, onto the devices where they belong.

Which tensor holds what stands in `families/`. Files that lack a tensor, have one too many or one of another shape are
refused as a whole: a model with a random layer in it would train, and no one would know.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np
from numpy.typing import NDArray

from schemas.problems import Problem, ProblemError, problem_of
from trainer.model.families.layout import TensorLink
from trainer.model.files.quantised import EightBit, FourBit
from trainer.model.files.source import ModelSource
from trainer.model.files.tensors import Tensor, open_tensors, unreadable
from trainer.model.gguf.tensors import placed_tensors
from trainer.model.params import Params
from trainer.model.quantised import Kind, quantise_on_device, quantised_names
from trainer.model.stacking import own_copy

DTYPES = ("F64", "F32", "F16", "BF16")
"""Element types that are read; others are quantised weights."""

HEAD = "lm_head.weight"
"""The head's tensor in every family: files of a tied model may repeat the token table under this name."""

Wanted = Mapping[str, jax.ShapeDtypeStruct]
"""For each parameter by name: its shape, the dtype to hold it in and, where it is split over devices, its sharding."""


def load_params(source: ModelSource, wanted: Wanted, *, on_devices: bool = True) -> Params:
    """Return the parameters in a model's files, by name and in the order of names.

    No more than one tensor at a time is in host memory besides the parameters themselves.

    Args:
        source: a model whose folder holds safetensors.
        wanted: what `flatten(abstract(...))` gives, with a sharding added where there are several devices.
        on_devices: put them where they belong. Else they stay in the host's memory, for who stacks them.

    Raises:
        ProblemError: files are absent or damaged, or tensors are missing, unexpected or of another shape, or hold
            numbers that are not finite: all at once.
    """
    params: Params = {}
    spoiled: list[str] = []
    with ExitStack() as stack:
        tensors, links = open_tensor_files(source, wanted, stack)
        for name, link in links.items():
            kept = kept_as_it_is(tensors[name], link, wanted)
            for param, value in parts(tensors[name].read(), link, wanted) if kept is None else kept:
                if not is_finite(value) and name not in spoiled:
                    spoiled.append(name)
                params |= place(param, value, wanted) if on_devices or param not in wanted else {param: value}
    if spoiled:
        what = f"Tensors of {source.name} hold numbers that are not finite: {', '.join(sorted(spoiled))}."
        raise unreadable(source.folder, what, "A model with one of them computes no loss; it was saved after it broke.")
    return {name: params[name] for name in sorted(params)}


def refuse_unusable_weights(source: ModelSource, wanted: Wanted) -> None:
    """Refuse files that `load_params` would refuse, by their names and headers: no tensor is read.

    The one exception is a head that repeats the token table: both are read, to see whether it does. Numbers that are
    not finite are seen when they are loaded.

    Raises:
        ProblemError: as `load_params`.
    """
    with ExitStack() as stack:
        open_tensor_files(source, wanted, stack)


def open_tensor_files(
    source: ModelSource, wanted: Wanted, stack: ExitStack
) -> tuple[dict[str, Tensor], dict[str, TensorLink]]:
    """Return the tensors in a model's files until the stack closes, and what each holds, by names without prefix."""
    links = {link.tensor.removeprefix(source.family.prefix): link for link in source.family.links(source.spec)}
    tensors: dict[str, Tensor] = (
        open_tensors(source.folder, family=source.family, stack=stack)
        if source.gguf is None
        else dict(placed_tensors(source.gguf.tensors, links, source.spec))
    )
    problems = mismatches(tensors, links, wanted, source)
    if problems:
        raise ProblemError(problems, exit_code=2)
    return tensors, links


def kept_as_it_is(stored: Tensor, link: TensorLink, wanted: Wanted) -> list[tuple[str, NDArray[Any]]] | None:
    """Return codes and magnitudes of a quantised tensor whose projection is to be kept so, or None."""
    codes, scales = quantised_names(link.params[0].removesuffix(".kernel"))
    if not link.transposed or codes not in wanted or not isinstance(stored, FourBit | EightBit):
        return None
    arrays = stored.arrays(str(wanted[codes].dtype), wanted[scales].shape)
    return None if arrays is None else [(codes, arrays[0]), (scales, arrays[1])]


def place(name: str, value: NDArray[Any], wanted: Wanted) -> Params:
    """Return a parameter on its devices; a kernel that is to be kept in few bits as its codes and magnitudes."""
    if name in wanted:
        return {name: own_copy(jax.device_put(value, wanted[name].sharding))}
    names = quantised_names(name.removesuffix(".kernel"))
    kind: Kind = "int8" if wanted[names[0]].dtype == np.int8 else "nf4"
    made = quantise_on_device(value, kind)
    return {each: jax.device_put(array, wanted[each].sharding) for each, array in zip(names, made, strict=True)}


def shape_of(name: str, wanted: Wanted) -> tuple[int, ...]:
    """Return the shape of a parameter, also of a kernel that is to be kept in few bits."""
    held = name if name in wanted else quantised_names(name.removesuffix(".kernel"))[0]
    return tuple(wanted[held].shape)


def parts(tensor: NDArray[Any], link: TensorLink, wanted: Wanted) -> Iterator[tuple[str, NDArray[Any]]]:
    """Cut a tensor into the parameters it holds, each in its dtype."""
    joined = tensor.T if link.transposed else tensor
    ends = np.cumsum([shape_of(name, wanted)[-1] for name in link.params])[:-1]
    for name, part in zip(link.params, np.split(joined, ends, axis=-1), strict=True):
        with np.errstate(over="ignore"):  # what becomes infinite is told by name
            yield name, in_order(part, wanted[name].dtype if name in wanted else np.dtype(np.float32))


BLOCK = 64
"""Rows and columns that are turned at a time: 16 KiB of float32, which a processor's cache holds."""


def in_order(part: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a tensor in its dtype, in C order; a transposed matrix turned block by block, thrice as fast."""
    if part.ndim != 2 or part.flags.c_contiguous:
        return np.asarray(part, dtype=dtype, order="C")
    found, source = np.empty(part.shape, dtype), part.T.astype(dtype)
    for row in range(0, part.shape[0], BLOCK):
        for column in range(0, part.shape[1], BLOCK):
            block = source[column : column + BLOCK, row : row + BLOCK]
            found[row : row + BLOCK, column : column + BLOCK] = block.T
    return found


def is_finite(value: NDArray[Any]) -> bool:
    """Return whether all numbers are finite, without an array of answers; NaN wins both comparisons."""
    if value.dtype.kind not in "fV":
        return True
    with np.errstate(invalid="ignore"):
        return bool(np.isfinite(value.min()) and np.isfinite(value.max()))


def mismatches(
    tensors: Mapping[str, Tensor], links: Mapping[str, TensorLink], wanted: Wanted, source: ModelSource
) -> list[Problem]:
    """Return a problem for each way in which the files differ from the model, naming all tensors concerned."""
    shapes = {name: tensor_shape(link, wanted) for name, link in links.items()}
    shared = [(name, tensors[name]) for name in sorted(set(links) & set(tensors))]
    unknown = [name for name in sorted(set(tensors) - set(links)) if not passed_over(name, source)]
    reshaped = [
        f"{name} is {list(stored.shape)} and should be {list(shapes[name])}"
        for name, stored in shared
        if stored.shape != shapes[name]
    ]
    quantised = [f"{name} is {stored.dtype}" for name, stored in shared if stored.dtype not in DTYPES]
    found = {
        "not in the files": sorted(set(links) - set(tensors)),
        "of no use to this model": unknown,
        "of another shape than config.json says": reshaped,
        f"of an element type that is not read ({', '.join(DTYPES)} are)": quantised,
        "not equal to the token table, although config.json ties the head to it": other_head(tensors, links, source),
    }
    return [mismatch(source, text, names) for text, names in found.items() if names]


def tensor_shape(link: TensorLink, wanted: Wanted) -> tuple[int, ...]:
    """Return the shape that a tensor must have in the file."""
    first = shape_of(link.params[0], wanted)
    joined = (*first[:-1], sum(shape_of(name, wanted)[-1] for name in link.params))
    return joined[::-1] if link.transposed else joined


def passed_over(name: str, source: ModelSource) -> bool:
    """Return whether a tensor may be there without being read: the family's buffers, and a tied head."""
    return bool(re.fullmatch(source.family.buffers, name)) or (source.spec.tied_head and name == HEAD)


def other_head(tensors: Mapping[str, Tensor], links: Mapping[str, TensorLink], source: ModelSource) -> list[str]:
    """Return the head's tensor if the model's head is the token table and the files hold another one."""
    table = next(name for name, link in links.items() if link.params == ("tokens.table",))
    if not source.spec.tied_head or HEAD not in tensors or table not in tensors:
        return []
    return [] if np.array_equal(tensors[HEAD].read(), tensors[table].read()) else [HEAD]


def mismatch(source: ModelSource, text: str, names: list[str]) -> Problem:
    """Return the problem that these tensors share."""
    count = "1 tensor is" if len(names) == 1 else f"{len(names)} tensors are"
    return problem_of(
        "TP044",
        file=str(source.folder),
        what=f"{source.name}: {count} {text}: {', '.join(names)}.",
        why=f"Files and config.json must describe the same {source.family.model_type} model; nothing is left random.",
    )
