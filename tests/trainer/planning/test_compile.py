"""Programs compiled for devices that are not here: memory, refusals, the cache, and the large arrays of steps."""

import json
import os
from pathlib import Path
from typing import Any

import psutil
import pytest
from configs import changed
from model_folders import llama_folder
from stand_in_compiler import run_code

from evidence.registry import known_model_folder
from evidence.targets import load_target
from trainer.config.tree import Config, ModelConfig
from trainer.planning.compile import ahead
from trainer.planning.compile.ahead import (
    ASSIGNMENT,
    Buffer,
    CompilerAnswer,
    CompilerError,
    ask_compiler,
    is_complete,
    read_memory,
)
from trainer.planning.compile.machines import V5E_1, Machine, find_machine

CONFIG = changed(Config(model=ModelConfig(name="tiny-gpt2", weights="random")), data={"max_length": 32})
NEWER = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
    "temporaries (11.44G) exceeds available HBM (10.25G). HLO module: jit_step."
)
OLDER = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 28.59G of 15.75G hbm."


@pytest.fixture
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def ask(own_cache, monkeypatch) -> Any:
    monkeypatch.setattr(ahead, "compile_program", run_code)
    return lambda code, **more: ask_compiler(code, CONFIG, V5E_1, **more)


@pytest.mark.parametrize(("words", "need"), [(NEWER, 11.44), (OLDER, 28.59)])
def test_a_program_that_does_not_fit_is_answered_with_its_need(ask: Any, words: str, need: float):
    answer = ask(f"send({{'key': 'k'}}); raise JaxRuntimeError({words!r})")
    assert (answer.memory, answer.peak_bytes) == (None, round(need * 2**30))
    assert ahead.load_answer("k") == answer


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise JaxRuntimeError('INVALID_ARGUMENT: nothing')", "The compiler refused the program: INVALID_ARGUMENT"),
        ("raise ValueError('no such chip')", "The compiler gave no answer: ValueError: no such chip"),
        ("pass", "The compiler gave no answer: the compiler process exited without output"),
        ("print('check failed', flush=True); os._exit(0)", "The compiler gave no answer: check failed"),
        ("os.kill(os.getpid(), 9)", r"ended by SIGKILL \(usually out of host memory\)"),
        ("print('mark', flush=True); os.abort()", "ended by SIGABRT; its last output: mark"),
    ],
)
def test_a_missing_answer_comes_with_its_reason(ask: Any, code: str, message: str):
    with pytest.raises(CompilerError, match=f"(?s){message}"):
        ask(code)


def test_a_compiler_that_takes_too_long_is_stopped_and_the_next_program_is_compiled(ask: Any, tmp_path: Path):
    file = tmp_path / "pid"
    ask(f"raise JaxRuntimeError({OLDER!r})")  # the limit shall not include the start of the server
    with pytest.raises(CompilerError, match="The compiler gave no answer within 5 s"):
        ask(f"open({str(file)!r}, 'w').write(str(os.getpid())); signal.pause()", limit_seconds=5)
    assert not psutil.pid_exists(int(file.read_text()))
    assert ask(f"raise JaxRuntimeError({OLDER!r})").peak_bytes > 0


def test_the_key_depends_on_program_device_and_versions_alone(monkeypatch: pytest.MonkeyPatch):
    programs = [("jit_step", "v5e:1x1"), ("jit_step2", "v5e:1x1"), ("jit_step", "v5e:2x4")]
    keys = {ahead.cache_key(module, machine={"topology": each}, options=()) for module, each in programs}
    monkeypatch.setattr(ahead, "versions", lambda: {"jaxlib": "another"})
    assert len({*keys, ahead.cache_key("jit_step", machine={"topology": "v5e:1x1"}, options=())}) == 4


@pytest.mark.usefixtures("own_cache")
@pytest.mark.parametrize("content", ["", "{", "[1]", '{"memory": null}'])
def test_a_damaged_cache_entry_is_no_answer(content: str, tmp_path: Path):
    ahead.save_answer("key", answer := CompilerAnswer(peak_bytes=1, memory=None, seconds=0.5))
    assert ahead.load_answer("key") == answer
    (tmp_path / "cache" / "plans" / "key.json").write_text(content)
    assert ahead.load_answer("key") is None


@pytest.mark.usefixtures("own_cache")
@pytest.mark.compiler("tpu")
def test_a_train_step_is_compiled_for_a_chip_that_is_not_here():
    first, again = (ask_compiler("train", CONFIG, V5E_1) for _ in range(2))
    assert again == first, "it comes from the cache, with the time that it took"
    # Parameters and AdamW's two moments are arguments, 12 bytes a parameter; nothing of a run this small is larger.
    assert first.memory.arguments_bytes < first.memory.peak_bytes <= first.memory.allocated_bytes < 64 * 2**20


MIB = 2**20
REPORTS = Path(__file__).parents[2] / "cases" / "compiler_reports"


def test_the_peak_is_what_is_in_use_at_one_moment_in_the_devices_main_memory():
    memory = read_memory(REPORTS)
    # logits hand their place on to softmax, and hidden is there with them; late comes alone.
    assert (memory.peak_bytes, memory.allocated_bytes) == (8 * MIB + 512 + 6 * MIB, 8 * MIB + 512 + 7 * MIB)
    assert memory.arguments_bytes == memory.aliased_bytes == 8 * MIB, "its result is written into it"
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


