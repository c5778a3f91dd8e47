"""The order of data: every row once a pass, the same order for the same seed, no state to save."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from trainer.data.order import rows_of_step

SIZES = st.integers(1, 40)


def test_in_file_order_a_pass_follows_a_pass():
    steps = [rows_of_step(step, rows=5, batch_size=2, seed=0, shuffle=False).tolist() for step in range(3)]
    assert steps == [[0, 1], [2, 3], [4, 0]]


@given(rows=SIZES, batch_size=SIZES, seed=st.integers(0, 2**32 - 1), shuffle=st.booleans())
def test_every_row_is_used_once_before_any_is_used_twice(rows: int, batch_size: int, seed: int, shuffle: bool):
    steps = 3 * rows // batch_size + 1
    stream = np.concatenate(
        [rows_of_step(step, rows=rows, batch_size=batch_size, seed=seed, shuffle=shuffle) for step in range(steps)]
    )
    for number in range(len(stream) // rows):
        assert sorted(stream[number * rows : (number + 1) * rows]) == list(range(rows))


def test_passes_and_seeds_have_orders_of_their_own():
    def first_pass(seed: int, step: int) -> list[int]:
        return rows_of_step(step, rows=50, batch_size=50, seed=seed, shuffle=True).tolist()

    assert first_pass(1, 0) != first_pass(1, 1)
    assert first_pass(1, 0) != first_pass(2, 0)
    assert first_pass(1, 0) == first_pass(1, 0)
