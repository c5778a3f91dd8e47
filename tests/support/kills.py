"""Kills runs with SIGKILL at random moments and says what each left behind.

A program, because it forks: `python kills.py ROOT --replays 298 --trainings 1 --seed 0` prints its outcomes as JSON. It
imports the trainer once, starts no thread and no device, and forks a child for every run:

- A *training* is the trainer itself: it prepares, compiles, trains, saves checkpoints, evaluates twice and seals.
- An *evaluation* is added to a run whose own was stopped, with answers that a real one gave; it is killed at each of
  its calls of the file system, and then asked for again.
- A *replay* is the recorder without the model: the calls that a real training made of it, with the real values, in the
  same order, against the real file system. Rows, documents, both evaluations, the hashing of every file and the seal
  are the trainer's own code. What is missing is what jax does: steps, checkpoints. So it takes a fraction of a second.
"""

import argparse
import copy
import json
import mmap
import os
import random
import shutil
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ["OPENBLAS_NUM_THREADS"] = "1"  # a process with threads cannot be forked safely
os.environ["XLA_FLAGS"] = "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
os.environ["HF_HUB_OFFLINE"] = "1"

import numpy as np
from commands import train_request

from evidence import layout
from evidence.grade import check_run
from evidence.index.index import index_folder
from evidence.run import ROW_FILES, read_run
from evidence.writing import RowWriter
from trainer import run as trainer
from trainer.evaluation import evaluate
from trainer.evaluation.evaluate import Evaluator
from trainer.loop.checkpoints import latest_step
from trainer.loop.session import StopRequest
from trainer.model.source import resolve
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import Recorder, claim, now

CONFIG = """
name: killed
model: {name: tiny-gpt2}
data: {max_length: 96}
optimizer: {learning_rate: 0.01}
batch: {microbatch_size: 8}
mesh: {device: cpu, devices: 1}
checkpoint: {save_every_steps: 5}
evaluation: {eval_set: eval_v1, max_new_tokens: 4, batch_size: 50}
recording: {params_mib: 0}  # a replay of the recorder's calls has no parameters to keep
limits: {steps: 20}
"""
RECORDED = ("start", "set", "update", "document", "text", "metric", "link", "log", "sync", "record_result", "seal")
BLOCK = 20
"""Kills after which a whole run is timed again."""
Call = tuple[str, list[Any], dict[str, Any]]


class Told:
    """Rows that the writer said were written, by file, in memory that outlives the one who wrote there."""

    def __init__(self) -> None:
        self.counts = np.frombuffer(mmap.mmap(-1, 8 * len(ROW_FILES)), np.int64)

    def clear(self) -> None:
        self.counts[:] = 0

    def count(self, name: str) -> int:
        return int(self.counts[ROW_FILES.index(name)])


def count_rows(told: Told) -> None:
    """Make every writer of this process tell of a row as soon as `append` has returned."""
    append = RowWriter.append

    def counted(self: RowWriter, row: dict[str, Any]) -> bytes:
        line = append(self, row)
        told.counts[ROW_FILES.index(Path(self._file.name).name)] += 1
        return line

    RowWriter.append = counted


def train(config: Path, folder: Path, *, resume: Path | None = None) -> int:
    request = train_request(config=None if resume else config, resume=resume, output=folder)
    return trainer.run(request, Watch(quiet=True))


def record(config: Path, folder: Path, into: Path) -> None:
    """Carry out a real run and write down every call of its recorder and every prediction row."""
    calls: list[Call] = []
    names: list[str] = []

    def recorded(name: str) -> Callable[..., None]:
        method = getattr(Recorder, name)

        def call(self: Recorder, *arguments: Any, **named: Any) -> None:
            if not names:  # calls that the recorder makes of itself come with the outer one
                calls.append((name, copy.deepcopy(list(arguments)), copy.deepcopy(named)))
            names.append(name)
            method(self, *arguments, **named)
            names.pop()

        return call

    class RecordedRows(RowWriter):
        def __init__(self, path: Path) -> None:
            super().__init__(path)
            self.rows: list[dict[str, Any]] = []
            calls.append(("rows", [path.name, self.rows], {}))

        def append(self, row: dict[str, Any]) -> bytes:
            self.rows.append(row)
            return super().append(row)

    trainer.Recorder = type("Recording", (Recorder,), {name: recorded(name) for name in RECORDED})
    evaluate.RowWriter = RecordedRows
    assert train(config, folder) == 0
    into.write_text(json.dumps(calls))


