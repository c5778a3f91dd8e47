"""What few layers say of the whole, by hand."""

from __future__ import annotations

import pytest

from trainer.planning.estimate.part import ERROR_FRACTION, SHARDED_ERROR_FRACTION, Part, error_of, total_bytes
from trainer.planning.extrapolate import ANCHORED_ERROR, EXTRAPOLATED_ERROR, Anchor, whole_from

GIB = 2**30


def parts_of(gib: float, *, gathered: bool) -> tuple[Part, ...]:
    rest = Part(name="layer_inside", bytes=int(gib * GIB) - GIB, because="")
    return (rest, Part(name="gathered_weights" if gathered else "gradients", bytes=GIB, because=""))


def test_of_one_device_few_layers_are_believed() -> None:
    whole = whole_from(9 * GIB, parts_of(12, gathered=False))
    because = ". The band is of how far few layers may mislead, 23%"
    assert (whole.bytes, whole.error_fraction, whole.because) == (9 * GIB, EXTRAPOLATED_ERROR, because)


@pytest.mark.parametrize(("few", "said"), [(9, 12), (14, 14)])
def test_of_several_devices_the_larger_is_taken(few: int, said: int) -> None:
    whole = whole_from(few * GIB, parts_of(12, gathered=True))
    assert (whole.bytes, whole.error_fraction) == (said * GIB, SHARDED_ERROR_FRACTION)
    taken = ". Adding up all parts gives more, 12.00 GiB: that is taken, with the band of sums"
    assert (whole.is_sum, whole.because == taken) == (said > few, said > few)


# Gemma 2B on eight chips, GiB: few layers, sum, whole; each compiled. The first is the run, the others change it.
MEASURED = {
    "as it is": (13.00, 15.59, 16.77),
    "parameters in bfloat16": (12.17, 14.89, 16.94),
    "half the microbatch": (10.38, 9.87, 11.22),
    "adafactor": (10.54, 13.26, 14.30),
    "parameters in bfloat16, adafactor": (9.84, 12.55, 14.10),
}


@pytest.mark.parametrize("name", MEASURED)
def test_no_whole_that_was_compiled_is_outside_the_band(name: str) -> None:
    few, summed, whole = (int(gib * GIB) for gib in MEASURED[name])
    parts = parts_of(summed / GIB, gathered=True)
    alone = whole_from(few, parts)
    assert alone.bytes * (1 - alone.error_fraction) <= whole <= alone.bytes * (1 + alone.error_fraction)
    assert abs(whole / total_bytes(parts) - 1) <= error_of(parts, None)

    few0, sum0, whole0 = (int(gib * GIB) for gib in MEASURED["as it is"])
    anchor = Anchor(few_bytes=few0, sum_bytes=sum0, said_bytes=max(few0, sum0), whole_bytes=whole0)
    corrected = whole_from(few, parts, anchor)
    assert abs(whole / corrected.bytes - 1) <= ANCHORED_ERROR
    assert corrected.error_fraction == (0.0 if name == "as it is" else ANCHORED_ERROR)


def test_one_device_gathers_nothing() -> None:
    one = (*parts_of(12, gathered=False), Part(name="gathered_weights", bytes=0, because="one device"))
    assert error_of(one, None) == ERROR_FRACTION
    assert whole_from(9 * GIB, one).bytes == 9 * GIB
