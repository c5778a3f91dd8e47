"""A program compiled for a TPU that is not here: its memory, its refusal, or a reason why there is no answer."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

from trainer.config.tree import Batch, Config, Data, Model
from trainer.planning.compile import ahead
from trainer.planning.compile.ahead import V5E_1, CompilerError, compile_ahead

CONFIG = Config(
    model=Model(name="tiny-gpt2", weights="random"), data=Data(max_length=32), batch=Batch(microbatch_size=2)
)
NEWER = (
    "RESOURCE_EXHAUSTED: E1000: CompileTimeHbmOom: Ran out of memory on HBM, the total memory required for HLO "
    "temporaries (11.44G) exceeds available HBM (10.25G). HLO module: jit_step."
)
OLDER = "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 28.59G of 15.75G hbm."


def child_that(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let a stand-in be started in place of the compiling process."""
    start = subprocess.Popen

    def stand_in(command: list[str], **options: object) -> subprocess.Popen[bytes]:
        return start([sys.executable, "-c", code], **options)

    monkeypatch.setattr(ahead.subprocess, "Popen", stand_in)


@pytest.mark.parametrize(("words", "need"), [(NEWER, 11.44), (OLDER, 28.59)])
def test_a_program_that_does_not_fit_is_answered_with_its_need(
    monkeypatch: pytest.MonkeyPatch, words: str, need: float
):
    child_that(monkeypatch, f"import json; print('noise'); print(json.dumps({{'refusal': {words!r}}}))")
    answer = compile_ahead("train", CONFIG, V5E_1)
    assert (answer.memory, answer.need_bytes, answer.said) == (None, int(need * 2**30), words)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("raise SystemExit('libtpu is missing')", "The compiler gave no answer: libtpu is missing"),
        ('print(\'{"refusal": "INVALID_ARGUMENT: nothing"}\')', "The compiler refused the program: INVALID_ARGUMENT"),
    ],
)
def test_no_answer_comes_with_its_reason(monkeypatch: pytest.MonkeyPatch, code: str, message: str):
    child_that(monkeypatch, code)
    with pytest.raises(CompilerError, match=message):
        compile_ahead("train", CONFIG, V5E_1)


def test_a_compiler_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch):
    child_that(monkeypatch, "import signal; signal.pause()")
    with pytest.raises(CompilerError, match="ended after 1 s"):
        compile_ahead("train", CONFIG, V5E_1, limit_seconds=1)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("libtpu") is None, reason="libtpu is not installed: pip install trainproof[plan]")
def test_a_train_step_is_compiled_for_a_chip_that_is_not_here():
    answer = compile_ahead("train", CONFIG, V5E_1)
    assert answer.memory is not None
    # Parameters and AdamW's two moments are arguments, 12 bytes a parameter; nothing of a run this small is larger.
    assert answer.memory.arguments_bytes < answer.memory.peak_bytes <= answer.memory.allocated_bytes < 64 * 2**20
