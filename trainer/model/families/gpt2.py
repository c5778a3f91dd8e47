"""GPT-2 (Radford et al. 2019): learned positions, layer norm, biases everywhere, a tied head.

Dropout rates in config.json are not used: fine-tuning here runs without dropout, and inference never had it.
"""

from __future__ import annotations

from trainer.model.families.config_reader import MOST_LAYERS, ConfigReader
from trainer.model.families.layout import Family, TensorLink
from trainer.model.spec import BlockSpec, ModelSpec


def read_config(config: ConfigReader) -> ModelSpec:
    """Read transformers' `GPT2Config`."""
    config.only("scale_attn_weights", allowed=(True,))
    config.only("scale_attn_by_inverse_layer_idx", allowed=(False,))
    config.only("add_cross_attention", allowed=(False,))
    embed, heads = config.size("n_embd"), config.size("n_head")
    if embed % heads:
        config.note("n_head", f"a divisor of `n_embd`, {embed}")
    return ModelSpec(
        family=FAMILY.model_type,
        vocab=config.size("vocab_size"),
        blocks=(BlockSpec(),) * config.size("n_layer", most=MOST_LAYERS),
        embed=embed,
        heads=heads,
        kv_heads=heads,
        head_dim=max(embed // heads, 1),
        mlp=config.size("n_inner", 4 * embed),
        max_positions=config.size("n_positions"),
        learned_positions=True,
        norm="layer",
        norm_epsilon=config.number("layer_norm_epsilon", 1e-5),
        activation=config.activation("activation_function", "gelu_new"),
        gated_mlp=False,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        tied_head=config.flag("tie_word_embeddings", default=True),
        initializer_std=config.number("initializer_range", 0.02),
        scale_residual_init=True,
    )


def links(spec: ModelSpec) -> tuple[TensorLink, ...]:
    """Name the tensors of `GPT2LMHeadModel`; its Conv1D keeps kernels as `[inputs outputs]`, as we do."""
    found = [
        TensorLink(tensor="transformer.wte.weight", params=("tokens.table",)),
        TensorLink(tensor="transformer.wpe.weight", params=("positions.table",)),
        TensorLink(tensor="transformer.ln_f.weight", params=("final_norm.scale",)),
        TensorLink(tensor="transformer.ln_f.bias", params=("final_norm.bias",)),
    ]
    for index in range(spec.layers):
        theirs, ours = f"transformer.h.{index}", f"layers.{index}"
        for tensor, norm in (("ln_1", "attention_norm"), ("ln_2", "mlp_norm")):
            found.append(TensorLink(tensor=f"{theirs}.{tensor}.weight", params=(f"{ours}.{norm}.scale",)))
            found.append(TensorLink(tensor=f"{theirs}.{tensor}.bias", params=(f"{ours}.{norm}.bias",)))
        for tensor, linears in LINEARS.items():
            for theirs_end, ours_end in (("weight", "kernel"), ("bias", "bias")):
                params = tuple(f"{ours}.{linear}.{ours_end}" for linear in linears)
                found.append(TensorLink(tensor=f"{theirs}.{tensor}.{theirs_end}", params=params))
    if not spec.tied_head:
        found.append(TensorLink(tensor="lm_head.weight", params=("head.table",)))
    return tuple(found)


LINEARS = {
    "attn.c_attn": ("attention.query", "attention.key", "attention.value"),
    "attn.c_proj": ("attention.out",),
    "mlp.c_fc": ("mlp.up",),
    "mlp.c_proj": ("mlp.down",),
}

FAMILY = Family(
    model_type="gpt2",
    architecture="GPT2LMHeadModel",
    prefix="transformer.",
    read_config=read_config,
    links=links,
    buffers=r"h\.\d+\.attn\.(bias|masked_bias)",
)
