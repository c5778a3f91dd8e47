"""config.json to spec: what is read, and what is refused rather than ignored."""

import pytest
from tiny_models import GEMMA, GPT2

from schemas.problems import Problem, ProblemError
from trainer.model.families import ACTIVATIONS, FAMILIES, spec_from_config
from trainer.model.spec import BlockSpec, ModelSpec, Rope


def problems_of(config, file="models/m/config.json"):
    with pytest.raises(ProblemError) as refusal:
        spec_from_config(config, file=file)
    assert refusal.value.exit_code == 2
    return refusal.value.problems


ACTIVATION_NAMES = ", ".join(ACTIVATIONS)
TURNED = (BlockSpec(rope=Rope(theta=500.0)),) * 2


def without(config, *keys):
    return {key: value for key, value in config.items() if key not in keys}


def test_gpt2_as_published():
    published = {
        "model_type": "gpt2",
        "vocab_size": 50257,
        "n_positions": 1024,
        "n_embd": 768,
        "n_layer": 12,
        "n_head": 12,
    }
    assert spec_from_config(published) == ModelSpec(
        family="gpt2",
        vocab=50257,
        blocks=(BlockSpec(),) * 12,
        embed=768,
        heads=12,
        kv_heads=12,
        head_dim=64,
        mlp=3072,
        max_positions=1024,
        learned_positions=True,
        norm="layer",
        norm_epsilon=1e-5,
        activation="gelu_tanh",
        gated_mlp=False,
        attention_bias=True,
        output_bias=True,
        mlp_bias=True,
        scale_embeddings=False,
        tied_head=True,
        initializer_std=0.02,
        scale_residual_init=True,
    )


def test_gemma_2b_as_published():
    published = {
        "model_type": "gemma",
        "attention_bias": False,
        "head_dim": 256,
        "hidden_act": "gelu",
        "hidden_activation": None,
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "max_position_embeddings": 8192,
        "num_attention_heads": 8,
        "num_hidden_layers": 18,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-06,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "vocab_size": 256000,
    }
    assert spec_from_config(published) == ModelSpec(
        family="gemma",
        vocab=256000,
        blocks=(BlockSpec(rope=Rope()),) * 18,
        embed=2048,
        heads=8,
        kv_heads=1,
        head_dim=256,
        mlp=16384,
        max_positions=8192,
        norm="rms_one_plus",
        norm_epsilon=1e-6,
        activation="gelu_tanh",
        gated_mlp=True,
        attention_bias=False,
        output_bias=False,
        mlp_bias=False,
        scale_embeddings=True,
        tied_head=True,
        initializer_std=0.02,
    )


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (GPT2 | {"activation_function": "gelu"}, "activation", "gelu"),
        (GPT2 | {"activation_function": "gelu_pytorch_tanh"}, "activation", "gelu_tanh"),
        (GPT2 | {"activation_function": "silu"}, "activation", "silu"),
        (GPT2 | {"n_inner": None}, "mlp", 32),
        (GPT2 | {"tie_word_embeddings": False}, "tied_head", False),
        (GPT2 | {"layer_norm_epsilon": 1e-6}, "norm_epsilon", 1e-6),
        (GPT2 | {"initializer_range": 0.1}, "initializer_std", 0.1),
        (GPT2 | {"scale_attn_weights": True, "quantization_config": None}, "heads", 2),
        (GEMMA | {"hidden_act": "silu", "hidden_activation": "silu"}, "activation", "silu"),
        (GEMMA | {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, "activation", "gelu_tanh"),
        (GEMMA | {"rope_parameters": {"type": "default"}, "rope_theta": 500.0}, "blocks", TURNED),
        (GEMMA | {"hidden_act": "silu"}, "activation", "silu"),
        (GEMMA | {"rope_theta": 500}, "blocks", TURNED),
        (GEMMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, "blocks", TURNED),
        (GEMMA | {"attention_bias": True}, "attention_bias", True),
        (without(GEMMA, "num_key_value_heads"), "kv_heads", 4),
    ],
)
def test_every_key_has_its_effect(config, field, value):
    plain = spec_from_config(GPT2 if config["model_type"] == "gpt2" else GEMMA)
    changed = spec_from_config(config)
    assert getattr(changed, field) == value
    # One key decides about both biases.
    both = {"attention_bias", "output_bias"} if field == "attention_bias" else {field}
    assert {key for key in vars(plain) if vars(plain)[key] != vars(changed)[key]} <= both


