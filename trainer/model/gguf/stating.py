"""What a GGUF file has to state of a model, and whether llama.cpp would compute that model from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from schemas.problems.problem import ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.model.families import spec_from_config
from trainer.model.gguf.description import FAMILIES, config_of
from trainer.model.gguf.header import Gguf
from trainer.model.gguf.tensors import ReadableTensor
from trainer.model.spec import LinearScaling, ModelSpec, Rope, Yarn

NOT_STATED = Rule(
    "TP790",
    "Model that a GGUF cannot state",
    "llama.cpp takes the rest from the architecture's name, and would compute another model.",
    "Export a Hugging Face folder: leave --gguf out.",
)

ARCHITECTURES = {family: name for name, family in FAMILIES.items()} | {"mistral": "llama", "gemma3": "gemma3"}
"""For each family: llama.cpp's architecture."""

OF_TRAINING = ("family", "initializer_std", "scale_residual_init")
"""Fields of `ModelSpec` that state nothing of what is computed."""


def metadata_of(spec: ModelSpec) -> dict[str, Any]:
    """Return the keys of a model, without the tokenizer's."""
    name = ARCHITECTURES[spec.family]
    # Gemma 3's layers with a window turn by a base of their own; those without one state the rest.
    turning = sorted((block for block in spec.blocks if block.rope), key=lambda block: block.window is not None)
    rope = turning[0].rope if turning else None
    window = turning[-1].window if turning else None
    local = turning[-1].rope if name == "gemma3" and window is not None else None
    rms = "" if spec.norm == "layer" else "_rms"
    stated: dict[str, Any] = {
        "context_length": spec.max_positions,
        "embedding_length": spec.embed,
        "block_count": spec.layers,
        "feed_forward_length": spec.mlp,
        "attention.head_count": spec.heads,
        "attention.head_count_kv": spec.kv_heads,
        f"attention.layer_norm{rms}_epsilon": spec.norm_epsilon,
        "vocab_size": spec.vocab,
        "attention.sliding_window": window,
        "attn_logit_softcapping": spec.attention_softcap,
        "final_logit_softcapping": spec.final_softcap,
        "rope.freq_base_swa": local.theta if local is not None else None,
    }
    if rope is not None:
        widths = ("attention.key_length", "attention.value_length", "rope.dimension_count")
        stated |= dict.fromkeys(widths, spec.head_dim) | {"rope.freq_base": rope.theta} | rope_metadata(rope)
    return {
        "general.type": "model",
        "general.quantization_version": 2,
        **{f"{name}.{key}": value for key, value in stated.items() if value is not None},
    }


def rope_metadata(rope: Rope) -> dict[str, Any]:
    """Return the keys of a longer context; Llama 3's way is a tensor, and others are not stated."""
    match rope.stretch:
        case LinearScaling(factor=factor):
            return {"rope.scaling.type": "linear", "rope.scaling.factor": factor}
        case Yarn(factor=factor, positions=positions):
            return {
                "rope.scaling.type": "yarn",
                "rope.scaling.factor": factor,
                "rope.scaling.original_context_length": positions,
            }
    return {}


def refuse_another_model(
    spec: ModelSpec, metadata: Mapping[str, Any], tensors: Mapping[str, ReadableTensor], file: Path
) -> None:
    """Refuse to write a file that would be read as another model than the one in it.

    Args:
        spec: the model.
        metadata: what is to be stated, with its architecture.
        tensors: what is to be written; shapes, and of `rope_freqs.weight` the numbers, are looked at.
        file: what is to be written, for the message.

    Raises:
        ProblemError: exit code 2, naming each difference.
    """
    try:
        config = config_of(Gguf(path=file, metadata=metadata, tensors=tensors))
        other = spec_from_config(config, file=str(file))
    except ProblemError as error:
        problems = [problem_of(NOT_STATED, file=str(file), what=each.what) for each in error.problems]
        raise ProblemError(problems, exit_code=2) from error
    names = [field.name for field in fields(spec) if field.name not in (*OF_TRAINING, "blocks")]
    found = [(name, getattr(spec, name), getattr(other, name)) for name in names]
    for number, (block, read) in enumerate(zip(spec.blocks, other.blocks, strict=True)):
        inside = [field.name for field in fields(block)]
        found += [(f"layers.{number}.{name}", getattr(block, name), getattr(read, name)) for name in inside]
    differences = [f"{name} is {value} and would be {read}" for name, value, read in found if value != read]
    if differences:
        more = f", and {len(differences) - 3} more" if len(differences) > 3 else ""
        architecture = metadata["general.architecture"]
        what = f"A GGUF of the architecture {architecture} cannot state this model: {'; '.join(differences[:3])}{more}."
        raise ProblemError([problem_of(NOT_STATED, file=str(file), what=what)], exit_code=2)
