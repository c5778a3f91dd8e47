"""Parameters by name: a flat dictionary from path to array, back into a decoder, counted and hashed.

Names are the attributes on the way, joined by dots: `layers.0.attention.query.kernel`. They are the names in
checkpoints, hashes and error messages; `families/` maps them to those of Hugging Face's files.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from jaxtyping import Array

from trainer.model.decoder import Decoder
from trainer.model.stacking import apart

Params = dict[str, Any]
"""Path to `Array`, or to `jax.ShapeDtypeStruct` where the decoder is abstract."""


def flatten(decoder: Decoder) -> tuple[nnx.GraphDef[Decoder], Params]:
    """Take a decoder apart: its structure, hashable and without arrays, and its parameters in the order of their names.

    A tied head is one parameter. Of an abstract decoder the values are `jax.ShapeDtypeStruct`.
    """
    graphdef, state = nnx.split(decoder)
    flat = {".".join(map(str, path)): variable.get_value() for path, variable in nnx.to_flat_state(state)}
    return graphdef, dict(sorted(flat.items()))


def bind(graphdef: nnx.GraphDef[Decoder], params: Mapping[str, Any]) -> Decoder:
    """Put a decoder together again; the inverse of `flatten`, cheap, and at home inside `jax.jit`."""
    flat: dict[Any, Any] = {path_of(name): nnx.Param(value) for name, value in params.items()}
    return nnx.merge(graphdef, nnx.from_flat_state(flat))


def path_of(name: str) -> tuple[str | int, ...]:
    """Return the path behind a name: `("layers", 0, "mlp_norm", "scale")` for `layers.0.mlp_norm.scale`."""
    return tuple(int(part) if part.isdecimal() else part for part in name.split("."))


def parameter_count(params: Mapping[str, Any]) -> int:
    """Return the number of parameters, tied ones counted once."""
    return sum(int(np.prod(value.shape)) for value in params.values())


def params_sha256(params: Mapping[str, Array]) -> str:
    """Return the SHA-256 over every parameter's name, shape, dtype and bytes, in the order of names.

    For each parameter, names sorted as strings: the JSON text `["name", [shape], "dtype"]`, a newline, then the
    elements in C order, little-endian. Equal parameters have equal hashes however they are sharded or stacked.
    """
    digest = hashlib.sha256()
    alone = apart(params)
    for name in sorted(alone):
        value = np.asarray(jax.device_get(alone[name]))
        digest.update(json.dumps([name, list(value.shape), str(value.dtype)]).encode() + b"\n")
        content: Any = (
            np.ascontiguousarray(value).reshape(-1).view(np.uint8)
        )  # a buffer, which its type does not state it
        digest.update(content)
    return digest.hexdigest()
