"""The families of models that exist here, one file each, in one table.

A family says how its config.json becomes a `ModelSpec` and how its files name tensors; the forward pass is the same
decoder for all. To add one (Llama, Mistral, Gemma 2 and 3, Qwen): write its file like `gemma.py`, add what is new in it
to `ModelSpec` and the decoder, and put it into FAMILIES.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any

from schemas.problems.problem import Problem, ProblemError
from trainer.model.families import gemma, gpt2
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.family import Family
from trainer.model.spec import ModelSpec

FAMILIES: Mapping[str, Family] = {family.model_type: family for family in (gpt2.FAMILY, gemma.FAMILY)}


def spec_from_config(config: Mapping[str, Any], *, file: str = "config.json") -> ModelSpec:
    """Return the spec behind a Hugging Face config.json.

    Args:
        config: the parsed document.
        file: its path, for messages.

    Raises:
        ProblemError: the family is unknown, or values are missing, wrong or not implemented; all of them at once.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or model_type not in FAMILIES:
        raise ProblemError([unknown_family(model_type, file)], exit_code=2)
    reader = ConfigReader(config, file=file)
    reader.only("quantization_config", allowed=())
    spec = FAMILIES[model_type].read_config(reader)
    reader.finish()
    return spec


def unknown_family(model_type: object, file: str) -> Problem:
    """Say which families there are, and which is nearest."""
    known = ", ".join(sorted(FAMILIES))
    found = f"`model_type` is {model_type!r}" if model_type is not None else "`model_type` is missing"
    near = difflib.get_close_matches(str(model_type), FAMILIES, n=1)
    hint = f"The nearest is {near[0]}, which is another architecture. " if near else ""
    if str(model_type).strip().lower() in FAMILIES:
        hint = f"If {str(model_type).strip().lower()} is meant, write it so, in lower case. "
    return Problem(
        code="TP041",
        severity="error",
        file=file,
        pointer="/model_type",
        what=f"{found}; no such family of models is implemented here.",
        why=f"Each family names its tensors and computes in its own way. Implemented: {known}.",
        expected=known,
        next=f"{hint}Choose a model of one of these families, or a built-in model.",
    )