def test_an_unknown_family_is_refused_by_name():
    assert problems_of({"model_type": "gemma4"}) == (
        Problem(
            code="TP041",
            severity="error",
            file="models/m/config.json",
            pointer="/model_type",
            what="`model_type` is 'gemma4'; no such family of models is implemented here.",
            why=f"Each family names its tensors and computes in its own way. Implemented: {', '.join(FAMILIES)}.",
            expected=", ".join(FAMILIES),
            next="The nearest is gemma, which is another architecture. Choose a model of one of these families, or a "
            "built-in model.",
        ),
    )
    (capital,) = problems_of({"model_type": "Gemma"})
    assert capital.next == (
        "If gemma is meant, write it so, in lower case. Choose a model of one of these families, or a built-in model."
    )
    (missing,) = problems_of({"vocab_size": 5})
    assert missing.what == "`model_type` is missing; no such family of models is implemented here."
    assert missing.next == "Choose a model of one of these families, or a built-in model."
    (listed,) = problems_of({"model_type": ["gpt2"]})
    assert listed.what == "`model_type` is ['gpt2']; no such family of models is implemented here."


def test_the_whole_refusal_of_a_value():
    assert problems_of(GPT2 | {"activation_function": "mish"}) == (
        Problem(
            code="TP042",
            severity="error",
            file="models/m/config.json",
            pointer="/activation_function",
            what=f'`activation_function` is "mish"; this decoder needs one of {ACTIVATION_NAMES}.',
            why="Another value would make a model that computes something else than its files were trained for.",
            expected=f"one of {ACTIVATION_NAMES}",
            next="Choose a model whose config.json has such a value, or a built-in model.",
        ),
    )


