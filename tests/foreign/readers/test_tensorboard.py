"""TFRecord and event files against records framed by an independent writer."""

from __future__ import annotations

import struct

import pytest
from event_files import block, event, record, varint
from event_files import crc32c as crc_bit_by_bit
from hypothesis import given
from hypothesis import strategies as st

from foreign.readers.tensorboard import BrokenRecordError, crc32c, fields, read_events, records


def read_until_broken(data: bytes) -> tuple[list[bytes], bool]:
    """Return the records before the first broken one, and whether there is one."""
    read: list[bytes] = []
    try:
        for body in records(data):
            read.append(body)  # noqa: PERF402 - what was yielded before the error counts
    except BrokenRecordError:
        return read, True
    return read, False


def test_crc_of_rfc_3720() -> None:
    assert crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c(bytes(range(32))) == 0x46DD794E
    assert crc32c(b"123456789") == 0xE3069283


@given(data=st.binary(max_size=200))
def test_crc_is_that_of_the_other_way_to_compute_it(data: bytes) -> None:
    assert crc32c(data) == crc_bit_by_bit(data)


@given(bodies=st.lists(st.binary(max_size=80), max_size=5))
def test_records_come_back(bodies: list[bytes]) -> None:
    assert list(records(b"".join(map(record, bodies)))) == bodies


@given(bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=4), data=st.data())
def test_a_flipped_bit_is_found_and_ends_the_reading(bodies: list[bytes], data: st.DataObject) -> None:
    whole = bytearray(b"".join(map(record, bodies)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    read, broken = read_until_broken(bytes(whole))
    assert broken
    assert read == bodies[: len(read)]
    assert len(read) < len(bodies)


@given(bodies=st.lists(st.binary(max_size=40), min_size=1, max_size=4), data=st.data())
def test_a_file_cut_off_gives_the_whole_records(bodies: list[bytes], data: st.DataObject) -> None:
    framed = [record(body) for body in bodies]
    whole = b"".join(framed)
    cut = data.draw(st.integers(0, len(whole)))
    ends = [sum(map(len, framed[:count])) for count in range(len(framed) + 1)]
    read, broken = read_until_broken(whole[:cut])
    assert broken == (cut not in ends)
    assert read == bodies[: sum(end <= cut for end in ends) - 1]


@given(number=st.integers(1, 2**20), value=st.integers(0, 2**64 - 1), content=st.binary(max_size=30))
def test_fields_come_back(number: int, value: int, content: bytes) -> None:
    first, second = fields(varint(number * 8) + varint(value) + block(number, content))
    assert (first.number, first.whole, second.number, second.content) == (number, value, number, content)


@pytest.mark.parametrize("message", [b"\x80", b"\x0b", b"\x0a\x05ab", b"\x09abc", b"\xff" * 11])
def test_a_broken_message_says_so(message: bytes) -> None:
    with pytest.raises(BrokenRecordError):
        list(fields(message))


@given(
    points=st.dictionaries(
        st.integers(0, 2**40), st.floats(allow_nan=False, allow_infinity=False, width=32), min_size=1, max_size=6
    )
)
def test_scalars_come_back_by_step(points: dict[int, float]) -> None:
    data = b"".join(record(event(step, "train/loss", simple=value)) for step, value in points.items())
    rows = read_events(data, "events.out.tfevents.1", "f").metrics
    assert [(row.values["step"], row.values["loss"]) for row in rows] == sorted(points.items())


@pytest.mark.parametrize(
    "tensor",
    [
        (1, block(4, struct.pack("<f", 7.0))),
        (2, block(4, struct.pack("<d", 7.0))),
        (3, block(4, struct.pack("<i", 7))),
        (9, block(4, struct.pack("<q", 7))),
        (1, block(5, struct.pack("<f", 7.0))),
        (1, varint(5 * 8 + 5) + struct.pack("<f", 7.0)),
        (2, block(6, struct.pack("<d", 7.0))),
        (3, varint(7 * 8) + varint(7)),
        (9, block(10, varint(7))),
    ],
)
def test_a_tensor_of_one_number(tensor: tuple[int, bytes]) -> None:
    rows = read_events(record(event(3, "loss", tensor=tensor)), "e.tfevents.1", "f").metrics
    assert [row.values for row in rows] == [{"step": 3, "loss": 7.0}]


def test_a_tensor_of_two_numbers_is_no_scalar() -> None:
    data = record(event(3, "loss", tensor=(1, block(4, struct.pack("<ff", 7.0, 8.0)))))
    assert read_events(data, "e.tfevents.1", "f").metrics == ()


@given(data=st.binary(max_size=300))
def test_any_bytes_give_problems_at_most(data: bytes) -> None:
    reading = read_events(data + record(data), "e.tfevents.1", "f")
    assert all(problem.code == "TP521" for problem in reading.problems)
