"""For which instructions programs are compiled, that the run states it, and what a replay makes of it."""

import os
import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from tasks import task_of

from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.programs import list_programs
from trainer.recorder import environment as module
from trainer.recorder.environment import environment, request_level, select_level
from trainer.replay.recorded import compare_environment
from trainer.runtime import choose_devices

HASWELL = "sse4_1 sse4_2 fma movbe avx f16c abm bmi1 avx2 bmi2 fsgsbase"
ZEN_4 = f"{HASWELL} avx512f avx512_bf16"
ARM = "processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU part\t: 0xd40\n"


def x86(flags: str, *, model: int = 1) -> str:
    """Return /proc/cpuinfo of two processors with these instructions."""
    values = {"vendor_id": "AuthenticAMD", "cpu family": 25, "model": model, "model name": "AMD EPYC", "stepping": 1}
    values |= {"flags": f"fpu {flags} rdpid"}
    return "\n".join(["processor\t: 0", *(f"{key}\t: {value}" for key, value in values.items()), "\n"]) * 2


@pytest.fixture
def on(tmp_path, monkeypatch):
    """Return what gives this machine another processor."""
    monkeypatch.setenv("XLA_FLAGS", module.MAX_ISA_FLAG)

    def put(text: str) -> None:
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(module, "PROCESSORS", tmp_path / "cpuinfo")

    return put


def test_the_configured_level_is_used_where_the_processor_has_it(on):
    on(x86(ZEN_4))
    assert (select_level("x86-64-v3").name, select_level("x86-64-v3").why) == ("x86-64-v3", "")
    assert "xla_disable_hlo_passes" in dict(select_level("x86-64-v3").options)
    assert (select_level("native").name, select_level("native").options) == ("native", ())


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


def test_the_processor_is_recorded_by_numbers_and_instructions(on):
    on(x86(ZEN_4, model=17))
    assert environment("x86-64-v3")["processor"] == {
        "family": 25,
        "model": 17,
        "stepping": 1,
        "instructions": sorted(set(ZEN_4.split()) - {"fsgsbase"}),
        "compiled_for": "x86-64-v3",
    }
    assert environment()["cpu"] == "AMD EPYC"
    on(ARM)
    assert environment("native")["processor"] == {"instructions": ["asimd", "bf16", "sve"], "compiled_for": "native"}


CPU = choose_devices("cpu", 1)
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
    """Return the products of a compiled program that neither the kernels' library nor plain code computes.

    A vector times a matrix is compiled as plain code.
    """
    called = set(re.findall(r"kind=kCustom, calls=(%[\w.-]+)", text))
    parts = [part for part in re.split(r"\n(?=%|ENTRY)", text) if part.split(" ")[0] not in called]
    products = [line for line in "\n".join(parts).splitlines() if re.search(r" (dot|convolution|custom-call)\(", line)]
    return [line for line in products if not is_of_vector(line)]


def is_of_vector(line: str) -> bool:
    """Return whether a product's result has one axis besides the batch's, or one of length 1."""
    shape = re.search(r"= \w+\[([\d,]*)\]", line)
    batch = re.search(r"lhs_batch_dims=\{([\d,]*)\}", line)
    assert shape is not None, line
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
    task = task_of(settings())
    mesh = SimpleNamespace(devices=SimpleNamespace(flat=[SimpleNamespace(platform="tpu")]))
    other = type(task)(config=task.config, model=task.model, objective=task.objective, mesh=mesh)
    assert other.compiler_options == ()
