"""config.json to spec: what is read, and what is refused rather than ignored."""

import pytest
from refusals import catch_problem, catch_problems
from tiny_models import GEMMA, GPT2

from trainer.model.families import ACTIVATIONS, FAMILIES, spec_from_config
from trainer.model.spec import BlockSpec, Rope


def refusal(config):
    return catch_problem(lambda: spec_from_config(config, file="models/m/config.json"))


TURNED = (BlockSpec(rope=Rope(theta=500.0)),) * 2


@pytest.mark.parametrize(
    ("config", "field", "value"),
    [
        (GPT2 | {"activation_function": "gelu_pytorch_tanh"}, "activation", "gelu_tanh"),
        (GPT2 | {"activation_function": "silu"}, "activation", "silu"),
        (GPT2 | {"layer_norm_epsilon": 1e-6}, "norm_epsilon", 1e-6),
        (GPT2 | {"initializer_range": 0.1}, "initializer_std", 0.1),
        (GPT2 | {"scale_attn_weights": True, "quantization_config": None}, "heads", 2),
        (GEMMA | {"hidden_act": "silu", "hidden_activation": "silu"}, "activation", "silu"),
        (GEMMA | {"hidden_act": "gelu", "hidden_activation": "gelu_pytorch_tanh"}, "activation", "gelu_tanh"),
        (GEMMA | {"rope_parameters": {"type": "default"}, "rope_theta": 500.0}, "blocks", TURNED),
        (GEMMA | {"hidden_act": "silu"}, "activation", "silu"),
        (GEMMA | {"hidden_act": "gelu", "hidden_activation": None, "rope_scaling": None}, "activation", "gelu_tanh"),
        (GEMMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, "blocks", TURNED),
    ],
)
def test_a_key_has_its_effect(config, field, value):
    plain = spec_from_config(GPT2 if config["model_type"] == "gpt2" else GEMMA)
    changed = spec_from_config(config)
    assert getattr(changed, field) == value
    assert {key for key in vars(plain) if vars(plain)[key] != vars(changed)[key]} <= {field}


def test_an_unknown_family_is_refused_by_name():
    problem = refusal({"model_type": "gemma4"})
    assert (problem.code, problem.pointer, problem.expected) == ("TP041", "/model_type", ", ".join(FAMILIES))
    assert problem.what == "`model_type` 'gemma4' is not supported."
    assert problem.next.startswith("The most similar name is gemma, a different architecture. ")
    assert refusal({"vocab_size": 5}).what == "`model_type` is missing."
    assert refusal({"model_type": ["gpt2"]}).code == "TP041"


def test_a_message_names_key_value_and_what_is_expected():
    problem, names = refusal(GPT2 | {"activation_function": "mish"}), f"one of {', '.join(ACTIVATIONS)}"
    assert problem.what == f'`activation_function` is "mish", but must be {names}.'
    assert (problem.code, problem.pointer, problem.expected) == ("TP042", "/activation_function", names)


LLAMA = GEMMA | {"model_type": "llama"}


