"""Memory read from the compiler's reports: what is in use together counts, what follows each other does not."""

import os
from pathlib import Path

import pytest

from trainer.planning.compile.ahead import ASSIGNMENT, LIVE_RANGE, Buffer, is_complete, read_memory

MIB = 2**20
REPORT = f"""BufferAssignment:
allocation 0: size 1024, page 0, thread-local:
 value: <1 inner @0> (size=1024,offset=0): f32[256]{{0}}
allocation 1: size {8 * MIB}, page 0, parameter 0, shape |f32[2097152]| at ShapeIndex {{}}, maybe-live-out:
 value: <2 state @0> (size={8 * MIB},offset=0): f32[2097152]{{0}}
allocation 2: size 512, page 0, constant:
allocation 3: size {5 * MIB}, color 1, page 0, preallocated-temp:
 value: <3 fast @0> (size={5 * MIB},offset=0): f32[1310720]{{0}}
allocation 4: size {7 * MIB}, page 0, preallocated-temp:
 value: <4 logits @0> (size={4 * MIB},offset=0): f32[1024,1024]{{1,0:T(8,128)}}
 value: <5 softmax{{1}} @0> (size={4 * MIB},offset=0): f32[1024,1024]{{1,0}}
 value: <6 hidden{{}} (phi) @0> (size={2 * MIB},offset={4 * MIB}): bf16[1024,1024]{{1,0}}
 value: <7 late @0> (size={3 * MIB},offset={4 * MIB}): bf16[1536,1024]{{1,0}}
"""
RANGES = """HloLiveRange (max 20):
  InstructionSequence:
    0:state
  BufferLiveRange:
    state{}:0-20
    logits{}:2-5
    softmax{1}:5-8
    hidden{}:1-6
    late{}:10-12
  Live ranges at 5 (peak):
    logits{}: 4194304 bytes
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / f"module_0000.jit_step{ASSIGNMENT}").write_text(REPORT)
    (tmp_path / f"module_0000.jit_step{LIVE_RANGE}").write_text(RANGES)
    return tmp_path


def test_the_peak_is_what_is_in_use_at_one_moment_in_the_devices_main_memory(folder: Path):
    memory = read_memory(folder)
    # logits hand their place on to softmax, and hidden is there with them; late comes alone.
    assert memory.peak_bytes == 8 * MIB + 512 + 6 * MIB
    assert memory.allocated_bytes == 8 * MIB + 512 + 7 * MIB
    assert memory.arguments_bytes == 8 * MIB
    assert memory.aliased_bytes == 8 * MIB, "its result is written into it"
    assert memory.largest == (
        Buffer(name="logits", shape="f32[1024,1024]", bytes=4 * MIB),
        Buffer(name="hidden", shape="bf16[1024,1024]", bytes=2 * MIB),
    )


def test_reports_of_a_cpu_are_complete_when_its_options_are_written_after_them(tmp_path: Path):
    """As jax 0.12 was seen to write them: the options at the begin, reports in any order, the options once more."""
    names = ("jit_f.debug_options", "jit_f.cpu_after_optimizations-memory-usage-report.txt", f"jit_f.cpu_{ASSIGNMENT}")
    for second, name in enumerate((*names, names[0])):
        assert not is_complete(tmp_path)
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (second, second))
    assert is_complete(tmp_path)
    (tmp_path / "jit_g.gpu_after_optimizations-memory-usage-report.txt").touch()
    assert is_complete(tmp_path)


def test_a_folder_without_reports_is_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"XLA wrote no .*buffer-assignment"):
        read_memory(tmp_path)


def test_an_unknown_format_is_refused(folder: Path):
    (folder / f"module_0000.jit_step{ASSIGNMENT}").write_text(REPORT.replace("value: <4 logits @0>", "value: logits"))
    with pytest.raises(ValueError, match="unexpected value"):
        read_memory(folder)
