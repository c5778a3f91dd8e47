"""The time of a step and of a session, against worked cases and against what must hold for any numbers."""

import doctest
import importlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.planning.duration import roofline
from trainer.planning.duration.roofline import exchanged_bytes
from trainer.planning.duration.session import (
    SessionPart,
    copy_part,
    evaluate_part,
    saving_interval,
    sessions_needed,
    total_seconds,
    train_part,
    weeks_needed,
)
from trainer.planning.spending_rules import Band, exactly

HOUR = 3600.0


@pytest.mark.parametrize(
    "name",
    [
        "trainer.planning.spending_rules",
        "trainer.planning.duration.roofline",
        "trainer.planning.duration.session",
    ],
)
def test_examples(name):
    result = doctest.testmod(importlib.import_module(name))
    assert result.attempted > 0
    assert result.failed == 0


@given(
    st.floats(1, 1e18),
    st.floats(1e9, 1e15),
    st.floats(0, 1e13),
    st.floats(1e9, 1e13),
)
def test_a_step_is_never_promised_faster_than_its_floor(flops, peak, moved, bandwidth):
    floor = roofline.floor_seconds(flops=flops, peak_flops=peak, moved_bytes=moved, bandwidth=bandwidth)
    band = roofline.step_band(floor)
    assert floor >= flops / peak
    assert floor >= moved / bandwidth
    assert floor < band.low <= band.likely <= band.high


def test_the_link_between_two_cards_can_be_the_floor():
    """Gemma-2B in float16 gathered three times over PCIe at 6 GB/s: 3 · 2.5 GB from the other card, 1.25 s."""
    floor = roofline.floor_seconds(flops=1e12, peak_flops=65e12, linked_bytes=7.5e9, link_bandwidth=6e9)
    assert floor == pytest.approx(1.25)


def test_one_device_sends_nothing_and_more_devices_never_receive_less():
    sent = [
        exchanged_bytes(weights_bytes=4.0, gradients_bytes=4.0, devices=devices, divided=divided)
        for divided in (True, False)
        for devices in (1, 2, 4, 8)
    ]
    assert sent[0] == sent[4] == 0
    assert sent[:4] == sorted(sent[:4])
    assert sent[4:] == sorted(sent[4:])


def test_dividing_a_frozen_model_over_two_t4s_takes_the_link_longer():
    """Why the preset for two T4s keeps the whole model on each: 7.5 GB at 12 GB/s or less, or 78 MB."""
    model, adapters = 2 * 2.506e9, 4 * 19.6e6
    divided = exchanged_bytes(weights_bytes=model, gradients_bytes=adapters, devices=2, divided=True)
    whole = exchanged_bytes(weights_bytes=model, gradients_bytes=adapters, devices=2, divided=False)
    assert divided / 12e9 > 0.6
    assert whole / 12e9 < 0.01


def test_published_steps_lie_in_the_band():
    """LLaMA-7B on TPU v3-8, 1 × 2,048 tokens a step: 975 tokens a second published (8 % of peak: below the band), and
    GPT-J-6B about 5,000 (37 %: inside it)."""
    peak = 123e12 / 2
    band = roofline.step_band(roofline.floor_seconds(flops=6 * 6.05e9 * 2048 / 8, peak_flops=peak))
    assert band.low < 2048 / 5000 < band.high
    slow = roofline.step_band(roofline.floor_seconds(flops=6 * 6.74e9 * 2048 / 8, peak_flops=peak))
    assert slow.high < 2048 / 975


def test_measured_runs_narrow_a_band():
    wide = Band(low=5, likely=10, high=20)
    near = roofline.narrowed(wide, [1.1, 1.2])
    assert near.likely == pytest.approx(11.5)
    assert wide.low < near.low < 11 < 12 < near.high < wide.high
    assert roofline.narrowed(wide, []) == wide


def test_a_session_adds_up():
    parts = [
        SessionPart(name="install", seconds=exactly(120), because=""),
        train_part(Band(low=5, likely=10, high=20), 200),
        copy_part("save", bytes_each=5e9, bytes_per_second=Band(low=1e8, likely=5e8, high=1e9), times=4),
        evaluate_part(prompts=100, batch_size=100, tokens=160, token_seconds=exactly(0.05), times=2),
    ]
    assert total_seconds(parts).likely == pytest.approx(120 + 2000 + 40 + 16)
    assert parts[2].because == "4 × 5 GB at 500 MB/s"
    assert parts[3].because == "2 × 1 batches × 160 tokens × 50 ms"


def test_the_guide_of_the_seeds():
    """40 to 50 hours on two T4s, in sessions of 12 hours and weeks of 30: four to five sessions, two weeks."""
    begin = SessionPart(name="install", seconds=exactly(0.25 * HOUR), because="")
    work = SessionPart(name="train", seconds=Band(low=40 * HOUR, likely=45 * HOUR, high=50 * HOUR), because="")
    assert sessions_needed([begin, work], 12 * HOUR) == (4, 4, 5)
    assert weeks_needed([begin, work], session_seconds=12 * HOUR, week_seconds=30 * HOUR) == 2
    between = saving_interval(Band(low=100, likely=125, high=150), 500, 1500)
    assert between.low > 12 * HOUR, "no session has a checkpoint"


def test_a_session_that_its_own_begin_fills_is_never_enough():
    begin = SessionPart(name="load", seconds=exactly(9 * HOUR), because="")
    work = SessionPart(name="train", seconds=exactly(60), because="")
    assert sessions_needed([begin, work], 9 * HOUR) == (None, None, None)
    assert weeks_needed([begin, work], session_seconds=9 * HOUR, week_seconds=20 * HOUR) is None


def test_a_run_that_saves_only_at_its_end_can_lose_all_of_it():
    assert saving_interval(exactly(2), 0, 300) == exactly(600)
    assert saving_interval(exactly(2), 1000, 300) == exactly(600)
