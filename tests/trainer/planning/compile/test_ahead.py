"""A program compiled for a TPU that is not here: its memory, its refusal, or a reason why there is no answer."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainer.config.tree import BatchConfig, Config, DataConfig, ModelConfig
from trainer.planning.compile import ahead
from trainer.planning.compile.ahead import V5E_1, Compiler, CompileRequest, CompilerError, compile_ahead

CONFIG = Config(
    model=ModelConfig(name="tiny-gpt2", weights="random"),
    data=DataConfig(max_length=32),
    batch=BatchConfig(microbatch_size=2),
)
NEWER = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
    "temporaries (11.44G) exceeds available HBM (10.25G). HLO module: jit_step."
)
OLDER = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 28.59G of 15.75G hbm."


STAND_IN = """
import os, signal, sys
from pathlib import Path
from jax.errors import JaxRuntimeError
from trainer.planning.compile import child
def compile_ordered(order):
    exec(order["program"], globals() | {"folder": Path(order["folder"])})
    return {"peak_bytes": 1}
child.compile_ordered = compile_ordered
child.main(Path(sys.argv[1]))
"""
"""The compiling process, whose compiler does what the question's program says in Python."""


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    start = subprocess.Popen

    def stand_in(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return start([sys.executable, "-c", STAND_IN, command[-1]], **options)

    with pytest.MonkeyPatch.context() as patch, Compiler() as process:
        patch.setattr(ahead.subprocess, "Popen", stand_in)
        process.start()
        patch.undo()
        yield process


def question(program: str) -> CompileRequest:
    return CompileRequest(program=program, config=CONFIG, machine=V5E_1)


@pytest.mark.parametrize(("words", "need"), [(NEWER, 11.44), (OLDER, 28.59)])
def test_a_program_that_does_not_fit_is_answered_with_its_need(compiler: Compiler, words: str, need: float):
    answer = compiler.ask(question(f"raise JaxRuntimeError({words!r})"))
    assert (answer.memory, answer.need_bytes, answer.said) == (None, int(need * 2**30), words)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise JaxRuntimeError('INVALID_ARGUMENT: nothing')", "The compiler refused the program: INVALID_ARGUMENT"),
        ("raise ValueError('no such chip')", "The compiler refused the program: .*ValueError: no such chip"),
        ("pass", "refused the program: it compiled the program and wrote no reports of its memory"),
        ("os._exit(0)", "The compiler gave no answer: its process ended without a word"),
        ("print('check failed', flush=True); os._exit(0)", "The compiler gave no answer: check failed"),
        ("os.kill(os.getpid(), 9)", "its process was ended by SIGKILL, as by a machine whose memory is used up"),
        ("print('mark', flush=True); os.abort()", "its process was ended by SIGABRT; its last words: mark"),
    ],
)
def test_no_answer_comes_with_its_reason(compiler: Compiler, code: str, message: str):
    with pytest.raises(CompilerError, match=f"(?s){message}"):
        compiler.ask(question(code))


def test_words_that_follow_an_answer_do_not_hide_it(compiler: Compiler):
    """Threads of a compiler may still print when its answer is written, half a line of anything."""
    late = "child.os._exit = lambda code: (print('{late'), sys.stdout.flush(), os.abort())\n"
    assert compiler.ask(question(f"{late}raise JaxRuntimeError({NEWER!r})")).need_bytes == int(11.44 * 2**30)


def test_a_compiler_that_takes_too_long_is_ended_and_the_next_program_is_compiled(compiler: Compiler):
    with pytest.raises(CompilerError, match="ended after 3 s"):
        compiler.ask(question("(folder / 'pid').write_text(str(os.getpid())); signal.pause()"), limit_seconds=3)
    [alive] = Path(compiler.start().args[-1]).glob("*/pid")
    assert not psutil.pid_exists(int(alive.read_text()))
    assert compiler.ask(question(f"raise JaxRuntimeError({OLDER!r})")).need_bytes is not None


def test_a_process_that_does_not_even_start_is_answered_with_its_words(monkeypatch: pytest.MonkeyPatch):
    start = subprocess.Popen
    code = "raise SystemExit('jaxlib is missing')"
    monkeypatch.setattr(ahead.subprocess, "Popen", lambda _, **options: start([sys.executable, "-c", code], **options))
    with pytest.raises(CompilerError, match="The compiler gave no answer: jaxlib is missing"):
        compile_ahead("train", CONFIG, V5E_1)


@pytest.mark.parametrize("program", [None, "signal.pause()"])
def test_one_who_orders_and_is_gone_leaves_no_compiler_and_no_folder(tmp_path: Path, program: str | None):
    (tmp_path / "room" / "1").mkdir(parents=True)
    order = {"folder": str(tmp_path / "room" / "1"), "program": program}
    process = subprocess.Popen([sys.executable, "-c", STAND_IN, str(tmp_path / "room")], stdin=subprocess.PIPE)
    process.communicate(b"" if program is None else json.dumps(order).encode() + b"\n", timeout=120)
    assert process.returncode == 0
    assert not (tmp_path / "room").exists()


@pytest.mark.compiler("tpu")
def test_a_train_step_is_compiled_for_a_chip_that_is_not_here():
    answer = compile_ahead("train", CONFIG, V5E_1)
    assert answer.memory is not None
    # Parameters and AdamW's two moments are arguments, 12 bytes a parameter; nothing of a run this small is larger.
    assert answer.memory.arguments_bytes < answer.memory.peak_bytes <= answer.memory.allocated_bytes < 64 * 2**20
