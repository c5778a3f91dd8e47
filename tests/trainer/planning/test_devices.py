"""Devices that are not there: said in words, whatever JAX itself says."""

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest


def refusal(platforms: str, device: str) -> str:
    environment = {**os.environ, "JAX_PLATFORMS": platforms}
    command = [sys.executable, "-m", "trainproof", "plan", "--config", "trainer/configs/tiny.yaml", "--device", device]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    return done.stderr


@pytest.mark.parametrize("device", ["auto", "gpu"])
@pytest.mark.parametrize("platforms", ["cuda", "abacus"])
def test_a_platform_that_jax_is_told_to_use_and_cannot_is_named(platforms: str, device: str):
    if platforms == "cuda" and (find_spec("jax_cuda12_plugin") or find_spec("jax_cuda13_plugin")):
        pytest.skip("this machine has the plugin")
    what = "No device was found" if device == "auto" else f"No {device} device was found"
    assert refusal(platforms, device) == (
        f"error TP701: --device: {what}; with JAX_PLATFORMS={platforms} JAX sees none at all.\n"
        "  JAX_PLATFORMS is the list of platforms that JAX may use; it can use none of them here.\n"
        "  Expected: at least one device.\n"
        "  Next: Unset JAX_PLATFORMS, or install JAX for it: "
        "trainproof[cuda12], trainproof[cuda13] or trainproof[tpu].\n"
    )
