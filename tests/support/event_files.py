"""An independent writer of TensorBoard event files, for tests: bit by bit where the reader uses tables."""

import struct


def crc32c(data: bytes) -> int:
    """Return the CRC-32C, one bit at a time."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> bytes:
    """Return the masked CRC as four bytes."""
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15) + ((crc << 17) & 0xFFFFFFFF) + 0xA282EAD8) % 2**32)


def record(data: bytes) -> bytes:
    length = len(data).to_bytes(8, "little")
    return length + masked_crc(length) + data + masked_crc(data)


def varint(number: int) -> bytes:
    """Return a number in groups of seven bits, the last group first."""
    groups = []
    number %= 2**64
    while number > 127:
        groups.append(number % 128 + 128)
        number //= 128
    return bytes([*groups, number])


def block(number: int, data: bytes) -> bytes:
    return varint(number * 8 + 2) + varint(len(data)) + data


def event(step: int, tag: str, *, simple: float | None = None, tensor: tuple[int, bytes] | None = None) -> bytes:
    """Return an event with one scalar: a simple value, or a tensor of an element type and its fields."""
    value = block(1, tag.encode())
    if simple is not None:
        value += varint(2 * 8 + 5) + struct.pack("<f", simple)
    if tensor is not None:
        value += block(8, varint(1 * 8) + varint(tensor[0]) + block(2, b"") + tensor[1])
    return varint(8 + 1) + struct.pack("<d", 1.7e9) + varint(2 * 8) + varint(step) + block(5, block(1, value))
