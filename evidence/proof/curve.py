"""Which 32 bytes are a public key of Ed25519 that means something.

A key whose point has a small order signs everything: with the point of order 1 one fixed signature fits every message
(Chalkias, Garillot, Nikolaenko: Taming the many EdDSAs, 2020, section 2). OpenSSL loads such keys, so they are refused
here, and with them every second spelling of a point (RFC 8032, section 5.1.3).
"""

from __future__ import annotations

_P = 2**255 - 19
"""The field of edwards25519 (RFC 8032, section 5.1)."""
_D = -121665 * pow(121666, -1, _P) % _P
"""The curve: -x² + y² = 1 + d x² y²."""
_SIGN = 1 << 255


def weakness(key: bytes) -> str | None:
    """Return why a public key is of no use, as a sentence, or None for one that holds.

    Args:
        key: The 32 bytes of the key: y in little endian, the sign of x in the highest bit.
    """
    if len(key) != 32:
        return f"It has {len(key)} bytes; a key of Ed25519 has 32."
    number = int.from_bytes(key, "little")
    y, negative = number % _SIGN, number >= _SIGN
    x_squared = _x_squared(y)
    if y >= _P or (x_squared == 0 and negative):
        return "It is not the one spelling of its point that RFC 8032 allows, so two keys would be one."
    if x_squared and pow(x_squared, (_P - 1) // 2, _P) != 1:
        return "It is not a point of the curve."
    if _times_eight(y) == 1:
        return "Its point has a small order, so one signature fits every content."
    return None


def _x_squared(y: int) -> int:
    """Return x² of a point by its y; the denominator is never 0, since -1/d is not a square."""
    return (y * y - 1) * pow(_D * y * y + 1, -1, _P) % _P


def _times_eight(y: int) -> int:
    """Return y of eight times a point: doubled three times, y(2P) = (y² + x²) / (2 + x² - y²); 1 is the neutral one."""
    for _ in range(3):
        x_squared = _x_squared(y)
        y = (y * y + x_squared) * pow(2 + x_squared - y * y, -1, _P) % _P
    return y