def replay(calls: list[Call], folder: Path) -> int:
    claim(folder)
    with Recorder(folder, say=lambda _line: None) as recorder:
        for name, arguments, named in calls:
            if name == "rows":
                with RowWriter(folder / arguments[0]) as writer:
                    for row in arguments[1]:
                        writer.append(row)
            else:
                getattr(recorder, name)(*arguments, **named)
    return 0


def forked(work: Callable[[], int]) -> int:
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        code = work()
    finally:
        if sys.exc_info()[0] is not None:
            traceback.print_exc()  # nothing above would: the child ends here
        os._exit(code)  # no clean-up of the parent's in the child


def finished(child: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed(work: Callable[[], int], after_seconds: float, once_there: Path | None = None) -> int:
    """Start work, kill it after a while, and return how it ended: -9, or its exit code if it was faster.

    The while begins once a path is there, if one is given.
    """
    child = forked(work)
    while (
        once_there
        and not once_there.exists()
        and os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    ):
        time.sleep(0.001)
    time.sleep(after_seconds)
    os.kill(child, signal.SIGKILL)
    return finished(child)


def left_behind(folder: Path, told: Told) -> dict[str, Any]:
    """Read what a run left, as `check`, `grade` and `runs` do."""
    if not folder.is_dir():
        return {"folder": False}
    run = read_run(folder)
    report = check_run(run)
    listed = [summary.status for summary in index_folder(folder.parent) if summary.path == folder]
    return {
        "folder": True,
        "status": run.status,
        "stated": (run.manifest or {}).get("status"),
        "listed": listed,
        "grade": report.grade.name,
        "codes": sorted({finding.code for finding in report.findings}),
        "errors": [finding.what for finding in report.findings if finding.severity == "error"],
        "lost": {name: max(0, told.count(name) - len(run.rows(name).values)) for name in ROW_FILES},
        "rows": {name: len(run.rows(name).values) for name in ROW_FILES},
        "last_file": next((name for name in reversed((*layout.ROLES,)) if (folder / name).exists()), None),
        "checkpoint": latest_step(folder),
        "state": next((row["state_sha256"] for row in reversed(run.rows(layout.CHAIN).values)), None),
    }


def seconds_of(work: Callable[[Path], int], root: Path, times: int = 3) -> float:
    """Return the median time of the work of a whole run.

    The fork before and the exit after it are left out: of a large process they take as long as a short run.
    """
    seconds = []
    for _ in range(times):
        with tempfile.TemporaryDirectory(dir=root) as folder:
            took = np.frombuffer(mmap.mmap(-1, 8), np.float64)

            def timed(folder: Path = Path(folder, "run"), took: Any = took) -> int:
                began = time.perf_counter()
                code = work(folder)
                took[0] = time.perf_counter() - began
                return code

            assert finished(forked(timed)) == 0
            seconds.append(float(took[0]))
    return statistics.median(seconds)


def series(
    work: Callable[[Path], int],
    root: Path,
    count: int,
    whole_seconds: Callable[[], float],
    chance: random.Random,
    told: Told,
) -> list[dict[str, Any]]:
    """Kill `count` runs at moments between the start and a little after the usual end, one in each equal part of it.

    The parts come in any order, and the usual end is asked for again and again: other work on the machine begins and
    ends meanwhile, and moments that were right for a slow one all lie after the end of a fast one.
    """
    outcomes = []
    for number, part in enumerate(chance.sample(range(count), count)):
        if number % BLOCK == 0:
            whole = whole_seconds()
        folder = root / f"{number:03d}" / "run"
        told.clear()
        moment = (part + chance.random()) / count * 1.1 * whole
        ended = killed(lambda folder=folder: work(folder), moment)
        outcomes.append({"after_seconds": round(moment, 4), "ended": ended, **left_behind(folder, told)})
    return outcomes


def resumption(config: Path, root: Path, told: Told, chance: random.Random) -> dict[str, Any]:
    """Kill a training soon after a checkpoint and continue it; return what both left behind."""
    old, new = root / "run", root / "continued"
    told.clear()
    ended = killed(lambda: train(config, old), chance.uniform(0, 0.2), once_there=old / layout.CHECKPOINTS / "5")
    before = {"ended": ended, **left_behind(old, told)}
    told.clear()
    code = finished(forked(lambda: train(config, new, resume=old)))
    return {"killed": before, "exit": code, **left_behind(new, told)}


def stopped_in_its_evaluation(config: Path, folder: Path) -> int:
    """Carry out a run that is told to stop when the tenth item was answered."""
    answers = folder / layout.PREDICTIONS

    def after_ten(self: StopRequest, *, reserve_seconds: float = 0.0) -> str | None:
        return "signal SIGTERM" if answers.is_file() and answers.read_text().count("\n") >= 10 else None

    StopRequest.reason = after_ten
    return train(config, folder)


def evaluate_again(folder: Path) -> int:
    evaluate.evaluate_run(folder, None, Watch(quiet=True))
    return 0


def answer_as(rows: list[dict[str, Any]], checkpoint: dict[str, Any]) -> None:
    """Let every evaluation of this process give these answers; no checkpoint is read and nothing computed."""

    def answers(evaluator: Evaluator, _state: Any, _frozen: Any, *, file: str, what: str) -> evaluate.ModelAnswers:
        with RowWriter(evaluator.folder / file) as writer:
            for row in rows:
                writer.append(row)
        return evaluate.ModelAnswers(
            complete=True,
            started_at=now(),
            finished_at=now(),
            rows=tuple(rows),
            path=evaluator.folder / file,
            checkpoint=checkpoint,
        )

    Evaluator.answers = answers
    evaluate.restored_state = lambda *_: ([None], {})


def killed_at_call(folder: Path, number: int) -> int:
    """Add the evaluation and kill this process at a call of the file system, counted from the file of answers on."""
    calls = 0

    def count(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal calls
        if event not in {"open", "os.rename", "os.remove", "os.truncate"} or not isinstance(arguments[0], str | Path):
            return
        if calls or Path(arguments[0]).name == f".{layout.PREDICTIONS}.tmp":
            calls += 1
            if calls == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)
    return evaluate_again(folder)


def evaluations(config: Path, root: Path, told: Told) -> list[dict[str, Any]]:
    """Kill an evaluation at each of its calls and ask for it again; return what both left behind."""
    half, whole = root / "half", root / "whole"
    assert finished(forked(lambda: stopped_in_its_evaluation(config, half))) == 5
    shutil.copytree(half, whole)
    assert finished(forked(lambda: evaluate_again(whole))) == 0
    rows = [json.loads(line) for line in (whole / layout.PREDICTIONS).read_text().splitlines()]
    answer_as(rows, json.loads((whole / layout.EVAL_SUMMARY).read_text())["checkpoint"])
    resolve("tiny-gpt2").tokenizer()  # what it imports takes longer than an evaluation without a model
    told.clear()
    outcomes: list[dict[str, Any]] = []
    while not outcomes or outcomes[-1]["ended"] != 0:
        folder = root / f"{len(outcomes):03d}" / "half"
        shutil.copytree(half, folder)
        ended = finished(forked(lambda folder=folder: killed_at_call(folder, len(outcomes) + 1)))
        killed_one = left_behind(folder, told)
        again = finished(forked(lambda folder=folder: evaluate_again(folder))) if ended else 0
        hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
        outcomes.append({"ended": ended, "killed": killed_one, "again": again, "hidden": hidden})
        outcomes[-1] |= left_behind(folder, told)
    return outcomes


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("root", type=Path)
    parser.add_argument("--evaluations", action="store_true")
    for name in ("replays", "trainings", "resumed", "seed"):
        parser.add_argument(f"--{name}", type=int, default=0)
    asked = parser.parse_args()
    root, told, chance = asked.root, Told(), random.Random(asked.seed)
    assert len(list(Path("/proc/self/task").iterdir())) == 1, "a process with threads cannot be forked safely"
    config = root / "config.yaml"
    config.write_text(CONFIG)
    if asked.evaluations:
        json.dump(evaluations(config, root, told), sys.stdout)
        return
    began = time.perf_counter()
    recording = root / "recording.json"
    assert finished(forked(lambda: record(config, root / "whole" / "run", recording) or 0)) == 0
    whole_training = time.perf_counter() - began
    calls = json.loads(recording.read_text())
    count_rows(told)

    def replayed(folder: Path) -> int:
        return replay(calls, folder)

    def trained(folder: Path) -> int:
        return train(config, folder)

    replays = series(replayed, root / "replays", asked.replays, lambda: seconds_of(replayed, root), chance, told)
    trainings = series(trained, root / "trainings", asked.trainings, lambda: whole_training, chance, told)
    resumed = [resumption(config, root / "resumed" / f"{number:03d}", told, chance) for number in range(asked.resumed)]
    whole = left_behind(root / "whole" / "run", told)
    json.dump({"replays": replays, "trainings": trainings, "resumed": resumed, "whole": whole}, sys.stdout)


if __name__ == "__main__":
    main()
