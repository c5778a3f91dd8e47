"""Several lengths of sequences: who comes with whom, no row lost, the loss that of the full length."""

from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tasks import inputs_of

from schemas.problems import ProblemError
from trainer.config.tree import Config
from trainer.data.order import batch_indices, pass_order
from trainer.data.packing import bucket_lengths, group_by_bucket
from trainer.loop.programs import loss_fn_of, programs_of
from trainer.loop.state import initial_state


def with_buckets(config: Config, buckets: int, **data: Any) -> Config:
    return replace(config, data=replace(config.data, buckets=buckets, **data))


@pytest.mark.parametrize(
    ("max_length", "buckets", "lengths"),
    [
        (512, 1, (512,)),
        (512, 3, (128, 256, 512)),
        (100, 3, (32, 56, 100)),
        (2048, 8, (16, 32, 64, 128, 256, 512, 1024, 2048)),
    ],
)
def test_lengths_are_halved(max_length: int, buckets: int, lengths: tuple[int, ...]):
    assert bucket_lengths(max_length, buckets) == lengths


ROWS = st.lists(st.integers(0, 2), min_size=1, max_size=40)


@given(kinds=ROWS, batch_size=st.integers(1, 9), seed=st.integers(0, 2**32 - 1))
def test_every_row_is_used_once_before_any_is_used_twice(kinds: list[int], batch_size: int, seed: int):
    rows = len(kinds)

    def order(number: int) -> np.ndarray:
        plain = pass_order(number, rows=rows, seed=seed, shuffle=True)
        return group_by_bucket(plain, np.array(kinds), number=number, batch_size=batch_size, seed=seed)

    steps = 3 * rows // batch_size + 1
    batches = [batch_indices(order, step, rows=rows, batch_size=batch_size) for step in range(steps)]
    stream = np.concatenate(batches)
    for number in range(len(stream) // rows):
        assert sorted(stream[number * rows : (number + 1) * rows]) == list(range(rows))
    # In each pass one batch may begin it and one end it, and one stands where a kind gives way to the next.
    mixed = sum(len({kinds[row] for row in batch}) > 1 for batch in batches)
    passes = -(-len(stream) // rows)
    assert mixed <= 2 * passes + passes * (len(set(kinds)) - 1)


def test_by_hand():
    """Rows 1, 3 and 5 are long. One row completes a batch of the pass before; the other batches are of one kind."""
    kinds = np.array([0, 1, 0, 1, 0, 1, 0])
    found = group_by_bucket(np.arange(7), kinds, number=1, batch_size=2, seed=0)
    assert found[0] == 0
    assert {tuple(sorted(found[at : at + 2])) for at in (1, 3, 5)} == {(2, 4), (1, 6), (3, 5)}


@pytest.mark.slow
def test_a_batch_has_the_smallest_length_that_holds_it_and_the_same_loss(config: Config):
    bucketed, data = inputs_of(with_buckets(config, 3))
    plain, _ = inputs_of(config)
    [state], frozen = initial_state(plain)
    loss = jax.jit(
        jax.value_and_grad(lambda params, batch: loss_fn_of(plain)(params, frozen, batch, jax.random.key(0)).loss)
    )
    seen = set()
    for step in range(6):
        batch = data.source.batch(step)
        width, rows = batch["tokens"].shape[-1], data.source.rows(step)
        longest = max(len(data.encoded.encoded[row]) for row in rows)
        assert width == min(length for length in bucketed.lengths if length >= longest)
        assert np.array_equal(batch["tokens"], data.source.batch(step)["tokens"])
        if width in seen:
            continue
        seen.add(width)
        full = plain.objective.collate([[data.encoded.encoded[row]] for row in rows])
        short = {name: jnp.asarray(array[0]) for name, array in batch.items()}
        value, gradient = loss(state.trained, short)
        expected, same = loss(state.trained, {name: jnp.asarray(array) for name, array in full.items()})
        assert float(value) == pytest.approx(float(expected), rel=1e-6)
        for name, each in gradient.items():
            np.testing.assert_allclose(each, same[name], rtol=1e-4, atol=1e-5)
    assert len(seen) > 1


def test_in_file_order_rows_keep_it(config: Config):
    _, data = inputs_of(with_buckets(config, 3, shuffle=False))
    assert data.source.rows(0) + data.source.rows(1) == list(range(8))


def test_padding_falls_and_a_program_stands_for_each_length(config: Config):
    task, data = inputs_of(with_buckets(config, 3))
    assert {"train", "train_32", "train_64"} <= set(programs_of(task))
    assert programs_of(task)["train_32"].arguments[2]["tokens"].shape == (1, 4, 32)
    assert programs_of(task)["train"].arguments[2]["tokens"].shape == (1, 4, 128)
    _, plain = inputs_of(config)
    computed = [sum(source.batch(step)["tokens"].size for step in range(100)) for source in (data.source, plain.source)]
    assert computed[0] < 0.45 * computed[1]


@pytest.mark.parametrize(
    ("data", "said", "fix"),
    [
        (
            {"buckets": 2, "packing": True},
            "data.buckets is 2 and data.packing is true: packed sequences are full, so they have one length.",
            "Set data.buckets to 1, or data.packing to false.",
        ),
        (
            {"buckets": 6, "max_length": 96},
            "data.buckets is 6, and 96 tokens cannot be halved 5 times.",
            "Set data.buckets to at most 5, or raise data.max_length.",
        ),
    ],
)
def test_lengths_of_no_use_are_refused(data: dict[str, Any], said: str, fix: str, config: Config):
    with pytest.raises(ProblemError) as caught:
        inputs_of(replace(config, data=replace(config.data, **data)))
    assert [(problem.code, problem.what, problem.next) for problem in caught.value.problems] == [("TP076", said, fix)]
