"""The families of models that are computed here: one file each, found by its `Family` objects.

A family states how its config.json becomes a `ModelSpec` and how its files name tensors; the forward pass is the same
decoder for all. To add one, write its file like `qwen3.py`; what is new in it goes into `ModelSpec` and the decoder.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from collections.abc import Mapping
from typing import Any

from schemas.problems import Problem, ProblemError, problem_of
from trainer.model.families.config_reader import ConfigReader
from trainer.model.families.layout import Family
from trainer.model.spec import ModelSpec


def found_families() -> dict[str, Family]:
    """Return every `Family` in this folder's files, by `model_type`."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    families = [value for module in modules for value in vars(module).values() if isinstance(value, Family)]
    return {family.model_type: family for family in sorted(families, key=lambda family: family.model_type)}


FAMILIES: Mapping[str, Family] = found_families()


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
    check_quantisation(reader)
    spec = FAMILIES[model_type].read_config(reader)
    reader.finish()
    return spec


def check_quantisation(config: ConfigReader) -> None:
    """Note a way of quantising that is not read; those of bitsandbytes are (`files/quantised.py`)."""
    if config.value("quantization") is not None:  # MLX's key; newer files repeat it as quantization_config
        config.note("quantization", "weights that MLX has not quantised: `mlx_lm.convert --dequantize` writes them")
        return
    if config.value("quantization_config") is None:
        return
    stated = config.inside("quantization_config")
    if stated.value("quant_method") != "bitsandbytes":
        stated.note("quant_method", "bitsandbytes, or parameters that are not quantised")
    stated.only("bnb_4bit_quant_type", allowed=("nf4", "fp4"))


def unknown_family(model_type: object, file: str) -> Problem:
    """Say which families there are, and which is nearest."""
    known = ", ".join(sorted(FAMILIES))
    found = f"`model_type` is {model_type!r}" if model_type is not None else "`model_type` is missing"
    near = difflib.get_close_matches(str(model_type), FAMILIES, n=1)
    hint = f"The nearest is {near[0]}, which is another architecture. " if near else ""
    if str(model_type).strip().lower() in FAMILIES:
        hint = f"If {str(model_type).strip().lower()} is meant, write it so, in lower case. "
    return problem_of(
        "TP041",
        file=file,
        pointer="/model_type",
        what=f"{found}; no such family of models is implemented here.",
        why=f"Each family names its tensors and computes in its own way. Implemented: {known}.",
        expected=known,
        next=f"{hint}Choose a model of one of these families, or a built-in model.",
    )