def test_a_folder_without_reports_and_an_unknown_format_are_refused(tmp_path: Path):
    with pytest.raises(ValueError, match=r"XLA wrote no .*buffer-assignment"):
        read_memory(tmp_path)
    for report in REPORTS.iterdir():
        (tmp_path / report.name).write_text(report.read_text().replace("value: <4 logits @0>", "value: logits"))
    with pytest.raises(ValueError, match="unexpected value"):
        read_memory(tmp_path)


def compile_step(config: Config, machine: Machine = V5E_1) -> tuple[int, int]:
    """Return the bytes of a step's arguments, and of everything else at its peak."""
    memory = ask_compiler("train", config, machine).memory
    return memory.arguments_bytes, memory.peak_bytes - memory.arguments_bytes


def first_layers(name: str, layers: int, folder: Path) -> ModelConfig:
    """Return a known model with only its first layers."""
    folder = folder / f"{layers}"
    folder.mkdir()
    described = json.loads((known_model_folder(name) / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"num_hidden_layers": layers}))
    return ModelConfig(name=str(folder), weights="random")


@pytest.mark.compiler("tpu")
def test_a_layer_of_gemma_2b_keeps_one_array_beside_frozen_weights(tmp_path: Path):
    rows, length, embed = 16, 1024, 2048

    four, eight = (
        changed(
            Config(model=first_layers("google/gemma-2b", layers, tmp_path)),
            data={"max_length": length},
            method={"kind": "lora"},
            optimizer={"max_grad_norm": None},
            batch={"microbatch_size": rows},
            precision={"params": "bfloat16", "compute": "bfloat16"},
            memory={"attention": "splash", "mlp_chunk_tokens": 2048, "loss_chunk_tokens": 256},
        )
        for layers in (4, 8)
    )
    # The compiler would keep the two terms of the sum that the next layer's input is.
    assert (compile_step(eight)[1] - compile_step(four)[1]) / 4 == pytest.approx(rows * length * embed * 2, rel=0.25)


@pytest.mark.compiler("tpu")
def test_llama_3_2_1b_has_no_scores_of_whole_sequences_of_8192_tokens(tmp_path: Path):
    heads, length = 32, 8192
    config = changed(
        Config(model=first_layers("meta-llama/Llama-3.2-1B", 2, tmp_path)),
        data={"max_length": length, "packing": True},
        optimizer={"name": "adafactor", "max_grad_norm": None},
        batch={"microbatch_size": 1},
        precision={"compute": "bfloat16"},
    )
    # One layer's scores take 8 GiB.
    assert compile_step(config)[1] < heads * length**2 * 4 / 2


EMBED, MLP, VOCAB, RANK = 1024, 4096, 512, 8
LAYER = 4 * EMBED**2 + 3 * EMBED * MLP
"""Numbers in the projections of one layer."""
BASES = (("nf4", 0.5 + 4 / 64), ("int8", 1.0))
"""Kinds of a frozen base, with the bytes of a number."""


def quantised(base: Any, dtype: Any, folder: Path, *, layers: int) -> Config:
    """Return a step over few tokens, whose large arrays are kernels."""
    llama = llama_folder(folder, layers=layers, embed=EMBED, mlp=MLP, vocab=VOCAB)
    return changed(
        Config(model=ModelConfig(name=llama, weights="random")),
        data={"max_length": 128},
        method={"kind": "lora", "base": base, "rank": RANK},
        batch={"microbatch_size": 1},
        precision={"params": dtype, "compute": dtype},
    )


@pytest.mark.compiler("tpu")
@pytest.mark.parametrize(("base", "bytes_each"), BASES)
def test_no_dense_kernels_of_a_layer_exist_on_a_tpu(base: str, bytes_each: float, tmp_path: Path):
    arguments, temporaries = compile_step(quantised(base, "bfloat16", tmp_path, layers=2))
    assert temporaries < 2 * LAYER / 4
    # Codes and scales, the table in bfloat16, and adapters with two moments in float32.
    adapters = 12 * RANK * 2 * (4 * 2 * EMBED + 3 * (EMBED + MLP))
    stored = 2 * LAYER * bytes_each + 2 * VOCAB * EMBED + adapters
    assert arguments == pytest.approx(stored, rel=0.03)


@pytest.mark.compiler("gpu")
@pytest.mark.parametrize(("base", "bytes_each"), BASES)
def test_dense_kernels_exist_one_layer_after_the_other_on_a_t4(base: str, bytes_each: float, tmp_path: Path):
    """cuBLAS multiplies dense kernels only: measured 1.1 layers of them in nf4, 1.6 in int8, at any depth."""
    machine = find_machine(load_target("t4"), devices=1)
    arguments, temporaries = compile_step(quantised(base, "float16", tmp_path, layers=4), machine)
    assert temporaries < 1.8 * 2 * LAYER
    assert arguments + temporaries < 4 * 2 * LAYER * (bytes_each / 2 + 0.5)
