"""JAX's share of a GPU: what the driver says less what CUDA needs, unless somebody has set it."""

import os
from pathlib import Path

import pytest

from trainer.planning import gpu_memory
from trainer.planning.gpu_memory import FRACTION, OLDER_FRACTION, fraction_of, give_jax_the_gpu
from trainer.recorder.environment import environment


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that puts an nvidia-smi with an answer on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JAX_PLATFORMS", "")
    for name in (FRACTION, OLDER_FRACTION):
        monkeypatch.setenv(name, "")  # so that what the function sets is undone after the test
        monkeypatch.delenv(name)

    def answers(text: str, code: int = 0) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
        program.chmod(0o755)

    return answers


def test_two_t4_are_used_but_for_what_cuda_needs_and_the_manifest_says_so(driver):
    driver("15360\\n15360\\n")
    give_jax_the_gpu()
    assert os.environ[FRACTION] == "0.941"
    assert environment()["flags"][FRACTION] == "0.941"


def test_the_smallest_of_several_cards_decides(driver):
    driver("81920\\n8192\\n")
    give_jax_the_gpu()
    assert os.environ[FRACTION] == "0.890"


@pytest.mark.parametrize("name", [FRACTION, OLDER_FRACTION])
def test_what_somebody_has_set_stays(driver, monkeypatch: pytest.MonkeyPatch, name: str):
    driver("15360\\n")
    monkeypatch.setenv(name, "0.5")
    give_jax_the_gpu()
    assert [os.environ.get(each) for each in (name, FRACTION)] == ["0.5", "0.5" if name == FRACTION else None]


@pytest.mark.parametrize(("answer", "code"), [("", 0), ("No devices were found", 6), ("[N/A]\\n", 0)])
def test_a_driver_without_a_card_changes_nothing(driver, answer: str, code: int):
    driver(answer, code)
    give_jax_the_gpu()
    assert FRACTION not in os.environ


def test_nothing_is_asked_where_jax_may_use_no_gpu(driver, monkeypatch: pytest.MonkeyPatch):
    driver("15360\\n")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(gpu_memory.subprocess, "run", lambda *_, **__: pytest.fail("the driver was asked"))
    give_jax_the_gpu()
    assert FRACTION not in os.environ


def test_a_share_is_never_all_and_never_less_than_half():
    assert (fraction_of(2**30), fraction_of(2**40)) == (0.5, 0.98)
