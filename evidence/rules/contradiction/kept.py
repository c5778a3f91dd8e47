"""TP328: the parameters that a run keeps in its evidence are those that it states it trained.

The file is small and holds what the answers were given by, so its hash can be compared with the one that the chain and
the evaluation state. Of adapters the stated hash is over their base too, which is not in the file: there, only their
number is held.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

from evidence.records.facts import Facts, finding
from evidence.run import layout
from evidence.run.unreadable import is_lfs_pointer
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule

OTHER_KEPT = Rule(
    "TP328",
    "Kept parameters that the run did not end with",
    "trained_params.safetensors holds what was trained; chain and evaluation state its hash, the manifest its number.",
    "Restore trained_params.safetensors as the run wrote it, for example from its bundle; if it is lost, run again.",
)

_TYPES = {"F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2), "F64": ("float64", 8)}
"""Element types of safetensors: the name that a hash is over, and bytes."""
_WIDEST = 8
"""Bytes of the widest element type."""
_LENGTH_BYTES = 8
_LARGEST_HEAD = 1 << 24

Arrays = list[tuple[str, list[int], str, bytes]]
"""Name, shape, element type and bytes of each array, in the order of names."""


def kept_parameters_are_the_trained_ones(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the kept parameters are of another number, or have another hash, than is stated."""
    if facts.training is None or facts.model is None or layout.TRAINED_PARAMS not in facts.files:
        return
    path = facts.folder / layout.TRAINED_PARAMS
    most = facts.model["trainable_parameters"] * _WIDEST + _LARGEST_HEAD
    try:
        if (there := path.stat().st_size) > most:
            what = f"The file has {there:,} bytes; what the run trained takes {most:,} at most."
            yield _problem(facts, what, None)
            return
        if is_lfs_pointer(path):
            return  # That the file is elsewhere is reported where its hash is taken.
        content = path.read_bytes()
    except OSError:
        return  # That it cannot be read is reported where its hash is taken.
    arrays = _arrays(content)
    if arrays is None:
        yield _problem(facts, "The file is not in the form of safetensors, or is damaged.", None)
        return
    count = sum(math.prod(shape) for _, shape, _, _ in arrays)
    if count != facts.model["trainable_parameters"]:
        what = f"The file holds {count:,} parameters; the run trained {facts.model['trainable_parameters']:,}."
        yield _problem(facts, what, f"{facts.model['trainable_parameters']:,}")
    elif facts.trains_all and (stated := _stated_hash(facts)) and stated != (own := _sha256(arrays)):
        yield _problem(facts, f"The file holds parameters {own[:12]}…; the run ended with {stated[:12]}….", stated)


def _stated_hash(facts: Facts) -> str | None:
    """Return the hash of the last parameters, as the chain states it, else the evaluation of the last step."""
    ended = facts.chain[-1]["params_sha256"] if facts.chain else None
    if ended is not None:
        return str(ended)
    evaluated = None if facts.eval_summary is None else facts.eval_summary["checkpoint"]
    done = (facts.training or {}).get("steps_done")
    return str(evaluated["params_sha256"]) if evaluated is not None and evaluated["step"] == done else None


def _arrays(content: bytes) -> Arrays | None:
    """Return the arrays of a safetensors file: the length of its head, the head in JSON, then the elements."""
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    body = _LENGTH_BYTES + length
    if length > min(_LARGEST_HEAD, len(content)):
        return None
    try:
        head = json.loads(content[_LENGTH_BYTES:body])
        arrays = [_array(name, head[name], content, body) for name in sorted(head) if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return None if None in arrays else [each for each in arrays if each is not None]


def _array(name: str, described: Any, content: bytes, body: int) -> tuple[str, list[int], str, bytes] | None:
    kind, width = _TYPES[described["dtype"]]
    shape = [int(size) for size in described["shape"]]
    begin, end = (int(place) for place in described["data_offsets"])
    is_whole = 0 <= begin <= end <= len(content) - body and end - begin == width * math.prod(shape)
    return (name, shape, kind, content[body + begin : body + end]) if is_whole else None


def _sha256(arrays: Arrays) -> str:
    """Return the hash of parameters as `trainer.model.params` takes it: name, shape and type, then the bytes."""
    digest = hashlib.sha256()
    for name, shape, kind, elements in arrays:
        digest.update(json.dumps([name, shape, kind]).encode() + b"\n")
        digest.update(elements)
    return digest.hexdigest()


def _problem(facts: Facts, what: str, expected: str | None) -> Problem:
    return finding(facts.folder, OTHER_KEPT, layout.TRAINED_PARAMS, what, expected=expected)


CHECKS = (kept_parameters_are_the_trained_ones,)
"""Rules of the kept parameters."""
