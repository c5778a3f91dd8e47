"""Which of a model's projections a module of its family is: `model.layers.0.self_attn.q_proj` is one of ours.

GPT-2 keeps query, key and value in one module, which is three projections here.
"""

from __future__ import annotations

from collections.abc import Mapping

from trainer.model.files.source import ModelSource

PREFIX = "base_model.model."
"""What PEFT puts before the name of a module."""


def modules(source: ModelSource) -> Mapping[str, tuple[str, ...]]:
    """Return the projections in each module, by the module's full name; a module of several keeps their order."""
    return {
        link.tensor.removesuffix(".weight"): tuple(name.removesuffix(".kernel") for name in link.params)
        for link in source.family.links(source.spec)
        if all(name.endswith(".kernel") for name in link.params)
    }
