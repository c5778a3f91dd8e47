"""Gemma (arXiv 2403.08295): rotary positions, RMS norm with gain 1 + w, GeGLU, multi-query attention, a tied head.

Gemma's GELU is the tanh form. Early config.json files say `hidden_act: gelu` and mean that one; transformers 5 reads
them so. The older key `hidden_activation` counts in transformers 4 and is not known in 5: where it says something else
than `hidden_act`, nobody can know what the model was trained with, and it is refused.
"""

from __future__ import annotations

from typing import Any

from trainer.model.families.config_reader import ACTIVATIONS, MOST_LAYERS, ConfigReader
from trainer.model.families.family import Family, TensorLink
from trainer.model.spec import Activation, ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `GemmaConfig`, of version 4 (`rope_theta`) or 5 (`rope_parameters`)."""
    config.only("rope_scaling", allowed=())
    config.only("use_bidirectional_attention", allowed=(False,))
    heads = config.size("num_attention_heads")
    kv_heads = config.size("num_key_value_heads", heads)
    if heads % kv_heads:
        config.note("num_key_value_heads", f"a divisor of `num_attention_heads`, {heads}")
    head_dim = config.size("head_dim", 256)
    if head_dim % 2:
        config.note("head_dim", "an even number")
    return ModelSpec(
        family=FAMILY.model_type,
        vocab=config.size("vocab_size"),
        layers=config.size("num_hidden_layers", most=MOST_LAYERS),
        embed=config.size("hidden_size"),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        mlp=config.size("intermediate_size"),
        max_positions=config.size("max_position_embeddings", 8192),
        positions="rotary",
        rope_theta=rope_theta(config),
        norm="rms_one_plus",
        norm_epsilon=config.number("rms_norm_eps", 1e-6),
        activation=activation(config),
        gated_mlp=True,
        attention_bias=config.flag("attention_bias", default=False),
        mlp_bias=False,
        scale_embeddings=True,
        tied_head=config.flag("tie_word_embeddings", default=True),
        initializer_std=config.number("initializer_range", 0.02),
    )


def activation(config: ConfigReader) -> Activation:
    """Return the activation, with the early files' `hidden_act: gelu` read as the tanh form."""
    found = config.activation("hidden_act", "gelu_pytorch_tanh")
    found = "gelu_tanh" if found == "gelu" else found
    if config.config.get("hidden_activation") is not None:
        older = config.activation("hidden_activation", "gelu_pytorch_tanh")
        word = config.config.get("hidden_act")
        if older != found and word in (None, *ACTIVATIONS):
            config.note("hidden_activation", f"what `hidden_act` says, {word or 'by default gelu_pytorch_tanh'}")
    return found


def rope_theta(config: ConfigReader) -> float:
    """Return the base of the rotary wavelengths from where either version of transformers writes it.

    Every other value there makes wavelengths that are not computed here; the kind is also read under its older key.
    """
    parameters = config.config.get("rope_parameters")
    if parameters is None:
        return config.number("rope_theta", 10_000.0)
    if not isinstance(parameters, dict) or not plain_rope(parameters):
        config.note("rope_parameters", '{"rope_type": "default", "rope_theta": …}')
        return 10_000.0
    inside = ConfigReader(parameters, file=config.file)
    theta = inside.number("rope_theta", config.number("rope_theta", 10_000.0))
    config.problems.extend(inside.problems)
    return theta


def plain_rope(parameters: dict[str, Any]) -> bool:
    """Return whether the rotary positions are the plain ones: of the default type, with nothing else stated."""
    stated = {key: value for key, value in parameters.items() if value is not None and key != "rope_theta"}
    return all(key in ("rope_type", "type") and value == "default" for key, value in stated.items())


def links(spec: ModelSpec) -> tuple[TensorLink, ...]:
    """Name the tensors of `GemmaForCausalLM`; its Linear keeps kernels as `[outputs inputs]`."""
    found = [
        TensorLink(tensor="model.embed_tokens.weight", params=("tokens.table",)),
        TensorLink(tensor="model.norm.weight", params=("final_norm.scale",)),
    ]
    for index in range(spec.layers):
        theirs, ours = f"model.layers.{index}", f"layers.{index}"
        for tensor, norm in NORMS.items():
            found.append(TensorLink(tensor=f"{theirs}.{tensor}.weight", params=(f"{ours}.{norm}.scale",)))
        for tensor, linear in LINEARS.items():
            kernel = (f"{ours}.{linear}.kernel",)
            found.append(TensorLink(tensor=f"{theirs}.{tensor}.weight", params=kernel, transposed=True))
            if spec.attention_bias and linear.startswith("attention."):
                found.append(TensorLink(tensor=f"{theirs}.{tensor}.bias", params=(f"{ours}.{linear}.bias",)))
    if not spec.tied_head:
        found.append(TensorLink(tensor="lm_head.weight", params=("head.table",)))
    return tuple(found)


NORMS = {"input_layernorm": "attention_norm", "post_attention_layernorm": "mlp_norm"}

LINEARS = {
    "self_attn.q_proj": "attention.query",
    "self_attn.k_proj": "attention.key",
    "self_attn.v_proj": "attention.value",
    "self_attn.o_proj": "attention.out",
    "mlp.gate_proj": "mlp.gate",
    "mlp.up_proj": "mlp.up",
    "mlp.down_proj": "mlp.down",
}

FAMILY = Family(
    model_type="gemma",
    architecture="GemmaForCausalLM",
    prefix="model.",
    read_config=read_config,
    links=links,
    buffers=r"(layers\.\d+\.self_attn\.)?rotary_emb\.inv_freq",
)
