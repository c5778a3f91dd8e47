"""Programs compiled for a TPU that is not here: memory, refusals, missing answers, and the cache."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from configs import changed
from stand_in_compiler import run_code

from trainer.config.tree import Config, ModelConfig
from trainer.planning.compile import ahead
from trainer.planning.compile.ahead import CompilerAnswer, CompilerError, ask_compiler
from trainer.planning.compile.machines import V5E_1

TINY = Config(model=ModelConfig(name="tiny-gpt2", weights="random"))
CONFIG = changed(TINY, data={"max_length": 32}, batch={"microbatch_size": 2})
NEWER = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
    "temporaries (11.44G) exceeds available HBM (10.25G). HLO module: jit_step."
)
OLDER = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 28.59G of 15.75G hbm."


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch) -> Any:
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


def test_a_compiling_process_ends_with_the_one_that_asked(tmp_path: Path):
    file = tmp_path / "pid"
    code = f"open({str(file)!r}, 'w').write(str(os.getpid())); signal.pause()"
    script = f"""
from stand_in_compiler import run_code
from trainer.config.tree import Config, ModelConfig
from trainer.planning.compile import ahead, machines
ahead.compile_program = run_code
ahead.ask_compiler({code!r}, Config(model=ModelConfig(name="tiny-gpt2")), machines.V5E_1)
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment)
    until = time.monotonic() + 60
    while not file.is_file() or not file.read_text():
        assert time.monotonic() < until
        assert process.poll() is None
        time.sleep(0.1)
    process.kill()
    process.wait()
    compiling = int(file.read_text())
    while psutil.pid_exists(compiling) and psutil.Process(compiling).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < until
        time.sleep(0.1)


def test_the_key_depends_on_program_device_and_versions_alone(monkeypatch: pytest.MonkeyPatch):
    def key(module: str, topology: str) -> str:
        return ahead.cache_key(module, machine={"topology": topology}, options=())

    keys = [key("jit_step", "v5e:1x1"), key("jit_step2", "v5e:1x1"), key("jit_step", "v5e:2x4")]
    monkeypatch.setattr(ahead, "versions", lambda: {"jaxlib": "another"})
    assert len({*keys, key("jit_step", "v5e:1x1")}) == 4


@pytest.mark.parametrize("content", ["", "{", "[1]", '{"memory": null}'])
def test_a_damaged_cache_entry_is_no_answer(content: str, tmp_path: Path):
    ahead.save_answer("key", answer := CompilerAnswer(peak_bytes=1, memory=None, seconds=0.5))
    assert ahead.load_answer("key") == answer
    (tmp_path / "cache" / "plans" / "key.json").write_text(content)
    assert ahead.load_answer("key") is None


@pytest.mark.compiler("tpu")
def test_a_train_step_is_compiled_for_a_chip_that_is_not_here():
    first, again = (ask_compiler("train", CONFIG, V5E_1) for _ in range(2))
    assert again == first, "it comes from the cache, with the time that it took"
    assert first.memory is not None
    # Parameters and AdamW's two moments are arguments, 12 bytes a parameter; nothing of a run this small is larger.
    assert first.memory.arguments_bytes < first.memory.peak_bytes <= first.memory.allocated_bytes < 64 * 2**20
