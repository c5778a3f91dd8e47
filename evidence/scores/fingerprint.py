"""The fingerprint of an answer: which of a model's last hidden states were largest while it wrote, and how large.

In the manner of TOPLOC (Ong et al., "TOPLOC: A Locality Sensitive Hashing Scheme for Trustless Verifiable Inference",
arXiv 2501.16007, section 4): of every window of 32 tokens the 128 values of largest magnitude are kept, as a polynomial
through (place, value). Anyone who has the weights computes the states again in one pass over prompt and answer, and
asks the polynomial at the places that are largest there. Where a place was not kept, it gives a number without meaning.

Where we depart: a window of fewer tokens keeps 4 values a token instead of 128, since our models are narrow; and values
are compared by how many numbers of bfloat16 lie between them, not by exponent and mantissa apart, which would count
1.99 and 2.00 as far from each other.

Measured tolerances and what they distinguish: docs/decisions/fingerprints.md.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

WINDOW_TOKENS = 32
"""Tokens of a window; an answer's last window may have fewer."""
VALUES_PER_TOKEN = 4
"""Values kept of each token, on average over a window: 128 of a whole one."""
PRIME = 65521
"""Of the field that polynomials are over: the largest prime of 16 bits. Every finite bfloat16, as bits, is below it."""
FAR_STEPS = 64
"""Numbers of bfloat16 between two values from which on they count as unrelated: half a power of two."""

Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class StateDistance:
    """How far a fingerprint is from states that were computed again."""

    values: int
    """Values compared."""
    far: int
    """Of these, how many are unrelated: further apart than `FAR_STEPS`."""
    mean_steps: float
    """Mean number of steps of bfloat16 between the others; 0 if all are unrelated."""

    @property
    def far_share(self) -> float:
        """Share of the values that are unrelated, 0 to 1."""
        return self.far / self.values


@dataclass(frozen=True, kw_only=True)
class StateTolerance:
    """What the same weights give elsewhere, at most."""

    far_share: float
    mean_steps: float

    def holds(self, found: StateDistance) -> bool:
        """Return whether states agree with a fingerprint."""
        return found.far_share <= self.far_share and found.mean_steps <= self.mean_steps


def fingerprint_bytes(tokens: int) -> int:
    """Return the size of the fingerprint of an answer of some tokens, where states have at least 4 numbers.

    For 32 tokens 258, for 40 `258 + 66 = 324`, for none 0.
    """
    whole, rest = divmod(tokens, WINDOW_TOKENS)
    sizes = [WINDOW_TOKENS] * whole + [rest] * (rest > 0)
    return sum(2 + 2 * VALUES_PER_TOKEN * size for size in sizes)


def fingerprint_of(states: NDArray[Any]) -> str | None:
    """Return the fingerprint of an answer, in base64; None where a state is not finite.

    Args:
        states: `[tokens embed]`, of each token of the answer the last hidden state that it was chosen from, after the
            last norm.
    """
    states = states.astype(np.float32)
    if not np.isfinite(states).all():
        return None
    parts = []
    for values, places in _windows(states):
        modulus = _modulus(places)
        coefficients = _interpolate(places % modulus, _bits(values[places]))
        parts.append(np.concatenate([[modulus], coefficients]).astype(">u2").tobytes())
    return base64.b64encode(b"".join(parts)).decode("ascii")


