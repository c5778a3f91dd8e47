"""Opens the safetensors files of a model folder: one file, or several with an index.

Files are memory-mapped and a tensor is read on access. Which tensors there should be is the matter of `loading.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open

from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.other_content import refuse_other_content
from trainer.model import files
from trainer.model.families.layout import Family
from trainer.model.files.quantised import EightBit, FourBit, QuantisationError, with_quantised
from trainer.model.gguf.tensors import PlacedTensor

SHARD_NAME = re.compile(r"[\w-][\w.-]*\.safetensors")
"""What an index may name: a file beside it, never a path."""


@dataclass(frozen=True, kw_only=True)
class StoredTensor:
    """A tensor in an open file."""

    name: str
    """As in the file."""

    handle: Any
    """The open file."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, without reading it."""
        return tuple(self.handle.get_slice(self.name).get_shape())

    @property
    def dtype(self) -> str:
        """Its element type in the format's words, such as F32 or BF16."""
        return str(self.handle.get_slice(self.name).get_dtype())

    def read(self) -> NDArray[Any]:
        """Return it as it is in the file."""
        tensor: NDArray[Any] = self.handle.get_tensor(self.name)
        return tensor


Tensor = StoredTensor | FourBit | EightBit | PlacedTensor
"""A tensor to be read: as it is, or out of the form in which it was quantised."""


def open_tensors(folder: Path, *, family: Family, stack: ExitStack) -> dict[str, Tensor]:
    """Open a model's files until the stack closes and return their tensors by name, without the family's prefix.

    Raises:
        ProblemError: a file is missing or damaged, the index names one that is not plainly in the folder or a tensor
            that its file does not hold, two tensors differ in name by the prefix only, or a quantised one cannot be
            read.
    """
    index = folder / files.WEIGHTS_INDEX
    if (folder / files.WEIGHTS).is_file() or not index.is_file():
        handle = open_file(folder / files.WEIGHTS, stack)
        handles = dict.fromkeys(handle.keys(), handle)
    else:
        handles = open_shards(index, stack)
    found: dict[str, StoredTensor] = {}
    twice = []
    for name, handle in handles.items():
        plain = plain_name(name, family)
        if plain in found:
            twice.append(plain)
        found[plain] = StoredTensor(name=name, handle=handle)
    if twice:
        what = f"Tensors are there with and without {family.prefix!r} before their name: {', '.join(sorted(twice))}."
        raise unreadable(folder, what, "It cannot be known which of them is meant.")
    try:
        return with_quantised(found)
    except QuantisationError as error:
        raise unreadable(folder, f"{error}.", "Its numbers cannot be told from these bytes.") from error


def plain_name(name: str, family: Family) -> str:
    """Return a tensor's name as the family's links have it, without the prefix."""
    for theirs, ours in family.prefixes.items():
        if name.startswith(theirs):
            name = ours + name.removeprefix(theirs)
            break
    return name.removeprefix(family.prefix)


def open_shards(index: Path, stack: ExitStack) -> dict[str, Any]:
    """Open the files that an index names and return, for each tensor, the handle of its file."""
    places = read_index(index)
    handles = open_files([index.parent / file for file in sorted(set(places.values()))], stack)
    held = {file: set(handle.keys()) for file, handle in handles.items()}
    absent = sorted(name for name, file in places.items() if name not in held[file])
    if absent:
        what = f"{index.name} names tensors that its files do not hold: {', '.join(absent)}."
        raise unreadable(index, what, "Index and files are from different exports, or a file is incomplete.")
    return {name: handles[file] for name, file in places.items()}


def read_index(index: Path) -> dict[str, str]:
    """Return the index's map from tensor to file name."""
    refuse_other_content(index, "TP043")
    form = 'It is a JSON object with a "weight_map" from tensor to file name.'
    try:
        places = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise unreadable(index, f"{index.name} cannot be read: {type(error).__name__}.", form) from error
    if not isinstance(places, dict) or not all(isinstance(file, str) for file in places.values()):
        raise unreadable(index, f"{index.name} has no map from tensor to file name.", form)
    strange = sorted({file for file in places.values() if not SHARD_NAME.fullmatch(file)})
    if strange:
        what = f"{index.name} names what cannot be a file beside it: {', '.join(map(repr, strange))}."
        raise unreadable(index, what, "Only safetensors files beside the index are opened.")
    return places


def open_files(paths: Sequence[Path], stack: ExitStack) -> dict[str, Any]:
    """Open several files and return the handle of each by its name; what is wrong with any is raised at once."""
    handles: dict[str, Any] = {}
    problems: list[Problem] = []
    for path in paths:
        try:
            handles[path.name] = open_file(path, stack)
        except ProblemError as error:
            problems.extend(error.problems)
    if problems:
        raise ProblemError(problems, exit_code=2)
    return handles


def open_file(path: Path, stack: ExitStack) -> Any:
    """Open one safetensors file, memory-mapped, until the stack closes."""
    refuse_other_content(path, "TP043")
    if not path.is_file():
        if path.name == files.WEIGHTS and (shards := sorted(path.parent.glob("*-of-*.safetensors"))):
            what = f"{path.parent.name} holds {shards[0].name} and others, but no {files.WEIGHTS_INDEX}."
            way = f"Fetch {files.WEIGHTS_INDEX} from where the model is from."
            raise unreadable(path, what, "The index says which file holds which tensor.", way)
        torch_only = sorted(file.name for file in path.parent.glob("pytorch_model*.bin"))
        why = (
            f"Only {torch_only[0]} is there; that format can run code when it is read."
            if torch_only
            else "Parameters are read from safetensors files."
        )
        raise unreadable(path, f"{path.name} is not in the model's folder.", why)
    try:
        return stack.enter_context(safe_open(path, framework="numpy"))
    except (SafetensorError, OSError) as error:
        what = f"{path.name} cannot be read: {error}."
        again = "Download or export the adapter again." if path.name.startswith("adapter") else None
        raise unreadable(path, what, "It is damaged, incomplete, or not a safetensors file.", again) from error


def unreadable(path: Path, what: str, why: str, way: str | None = None) -> ProblemError:
    """Return the refusal of a weights file."""
    return ProblemError([problem_of("TP043", file=str(path), what=what, why=why, next=way)], exit_code=2)
