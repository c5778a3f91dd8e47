"""The process that JAX runs in: GPU pool, compilation cache, absent devices, and element types."""

import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from refusals import catch_problems

from evidence import layout
from schemas.render import render_text
from trainer import runtime
from trainer.config.tree import Config, MethodConfig, PrecisionConfig
from trainer.loop.compilation import Program, donation
from trainer.recorder.environment import cache_limit_bytes, environment
from trainer.runtime import (
    GPU_FRACTION,
    OLDER_GPU_FRACTION,
    choose_devices,
    init_runtime,
    machine_key,
    refuse_absent_types,
    reserve_gpu_memory,
    supported_types,
    use_compilation_cache,
)

T4 = ("float32", "float16")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that puts an nvidia-smi with an answer on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JAX_PLATFORMS", "")
    for name in (GPU_FRACTION, OLDER_GPU_FRACTION):
        monkeypatch.setenv(name, "")  # so that it is restored after the test
        monkeypatch.delenv(name)

    def answers(text: str, code: int = 0) -> None:
        program = tmp_path / "nvidia-smi"
        program.write_text(f"#!/bin/sh\nprintf '{text}'\nexit {code}\n")
        program.chmod(0o755)

    return answers


@pytest.mark.parametrize(
    ("answer", "code", "share"),
    [
        ("15360\\n15360\\n", 0, "0.941"),
        ("81920\\n8192\\n", 0, "0.890"),  # the smallest GPU decides
        ("1024\\n", 0, "0.500"),
        ("1048576\\n", 0, "0.980"),
        ("", 0, None),
        ("No devices were found", 6, None),
        ("[N/A]\\n", 0, None),
    ],
)
def test_jax_gets_the_gpu_memory_without_cudas_share(driver, answer: str, code: int, share: str | None):
    driver(answer, code)
    reserve_gpu_memory()
    assert os.environ.get(GPU_FRACTION) == share
    assert environment()["flags"].get(GPU_FRACTION) == share


@pytest.mark.parametrize("name", [GPU_FRACTION, OLDER_GPU_FRACTION])
def test_a_share_that_the_user_set_stays(driver, monkeypatch: pytest.MonkeyPatch, name: str):
    driver("15360\\n")
    monkeypatch.setenv(name, "0.5")
    reserve_gpu_memory()
    assert [os.environ.get(each) for each in (name, GPU_FRACTION)] == ["0.5", "0.5" if name == GPU_FRACTION else None]


