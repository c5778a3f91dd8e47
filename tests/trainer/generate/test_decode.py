"""Decoding: exact on a model that counts, blind to padding and neighbours; models in scripts, and what is refused."""

import inspect
from unittest.mock import Mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden import CASES, expected_of
from jax.sharding import NamedSharding, PartitionSpec
from refusals import catch_problem
from tiny_models import counting_model, logits, random_model

from trainer.generate import api, decode
from trainer.generate.decode import Completion, GroupPrograms, decode_under, generate, pad_left, row_keys
from trainer.generate.sampling import DrawKeys, Sampling, draw_tokens, top_p_threshold
from trainer.loop.task import build_mesh, rows_sharding, state_shardings

PROMPTS = [[5, 17, 8], [3], [4, 2, 9, 6, 13, 13, 12, 9], [7, 7, 7, 7, 7], [21], [0, 22, 1]]


def completions(graphdef, params, prompts, **given):
    chosen = {"max_new_tokens": 12, "stop_token_id": 7, "batch_size": 4} | given
    return list(generate(graphdef, params, prompts, **chosen))


@pytest.mark.parametrize(
    ("prompts", "limit", "expected"),
    [
        ([[3, 4], [9], [7]], 5, [((5, 6, 7), "stop"), ((0, 1, 2, 3, 4), "length"), ((8, 9, 0, 1, 2), "length")]),
        ([[3], [6]], 1, [((4,), "length"), ((7,), "stop")]),
        ([[4], [8, 1, 0]], 3, [((5, 6, 7), "stop"), ((1, 2, 3), "length")]),
    ],
)
def test_counts_until_the_stop_token_or_the_limit(prompts, limit, expected):
    found = completions(*counting_model(10), prompts, max_new_tokens=limit)
    assert [(one.tokens, one.finish_reason) for one in found] == expected


def test_of_equally_likely_tokens_the_first_is_taken(spec):
    graphdef, params = random_model(spec)
    nothing = {name: jnp.zeros_like(value) for name, value in params.items()}
    first = Completion(tokens=(0, 0), finish_reason="length")
    assert completions(graphdef, nothing, [[5], [1, 2]], max_new_tokens=2) == [first, first]


@pytest.mark.slow(but=("gemma",))
def test_neighbours_and_padding_change_nothing(spec):
    graphdef, params = random_model(spec, seed=1)
    together = completions(graphdef, params, PROMPTS, batch_size=6)
    assert completions(graphdef, params, PROMPTS, batch_size=1) == together
    assert completions(graphdef, params, PROMPTS[::-1], batch_size=4) == together[::-1]
    beside_a_long_one = completions(graphdef, params, [*PROMPTS, [1] * 40], batch_size=7)
    assert beside_a_long_one[:6] == together


def test_one_program_for_all_batches_and_for_nearly_equal_sets(spec, monkeypatch):
    graphdef, params = random_model(spec)
    doubled = {name: 2 * value for name, value in params.items()}
    traced = Mock(wraps=decode.first_tokens)
    monkeypatch.setattr(decode, "first_tokens", traced)
    # A limit that no other test has, so that this program is not there yet.
    completions(graphdef, params, PROMPTS, max_new_tokens=11)
    completions(graphdef, params, [[1] * 20, *PROMPTS], max_new_tokens=11)
    completions(graphdef, doubled, PROMPTS, max_new_tokens=11, stop_token_id=3)
    assert traced.call_count == 1


@pytest.mark.slow
@pytest.mark.parametrize("divided", [True, False], ids=["divided", "repeated"])
def test_devices_share_the_prompts_and_write_what_one_writes(spec, divided):
    graphdef, params = random_model(spec, seed=1)
    mesh = build_mesh(jax.devices()[:4])
    split = jax.device_put(params, state_shardings(params, mesh, shard_params=divided))
    over = decode.find_rows_sharding(split)
    assert over == rows_sharding(mesh)
    assert decode.find_rows_sharding(params) is None
    # Six prompts, four at a time on four devices: the second batch is filled up; a batch of three is one of four.
    for size in (4, 3, 6):
        assert completions(graphdef, split, PROMPTS, batch_size=size) == completions(graphdef, params, PROMPTS)
    drawing = DrawKeys(keys=jax.random.split(jax.random.key(5), (6, 3)), sampling=Sampling(top_p=0.9))
    drawn = [completions(graphdef, each, PROMPTS, drawing=drawing, batch_size=12) for each in (params, split)]
    assert len({one.tokens for one in drawn[0]}) > 12
    assert drawn[0] == drawn[1]


