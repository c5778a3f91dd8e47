"""What a family states about itself: how its config is read and how its files name tensors."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from trainer.model.families.config_reader import ConfigReader
from trainer.model.spec import ModelSpec


@dataclass(frozen=True, kw_only=True)
class TensorLink:
    """One tensor of a file and the parameters that it holds.

    `TensorLink(tensor="h.0.attn.c_attn.weight", params=(query, key, value))`: the three stand side by side, joined
    along the last axis. The tensor is the transpose of that where the file keeps `[outputs inputs]`.
    """

    tensor: str
    """Name in the file, with the family's prefix."""

    params: tuple[str, ...]
    """Names as in `params.flatten`."""

    transposed: bool = False
    """The file stores `[outputs inputs]`, as torch's Linear does."""


@dataclass(frozen=True, kw_only=True)
class Family:
    """One architecture of Hugging Face and the way between its files and our decoder."""

    model_type: str
    """`model_type` in config.json."""

    architecture: str
    """Class name that other tools expect in an exported config.json."""

    prefix: str
    """What the names of all tensors but the head begin with; some files leave it out."""

    read_config: Callable[[ConfigReader], ModelSpec]
    """Reads the spec and notes what it cannot do; the caller raises what was noted."""

    links: Callable[[ModelSpec], tuple[TensorLink, ...]]
    """Every parameter of the spec, once."""

    buffers: str
    """Regular expression for tensors without the prefix that hold no parameter and are passed over."""

    prefixes: Mapping[str, str] = field(default_factory=dict)
    """Other beginnings of names in its files, and what they are read as."""

    text_key: str | None = None
    """Key of config.json under which the text model's own config stands. None: it is the whole document."""
