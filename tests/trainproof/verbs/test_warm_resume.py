"""The second session of a run, in a process of its own: it compiles nothing that the first one did."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from whole_runs import logged, manifest_of

TINY = """\
name: tiny
model: {name: tiny-gpt2}
data: {dataset: rows.jsonl, max_length: 128}
batch: {microbatch_size: 2}
optimizer: {schedule: constant}
mesh: {devices: 1}
checkpoint: {save_every_steps: 1, keep: 1}
"""


def session(folder: Path, steps: int) -> str:
    """Train up to a step as a session does, and return what was printed; JAX names what it finds in its cache."""
    unset = ("JAX_COMPILATION_CACHE_DIR", "TRAINPROOF_CACHE_MIB", "PYTEST_CURRENT_TEST")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {
        "TRAINPROOF_INPUT": str(folder / "input"),
        "TRAINPROOF_CACHE": str(folder / "cache"),
        "JAX_EXPLAIN_CACHE_MISSES": "1",
    }
    command = ["train", "--config", "config.yaml", "--device", "cpu", "--session", "kaggle-tpu", "--resume", "auto"]
    command += ["--output", "working/runs/full", "--set", f"limits.steps={steps}"]
    done = subprocess.run(
        [sys.executable, "-m", "trainproof", *command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.mark.slow
def test_a_session_takes_what_the_one_before_it_compiled_and_says_so(tmp_path: Path):
    (tmp_path / "config.yaml").write_text(TINY)
    (tmp_path / "rows.jsonl").write_text('{"prompt": "What is 2 + 2?", "completion": "4"}\n' * 4)
    full = tmp_path / "working" / "runs" / "full"
    session(tmp_path, 1)
    assert manifest_of(full)["result"]["compiled_before"] == []
    assert not (tmp_path / "cache" / "programs").exists(), "what a session compiles is in its output"
    # The output is attached to the next session, on the same kind of machine.
    shutil.move(tmp_path / "working", tmp_path / "input")
    said = session(tmp_path, 2)
    assert f"from {tmp_path / 'input' / 'runs' / 'compiled_programs'}" in said
    assert f"continues {tmp_path / 'input' / 'runs' / 'full'}" in said
    assert manifest_of(full)["result"]["compiled_before"] == ["train"]
    missed = {line.split("'")[1] for line in said.splitlines() if "COMPILATION CACHE MISS" in line}
    assert missed <= {"jit__take_ownership"}, "copies of what was read, which a first run does not make"
    assert len(logged(full, "session")) == 1
