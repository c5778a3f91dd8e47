"""Models in scripts: logits, continuations, and what is refused."""

import inspect

import numpy as np
import pytest
from golden import CASES, expected_of
from refusals import catch_problem

from trainer.generate.api import generate, load_model


@pytest.fixture(scope="module")
def model():
    return load_model(CASES / "mistral")


def refused(call):
    problem = catch_problem(call)
    return problem.code, problem.what


@pytest.mark.slow
def test_logits_of_one_row_or_several_are_float32(model):
    tokens = expected_of("mistral")[1]["tokens"]
    whole, one = model(tokens), model(tokens[0].tolist())
    rough = load_model(CASES / "mistral", dtype="bfloat16")(tokens)
    assert {str(each.dtype) for each in (whole, one, rough)} == {"float32"}
    assert (whole.shape, one.shape) == ((2, 24, 98), (1, 24, 98))
    np.testing.assert_allclose(one[0], whole[0], atol=1e-5)
    assert 1e-3 < np.abs(rough - whole).max() < 0.5


def test_continuations_are_those_of_transformers_one_by_one_and_together(model):
    expected, _ = expected_of("mistral")
    stop, prompts = expected["stop_token_id"], expected["prompts"]
    together = generate(model, prompts, max_new_tokens=16, stop_token_id=stop)
    assert together.shape == (4, 16)
    for row, prompt, completion in zip(together, prompts, expected["completions"], strict=True):
        assert row[: len(completion)].tolist() == completion
        assert set(row[len(completion) :].tolist()) <= {stop}
        alone = generate(model, prompt)
        assert alone.shape == (12,)
        cut = completion[:12]
        assert alone[: len(cut)].tolist() == cut


TOO_LARGE = "Token id 98 is not below the vocabulary size, 98."


@pytest.mark.parametrize(
    ("ids", "what"),
    [
        ([[0, 98]], TOO_LARGE),
        ([[0, -1]], "Token id -1 is below 0."),
        ([[0.5]], "Token ids are integers; 0.5 is of type float64."),
        ([[True]], "Token ids are integers; True is of type bool."),
        ([[]], "A row of ids is empty, and a model continues one token or more."),
        (["two", "words"], '"two" is text, not token ids.'),
        ([[[1, 2]]], "Token ids have shape [seq] or [batch seq]; these have shape [1, 1, 2]."),
    ],
)
def test_ids_that_the_model_cannot_take_are_refused(model, ids, what):
    assert refused(lambda: model(ids)) == refused(lambda: generate(model, ids)) == ("TP065", what)


@pytest.mark.parametrize(
    ("ids", "more", "what"),
    [
        ([1], {"max_new_tokens": 0}, "max_new_tokens is 0; it must be an integer of at least 1."),
        ([1], {"max_new_tokens": 2.5}, "max_new_tokens is 2.5; it must be an integer of at least 1."),
        ([1], {"max_new_tokens": True}, "max_new_tokens is True; it must be an integer of at least 1."),
        ([1], {"stop_token_id": 98}, TOO_LARGE),
        ([1], {"stop_token_id": "</s>"}, '"</s>" is text, not token ids.'),
        (None, {}, "None is neither [seq] nor [batch seq]."),
        ([1, [2]], {}, "Token ids have shape [seq] or [batch seq]; these have shape [1]."),
        ({"input_ids": [1]}, {}, "Token ids are integers; {'input_ids': [1]} is of type object."),
    ],
)
def test_what_cannot_be_continued_is_refused(model, ids, more, what):
    unchecked = inspect.unwrap(generate)  # tests check types, which a script does not
    assert refused(lambda: unchecked(model, ids, **more)) == ("TP065", what)


def test_logits_of_texts_of_several_lengths_are_refused(model):
    what = "The rows of ids differ in length, but logits are computed for rows of one length."
    assert refused(lambda: model([[1, 2], [3]])) == ("TP065", what)


def test_more_tokens_than_a_table_of_positions_has_are_refused():
    model = load_model(CASES / "gpt2")
    what = "49 tokens are more than the model's 48 positions."
    assert refused(lambda: model([[1] * 49])) == ("TP065", what)
    assert refused(lambda: generate(model, [1] * 40, max_new_tokens=9)) == ("TP065", what)


def test_a_built_in_model_has_no_parameters_to_load():
    assert refused(lambda: load_model("demo")) == ("TP064", "demo is a built-in model without parameters.")