@pytest.mark.slow
def test_each_device_keeps_the_keys_and_values_of_its_own_rows(spec):
    graphdef, params = random_model(spec)
    mesh, peaks = build_mesh(jax.devices()[:4]), []
    for over in (None, rows_sharding(mesh)):
        held = jax.device_put(params, NamedSharding(mesh, PartitionSpec()))
        rows = jax.device_put(pad_left([[1]] * 64, 256), NamedSharding(mesh, PartitionSpec()) if over is None else over)
        compiled = decode_under().lower(graphdef, held, *rows, jnp.int32(7), max_new_tokens=256, over=over).compile()
        peaks.append(compiled.memory_analysis().temp_size_in_bytes)
    assert peaks[1] < 0.3 * peaks[0]


# Groups of drawn continuations

SIZE, STOP = 4, 7
GROUPED = PROMPTS[:4]


def draw(spec, prompts, rows, *, temperature=1.0, seed=0):
    graphdef, params = random_model(spec)
    limits = {"group_size": SIZE, "max_new_tokens": 12, "stop_token_id": STOP}
    programs = GroupPrograms(graphdef=graphdef, sampling=Sampling(temperature=temperature), **limits)
    tokens, lengths = map(np.asarray, pad_left(prompts, 8))
    return programs.draw(params, tokens, lengths, keys=row_keys(jax.random.key(seed), rows, SIZE))


def texts(drawn):
    return [each.written.tokens for each in drawn]


@pytest.mark.slow(but=("gpt2",))
def test_a_row_draws_the_same_whatever_stands_beside_it(spec):
    together = texts(draw(spec, GROUPED, [0, 1, 2, 3]))
    for number in (0, 2):
        alone = texts(draw(spec, [GROUPED[number]], [number]))
        assert alone == together[number * SIZE : (number + 1) * SIZE]


