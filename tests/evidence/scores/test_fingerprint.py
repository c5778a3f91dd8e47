"""Fingerprints: the polynomial by hand and by another way, states that agree, and all that must not."""

import base64

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evidence.scores import fingerprint as module
from evidence.scores.fingerprint import (
    FAR_STEPS,
    PRIME,
    StateDistance,
    StateTolerance,
    agreement,
    fingerprint_bytes,
    fingerprint_of,
)

NUMBERS = np.random.default_rng(0)


def states(tokens: int, embed: int = 64, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((tokens, embed)).astype(np.float32)


def test_the_prime_is_one_and_holds_every_finite_bfloat16():
    assert all(PRIME % divisor for divisor in range(2, 256))
    largest = np.array([-3.3895314e38], np.float32)
    assert module._bits(largest)[0] == 0xFF7F < PRIME


@given(st.integers(0, 2**32 - 1))
def test_rounding_is_that_of_the_library(bits: int):
    import ml_dtypes

    value = np.array([bits], np.uint32).view(np.float32)
    rounded = value.astype(ml_dtypes.bfloat16)
    if np.isfinite(value[0]) and np.isfinite(rounded.astype(np.float32)[0]):
        assert module._bits(value)[0] == rounded.view(np.uint16)[0]


def test_a_polynomial_by_hand():
    assert module._interpolate(np.array([1, 2]), np.array([2, 5])).tolist() == [PRIME - 1, 3]
    assert module._evaluate(np.array([PRIME - 1, 3]), np.array([1, 2, 3])).tolist() == [2, 5, 8]


@given(st.lists(st.integers(0, PRIME - 1), min_size=1, max_size=12, unique=True), st.integers(0, 2**32))
def test_a_polynomial_goes_through_its_points(x: list[int], seed: int):
    """By Lagrange's formula in whole numbers, which shares nothing with the code."""
    y = np.random.default_rng(seed).integers(0, PRIME, len(x))
    coefficients = module._interpolate(np.array(x, np.int64), y.astype(np.int64)).tolist()
    for place in (*x, 7, PRIME - 2):
        lagrange = 0
        for own, value in zip(x, y.tolist(), strict=True):
            term = value
            for other in x:
                if other != own:
                    term = term * (place - other) * pow(own - other, -1, PRIME)
            lagrange += term
        assert sum(c * pow(place, power, PRIME) for power, c in enumerate(coefficients)) % PRIME == lagrange % PRIME


@pytest.mark.parametrize(("tokens", "size"), [(1, 10), (32, 258), (33, 268), (40, 324), (64, 516)])
def test_the_size_follows_from_the_tokens(tokens: int, size: int):
    assert fingerprint_bytes(tokens) == size
    assert len(base64.b64decode(fingerprint_of(states(tokens)))) == size


def test_the_same_states_agree_in_every_value():
    for tokens in (1, 5, 32, 50):
        found = agreement(fingerprint_of(states(tokens)), states(tokens))
        assert found == StateDistance(values=4 * tokens, far=0, mean_steps=0.0)


def test_states_wider_than_the_field_keep_their_places_apart():
    wide = states(32, embed=4096)
    assert agreement(fingerprint_of(wide), wide).far == 0


def test_small_changes_stay_near_and_others_do_not():
    own = states(40)
    near = agreement(fingerprint_of(own), own * np.float32(1 + 2**-8))
    # A value from 1 to 2 moves by half of it, in steps of 2⁻⁷.
    assert near.far == 0
    assert near.mean_steps == pytest.approx(0.75, abs=0.15)
    strange = agreement(fingerprint_of(own), states(40, seed=1))
    assert strange.far_share > 0.9
    assert not StateTolerance(far_share=0.5, mean_steps=FAR_STEPS).holds(strange)


def test_one_changed_value_counts_as_far():
    own = states(4)
    place = np.unravel_index(np.abs(own).argmax(), own.shape)
    changed = own.copy()
    changed[place] *= -1
    assert agreement(fingerprint_of(own), changed).far == 1


def test_states_that_are_not_finite_have_none():
    own = states(3)
    own[1, 2] = np.nan
    assert fingerprint_of(own) is None


@pytest.mark.parametrize("text", ["", "AAA", "äöü", "AAAA", "!" * 40])
def test_what_is_no_fingerprint_is_named(text: str):
    with pytest.raises(ValueError, match=r"the fingerprint (is not base64|has \d+ bytes)"):
        agreement(text, states(3))


@pytest.mark.parametrize("tokens", [2, 4, 40])
def test_one_of_another_length_is_named(tokens: int):
    with pytest.raises(ValueError, match="is not the size of one of 3 tokens"):
        agreement(fingerprint_of(states(tokens)), states(3))


def test_a_modulus_of_nothing_is_no_fingerprint():
    content = bytearray(base64.b64decode(fingerprint_of(states(3))))
    content[:2] = b"\0\0"
    with pytest.raises(ValueError, match="is not the size"):
        agreement(base64.b64encode(content).decode(), states(3))
