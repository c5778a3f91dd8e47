"""Groups of drawn continuations: blind to neighbours, cut into chunks or not, held against a pass over the whole."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny_models import logits, random_model

from trainer.generate import decode
from trainer.generate.decode import GroupPrograms, pad_left, row_keys
from trainer.generate.sampling import Sampling

PROMPTS = [[5, 17, 8], [3], [4, 2, 9, 6, 13, 13, 12, 9], [7, 7, 7, 7, 7]]
NEW, SIZE, STOP = 12, 4, 7


def draw(spec, prompts, rows, *, temperature=1.0, seed=0):
    graphdef, params = random_model(spec)
    programs = GroupPrograms(
        graphdef=graphdef,
        group_size=SIZE,
        max_new_tokens=NEW,
        stop_token_id=STOP,
        sampling=Sampling(temperature=temperature),
    )
    tokens, lengths = map(np.asarray, pad_left(prompts, 8))
    return programs.draw(params, tokens, lengths, keys=row_keys(jax.random.key(seed), rows, SIZE))


def texts(drawn):
    return [each.written.tokens for each in drawn]


@pytest.mark.slow(but=("gpt2",))
def test_a_row_draws_the_same_whatever_stands_beside_it(spec):
    together = texts(draw(spec, PROMPTS, [0, 1, 2, 3]))
    for number in (0, 2):
        alone = texts(draw(spec, [PROMPTS[number]], [number]))
        assert alone == together[number * SIZE : (number + 1) * SIZE]


@pytest.mark.slow
def test_draws_differ_within_a_group_between_rows_and_between_seeds(spec):
    once = texts(draw(spec, [PROMPTS[0], PROMPTS[0]], [0, 1]))
    assert len(set(once)) > SIZE
    assert once != texts(draw(spec, [PROMPTS[0], PROMPTS[0]], [0, 1], seed=1))
    assert once == texts(draw(spec, [PROMPTS[0], PROMPTS[0]], [0, 1]))


@pytest.mark.slow
def test_rows_that_go_on_in_half_the_rows_write_the_same(spec, monkeypatch):
    whole = draw(spec, PROMPTS, [0, 1, 2, 3], temperature=0.7)
    shapes = []
    first, further, taken = decode.group_functions((), None)

    def counted(graphdef, params, state, *given, **settings):
        shapes.append(len(state.last))
        return further(graphdef, params, state, *given, **settings)

    monkeypatch.setattr(decode, "CHUNK_TOKENS", 2)
    monkeypatch.setattr(decode, "group_functions", lambda *_: (first, counted, taken))
    cut = draw(spec, PROMPTS, [0, 1, 2, 3], temperature=0.7)
    assert texts(cut) == texts(whole)
    for one, other in zip(cut, whole, strict=True):
        np.testing.assert_allclose(one.log_probs, other.log_probs, atol=2e-6)
    assert set(shapes) <= {16, 8}


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [1.0, 0.6])
def test_log_probabilities_and_entropies_are_those_of_one_pass_over_the_whole_text(spec, temperature):
    graphdef, params = random_model(spec)
    for number, each in enumerate(draw(spec, PROMPTS, [0, 1, 2, 3], temperature=temperature)):
        prompt, written = PROMPTS[number // SIZE], list(each.written.tokens)
        row = jnp.asarray([[*prompt, *written]], jnp.int32)
        scores = np.asarray(logits(graphdef, params, row), np.float64)[0, len(prompt) - 1 : -1] / temperature
        chances = np.exp(scores - scores.max(axis=-1, keepdims=True))
        chances /= chances.sum(axis=-1, keepdims=True)
        np.testing.assert_allclose(each.log_probs, np.log(chances[range(len(written)), written]), atol=1e-5)
        np.testing.assert_allclose(each.entropies, -np.sum(chances * np.log(chances), axis=-1), atol=1e-5)
        assert (written[-1] == STOP) == (each.written.finish_reason == "stop")