@pytest.mark.slow
def test_rows_that_go_on_in_half_the_rows_write_the_same(spec, monkeypatch):
    whole = draw(spec, GROUPED, [0, 1, 2, 3], temperature=0.7)
    shapes = []
    first, further, taken = decode.group_functions((), None)

    def counted(graphdef, params, state, *given, **settings):
        shapes.append(len(state.last))
        return further(graphdef, params, state, *given, **settings)

    monkeypatch.setattr(decode, "CHUNK_TOKENS", 2)
    monkeypatch.setattr(decode, "group_functions", lambda *_: (first, counted, taken))
    cut = draw(spec, GROUPED, [0, 1, 2, 3], temperature=0.7)
    assert texts(cut) == texts(whole)
    for one, other in zip(cut, whole, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=2e-6)
    assert set(shapes) <= {16, 8}


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_and_entropies_are_those_of_one_pass_over_the_whole_text(spec, temperature):
    graphdef, params = random_model(spec)
    for number, each in enumerate(draw(spec, GROUPED, [0, 1, 2, 3], temperature=temperature)):
        prompt, written = GROUPED[number // SIZE], list(each.written.tokens)
        row = jnp.asarray([[*prompt, *written]], jnp.int32)
        scores = np.asarray(logits(graphdef, params, row), np.float64)[0, len(prompt) - 1 : -1] / temperature
        chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
        chances /= chances.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(each.log_probs, np.log(chances[range(len(written)), written]), atol=1e-5)
        np.testing.assert_allclose(each.entropies, -np.sum(chances * np.log(chances), axis=-1), atol=1e-5)
        assert (written[-1] == STOP) == (each.written.finish_reason == "stop")


# Drawing one token

CHANCES = np.array([0.5, 0.2, 0.15, 0.1, 0.05])


def drawn_tokens(sampling, count=20_000, chances=CHANCES):
    logits = jnp.broadcast_to(jnp.log(jnp.asarray(chances, jnp.float32)), (count, len(chances)))
    keys = jax.random.split(jax.random.key(0), count)
    return jax.jit(draw_tokens, static_argnames="sampling")(logits, keys, jnp.int32(3), sampling)


@pytest.mark.parametrize(
    ("sampling", "chances"),
    [
        (Sampling(), CHANCES),
        (Sampling(temperature=0.5), CHANCES**2 / np.sum(CHANCES**2)),
        (Sampling(top_k=2), np.array([0.5, 0.2, 0, 0, 0]) / 0.7),
        (Sampling(top_k=3, top_p=0.6), np.array([0.5, 0.2, 0, 0, 0]) / 0.7),
        (Sampling(top_p=0.8), np.array([0.5, 0.2, 0.15, 0, 0]) / 0.85),
    ],
)
def test_tokens_come_as_often_as_their_probability_states(sampling, chances):
    tokens = np.asarray(drawn_tokens(sampling)[0])
    deviation = np.sqrt(np.maximum(chances * (1 - chances), 1e-12) / len(tokens))
    assert np.max(np.abs(np.bincount(tokens, minlength=5) / len(tokens) - chances) / deviation) < 4.5


def test_log_probability_and_entropy_are_those_before_anything_is_left_out():
    tokens, log_probs, entropies = drawn_tokens(Sampling(top_k=2, temperature=0.5), count=8)
    chances = CHANCES**2 / np.sum(CHANCES**2)
    np.testing.assert_allclose(log_probs, np.log(chances)[np.asarray(tokens)], atol=1e-6)
    np.testing.assert_allclose(entropies, -np.sum(chances * np.log(chances)), atol=1e-6)


@pytest.mark.parametrize("share", [1e-6, 0.05, 0.3, 0.9, 0.999])
def test_the_bisection_keeps_what_a_sort_keeps(share):
    logits = jax.random.normal(jax.random.key(1), (7, 1000)) * 3
    chances = -np.sort(-np.asarray(jax.nn.softmax(logits, axis=-1)), axis=-1)
    wanted = np.sum(np.cumsum(chances, axis=-1) - chances < share, axis=-1)
    kept = np.sum(np.asarray(logits) >= np.asarray(top_p_threshold(logits, share))[:, None], axis=-1)
    # A sum in another order may fall on the other side of the share, by one token.
    assert np.max(np.abs(kept - wanted)) <= (1 if share > 0.99 else 0)


# Models in scripts


@pytest.fixture(scope="module")
def model():
    return api.load_model(CASES / "mistral")


def refused(call):
    problem = catch_problem(call)
    return problem.code, problem.what


@pytest.mark.slow
def test_logits_of_one_row_or_several_are_float32(model):
    tokens = expected_of("mistral")[1]["tokens"]
    whole, one = model(tokens), model(tokens[0].tolist())
    rough = api.load_model(CASES / "mistral", dtype="bfloat16")(tokens)
    assert {str(each.dtype) for each in (whole, one, rough)} == {"float32"}
    assert (whole.shape, one.shape) == ((2, 24, 98), (1, 24, 98))
    np.testing.assert_allclose(one[0], whole[0], atol=1e-5)
    assert 1e-3 < np.abs(rough - whole).max() < 0.5


def test_continuations_are_those_of_transformers_one_by_one_and_together(model):
    expected, _ = expected_of("mistral")
    stop, prompts = expected["stop_token_id"], expected["prompts"]
    together = api.generate(model, prompts, max_new_tokens=16, stop_token_id=stop)
    assert together.shape == (4, 16)
    for row, prompt, completion in zip(together, prompts, expected["completions"], strict=True):
        assert row[: len(completion)].tolist() == completion
        assert set(row[len(completion) :].tolist()) <= {stop}
        alone = api.generate(model, prompt)
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
    assert refused(lambda: model(ids)) == refused(lambda: api.generate(model, ids)) == ("TP065", what)


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
    unchecked = inspect.unwrap(api.generate)  # tests check types, which a script does not
    assert refused(lambda: unchecked(model, ids, **more)) == ("TP065", what)


def test_logits_of_texts_of_several_lengths_are_refused(model):
    what = "The rows of ids differ in length, but logits are computed for rows of one length."
    assert refused(lambda: model([[1, 2], [3]])) == ("TP065", what)


def test_more_tokens_than_a_table_of_positions_has_are_refused():
    model = api.load_model(CASES / "gpt2")
    what = "49 tokens are more than the model's 48 positions."
    assert refused(lambda: model([[1] * 49])) == ("TP065", what)
    assert refused(lambda: api.generate(model, [1] * 40, max_new_tokens=9)) == ("TP065", what)


def test_a_built_in_model_has_no_parameters_to_load():
    assert refused(lambda: api.load_model("demo")) == ("TP064", "demo is a built-in model without parameters.")
