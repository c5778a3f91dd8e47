"""Batches: the order of rows, packed sequences and bucket lengths."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from configs import changed
from hypothesis import given
from hypothesis import strategies as st
from refusals import catch_problems
from tasks import inputs_of

from trainer.config.tree import Config
from trainer.data.batches import PrefetchingSource, RowSource, bucket_lengths, group_by_bucket, one_each, pack_rows
from trainer.loop.programs import build_loss_fn, list_programs
from trainer.loop.state import initial_params

LENGTHS = st.lists(st.integers(1, 30), min_size=1, max_size=60)
SEEDS = st.integers(0, 2**32 - 1)


def build_source(rows: int, *, batch_size: int, seed: int = 0, shuffle: bool = True, kinds: Any = None) -> RowSource:
    """Return a source of rows without content, of one bucket or of the buckets `kinds`."""
    widths = np.zeros(rows, np.int64) if kinds is None else np.array(kinds)
    return RowSource(
        examples=[None] * rows,
        sequences=one_each(rows),
        lengths=widths,
        widths=widths,
        collate=lambda sequences, length: {},
        shapes=(0,) if kinds is None else (0, 1, 2),
        batch_size=batch_size,
        accumulation_steps=1,
        seed=seed,
        shuffle=shuffle,
    )


def test_order_depends_on_pass_and_seed():
    one, other = (build_source(50, batch_size=50, seed=seed) for seed in (1, 2))
    assert one.rows(0) == build_source(50, batch_size=50, seed=1).rows(0) != one.rows(1)
    assert one.rows(0) != other.rows(0)


def test_packing_by_hand():
    assert pack_rows([5, 3, 2, 4], 7, in_order=False) == [[0, 2], [3, 1]]
    assert pack_rows([5, 3, 2, 4], 7, in_order=True) == [[0], [1, 2], [3]]
    assert pack_rows([7, 7], 7, in_order=False) == [[0], [1]]


@given(lengths=LENGTHS, in_order=st.booleans())
def test_packing_keeps_every_row_whole(lengths: list[int], in_order: bool):
    found = pack_rows(lengths, 30, in_order=in_order)
    assert sorted(row for rows in found for row in rows) == list(range(len(lengths)))
    assert all(sum(lengths[row] for row in rows) <= 30 for rows in found)
    if in_order:
        assert [row for rows in found for row in rows] == list(range(len(lengths)))


@given(lengths=LENGTHS)
def test_no_two_packed_sequences_fit_into_one(lengths: list[int]):
    filled = sorted(sum(lengths[row] for row in rows) for rows in pack_rows(lengths, 30, in_order=False))
    assert len(filled) < 2 or filled[0] + filled[1] > 30


def assert_same_loss_and_gradient(one: Any, other: Any) -> None:
    """Compare two tasks, each with a batch: loss, weight and gradient at the same parameters."""
    found = []
    for task, batch in (one, other):
        loss, arrays = build_loss_fn(task), {name: jnp.asarray(array) for name, array in batch.items()}

        def total(params, loss=loss, arrays=arrays):
            sums = loss(params, {}, arrays, jax.random.key(0))
            return sums.loss, sums.weight

        found.append(jax.jit(jax.value_and_grad(total, has_aux=True))(initial_params(task)))
    ((value, weight), gradient), ((same, same_weight), same_gradient) = found
    assert float(weight) == float(same_weight)
    assert float(value) == pytest.approx(float(same), rel=1e-6)
    scale = max(float(np.abs(each).max()) for each in same_gradient.values())
    for name, each in gradient.items():
        np.testing.assert_allclose(each, same_gradient[name], atol=1e-6 * scale, rtol=0, err_msg=name)


@pytest.mark.slow
def test_packed_batch_has_the_loss_and_gradient_of_its_rows(config: Config):
    """Sums over the rows of one packed step, and over the same rows a sequence each."""
    task, data = inputs_of(changed(config, data={"packing": True}))
    alone, _ = inputs_of(config)
    rows = [data.encoded.encoded[row] for row in data.source.rows(0)]
    assert len(rows) > 2 * config.batch.microbatch_size
    batch = {name: array[0] for name, array in data.source.batch(0).items()}
    assert_same_loss_and_gradient((task, batch), (alone, alone.objective.collate([[row] for row in rows])))


def test_tokens_before_a_step_exclude_padding(config: Config):
    for packing in (False, True):
        _, data = inputs_of(changed(config, data={"packing": packing}))
        source, seen = data.source, 0
        for step in range(2 * len(source.sequences) // source.batch_size):
            assert source.tokens_before(step) == seen
            seen += sum(len(data.encoded.encoded[row]) for row in source.rows(step))
        assert source.tokens_per_pass == sum(map(len, data.encoded.encoded))


def test_prefetched_batch_equals_the_batch(config: Config):
    _, data = inputs_of(changed(config, data={"packing": True}))
    with PrefetchingSource(data.source.batch, steps=5) as ahead:
        for step in (0, 1, 2, 4, 3, 4):  # a resumed run begins anywhere
            for name, array in ahead.batch(step).items():
                np.testing.assert_array_equal(array, data.source.batch(step)[name])


def test_prefetching_raises_errors_with_their_batch():
    def batch(step: int) -> dict[str, Any]:
        if step == 1:
            raise OSError("the file is gone")
        return {}

    with PrefetchingSource(batch, steps=3) as ahead:
        ahead.batch(0)
        with pytest.raises(OSError, match="the file is gone"):
            ahead.batch(1)


@pytest.mark.parametrize(
    ("max_length", "buckets", "lengths"),
    [(512, 1, (512,)), (512, 3, (128, 256, 512)), (100, 3, (32, 56, 100)), (2048, 8, tuple(16 << n for n in range(8)))],
)
def test_bucket_lengths(max_length: int, buckets: int, lengths: tuple[int, ...]):
    assert bucket_lengths(max_length, buckets) == lengths


@given(
    kinds=st.lists(st.integers(0, 2), min_size=1, max_size=40),
    bucketed=st.booleans(),
    batch_size=st.integers(1, 40),
    seed=SEEDS,
    shuffle=st.booleans(),
)
def test_every_row_is_used_once_before_any_is_used_twice(kinds, bucketed, batch_size, seed, shuffle):
    rows, chosen = len(kinds), kinds if bucketed else None
    source = build_source(rows, batch_size=batch_size, seed=seed, shuffle=shuffle, kinds=chosen)
    steps = 3 * rows // batch_size + 1
    batches = [source.rows(step) for step in range(steps)]
    stream = np.concatenate(batches)
    for number in range(len(stream) // rows):
        assert sorted(stream[number * rows : (number + 1) * rows]) == list(range(rows))
    # In each pass one batch may begin it and one end it, and one stands where a kind gives way to the next.
    mixed = sum(len({kinds[row] for row in batch}) > 1 for batch in batches)
    passes = -(-steps * batch_size // rows)
    assert not (bucketed and shuffle) or mixed <= 2 * passes + passes * (len(set(kinds)) - 1)


def test_batches_of_one_bucket_by_hand():
    """Rows 1, 3 and 5 are long. One row completes a batch of the pass before; the other batches are of one kind."""
    kinds = np.array([0, 1, 0, 1, 0, 1, 0])
    found = group_by_bucket(np.arange(7), kinds, number=1, batch_size=2, seed=0)
    assert found[0] == 0
    assert {tuple(sorted(found[at : at + 2])) for at in (1, 3, 5)} == {(2, 4), (1, 6), (3, 5)}


@pytest.mark.slow
def test_bucketed_batch_is_short_and_has_the_same_loss(config: Config):
    bucketed, data = inputs_of(changed(config, data={"buckets": 3}))
    plain, _ = inputs_of(config)
    seen = set()
    for step in range(6):
        batch = {name: array[0] for name, array in data.source.batch(step).items()}
        width, rows = batch["tokens"].shape[-1], [data.encoded.encoded[row] for row in data.source.rows(step)]
        assert width == min(length for length in bucketed.lengths if length >= max(map(len, rows)))
        if width not in seen:
            assert_same_loss_and_gradient((plain, batch), (plain, plain.objective.collate([[row] for row in rows])))
        seen.add(width)
    assert len(seen) > 1


def test_buckets_reduce_padding_and_add_programs(config: Config):
    task, data = inputs_of(changed(config, data={"buckets": 3}))
    assert {"train", "train_32", "train_64"} <= set(list_programs(task))
    assert list_programs(task)["train_32"].arguments[2]["tokens"].shape == (1, 4, 32)
    assert list_programs(task)["train"].arguments[2]["tokens"].shape == (1, 4, 128)
    _, plain = inputs_of(config)
    computed = [sum(source.batch(step)["tokens"].size for step in range(100)) for source in (data.source, plain.source)]
    assert computed[0] < 0.45 * computed[1]


@pytest.mark.parametrize("data", [{}, {"packing": True}, {"buckets": 3}])
def test_rows_keep_the_order_of_the_file_without_shuffling(data: dict[str, Any], config: Config):
    _, found = inputs_of(changed(config, data={"shuffle": False, **data}))
    taken = found.source.rows(0) + found.source.rows(1)
    assert taken == list(range(len(taken)))


def test_lengths_that_cannot_be_halved_so_often_are_refused(config: Config):
    [problem] = catch_problems(inputs_of, changed(config, data={"buckets": 6, "max_length": 96}))
    assert (problem.code, problem.next) == ("TP076", "Set data.buckets to at most 5, or raise data.max_length.")
