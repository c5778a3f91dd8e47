"""Words for plans: verdicts with their symbols, and names of methods, programs and parts of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.shared.words.grades import Sign
from schemas.reading import get_str

METHODS: Mapping[str, str] = {
    "closed_form": "estimated by formula",
    "compiler": "read from the compiled program",
    "extrapolated": "compiled with fewer layers and extrapolated",
}
"""How the memory of a plan was determined."""

VERDICTS: Mapping[str, Sign] = {
    "fits": Sign("✓", "good", "It needs less memory than available."),
    "tight": Sign("!", "poor", "It may run out of memory: the plan's error reaches beyond what there is."),
    "does not fit": Sign("✕", "bad", "It needs more memory than available, so it will not be started."),
    "unsupported": Sign("∅", "quiet", "The device does not support this configuration."),
    "unknown": Sign("?", "poor", "The memory of the device is unknown."),
}

PROGRAMS: Mapping[str, str] = {
    "start": "Start",
    "train": "Train step",
    "decode": "Decoding",
    "rollout": "Roll-outs",
    "export": "Export",
    "prepare": "Loading and compiling",
    "save": "Saving",
}
"""Programs of a plan, and phases of a run around them."""

PARTS: Mapping[str, str] = {
    "params": "parameters",
    "opt_state": "optimizer state",
    "layer_inside": "activations in a layer",
    "layer_inputs": "inputs of layers",
    "layer_weights": "weights of a layer",
    "converted": "numbers in a wider type",
    "second_state": "second copy of the state",
    "key_value_cache": "key-value cache",
    "cache": "key-value cache",
}


def verdict_at(document: Mapping[str, Any] | None, *path: str) -> str:
    """Return the verdict at a path as a key of `VERDICTS`, or `unknown`."""
    word = (get_str(document, *path) or "unknown").replace("_", " ")
    return word if word in VERDICTS else "unknown"


def method_at(document: Mapping[str, Any] | None) -> str:
    """Return how a figure was determined, in words, or an empty text if the document does not say."""
    return METHODS.get(get_str(document, "method") or "", "")


def part_name(name: str | None) -> str:
    """Return the name of a part of the memory: `opt_state` is `optimizer state`."""
    return PARTS.get(name or "", (name or "?").replace("_", " "))


def program_name(name: str | None) -> str:
    """Return the name of a program: `train` is `Train step`."""
    return PROGRAMS.get(name or "", (name or "?").replace("_", " ").capitalize())