def agreement(fingerprint: str, states: NDArray[Any]) -> StateDistance:
    """Return how far a fingerprint is from states that were computed again.

    Args:
        fingerprint: in base64.
        states: `[tokens embed]`, as `fingerprint_of` takes them; at least one token.

    Raises:
        ValueError: this is not the fingerprint of an answer of so many tokens.
    """
    states = states.astype(np.float32)
    try:
        content = base64.b64decode(fingerprint, validate=True)
    except ValueError as error:
        message = "the fingerprint is not base64"
        raise ValueError(message) from error
    if len(content) % 2:
        message = f"the fingerprint has {len(content)} bytes, which is an odd number"
        raise ValueError(message)
    numbers, at, steps = np.frombuffer(content, ">u2").astype(np.int64), 0, []
    for values, places in _windows(states):
        part = numbers[at : at + 1 + len(places)]
        at += 1 + len(places)
        if len(part) < 1 + len(places) or not 0 < part[0] <= PRIME:
            break
        stated = _evaluate(part[1:] % PRIME, places % part[0])
        steps.append(np.abs(_ordinal(stated) - _ordinal(_bits(values[places]))))
    else:
        if at == len(numbers):
            return _agreement_of(np.concatenate(steps))
    message = f"the fingerprint has {len(content)} bytes, which is not the size of one of {len(states)} tokens"
    raise ValueError(message)


def _agreement_of(steps: Ints) -> StateDistance:
    near = steps[steps <= FAR_STEPS]
    mean = float(near.mean()) if len(near) else 0.0
    return StateDistance(values=len(steps), far=len(steps) - len(near), mean_steps=mean)


def _windows(states: NDArray[np.float32]) -> Iterator[tuple[NDArray[np.float32], Ints]]:
    """Yield the values of each window in one row, and the places of those of largest magnitude, ascending."""
    for start in range(0, len(states), WINDOW_TOKENS):
        window = states[start : start + WINDOW_TOKENS]
        values = window.reshape(-1)
        kept = min(VALUES_PER_TOKEN * len(window), len(values))
        yield values, np.sort(np.argsort(-np.abs(values), kind="stable")[:kept]).astype(np.int64)


def _modulus(places: Ints) -> int:
    """Return the largest number up to the prime that leaves all places apart: the prime, unless states are wide."""
    return next(each for each in range(PRIME, 0, -1) if len(np.unique(places % each)) == len(places))


def _bits(values: NDArray[np.float32]) -> Ints:
    """Return values rounded to bfloat16, ties to even, as the 16 bits of each: 1.0 is 0x3F80."""
    wide = np.ascontiguousarray(values).view(np.uint32).astype(np.int64)
    bits: Ints = np.minimum((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16, 0xFF7F)
    return bits


def _ordinal(bits: Ints) -> Ints:
    """Return the place of each bfloat16 among all in ascending order, 0 for zero; the smallest above zero is 1."""
    magnitude = bits & 0x7FFF
    ordinal: Ints = np.where(bits & 0x8000, -magnitude, magnitude)
    return ordinal


@cache
def _inverses() -> Ints:
    """Return the inverse of every number of the field: `n` to the power of the prime less 2 (Fermat). Of 0 it is 0."""
    inverses, power = np.ones(PRIME, np.int64), np.arange(PRIME, dtype=np.int64)
    exponent = PRIME - 2
    while exponent:
        if exponent & 1:
            inverses = inverses * power % PRIME
        power = power * power % PRIME
        exponent >>= 1
    return inverses


def _interpolate(x: Ints, y: Ints) -> Ints:
    """Return the coefficients, constant first, of the polynomial over the field that is y at each x.

    Newton's divided differences, then multiplied out. Through (1, 2), (2, 5): `-1 + 3x`, that is `[65520, 3]`.
    """
    differences, count = y.copy(), len(x)
    for order in range(1, count):
        apart = _inverses()[(x[order:] - x[:-order]) % PRIME]
        differences[order:] = (differences[order:] - differences[order - 1 : -1]) * apart % PRIME
    coefficients = np.zeros(count, np.int64)
    for place in range(count - 1, -1, -1):
        shifted = np.roll(coefficients, 1)  # times x: the highest is still 0
        coefficients = (shifted - coefficients * x[place]) % PRIME
        coefficients[0] = (coefficients[0] + differences[place]) % PRIME
    return coefficients


def _evaluate(coefficients: Ints, x: Ints) -> Ints:
    """Return the polynomial at each x, by Horner's rule."""
    y = np.zeros_like(x)
    for coefficient in coefficients[::-1]:
        y = (y * x + coefficient) % PRIME
    return y