@pytest.mark.parametrize(
    ("config", "what"),
    [
        (GPT2 | {"scale_attn_weights": False}, "`scale_attn_weights` is false; this decoder needs true or nothing."),
        (
            GPT2 | {"scale_attn_by_inverse_layer_idx": True},
            "`scale_attn_by_inverse_layer_idx` is true; this decoder needs false or nothing.",
        ),
        (GPT2 | {"add_cross_attention": True}, "`add_cross_attention` is true; this decoder needs false or nothing."),
        (GPT2 | {"n_head": 3}, "`n_head` is 3; this decoder needs a divisor of `n_embd`, 8."),
        (GPT2 | {"n_layer": 0}, "`n_layer` is 0; this decoder needs a whole number above 0."),
        (GPT2 | {"n_layer": True}, "`n_layer` is true; this decoder needs a whole number above 0."),
        (GPT2 | {"n_layer": 2.0}, "`n_layer` is 2.0; this decoder needs a whole number above 0."),
        (without(GPT2, "vocab_size"), "`vocab_size` is missing; this decoder needs a whole number above 0."),
        (GPT2 | {"layer_norm_epsilon": "1e-5"}, '`layer_norm_epsilon` is "1e-5"; this decoder needs a number above 0.'),
        (GPT2 | {"tie_word_embeddings": 1}, "`tie_word_embeddings` is 1; this decoder needs true or false."),
        (
            GPT2 | {"quantization_config": {"quant_method": "aqlm", "more": "x" * 50}},
            (
                '`quantization_config.quant_method` is "aqlm"; '
                "this decoder needs bitsandbytes, or parameters that are not quantised."
            ),
        ),
        (
            GPT2 | {key: {"group_size": 64, "bits": 4} for key in ("quantization", "quantization_config")},
            (
                '`quantization` is {"group_size": 64, "bits": 4}; this decoder needs weights that MLX has not '
                "quantised: `mlx_lm.convert --dequantize` writes them."
            ),
        ),
        (
            GEMMA | {"rope_scaling": {"type": "linear"}},
            "`rope_scaling.factor` is missing; this decoder needs a number above 0.",
        ),
        (
            GEMMA | {"rope_parameters": {"rope_type": "yarn"}},
            "`rope_parameters.factor` is missing; this decoder needs a number above 0.",
        ),
        (
            GEMMA | {"rope_parameters": {"type": "mrope", "mrope_section": [1, 1, 1]}},
            (
                '`rope_parameters.type` is "mrope"; this decoder needs one of '
                "default, linear, dynamic, llama3, yarn, longrope."
            ),
        ),
        (
            GEMMA | {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 4}}},
            '`rope_parameters.full_attention` is {"rope_type": "linear", "factor": 4}; this decoder needs nothing.',
        ),
        (
            GEMMA | {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"},
            '`hidden_activation` is "gelu_pytorch_tanh"; this decoder needs what `hidden_act` says, silu.',
        ),
        (
            GEMMA | {"hidden_activation": "gelu"},
            '`hidden_activation` is "gelu"; this decoder needs what `hidden_act` says, by default gelu_pytorch_tanh.',
        ),
        (GPT2 | {"n_layer": 10**9}, "`n_layer` is 1000000000; this decoder needs at most 1,024."),
        (GEMMA | {"num_hidden_layers": 1025}, "`num_hidden_layers` is 1025; this decoder needs at most 1,024."),
        (GPT2 | {"vocab_size": 10**12}, "`vocab_size` is 1000000000000; this decoder needs at most 16,777,216."),
        (
            GPT2 | {"initializer_range": float("inf")},
            "`initializer_range` is Infinity; this decoder needs a number above 0.",
        ),
        (
            GPT2 | {"layer_norm_epsilon": 10**400},
            f"`layer_norm_epsilon` is 1{'0' * 56}...; this decoder needs a number above 0.",
        ),
        (
            GEMMA | {"rope_parameters": {"rope_theta": -1}},
            "`rope_parameters.rope_theta` is -1; this decoder needs a number above 0.",
        ),
        (
            GEMMA | {"use_bidirectional_attention": True},
            "`use_bidirectional_attention` is true; this decoder needs false or nothing.",
        ),
        (
            GEMMA | {"num_key_value_heads": 3},
            "`num_key_value_heads` is 3; this decoder needs a divisor of `num_attention_heads`, 4.",
        ),
        (GEMMA | {"head_dim": 5}, "`head_dim` is 5; this decoder needs an even number."),
    ],
)
def test_what_is_not_implemented_is_refused(config, what):
    assert [problem.what for problem in problems_of(config)] == [what]


def test_all_problems_come_at_once():
    found = problems_of(without(GEMMA, "hidden_size") | {"head_dim": 5, "attention_bias": "yes", "hidden_act": "mish"})
    assert [problem.pointer for problem in found] == ["/attention_bias", "/hidden_size", "/head_dim", "/hidden_act"]


@pytest.mark.parametrize("config", [GPT2, GEMMA, GEMMA | {"attention_bias": True, "tie_word_embeddings": False}])
def test_links_name_every_parameter_once(config):
    import jax.numpy as jnp

    from trainer.model.decoder import abstract, flatten

    spec = spec_from_config(config)
    _, params = flatten(abstract(spec, params_dtype=jnp.float32, compute_dtype=jnp.float32, remat="none"))
    links = FAMILIES[spec.family].links(spec)
    assert sorted(name for link in links for name in link.params) == list(params)
    assert len({link.tensor for link in links}) == len(links)
