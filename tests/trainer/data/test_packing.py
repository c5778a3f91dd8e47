"""Rows that share a sequence: every row once, none cut, and the loss that they have alone."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks import inputs_of

from trainer.config.tree import Config
from trainer.data.order import PrefetchingSource, rows_of_step
from trainer.data.packing import pack_rows
from trainer.loop.programs import loss_fn_of
from trainer.loop.state import initial_params

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60)


def groups(lengths: list[int], capacity: int, *, in_order: bool = False) -> list[list[int]]:
    found = pack_rows(lengths, capacity, in_order=in_order)
    return [found[number].tolist() for number in range(len(found))]


def test_rows_go_where_they_fit_best():
    assert groups([5, 3, 2, 4], 7) == [[0, 2], [3, 1]]
    assert groups([5, 3, 2, 4], 7, in_order=True) == [[0], [1, 2], [3]]
    assert groups([7, 7], 7) == [[0], [1]]


@given(lengths=LENGTHS, in_order=st.booleans())
def test_every_row_is_in_one_sequence_and_whole(lengths: list[int], in_order: bool):
    found = groups(lengths, 30, in_order=in_order)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    assert all(sum(lengths[row] for row in rows) <= 30 for rows in found)
    if in_order:
        assert [row for rows in found for row in rows] == list(range(len(lengths)))
    tokens = pack_rows(lengths, 30, in_order=in_order).tokens(np.array(lengths))
    assert tokens.tolist() == [sum(lengths[row] for row in rows) for rows in found]


@given(lengths=LENGTHS)
def test_no_two_sequences_would_fit_into_one(lengths: list[int]):
    filled = sorted(sum(lengths[row] for row in rows) for rows in groups(lengths, 30))
    assert len(filled) < 2 or filled[0] + filled[1] > 30


def packed_config(config: Config, **data) -> Config:
    return replace(config, data=replace(config.data, packing=True, **data))


@pytest.mark.slow
def test_a_packed_batch_has_the_loss_and_the_gradient_of_its_rows_alone(config: Config):
    """Sums over the rows of one packed step, and over the same rows a sequence each."""
    task, data = inputs_of(packed_config(config))
    alone, _ = inputs_of(config)
    rows = [data.encoded.encoded[row] for row in data.source.rows(0)]
    assert len(rows) > 2 * config.batch.microbatch_size
    params = initial_params(task)

    def sums(which, batch):
        loss = loss_fn_of(which)

        def total(params):
            found = loss(params, {}, {name: jnp.asarray(array) for name, array in batch.items()}, jax.random.key(0))
            return found.loss, found.weight

        (value, weight), gradient = jax.jit(jax.value_and_grad(total, has_aux=True))(params)
        return float(value), float(weight), gradient

    batch = {name: array[0] for name, array in data.source.batch(0).items()}
    together, weight, gradient = sums(task, batch)
    one_each, same_weight, same_gradient = sums(alone, alone.objective.collate([[row] for row in rows]))
    assert weight == same_weight
    assert together == pytest.approx(one_each, rel=1e-6)
    scale = max(float(np.abs(value).max()) for value in same_gradient.values())
    for name, value in gradient.items():
        np.testing.assert_allclose(value, same_gradient[name], atol=1e-6 * scale, rtol=0, err_msg=name)


def test_the_first_token_of_a_row_is_not_asked_of_the_row_before(config: Config):
    _, data = inputs_of(packed_config(config))
    batch = data.source.batch(0)
    segments, mask = batch["segments"], batch["loss_mask"]
    begins = segments[..., 1:] != segments[..., :-1]
    assert begins.any()
    assert not mask[..., 1:][begins].any()
    assert not mask[..., 0].any()
    assert not mask[segments == 0].any()


def test_tokens_are_counted_without_padding_and_follow_from_the_step(config: Config):
    for packing in (False, True):
        _, data = inputs_of(replace(config, data=replace(config.data, packing=packing)))
        source, seen = data.source, 0
        for step in range(2 * len(source.sequences) // source.batch_size):
            assert source.tokens_before(step) == seen
            seen += sum(len(data.encoded.encoded[row]) for row in source.rows(step))
        assert source.tokens_per_pass == sum(map(len, data.encoded.encoded))


def test_a_batch_made_ahead_is_the_batch_made_when_it_is_asked_for(config: Config):
    _, data = inputs_of(packed_config(config))
    with PrefetchingSource(data.source, steps=5) as ahead:
        for step in (0, 1, 2, 4, 3, 4):  # a resumed run begins anywhere
            for name, array in ahead.batch(step).items():
                np.testing.assert_array_equal(array, data.source.batch(step)[name])
        assert ahead.tokens_before(3) == data.source.tokens_before(3)


def test_what_cannot_make_a_batch_says_so_when_the_batch_is_asked_for():
    class Broken:
        def batch(self, step: int):
            if step == 1:
                raise OSError("the file is gone")
            return {}

        def tokens_before(self, step: int) -> int:
            return 0

    with PrefetchingSource(Broken(), steps=3) as ahead:
        ahead.batch(0)
        with pytest.raises(OSError, match="the file is gone"):
            ahead.batch(1)


def test_in_file_order_packed_rows_keep_it(config: Config):
    _, data = inputs_of(packed_config(config, shuffle=False))
    taken = data.source.rows(0) + data.source.rows(1)
    assert taken == list(range(len(taken)))


def test_the_order_of_sequences_is_that_of_rows(config: Config):
    _, data = inputs_of(packed_config(config))
    source = data.source
    numbers = rows_of_step(3, rows=len(source.sequences), batch_size=4, seed=config.seed, shuffle=True)
    assert source.rows(3) == [row for number in numbers for row in source.sequences[int(number)].tolist()]
