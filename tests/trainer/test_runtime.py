"""The process that JAX runs in: GPU pool, compilation cache, absent devices, element types, and the instruction set."""

import os
import re
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
from tasks import task_of, with_settings

from evidence import layout
from schemas.render import render_text
from trainer import runtime
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.compilation import Program, donation
from trainer.loop.programs import list_programs
from trainer.recorder import environment as module
from trainer.recorder.environment import cache_limit_bytes, environment, request_level, select_level
from trainer.replay.recorded import compare_environment

T4 = ("float32", "float16")


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that puts an nvidia-smi with an answer on the path."""
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JAX_PLATFORMS", "")
    for name in (runtime.GPU_FRACTION, runtime.OLDER_GPU_FRACTION):
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
    runtime.reserve_gpu_memory()
    assert os.environ.get(runtime.GPU_FRACTION) == share
    assert environment()["flags"].get(runtime.GPU_FRACTION) == share


@pytest.mark.parametrize(("name", "share"), [(runtime.GPU_FRACTION, "0.5"), (runtime.OLDER_GPU_FRACTION, None)])
def test_a_share_that_the_user_set_stays(driver, monkeypatch, name, share):
    driver("15360\\n")
    monkeypatch.setenv(name, "0.5")
    runtime.reserve_gpu_memory()
    assert (os.environ[name], os.environ.get(runtime.GPU_FRACTION)) == ("0.5", share)


@pytest.mark.parametrize(
    ("platforms", "device", "what"),
    [("cuda", "gpu", "No gpu device was found"), ("abacus", "auto", "No device was found")],
)
def test_a_platform_that_jax_cannot_use_is_named(platforms, device, what):
    if platforms == "cuda" and (find_spec("jax_cuda12_plugin") or find_spec("jax_cuda13_plugin")):
        pytest.skip("this machine has the plugin")
    command = [sys.executable, "-m", "trainproof", "plan", "--config", "trainer/configs/tiny.yaml", "--device", device]
    given = {**os.environ, "JAX_PLATFORMS": platforms}
    done = subprocess.run(command, capture_output=True, text=True, env=given, check=False)
    assert (done.returncode, done.stdout) == (3, "")
    said = f"error TP701: --device: {what}; with JAX_PLATFORMS={platforms} JAX sees none at all.\n"
    assert done.stderr.startswith(said)
    assert "Next: Unset JAX_PLATFORMS, or install JAX for it" in done.stderr


def entry(folder: Path, name: str) -> Path:
    program = folder / f"{name}-cache"
    program.write_bytes(b"program " + name.encode())
    (folder / f"{name}-atime").write_bytes(bytes(8))
    return program


def test_attached_programs_are_copied_if_they_are_whole_and_for_this_processor(tmp_path, monkeypatch):
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


def test_a_cache_is_prepared_without_half_written_entries_and_unused_folders(tmp_path, monkeypatch):
    updates: dict[str, object] = {}
    config = SimpleNamespace(values={"jax_compilation_cache_dir": None}, update=updates.__setitem__)
    monkeypatch.setattr(runtime, "jax", SimpleNamespace(config=config))
    own, used, unused = (tmp_path / name for name in (runtime.machine_key(), "used", "unused"))
    for folder in (own, used, unused):
        folder.mkdir()
    entry(own, "whole")
    (entry(own, "killed").with_name("killed-atime")).unlink()
    for folder in (own, unused):
        os.utime(folder, (0, 0))
    assert runtime.use_compilation_cache(tmp_path) == []
    assert sorted(tmp_path.iterdir()) == sorted([own, used])
    assert updates["jax_compilation_cache_dir"] == str(own)
    assert sorted(path.name for path in own.iterdir()) == ["whole-atime", "whole-cache"]


def test_a_cache_that_the_user_set_is_left_alone(config: Config):
    before = jax.config.values["jax_compilation_cache_dir"]
    runtime.init_runtime(config)
    assert jax.config.values["jax_compilation_cache_dir"] == before == os.environ["JAX_COMPILATION_CACHE_DIR"]


def test_another_processor_or_version_has_another_folder(on, monkeypatch):
    found = []
    for clock, features, release in ((1200, "", "1"), (1200, " avx512f", "1"), (1200, "", "2"), (900, "", "1")):
        on(x86(f"avx2{features}").replace("stepping", f"cpu MHz\t\t: {clock}\nstepping"))
        monkeypatch.setattr(runtime, "versions", lambda release=release: {"jaxlib": release})
        found.append(runtime.machine_key())
    assert len(set(found)) == 3
    assert found[0] == found[3], "the clock rate does not matter"


def test_the_size_limit_is_a_setting(monkeypatch):
    for stated, expected in (("50", 50), ("0", 0), ("much", 256)):
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
    devices = (SimpleNamespace(compute_capability=capability),)
    gpu = replace(runtime.choose_devices("cpu", 1), platform="gpu", list=devices)
    assert set(runtime.supported_types(gpu)) == {*T4, *(["bfloat16"] * has_bfloat16)}


def test_bfloat16_on_a_t4_is_refused_with_its_replacement(config: Config):
    half = {"params": "bfloat16", "compute": "bfloat16"}
    adapters = with_settings(config, method={"kind": "lora"}, precision=half)
    problems = catch_problems(runtime.refuse_absent_types, adapters, kind="Tesla T4", element_types=T4, exit_code=3)
    assert render_text(problems[:1]) == (
        "error TP730: Tesla T4 at /precision/params: precision.params is bfloat16, which Tesla T4 does not have.\n"
        "  The matrix units of the device do not support this type: the compiler rejects it, or uses a slower one.\n"
        "  Expected: float16 or float32.\n"
        "  Next: Use --set precision.params=float16.\n"
    )
    assert [each.next for each in problems][1:] == ["Use --set precision.compute=float16."]
    trained = with_settings(config, precision={"params": "bfloat16"})
    [problem] = catch_problems(runtime.refuse_absent_types, trained, kind="T4", element_types=T4, exit_code=3)
    assert problem.next == "Use --set precision.params=float32."
    here = runtime.supported_types(runtime.choose_devices("cpu", 1))
    runtime.refuse_absent_types(trained, kind="cpu", element_types=here)
    runtime.refuse_absent_types(with_settings(config, precision={"compute": "float16"}), kind="T4", element_types=T4)


HASWELL = "sse4_1 sse4_2 fma movbe avx f16c abm bmi1 avx2 bmi2 fsgsbase"
ZEN_4 = f"{HASWELL} avx512f avx512_bf16"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU part\t: 0xd40\n"


def x86(flags: str, *, model: int = 1) -> str:
    """Return /proc/cpuinfo of two processors with these instructions."""
    values = f"cpu family\t: 25\nmodel\t: {model}\nmodel name\t: AMD EPYC\nstepping\t: 1\nflags\t: fpu {flags} rdpid"
    return f"processor\t: 0\nvendor_id\t: AuthenticAMD\n{values}\n\n" * 2


@pytest.fixture
def on(tmp_path, monkeypatch):
    """Return what gives this machine another processor."""
    monkeypatch.setenv("XLA_FLAGS", module.MAX_ISA_FLAG)
    monkeypatch.setattr(module, "PROCESSORS", tmp_path / "cpuinfo")
    return (tmp_path / "cpuinfo").write_text


def test_the_configured_level_is_used_where_the_processor_has_it(on):
    on(x86(ZEN_4))
    level, native = select_level("x86-64-v3"), select_level("native")
    assert (level.name, level.why, native.name, native.options) == ("x86-64-v3", "", "native", ())
    assert "xla_disable_hlo_passes" in dict(level.options)


def test_the_level_is_requested_before_jax_starts(on, monkeypatch):
    on(x86(ZEN_4))
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    assert select_level("x86-64-v3").why == "JAX had started for all that the processor has"
    request_level("native")
    assert select_level("x86-64-v3").name == "native"
    request_level("x86-64-v3")
    request_level("x86-64-v3")
    assert select_level("x86-64-v3").name == "x86-64-v3"
    assert environment("x86-64-v3")["flags"]["XLA_FLAGS"] == "--xla_force_host_platform_device_count=8"
    assert environment("native")["flags"]["XLA_FLAGS"].split()[1:] == ["--xla_cpu_max_isa=AVX2"]
    on(x86("sse4_2 avx"))
    monkeypatch.delenv("XLA_FLAGS")
    request_level("x86-64-v3")
    assert "XLA_FLAGS" not in os.environ


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (x86(HASWELL.replace(" avx2", "").replace("fma ", "")), "this processor lacks avx2, fma"),
        ("", "this .* processor names no instructions of x86-64"),
        (ARM, "this .* names no instructions .*"),
    ],
)
def test_an_unavailable_level_has_a_reason(on, text, why):
    on(text)
    level = select_level("x86-64-v3")
    assert (level.name, level.options) == ("native", ())
    assert re.fullmatch(why, level.why)


def test_xla_flags_of_the_user_win(on, monkeypatch):
    on(x86(ZEN_4))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX512 --xla_force_host_platform_device_count=8")
    request_level("x86-64-v3")
    assert select_level("x86-64-v3").why == "XLA_FLAGS states --xla_cpu_max_isa=AVX512"
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2 --xla_cpu_enable_platform_dependent_math=true")
    assert select_level("x86-64-v3").why == "XLA_FLAGS states --xla_cpu_enable_platform_dependent_math=true"


CPU = runtime.choose_devices("cpu", 1)
V3 = "x86-64-v3"
LACKING = "native (this processor lacks avx2, bmi1, bmi2, f16c, fma, abm, movbe)"


@pytest.mark.parametrize(
    ("recorded", "count", "here", "level", "is_exact", "remark"),
    [
        (V3, 64, x86(HASWELL), V3, True, "CPU model 17 recorded, 1 here"),
        (V3, 64, x86(ZEN_4, model=17), "native", False, ""),
        (V3, None, x86("sse4_1 sse4_2 avx"), V3, False, f"CPU compiled_for x86-64-v3 recorded, {LACKING} here"),
        ("native", None, x86(HASWELL), "native", False, ""),
        ("native", None, x86(HASWELL), V3, False, "CPU compiled_for native recorded, x86-64-v3 here"),
        ("native", None, x86(ZEN_4, model=17), "native", True, None),
        ("native", 64, x86(ZEN_4, model=17), "native", False, ""),
        # Earlier versions recorded the processor's name alone.
        (None, None, x86(ZEN_4, model=17), "native", False, "CPU family not recorded, 25 here"),
    ],
)
def test_equal_bits_are_expected_of_the_level_and_not_of_the_name(recorded, count, here, level, is_exact, remark, on):
    on(x86(ZEN_4, model=17))
    there = environment(recorded or "native") | ({"cpu_count": count} if count else {})
    if recorded is None:
        del there["processor"]
    on(here)
    manifest = {"environment": there, "devices": CPU.document(), "code": {"commit": None}}
    found = compare_environment(manifest, CPU, cpu_isa=level, file="run")
    remarks = [each for each in found.notes if "commit" not in each]
    assert found.is_exact is is_exact
    assert remarks == [] if remark is None else remark in [*remarks, ""]


def settings(*chosen: str) -> Config:
    base = ["data.max_length=96", "batch.microbatch_size=2", "evaluation.max_new_tokens=8", "mesh.devices=1"]
    return load_config(Path("trainer/configs/tiny.yaml"), settings=[*base, "mesh.device=cpu", *chosen])


def elsewhere(text: str) -> list[str]:
    """Return the products of a compiled program that neither the kernels' library nor plain code computes."""
    called = set(re.findall(r"kind=kCustom, calls=(%[\w.-]+)", text))
    parts = [part for part in re.split(r"\n(?=%|ENTRY)", text) if part.split(" ")[0] not in called]
    products = [line for line in "\n".join(parts).splitlines() if re.search(r" (dot|convolution|custom-call)\(", line)]
    return [line for line in products if not is_of_vector(line)]


