"""config.json to spec: what is read, and what is refused rather than ignored."""

from pathlib import Path

import pytest
import yaml
from refusals import catch_problem, catch_problems
from tiny_models import GEMMA, GPT2

from trainer.model.families import ACTIVATIONS, FAMILIES, spec_from_config
from trainer.model.spec import BlockSpec, Rope


def refusal(config):
    return catch_problem(lambda: spec_from_config(config, file="models/m/config.json"))


CASES = yaml.safe_load(Path("tests/cases/model_configs.yaml").read_text("utf-8"))
BASES = {"gpt2": GPT2, "gemma": GEMMA, "llama": GEMMA | {"model_type": "llama"}}
TURNED = (BlockSpec(rope=Rope(theta=500.0)),) * 2


@pytest.mark.parametrize(
    ("base", "changes", "field", "value"),
    [
        *CASES["effects"],
        ("gemma", {"rope_parameters": {"type": "default"}, "rope_theta": 500.0}, "blocks", TURNED),
        ("gemma", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, "blocks", TURNED),
    ],
)
def test_a_key_has_its_effect(base, changes, field, value):
    plain, changed = (spec_from_config(BASES[base] | more) for more in ({}, changes))
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


@pytest.mark.parametrize(
    ("base", "changes", "pointer"),
    [
        *CASES["refused"],
        ("gpt2", {"layer_norm_epsilon": 10**400}, "/layer_norm_epsilon"),
        ("gpt2", {"initializer_range": float("inf")}, "/initializer_range"),
    ],
)
def test_what_is_invalid_or_not_implemented_is_refused(base, changes, pointer):
    problem = refusal(BASES.get(base, {}) | changes)
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