@pytest.mark.parametrize("device", ["auto", "gpu"])
@pytest.mark.parametrize("platforms", ["cuda", "abacus"])
def test_a_platform_that_jax_cannot_use_is_named(platforms: str, device: str):
    if platforms == "cuda" and (find_spec("jax_cuda12_plugin") or find_spec("jax_cuda13_plugin")):
        pytest.skip("this machine has the plugin")
    command = [sys.executable, "-m", "trainproof", "plan", "--config", "trainer/configs/tiny.yaml", "--device", device]
    given = {**os.environ, "JAX_PLATFORMS": platforms}
    done = subprocess.run(command, capture_output=True, text=True, env=given, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    what = "No device was found" if device == "auto" else f"No {device} device was found"
    assert done.stderr.startswith(
        f"error TP701: --device: {what}; with JAX_PLATFORMS={platforms} JAX sees none at all.\n"
    )
    assert "Next: Unset JAX_PLATFORMS, or install JAX for it" in done.stderr


def test_choosing_devices_changes_nothing_in_the_process(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    before = dict(os.environ), dict(jax.config.values)
    choose_devices("auto", None)
    assert (dict(os.environ), dict(jax.config.values)) == before


def entry(folder: Path, name: str) -> Path:
    program = folder / f"{name}-cache"
    program.write_bytes(b"program " + name.encode())
    (folder / f"{name}-atime").write_bytes(bytes(8))
    return program


def test_attached_programs_are_copied_if_they_are_whole_and_for_this_processor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("TRAINPROOF_INPUT", str(tmp_path / "input"))
    monkeypatch.setattr(runtime, "machine_key", lambda: "this")
    earlier = tmp_path / "input" / "notebook" / "runs" / layout.PROGRAMS
    other, same, own = earlier / "other", earlier / "this", tmp_path / "own" / "this"
    for folder in (other, same, own):
        folder.mkdir(parents=True)
    for name in "ab":
        entry(same, name)
    (same / "b-atime").unlink()
    ignored = f"ignored {other}: compiled for another processor or other versions"
    for copied in ("1 compiled program", "0 compiled programs"):
        assert list(runtime.copy_attached_programs(own)) == [ignored, f"copied {copied} from {same}"]
    assert sorted(path.name for path in own.iterdir()) == ["a-atime", "a-cache"]


def test_a_cache_is_prepared_without_half_written_entries_and_unused_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    updates: dict[str, object] = {}
    config = SimpleNamespace(values={"jax_compilation_cache_dir": None}, update=updates.__setitem__)
    monkeypatch.setattr(runtime, "jax", SimpleNamespace(config=config))
    own, used, unused = (tmp_path / name for name in (machine_key(), "used", "unused"))
    for folder in (own, used, unused):
        folder.mkdir()
    entry(own, "whole")
    (entry(own, "killed").with_name("killed-atime")).unlink()
    for folder in (own, unused):
        os.utime(folder, (0, 0))
    assert use_compilation_cache(tmp_path) == []
    assert sorted(tmp_path.iterdir()) == sorted([own, used])
    assert updates["jax_compilation_cache_dir"] == str(own)
    assert sorted(path.name for path in own.iterdir()) == ["whole-atime", "whole-cache"]


def test_a_cache_that_the_user_set_is_left_alone(config: Config):
    before = jax.config.values["jax_compilation_cache_dir"]
    init_runtime(config)
    assert jax.config.values["jax_compilation_cache_dir"] == before == os.environ["JAX_COMPILATION_CACHE_DIR"]


INFO = "processor\t: 0\nmodel name\t: A\ncpu MHz\t\t: 1200\nflags\t\t: fpu avx2{}\n\nprocessor\t: 1\nmodel name\t: A\n"


def test_another_processor_or_version_has_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    found = []
    for features, release in (("", "1"), (" avx512f", "1"), ("", "2"), ("", "1")):
        info = tmp_path / "cpuinfo"
        info.write_text(INFO.format(features).replace("1200", str(1200 + len(found))))
        monkeypatch.setattr("trainer.recorder.environment.PROCESSORS", info)
        monkeypatch.setattr(runtime, "versions", lambda release=release: {"jaxlib": release})
        found.append(machine_key())
    assert len(set(found)) == 3
    assert found[0] == found[3], "the clock rate does not matter"


def test_the_size_limit_is_a_setting(monkeypatch: pytest.MonkeyPatch):
    for stated, expected in ((None, 256), ("50", 50), ("0", 0), ("much", 256)):
        monkeypatch.delenv("TRAINPROOF_CACHE_MIB", raising=False)
        if stated is not None:
            monkeypatch.setenv("TRAINPROOF_CACHE_MIB", stated)
        assert cache_limit_bytes() == expected << 20


@pytest.mark.slow
def test_a_program_from_the_cache_is_the_same_in_memory_donation_and_bits():
    def step(state, x):
        return state + jnp.tanh(x @ state.T).sum(0)[:, None] * 0.125, jnp.sum(state)

    wide, narrow = jax.ShapeDtypeStruct((37, 64), jnp.float32), jax.ShapeDtypeStruct((5, 64), jnp.float32)
    found = []
    for _ in range(2):
        jax.clear_caches()
        program = Program(function=jax.jit(step, donate_argnums=0), arguments=(wide, narrow)).compile()
        state = jnp.arange(37 * 64, dtype=jnp.float32).reshape(37, 64) / 999
        place = state.unsafe_buffer_pointer()
        after, total = program.call(state, jnp.ones((5, 64)) * 0.3)
        assert state.is_deleted()
        assert after.unsafe_buffer_pointer() == place
        found.append((program, np.asarray(after).tobytes(), float(total)))
    (_, *fresh), (cached, *again) = found
    assert cached.is_kept
    assert again == fresh
    read = donation(cached.executable, wide)
    assert read == {"state_bytes": 37 * 64 * 4, "aliased_bytes": 37 * 64 * 4, "effective": True}
    assert cached.peak_bytes == found[0][0].peak_bytes


@pytest.mark.parametrize(
    ("capability", "has_bfloat16"), [("6.0", False), ("7.0", False), ("7.5", False), ("8.0", True), ("12.0", True)]
)
def test_bfloat16_needs_compute_capability_8(capability: str, has_bfloat16: bool):
    """CUDA C++ programming guide, table of arithmetic instructions: P100, V100, T4, A100, RTX 5090."""
    gpu = replace(choose_devices("cpu", 1), platform="gpu", list=(SimpleNamespace(compute_capability=capability),))
    assert set(supported_types(gpu) or ()) == {*T4, *(("bfloat16",) if has_bfloat16 else ())}


def test_bfloat16_on_a_t4_is_refused_with_its_replacement(config: Config):
    half = PrecisionConfig(params="bfloat16", compute="bfloat16")
    adapters = replace(config, method=MethodConfig(kind="lora"), precision=half)
    problems = catch_problems(lambda: refuse_absent_types(adapters, kind="Tesla T4", element_types=T4), exit_code=3)
    assert render_text(problems[:1]) == (
        "error TP730: Tesla T4 at /precision/params: precision.params is bfloat16, which Tesla T4 does not have.\n"
        "  The matrix units of the device do not support this type: the compiler rejects it, or uses a slower one.\n"
        "  Expected: float16 or float32.\n"
        "  Next: Use --set precision.params=float16.\n"
    )
    assert [each.next for each in problems][1:] == ["Use --set precision.compute=float16."]
    trained = replace(config, precision=PrecisionConfig(params="bfloat16"))
    [problem] = catch_problems(lambda: refuse_absent_types(trained, kind="T4", element_types=T4), exit_code=3)
    assert problem.next == "Use --set precision.params=float32."
    refuse_absent_types(trained, kind="cpu", element_types=supported_types(choose_devices("cpu", 1)))
    refuse_absent_types(replace(config, precision=PrecisionConfig(compute="float16")), kind="T4", element_types=T4)