def is_of_vector(line: str) -> bool:
    """Return whether a product has a vector as result, which is compiled as plain code."""
    shape = re.search(r"= \w+\[([\d,]*)\]", line)
    batch = re.search(r"lhs_batch_dims=\{([\d,]*)\}", line)
    lengths = shape[1].split(",")[len(batch[1].split(",")) if batch else 0 :]
    return len(lengths) < 2 or "1" in lengths


@pytest.mark.slow
@pytest.mark.parametrize(
    "chosen",
    [
        [],
        ["method.kind=lora"],
        ["method.kind=lora", "memory.layers=scanned"],
        ["method.kind=lora", "precision.compute=bfloat16"],
        ["data.packing=true", "memory.loss_chunk_tokens=16"],
        ["precision.compute=float16", "method.kind=lora", "method.base=nf4"],
    ],
    ids=" ".join,
)
def test_all_matrix_products_take_one_path(chosen):
    if select_level("x86-64-v3").name != "x86-64-v3":
        pytest.skip("this processor does not have the level")
    programs = list_programs(task_of(settings(*chosen)), eval_shape=EvalShape(prompts=2, longest_tokens=20))
    for name in ("train", "decode"):
        text = programs[name].compile().executable.as_text()
        assert "__ynn_fusion" in text
        assert elsewhere(text) == [], name


def test_other_devices_have_no_compiler_options_of_a_cpu():
    mesh = SimpleNamespace(devices=SimpleNamespace(flat=[SimpleNamespace(platform="tpu")]))
    assert replace(task_of(settings()), mesh=mesh).compiler_options == ()
