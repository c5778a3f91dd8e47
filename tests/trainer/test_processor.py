"""For which instructions programs are compiled, that the run states it, and what a replay makes of it."""

import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tasks import task_of

from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.answers import EvalShape
from trainer.loop.programs import programs_of
from trainer.recorder import environment as module
from trainer.recorder.environment import environment, level_of, request_level
from trainer.replay.place import compare_environment
from trainer.runtime import choose_devices

HASWELL = "sse4_1 sse4_2 fma movbe avx f16c abm bmi1 avx2 bmi2 fsgsbase"
ZEN_4 = f"{HASWELL} avx512f avx512_bf16"


def described(flags: str, *, model: int = 1) -> str:
    one = f"""processor\t: 0
vendor_id\t: AuthenticAMD
cpu family\t: 25
model\t\t: {model}
model name\t: AMD EPYC
stepping\t: 1
flags\t\t: fpu {flags} rdpid
"""
    return f"{one}\n{one}"


@pytest.fixture
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return what gives this machine another processor."""
    monkeypatch.setenv("XLA_FLAGS", module.MAX_ISA_FLAG)

    def put(text: str) -> None:
        (tmp_path / "cpuinfo").write_text(text)
        monkeypatch.setattr(module, "PROCESSORS", tmp_path / "cpuinfo")

    return put


def test_the_level_is_the_one_asked_for_where_the_processor_has_it(on):
    on(described(ZEN_4))
    assert (level_of("x86-64-v3").name, level_of("x86-64-v3").why) == ("x86-64-v3", "")
    assert "xla_disable_hlo_passes" in dict(level_of("x86-64-v3").options)
    assert (level_of("native").name, level_of("native").options) == ("native", ())


def test_it_is_asked_for_before_jax_starts(on, monkeypatch: pytest.MonkeyPatch):
    on(described(ZEN_4))
    monkeypatch.setenv("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
    assert level_of("x86-64-v3").why == "JAX had started for all that the processor has"
    request_level("native")
    assert level_of("x86-64-v3").name == "native"
    request_level("x86-64-v3")
    request_level("x86-64-v3")
    assert level_of("x86-64-v3").name == "x86-64-v3"
    assert environment("x86-64-v3")["flags"]["XLA_FLAGS"] == "--xla_force_host_platform_device_count=8"
    assert environment("native")["flags"]["XLA_FLAGS"].split()[1:] == ["--xla_cpu_max_isa=AVX2"]
    on(described("sse4_2 avx"))
    monkeypatch.delenv("XLA_FLAGS")
    request_level("x86-64-v3")
    assert "XLA_FLAGS" not in os.environ


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (described(HASWELL.replace(" avx2", "").replace("fma ", "")), "this processor lacks avx2, fma"),
        ("", "this .* processor names no instructions of x86-64"),
        ("processor\t: 0\nFeatures\t: fp asimd sve bf16\nCPU part\t: 0xd40\n", "this .* names no instructions .*"),
    ],
)
def test_where_it_cannot_be_had_the_reason_is_said(on, text: str, why: str):
    on(text)
    level = level_of("x86-64-v3")
    assert (level.name, level.options) == ("native", ())
    assert re.fullmatch(why, level.why)


def test_flags_of_ones_own_win(on, monkeypatch: pytest.MonkeyPatch):
    on(described(ZEN_4))
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX512 --xla_force_host_platform_device_count=8")
    request_level("x86-64-v3")
    assert level_of("x86-64-v3").why == "XLA_FLAGS states --xla_cpu_max_isa=AVX512"
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_max_isa=AVX2 --xla_cpu_enable_platform_dependent_math=true")
    assert level_of("x86-64-v3").why == "XLA_FLAGS states --xla_cpu_enable_platform_dependent_math=true"


def test_the_processor_is_stated_by_numbers_and_instructions(on):
    on(described(ZEN_4, model=17))
    assert environment("x86-64-v3")["processor"] == {
        "family": 25,
        "model": 17,
        "stepping": 1,
        "instructions": sorted(set(ZEN_4.split()) - {"fsgsbase"}),
        "compiled_for": "x86-64-v3",
    }
    assert environment()["cpu"] == "AMD EPYC"
    on("processor\t: 0\nFeatures\t: fp asimd sve bf16\n")
    assert environment("native")["processor"] == {"instructions": ["asimd", "bf16", "sve"], "compiled_for": "native"}


CPU = choose_devices("cpu", 1)


def fitness(there: dict[str, Any], cpu_isa: str) -> tuple[bool, list[str]]:
    code = {"commit": None}
    manifest = {"environment": there, "devices": CPU.document(), "code": code}
    found = compare_environment(manifest, CPU, cpu_isa=cpu_isa, file="run")
    return found.is_exact, [each for each in found.notes if "commit" not in each]


def test_bits_are_demanded_by_the_level_and_not_by_the_name(on):
    on(described(ZEN_4, model=17))
    portable, native = environment("x86-64-v3") | {"cpu_count": 64}, environment("native")
    on(described(HASWELL))
    exact, remarks = fitness(portable, "x86-64-v3")
    assert exact
    assert "CPU model 17 recorded, 1 here" in remarks
    assert not fitness(native, "native")[0]
    assert "CPU compiled_for native recorded, x86-64-v3 here" in fitness(native, "x86-64-v3")[1]
    on(described(ZEN_4, model=17))
    assert fitness(native, "native") == (True, [])
    assert not fitness(native | {"cpu_count": 64}, "native")[0]
    assert fitness(portable, "native")[0] is False


def test_a_run_that_stated_a_name_alone_is_never_demanded_bit_for_bit(on):
    on(described(ZEN_4))
    earlier = {key: value for key, value in environment().items() if key != "processor"}
    assert earlier["cpu"] == "AMD EPYC"
    exact, remarks = fitness(earlier, "native")
    assert not exact
    assert "CPU family not recorded, 25 here" in remarks


def test_a_level_that_is_not_to_be_had_here_is_held_to_the_tolerance(on):
    on(described(ZEN_4))
    portable = environment("x86-64-v3")
    on(described("sse4_1 sse4_2 avx"))
    exact, remarks = fitness(portable, "x86-64-v3")
    assert not exact
    why = "this processor lacks avx2, bmi1, bmi2, f16c, fma, abm, movbe"
    assert f"CPU compiled_for x86-64-v3 recorded, native ({why}) here" in remarks


def settings(*chosen: str) -> Config:
    base = ["data.max_length=96", "batch.microbatch_size=2", "evaluation.max_new_tokens=8", "mesh.devices=1"]
    return load_config(Path("trainer/configs/tiny.yaml"), settings=[*base, "mesh.device=cpu", *chosen])


def elsewhere(text: str) -> list[str]:
    """Return the products of a compiled program that neither the kernels' library nor plain code computes.

    A vector times a matrix is compiled as plain code.
    """
    called = set(re.findall(r"kind=kCustom, calls=(%[\w.-]+)", text))
    lines = [
        line
        for part in re.split(r"\n(?=%|ENTRY)", text)
        if part.split(" ")[0] not in called
        for line in part.splitlines()
    ]
    products = [line for line in lines if re.search(r" (dot|convolution|custom-call)\(", line)]
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
def test_matrix_products_take_one_path(chosen: list[str]):
    if level_of("x86-64-v3").name != "x86-64-v3":
        pytest.skip("this processor does not have the level")
    programs = programs_of(task_of(settings(*chosen)), asked=EvalShape(prompts=2, longest_tokens=20))
    for name in ("train", "decode"):
        text = programs[name].compile().executable.as_text()
        assert "__ynn_fusion" in text
        assert elsewhere(text) == [], name


def test_on_other_devices_nothing_is_asked_of_a_cpu():
    task = task_of(settings())
    device = SimpleNamespace(platform="tpu")
    elsewhere = SimpleNamespace(devices=SimpleNamespace(flat=[device]))
    assert (
        type(task)(config=task.config, model=task.model, objective=task.objective, mesh=elsewhere).compiler_options
        == ()
    )