@pytest.mark.parametrize(
    ("config", "pointer"),
    [
        (GPT2 | {"scale_attn_weights": False}, "/scale_attn_weights"),
        (GPT2 | {"scale_attn_by_inverse_layer_idx": True}, "/scale_attn_by_inverse_layer_idx"),
        (GPT2 | {"add_cross_attention": True}, "/add_cross_attention"),
        (GPT2 | {"n_head": 3}, "/n_head"),
        (GPT2 | {"n_layer": 0}, "/n_layer"),
        (GPT2 | {"n_layer": True}, "/n_layer"),
        (GPT2 | {"n_layer": 2.0}, "/n_layer"),
        (GPT2 | {"vocab_size": 10**12}, "/vocab_size"),
        (GPT2 | {"layer_norm_epsilon": "1e-5"}, "/layer_norm_epsilon"),
        (GPT2 | {"layer_norm_epsilon": 10**400}, "/layer_norm_epsilon"),
        (GPT2 | {"initializer_range": float("inf")}, "/initializer_range"),
        (GPT2 | {"tie_word_embeddings": 1}, "/tie_word_embeddings"),
        (GPT2 | {"quantization_config": {"quant_method": "aqlm"}}, "/quantization_config/quant_method"),
        (GPT2 | {"quantization_config": {"quant_method": "bitsandbytes", "bnb_4bit_quant_type": "int4"}}, None),
        (GPT2 | {"quantization": {"bits": 4}, "quantization_config": {"bits": 4}}, "/quantization"),
        (GEMMA | {"num_hidden_layers": 1025}, "/num_hidden_layers"),
        (GEMMA | {"num_key_value_heads": 3}, "/num_key_value_heads"),
        (GEMMA | {"head_dim": 5}, None),
        (GEMMA | {"use_bidirectional_attention": True}, "/use_bidirectional_attention"),
        (GEMMA | {"hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh"}, "/hidden_activation"),
        (GEMMA | {"hidden_activation": "gelu"}, "/hidden_activation"),
        (GEMMA | {"attention_bias": "yes"}, "/attention_bias"),
        (GEMMA | {"rope_parameters": [1]}, "/rope_parameters"),
        (GEMMA | {"rope_parameters": {"rope_theta": -1}}, "/rope_parameters/rope_theta"),
        (GEMMA | {"rope_scaling": {"type": "linear"}}, None),
        (GEMMA | {"rope_parameters": {"rope_type": "yarn"}}, "/rope_parameters"),
        (GEMMA | {"rope_parameters": {"type": "mrope", "mrope_section": [1]}}, "/rope_parameters/type"),
        (GEMMA | {"rope_parameters": {"full_attention": {"factor": 4}}}, "/rope_parameters/full_attention"),
        (GEMMA | {"rope_scaling": {"rope_type": "linear", "factor": 2, "new_key": 1}}, "/rope_scaling/new_key"),
        (
            GEMMA | {"rope_scaling": {"rope_type": "longrope", "short_factor": [1.0], "long_factor": [1.0]}},
            "/rope_scaling",
        ),
        (LLAMA | {"partial_rotary_factor": 0.5}, "/partial_rotary_factor"),
        (LLAMA | {"model_type": "mistral", "layer_types": ["full_attention"] * 2}, "/layer_types"),
        (LLAMA | {"model_type": "qwen2", "layer_types": ["sliding_attention"] * 2}, "/layer_types"),
        (LLAMA | {"model_type": "qwen3", "layer_types": ["conv"] * 2}, "/layer_types"),
        (LLAMA | {"model_type": "smollm3", "no_rope_layers": [1]}, None),
        (LLAMA | {"model_type": "smollm3", "no_rope_layer_interval": 0}, "/no_rope_layer_interval"),
        (GEMMA | {"model_type": "gemma3_text", "attn_logit_softcapping": 50.0}, "/attn_logit_softcapping"),
        (GEMMA | {"model_type": "gemma3_text", "sliding_window_pattern": 0}, "/sliding_window_pattern"),
        ({"model_type": "gemma3", "text_config": [1]}, "/text_config"),
        ({"model_type": "gemma3", "text_config": {"model_type": "llama"}}, "/text_config/model_type"),
    ],
)
def test_what_is_invalid_or_not_implemented_is_refused(config, pointer):
    problem = refusal(config)
    assert problem.code == "TP042"
    assert pointer is None or problem.pointer == pointer


def test_all_problems_come_at_once():
    wrong = {"hidden_size": 0, "rms_norm_eps": -1, "rope_scaling": {"rope_type": "new"}}
    found = catch_problems(lambda: spec_from_config(GEMMA | wrong))
    assert [problem.pointer for problem in found] == ["/hidden_size", "/rms_norm_eps", "/rope_scaling/rope_type"]


def test_absent_keys_have_the_defaults_of_transformers():
    assert spec_from_config({"model_type": "gemma3_text"}).layers == 26
    published = {"n_positions": 1024, "n_embd": 768, "n_layer": 12, "n_head": 12, "layer_norm_epsilon": 1e-5}
    published |= {"vocab_size": 50257, "n_inner": 3072, "initializer_range": 0.02, "tie_word_embeddings": True}
    assert spec_from_config({"model_type": "gpt2"}) == spec_from_config({"model_type": "gpt2"} | published)
