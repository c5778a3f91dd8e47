"""Reads PEFT's adapter_config.json, and refuses by name what is not computed here.

GPT-2 keeps query, key and value in one module, which is three projections here.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from schemas.problems import Problem, ProblemError, problem_of, rule
from trainer.config.other_content import refuse_other_content
from trainer.model.files.source import ModelSource

CONFIG = "adapter_config.json"


ANY_VALUE = {
    "auto_mapping",
    "base_model_name_or_path",
    "exclude_modules",
    "fan_in_fan_out",
    "inference_mode",
    "layers_pattern",
    "layers_to_transform",
    "modules_to_save",
    "peft_version",
    "r",
    "lora_alpha",
    "lora_dropout",
    "rank_pattern",
    "alpha_pattern",
    "revision",
    "runtime_config",
    "target_modules",
    "use_rslora",
    "megatron_core",
    "qalora_group_size",
    "ensure_weight_tying",
    "save_embedding_layers",
}
"""Keys that are read, that state where an adapter came from, or that the tensors show for themselves."""

ONLY = {
    "peft_type": ("LORA",),
    "task_type": ("CAUSAL_LM", None),
    "bias": ("none", None),
    # The others begin by taking something out of the base, which is then another model than the files'.
    "init_lora_weights": (True, False, None, "gaussian", "orthogonal", "eva"),
}
"""Keys of which these values are computed."""


@dataclass(frozen=True, kw_only=True)
class AdapterConfig:
    """What adapter_config.json states, as far as the tensors do not."""

    rank: int
    alpha: float
    dropout: float
    is_rslora: bool
    ranks: Mapping[str, int]
    """By pattern of module names, where one has another rank."""
    alphas: Mapping[str, float]
    modules_to_save: tuple[str, ...]
    """Ends of the names of modules that are saved whole."""
    keeps_tie: bool
    """Whether a saved token table is the head's table too, where the model's is."""

    def rank_of(self, module: str) -> int:
        """Return the rank of a module such as `model.layers.0.self_attn.q_proj`."""
        return int(matching(self.ranks, module, self.rank))

    def scale_of(self, module: str) -> float:
        """Return what the product of a module's two matrices is multiplied by."""
        rank = self.rank_of(module)
        return float(matching(self.alphas, module, self.alpha) / (math.sqrt(rank) if self.is_rslora else rank))


def matching(patterns: Mapping[str, Any], module: str, otherwise: Any) -> Any:
    """Return the value of the first pattern that matches the end of a module's name, as PEFT does."""
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), otherwise)


def read_adapter_config(folder: Path) -> AdapterConfig:
    """Read adapter_config.json.

    Raises:
        ProblemError: it is missing or damaged, or has values that are not computed; all of them at once.
    """
    file = folder / CONFIG
    refuse_other_content(file, "TP047")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise refusal(file, f"{CONFIG} cannot be read: {type(error).__name__}.") from error
    if not isinstance(config, dict):
        raise refusal(file, f"{CONFIG} is not a JSON object.")
    if problems := [*unusable(config, file), *wrong(config, file)]:
        raise ProblemError(problems, exit_code=2)
    return AdapterConfig(
        rank=config["r"],
        alpha=float(config["lora_alpha"]),
        dropout=float(config.get("lora_dropout") or 0.0),
        is_rslora=bool(config.get("use_rslora")),
        ranks=config.get("rank_pattern") or {},
        alphas={key: float(value) for key, value in (config.get("alpha_pattern") or {}).items()},
        modules_to_save=tuple(config.get("modules_to_save") or ()),
        keeps_tie=bool(config.get("ensure_weight_tying")),
    )


def unusable(config: Mapping[str, Any], file: Path) -> list[Problem]:
    """Return a problem for each option that is not computed here."""
    found = []
    for key, value in config.items():
        if key in ANY_VALUE or (key not in ONLY and (value is None or value is False or value in ({}, [], ""))):
            continue
        allowed = ONLY.get(key, (None,))
        if any(value == each and type(value) is type(each) for each in allowed):
            continue
        what = f"`{key}` is {json.dumps(value)[:60]}; adapters with it are not computed here."
        found.append(problem_of("TP047", file=str(file), what=what, pointer=f"/{key}"))
    if "peft_type" not in config:
        found.append(problem_of("TP047", file=str(file), what="`peft_type` is missing; LORA is read."))
    return found


def wrong(config: Mapping[str, Any], file: Path) -> list[Problem]:
    """Return a problem for each value that cannot be one."""

    def is_number(value: Any) -> bool:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)

    saved = config.get("modules_to_save") or []
    patterns = {key: config.get(key) or {} for key in ("rank_pattern", "alpha_pattern")}
    checks = {
        "r": type(config.get("r")) is int and config["r"] > 0,
        "lora_alpha": is_number(config.get("lora_alpha")),
        "lora_dropout": is_number(config.get("lora_dropout") or 0) and 0 <= (config.get("lora_dropout") or 0) < 1,
        "modules_to_save": isinstance(saved, list) and all(isinstance(each, str) for each in saved),
        "rank_pattern": are_patterns(patterns["rank_pattern"], lambda each: type(each) is int and each > 0),
        "alpha_pattern": are_patterns(patterns["alpha_pattern"], is_number),
    }
    return [
        problem_of(
            "TP047",
            file=str(file),
            what=f"`{key}` is {json.dumps(config.get(key))[:60]}, which it cannot be.",
            pointer=f"/{key}",
        )
        for key, holds in checks.items()
        if not holds
    ]


def are_patterns(value: Any, is_right: Callable[[Any], bool]) -> bool:
    """Return whether a value is an object whose keys are regular expressions and whose values are right."""
    if not isinstance(value, dict) or not all(is_right(each) for each in value.values()):
        return False
    try:
        for key in value:
            re.compile(rf"(.*\.)?({key})$")
    except re.error:
        return False
    return True


def refusal(file: Path, what: str, why: str | None = None) -> ProblemError:
    """Return the refusal of an adapter."""
    problem = problem_of("TP047", file=str(file), what=what, why=why or rule("TP047").why)
    return ProblemError([problem], exit_code=2)


PREFIX = "base_model.model."
"""What PEFT puts before the name of a module."""


def modules(source: ModelSource) -> Mapping[str, tuple[str, ...]]:
    """Return the projections in each module, by the module's full name; a module of several keeps their order."""
    return {
        link.tensor.removesuffix(".weight"): tuple(name.removesuffix(".kernel") for name in link.params)
        for link in source.family.links(source.spec)
        if all(name.endswith(".kernel") for name in link.params)
    }
