"""How verdicts, programs and parts of a plan are written: names for people, and a symbol with each verdict."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dashboard.shared.words.grades import Sign
from schemas.reading import get_str

METHODS = {
    "closed_form": "estimated by formula",
    "compiler": "read from the compiled program",
    "extrapolated": "compiled with fewer layers and extrapolated",
}
"""How the memory of a plan was found."""

VERDICTS: Mapping[str, Sign] = {
    "fits": Sign(symbol="✓", tone="good", meaning="It needs less memory than there is."),
    "tight": Sign(
        symbol="!", tone="poor", meaning="It may run out of memory: the plan's error reaches beyond what there is."
    ),
    "does not fit": Sign(symbol="✕", tone="bad", meaning="It needs more memory than there is; starting is refused."),
    "unsupported": Sign(
        symbol="∅", tone="quiet", meaning="The device does not compute what the configuration asks for."
    ),
    "unknown": Sign(symbol="?", tone="poor", meaning="How much memory there is is not known."),
}

PROGRAMS: Mapping[str, str] = {
    "start": "Start",
    "train": "Train step",
    "decode": "Decoding",
    "rollout": "Rolling out",
    "export": "Export",
    "prepare": "Reading and compiling",
    "save": "Saving",
}
"""Programs of a plan, and the parts of a run beside them."""

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
    """Return the verdict at a path as `VERDICTS` has it; `unknown` for any other text."""
    word = (get_str(document, *path) or "unknown").replace("_", " ")
    return word if word in VERDICTS else "unknown"


def method_at(document: Mapping[str, Any] | None) -> str:
    """Return how a figure was found, in words; empty where the document does not say."""
    return method_name(get_str(document, "method"))


def method_name(method: str | None) -> str:
    """Return a method in words: `closed_form` is `estimated by formula`; empty for one that is not known."""
    return METHODS.get(method or "", "")


def part_name(name: str | None) -> str:
    """Return what a part of the memory is called: `opt_state` is `optimizer state`."""
    return PARTS.get(name or "", (name or "?").replace("_", " "))


def program_name(name: str | None) -> str:
    """Return what a program is called: `train` is `Train step`."""
    return PROGRAMS.get(name or "", (name or "?").replace("_", " ").capitalize())
