"""Programs compiled for a TPU that is not here: memory, refusals, missing answers, and the cache."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from trainer.config.tree import BatchConfig, Config, DataConfig, ModelConfig
from trainer.planning.compile import ahead, cache
from trainer.planning.compile.ahead import Compiler, CompilerAnswer, CompilerError
from trainer.planning.compile.machines import V5E_1

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
from jax.errors import JaxRuntimeError
from trainer.planning.compile import cache, child
def compile_order(order, folder):
    exec(order["program"], globals() | {"folder": folder})
    return {"failure": "it compiled the program and wrote no reports of its memory"}
child.compile_order = compile_order
child.main()
"""
"""The child process, whose compiler does what the program's name says in Python."""


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def compiler() -> Iterator[Compiler]:
    start = subprocess.Popen

    def stand_in(command: list[str], **options: Any) -> subprocess.Popen[bytes]:
        return start([sys.executable, "-c", STAND_IN], **options)

    with pytest.MonkeyPatch.context() as patch, Compiler() as process:
        patch.setattr(ahead.subprocess, "Popen", stand_in)
        process.start()
        patch.undo()
        yield process


def ask(compiler: Compiler, program: str, **more: Any) -> CompilerAnswer:
    return compiler.ask(program, CONFIG, V5E_1, **more)


@pytest.mark.parametrize(("words", "need"), [(NEWER, 11.44), (OLDER, 28.59)])
def test_a_program_that_does_not_fit_is_answered_with_its_need(compiler: Compiler, words: str, need: float):
    answer = ask(compiler, f"raise JaxRuntimeError({words!r})")
    assert (answer.memory, answer.need_bytes, answer.peak_bytes) == (None, round(need * 2**30), round(need * 2**30))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise JaxRuntimeError('INVALID_ARGUMENT: nothing')", "The compiler refused the program: INVALID_ARGUMENT"),
        ("raise ValueError('no such chip')", "The compiler refused the program: .*ValueError: no such chip"),
        ("pass", "refused the program: it compiled the program and wrote no reports of its memory"),
        ("os._exit(0)", "The compiler gave no answer: the compiler process exited without output"),
        ("print('check failed', flush=True); os._exit(0)", "The compiler gave no answer: check failed"),
        ("os.kill(os.getpid(), 9)", r"ended by SIGKILL \(usually out of host memory\)"),
        ("print('mark', flush=True); os.abort()", "ended by SIGABRT; its last output: mark"),
    ],
)
def test_a_missing_answer_comes_with_its_reason(compiler: Compiler, code: str, message: str):
    with pytest.raises(CompilerError, match=f"(?s){message}"):
        ask(compiler, code)


def test_output_after_the_answer_does_not_hide_it(compiler: Compiler):
    """Threads of a compiler may still print when its answer is written."""
    late = "child.os._exit = lambda code: (print('{late'), sys.stdout.flush(), os.abort())\n"
    assert ask(compiler, f"{late}raise JaxRuntimeError({NEWER!r})").need_bytes == round(11.44 * 2**30)


def test_a_compiler_that_takes_too_long_is_stopped_and_the_next_program_is_compiled(compiler: Compiler, tmp_path: Path):
    file = tmp_path / "pid"
    with pytest.raises(CompilerError, match="The compiler gave no answer within 3 s"):
        ask(compiler, f"open({str(file)!r}, 'w').write(str(os.getpid())); signal.pause()", limit_seconds=3)
    assert not psutil.pid_exists(int(file.read_text()))
    assert ask(compiler, f"raise JaxRuntimeError({OLDER!r})").need_bytes is not None


def test_an_answer_is_stored_under_the_key_that_the_fork_wrote(monkeypatch: pytest.MonkeyPatch):
    start, stand_in = subprocess.Popen, [sys.executable, "-c", STAND_IN]
    monkeypatch.setattr(ahead.subprocess, "Popen", lambda _, **options: start(stand_in, **options))
    with Compiler() as own:  # its process has the cache folder of this test
        first = ask(own, f"(folder / 'key.txt').write_text('k'); raise JaxRuntimeError({OLDER!r})")
    stored = cache.load("k")
    assert stored is not None
    assert stored["need_bytes"] == first.need_bytes


def test_the_key_depends_on_program_device_and_versions_alone(monkeypatch: pytest.MonkeyPatch):
    keys = [
        cache.cache_key("module @jit_step", machine={"topology": "v5e:1x1"}, options=()),
        cache.cache_key("module @jit_step2", machine={"topology": "v5e:1x1"}, options=()),
        cache.cache_key("module @jit_step", machine={"topology": "v5e:2x4"}, options=()),
    ]
    monkeypatch.setattr(cache, "versions", lambda: {"jaxlib": "another"})
    keys.append(cache.cache_key("module @jit_step", machine={"topology": "v5e:1x1"}, options=()))
    assert len(set(keys)) == 4


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_a_damaged_cache_entry_is_no_answer(content: str, tmp_path: Path):
    cache.save("key", {"memory": None})
    assert cache.load("key") == {"memory": None}
    (tmp_path / "cache" / "plans" / "key.json").write_text(content)
    assert cache.load("key") is None


def test_a_process_that_does_not_start_is_answered_with_its_output(monkeypatch: pytest.MonkeyPatch):
    start = subprocess.Popen
    code = "raise SystemExit('jaxlib is missing')"
    monkeypatch.setattr(ahead.subprocess, "Popen", lambda _, **options: start([sys.executable, "-c", code], **options))
    with Compiler() as compiler, pytest.raises(CompilerError, match="The compiler process ended: jaxlib is missing"):
        ask(compiler, "train")


@pytest.mark.parametrize("program", [None, "signal.pause()"])
def test_a_parent_that_is_gone_leaves_no_process(program: str | None):
    order = json.dumps({"program": program, "machine": {"platform": "tpu"}, "limit_seconds": 600}) + "\n"
    process = subprocess.Popen([sys.executable, "-c", STAND_IN], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    process.stdin.write(b"" if program is None else order.encode())
    process.stdin.flush()
    children: list[psutil.Process] = []
    until = time.monotonic() + 60
    while program is not None and not children and time.monotonic() < until:
        children = psutil.Process(process.pid).children()
        time.sleep(0.1)
    process.stdin.close()
    assert process.wait(60) == 0
    assert process.stdout is not None
    process.stdout.close()
    assert not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children)


@pytest.mark.compiler("tpu")
def test_a_train_step_is_compiled_for_a_chip_that_is_not_here():
    with Compiler() as compiler:
        first, again = (compiler.ask("train", CONFIG, V5E_1) for _ in range(2))
    assert again == first, "it comes from the cache, with the time that it took"
    assert first.memory is not None
    # Parameters and AdamW's two moments are arguments, 12 bytes a parameter; nothing of a run this small is larger.
    assert first.memory.arguments_bytes < first.memory.peak_bytes <= first.memory.allocated_bytes < 64 * 2**20
