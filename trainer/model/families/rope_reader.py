"""Reads rotary positions out of a config.json, as transformers 4 or 5 writes it.

4 writes `rope_theta` and `rope_scaling`, 5 writes `rope_parameters`. Defaults are those of its modeling_rope_utils.py.
A kind or a key that is not computed is refused by name.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

from trainer.model.families.config_reader import ConfigReader
from trainer.model.spec import Dynamic, LinearScaling, Llama3, LongRope, Rope, Yarn

Stretch = LinearScaling | Dynamic | Llama3 | Yarn | LongRope


class RopeStatement(NamedTuple):
    """What a kind of stretching is read from."""

    parameters: ConfigReader
    """The object that states it."""

    config: ConfigReader
    """The whole document."""

    head_dim: int
    theta: float

    def positions(self) -> int:
        """Return the longest text of the first training, which some models state outside."""
        whole = self.config.size("max_position_embeddings")
        inside = self.parameters.size("original_max_position_embeddings", whole)
        return self.config.size("original_max_position_embeddings", inside)

    def factor(self, positions: int) -> float:
        """Return the factor; by default the ratio of the longest text now to the longest text then."""
        return self.parameters.number("factor", self.config.size("max_position_embeddings") / positions)

    def need(self, key: str) -> None:
        """Note a key that must stand there, be it with null."""
        if key not in self.parameters.config:
            self.parameters.note(key, "a number above 0")


def read_rope(config: ConfigReader, *, head_dim: int) -> Rope:
    """Return the rotary positions of a model that has one kind for all layers."""
    config.only("partial_rotary_factor", allowed=(1.0, 1))
    key = "rope_scaling" if config.value("rope_scaling") else "rope_parameters"
    return rope_in(config.inside(key), config, head_dim=head_dim, theta=config.number("rope_theta", 10_000.0))


def rope_in(parameters: ConfigReader, config: ConfigReader, *, head_dim: int, theta: float) -> Rope:
    """Return the rotary positions that one object states.

    Args:
        parameters: the object.
        config: the whole document.
        head_dim: width of a head.
        theta: the base, where the object does not state it.
    """
    key = "type" if parameters.value("rope_type") is None and parameters.value("type") is not None else "rope_type"
    kind = parameters.value(key) or "default"
    if not isinstance(kind, str) or kind not in KINDS:
        parameters.note(key, "one of " + ", ".join(KINDS))
        return Rope()
    known, read = KINDS[kind]
    for other in parameters.config:
        if other not in (*known, *ALWAYS):
            parameters.only(other, allowed=())
    parameters.only("partial_rotary_factor", allowed=(1.0, 1))
    theta = parameters.number("rope_theta", theta)
    return Rope(theta=theta, stretch=read(RopeStatement(parameters, config, head_dim, theta)))


def no_stretch(_: RopeStatement) -> None:
    """Read nothing."""


def linear(stated: RopeStatement) -> LinearScaling:
    """Read the plain division of all frequencies."""
    return LinearScaling(factor=stated.parameters.number("factor"))


def dynamic(stated: RopeStatement) -> Dynamic:
    """Read the base that grows with the text."""
    if stated.head_dim <= 2:
        stated.config.note("head_dim", "an even number above 2 for rotary positions of type dynamic")
    return Dynamic(factor=stated.parameters.number("factor"), positions=stated.config.size("max_position_embeddings"))


def llama3(stated: RopeStatement) -> Llama3:
    """Read the slope of Llama 3.1."""
    low, high = stated.parameters.number("low_freq_factor"), stated.parameters.number("high_freq_factor")
    if high <= low:
        stated.parameters.note("high_freq_factor", f"a number above `low_freq_factor`, {low:g}")
    factor = stated.parameters.number("factor")
    return Llama3(factor=factor, low_freq_factor=low, high_freq_factor=high, positions=stated.positions())


def yarn(stated: RopeStatement) -> Yarn:
    """Read YaRN; cosine and sine grow by `0.1 · ln factor + 1` unless the file states otherwise."""
    parameters, positions = stated.parameters, stated.positions()
    stated.need("factor")
    factor = stated.factor(positions)
    if stated.theta <= 1:
        parameters.note("rope_theta", "a number above 1")

    def growth(weight: float) -> float:
        return 0.1 * weight * math.log(factor) + 1.0 if factor > 1 else 1.0

    default = growth(1.0)
    if parameters.value("mscale") and parameters.value("mscale_all_dim"):
        default = growth(parameters.number("mscale")) / growth(parameters.number("mscale_all_dim"))
    return Yarn(
        factor=factor,
        positions=positions,
        attention_factor=parameters.number("attention_factor", default),
        beta_fast=parameters.number("beta_fast", 32.0),
        beta_slow=parameters.number("beta_slow", 1.0),
        truncate=parameters.flag("truncate", default=True),
    )


def longrope(stated: RopeStatement) -> LongRope:
    """Read a factor for each pair; cosine and sine grow with the ratio of the two context lengths."""
    parameters, positions = stated.parameters, stated.positions()
    factor = stated.factor(positions)
    growth = math.sqrt(1 + math.log(factor) / math.log(positions)) if factor > 1 < positions else 1.0
    return LongRope(
        short_factors=parameters.numbers("short_factor", stated.head_dim // 2),
        long_factors=parameters.numbers("long_factor", stated.head_dim // 2),
        positions=positions,
        attention_factor=parameters.number("attention_factor", growth),
    )


ALWAYS = ("rope_type", "type", "rope_theta", "original_max_position_embeddings", "partial_rotary_factor", "finetuned")
"""Keys that may stand beside every kind; the last only states how a model was made."""

KINDS: Mapping[str, tuple[tuple[str, ...], Callable[[RopeStatement], Stretch | None]]] = {
    "default": ((), no_stretch),
    "linear": (("factor",), linear),
    "dynamic": (("factor",), dynamic),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor"), llama3),
    "yarn": (("factor", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "truncate"), yarn),
    "longrope": (("factor", "attention_factor", "short_factor", "long_factor"), longrope),
}
"""For each `rope_type`: the keys that belong to it, and how it is read."""
