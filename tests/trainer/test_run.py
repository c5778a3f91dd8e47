"""Whole runs in small: what a run leaves behind when it ends well, badly, early, and when it is continued."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import jax
import pytest
from safetensors.numpy import load_file, save_file
from tasks import first_state_of, inputs_of

from evidence.judge.judgement import report_of
from evidence.records.ours import read_run
from evidence.run import layout
from schemas.problems.problem import ProblemError
from schemas.problems.render import as_text
from trainer.config.load import load_config
from trainer.config.tree import Checkpoint, Config, Evaluation, Limits, Optimizer
from trainer.loop.record import record_program
from trainer.loop.stop import StopRequest
from trainer.loop.train import Loop
from trainer.model.files.export import export
from trainer.model.files.source import resolve
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import Recorder
from trainer.run import RunRequest, run

SMOKE = "trainer/configs/smoke_tiny.yaml"
DEMO = "trainer/configs/demo.yaml"


def carried_out(order: RunRequest) -> int:
    with Watch(quiet=True) as watch:
        return run(order, watch)


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / layout.MANIFEST).read_text())


def link_at(folder: Path, step: int) -> str:
    """Return the link of the last entry of a run's chain at a step, by the definition."""
    entry = [entry for entry in rows(folder, layout.CHAIN) if entry["step"] == step][-1]
    return hashlib.sha256(json.dumps(entry, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def rows(folder: Path, name: str = layout.METRICS) -> list[dict]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def errors_of(folder: Path) -> list[str]:
    return [problem.what for problem in report_of(read_run(folder)).findings if problem.severity == "error"]


def test_a_smoke_run_is_valid_evidence(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, mode="smoke", evaluation=replace(config.evaluation, eval_set="eval_v1")))
    assert carried_out(order) == 0
    report = report_of(read_run(order.folder))
    assert errors_of(order.folder) == []
    assert report.grade.name in ("consistent", "measured")  # measured where the code under test is not committed
    assert [row["step"] for row in rows(order.folder)] == [1, 2]
    assert (order.folder / layout.CHECKPOINTS / "2").is_dir()
    assert {artifact["role"] for artifact in manifest_of(order.folder)["artifacts"]} == {
        "config",
        "plan",
        "metrics",
        "log",
        "chain",
        "first_examples",
        "predictions",
        "baseline_predictions",
        "eval_summary",
        "trained_params",
    }


def test_the_recorded_configuration_gives_the_same_run(config: Config, order_of: Callable[..., RunRequest]):
    first, second = order_of(config, "first"), order_of(config, "second")
    carried_out(first)
    carried_out(replace(second, config=load_config(first.folder / layout.CONFIG)))
    assert [row["loss"] for row in rows(first.folder)] == [row["loss"] for row in rows(second.folder)]


def test_the_first_project_s_command_works_with_the_name_changed(tmp_path: Path):
    """The smoke command of the first project, flags written with underscores."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    command = [
        *(sys.executable, "-m", "trainproof", "train"),
        *("--config", "trainer/configs/submission_tpu.yaml", "--smoke_config", SMOKE),
        *("--output", str(tmp_path / "smoke_run"), "--dataset", "dev-reasoning-v2"),
        *("--device", "auto", "--smoke_steps", "2"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    manifest = manifest_of(tmp_path / "smoke_run")
    assert (manifest["mode"], manifest["status"], manifest["training"]["steps_done"]) == ("smoke", "succeeded", 2)
    assert manifest["training"]["optimizer"]["name"] == "adafactor"
    assert manifest["model"]["dtypes"]["compute"] == "bfloat16"


def test_resuming_gives_what_never_stopping_gives_bit_for_bit(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    long = replace(config, limits=Limits(steps=6), checkpoint=Checkpoint(save_every_steps=2))
    whole, part, rest = order_of(long, "whole"), order_of(long, "part"), order_of(long, "rest")
    assert carried_out(whole) == 0

    def after_four(self, *, reserve_seconds: float = 0.0) -> str | None:
        return "signal SIGTERM" if len(rows(part.folder)) >= 4 else None

    with monkeypatch.context() as patch:
        patch.setattr(StopRequest, "reason", after_four)
        assert carried_out(part) == 5
    assert carried_out(replace(rest, resume=part.folder)) == 0
    parent = manifest_of(rest.folder)["parent"]
    assert parent == {"run_id": "part", "step": 4, "link": link_at(part.folder, 4)}
    exact = ("step", "tokens_seen", "loss", "learning_rate", "grad_norm")
    joined = rows(part.folder) + rows(rest.folder)
    assert [[row[key] for key in exact] for row in joined] == [
        [row[key] for key in exact] for row in rows(whole.folder)
    ]
    assert errors_of(rest.folder) == []


@pytest.mark.parametrize(("resumed", "donate"), [(False, True), (True, True), (True, False), (False, False)])
def test_no_more_than_two_states_are_there_at_a_time(
    donate: bool,
    resumed: bool,
    config: Config,
    order_of: Callable[..., RunRequest],
    finished: Callable[[Config], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    """As the plan counts them: with donation one, without it the old one and the new one."""
    changed = replace(config, memory=replace(config.memory, donate=donate), limits=Limits(steps=4))
    first: list[weakref.ref] = []
    left: list[int] = []

    def watched(*given, **named):
        first.extend(weakref.ref(leaf) for leaf in jax.tree.leaves(given[2]))
        record_program(*given, **named)

    def count(self, row):
        arrays = [array for reference in first if (array := reference()) is not None]
        left.append(sum(not array.is_deleted() for array in arrays))

    monkeypatch.setattr("trainer.run.record_program", watched)
    monkeypatch.setattr(Recorder, "metric", count)
    monkeypatch.setattr(Recorder, "record_result", lambda *_, **__: None)
    order = order_of(changed, "new", resume=finished(config) if resumed else None)
    carried_out(order)
    assert len(first) > 10
    assert left[1:] == [0] * len(left[1:])


def test_an_interrupted_run_says_so(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, limits=Limits(steps=50, max_minutes=1e-6)))
    assert carried_out(order) == 5
    manifest = manifest_of(order.folder)
    assert manifest["status"] == "interrupted"
    assert manifest["exit"] == {
        "code": 5,
        "error": None,
        "message": "limits.max_minutes=1e-06 reached before the first step",
    }


def run_away(monkeypatch: pytest.MonkeyPatch, **fields: float) -> None:
    """Let the numbers of any model run away: these fields of its steps' metrics hold from the third step on."""
    import jax.numpy as jnp

    real = Loop.run

    def wrapped(step: Callable) -> Callable:
        def run_step(state, frozen, batch):
            state, metrics = step(state, frozen, batch)
            wild = {name: jnp.where(state.step >= 3, value, getattr(metrics, name)) for name, value in fields.items()}
            return state, metrics._replace(**wild)

        return run_step

    monkeypatch.setattr(Loop, "run", lambda self, state: real(replace_program(self, wrapped), state))


def saved_steps(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / layout.CHECKPOINTS).iterdir())


@pytest.mark.parametrize(
    ("fields", "kind", "what"),
    [
        ({"loss": float("inf")}, "non_finite_loss", "loss"),
        ({"loss": float("nan"), "grad_norm": float("nan")}, "non_finite_loss", "loss"),
        ({"grad_norm": float("inf")}, "non_finite_gradient", "gradient"),
    ],
)
def test_numbers_that_are_not_finite_fail_the_run_at_that_step(
    fields: dict,
    kind: str,
    what: str,
    config: Config,
    order_of: Callable[..., RunRequest],
    monkeypatch: pytest.MonkeyPatch,
):
    run_away(monkeypatch, **fields)
    order = order_of(replace(config, limits=Limits(steps=400)))
    assert carried_out(order) == 4
    manifest = manifest_of(order.folder)
    assert manifest["status"] == "failed"
    assert manifest["exit"] == {"code": 4, "error": kind, "message": f"the {what} at step 3 is not finite"}
    last = rows(order.folder)[-1]
    assert last["step"] == 3
    assert [name for name in ("loss", "grad_norm") if last[name] is None] == list(fields)
    assert saved_steps(order.folder) == []
    assert errors_of(order.folder) == []


def test_a_state_that_is_not_finite_is_not_saved_between_rows(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    run_away(monkeypatch, loss=float("nan"))
    quiet = replace(config, recording=replace(config.recording, log_every_steps=20), limits=Limits(steps=400))
    order = order_of(replace(quiet, checkpoint=Checkpoint(save_every_steps=2)))
    assert carried_out(order) == 4
    assert manifest_of(order.folder)["exit"]["message"] == "the loss at step 4 is not finite"
    assert [row["step"] for row in rows(order.folder)] == [1, 4]
    assert saved_steps(order.folder) == ["2"]
    assert errors_of(order.folder) == []


def test_a_state_that_is_not_finite_is_not_saved_when_the_run_is_interrupted(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    run_away(monkeypatch, loss=float("nan"))
    asked = []

    def after_four(self, *, reserve_seconds: float = 0.0) -> str | None:
        asked.append(reserve_seconds)
        return "signal SIGTERM" if len(asked) > 4 else None

    monkeypatch.setattr(StopRequest, "reason", after_four)
    quiet = replace(config, recording=replace(config.recording, log_every_steps=20), limits=Limits(steps=400))
    order = order_of(quiet)
    assert carried_out(order) == 4
    assert manifest_of(order.folder)["exit"]["message"] == "the loss at step 4 is not finite"
    assert saved_steps(order.folder) == []


def replace_program(loop: Loop, wrap: Callable) -> Loop:
    return replace(loop, step=wrap(loop.step))


@pytest.mark.parametrize(
    ("error", "kind", "code", "text"),
    [
        (OSError(28, "No space left on device", "metrics.jsonl"), "disk_full", 4, "The disk is full"),
        (KeyError("loss"), "KeyError", 4, "an error inside trainproof: KeyError"),
        (KeyboardInterrupt(), "cancelled", 5, "stopped at once by a second signal"),
    ],
)
def test_an_exception_seals_the_run_and_is_explained(
    error: BaseException,
    kind: str,
    code: int,
    text: str,
    config: Config,
    order_of: Callable[..., RunRequest],
    monkeypatch: pytest.MonkeyPatch,
):
    def fails(self, state):
        raise error

    monkeypatch.setattr(Loop, "run", fails)
    order = order_of(config)
    with pytest.raises(ProblemError) as caught:
        carried_out(order)
    assert caught.value.exit_code == code
    assert text in caught.value.problems[0].what
    manifest = manifest_of(order.folder)
    assert manifest["exit"]["error"] == kind
    assert manifest["status"] == ("cancelled" if kind == "cancelled" else "failed")
    assert not (order.folder / layout.LOCK).exists()
    [said] = [row for row in rows(order.folder, layout.LOG) if row["level"] == "error"]
    assert ("traceback" in said["fields"]) == (kind == "KeyError")


def test_everything_that_is_wrong_with_the_weights_is_said_at_once(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    folder = tmp_path / "model"
    export(folder, first_state_of(config).trained, resolve("tiny-gpt2"))
    tensors = load_file(folder / "model.safetensors")
    tensors["transformer.stranger"] = tensors.pop("transformer.ln_f.bias")
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    order = order_of(replace(config, model=replace(config.model, name=str(folder))))
    whats = [
        f"{folder}: 1 tensor is not in the files: ln_f.bias.",
        f"{folder}: 1 tensor is of no use to this model: stranger.",
    ]
    code, text = refusal(order)
    assert code == 2
    assert text == "".join(
        f"error TP044: {folder}: {what}\n"
        "  Files and config.json must describe the same gpt2 model; nothing is left random.\n"
        "  Next: Take config.json and safetensors from the same model.\n"
        for what in whats
    )
    assert not order.folder.exists()


def test_a_full_disk_keeps_what_was_written(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    """The disk fills after the second row: the rows before stay, and the run fails with the reason."""
    real = Recorder.metric

    def until_full(self, row):
        if row["step"] == 3:
            raise OSError(28, "No space left on device", str(self.folder / layout.METRICS))
        real(self, row)

    monkeypatch.setattr(Recorder, "metric", until_full)
    order = order_of(replace(config, limits=Limits(steps=5)))
    with pytest.raises(ProblemError) as caught:
        carried_out(order)
    assert as_text(caught.value.problems) == (
        f"error TP722: {order.folder / layout.METRICS}: The disk is full; the run cannot be recorded any further.\n"
        "  A run that is not recorded cannot be believed, so it stops here; what was written before is intact.\n"
        "  Next: Free space there and start the run again, with --resume if a checkpoint was saved.\n"
    )
    assert [row["step"] for row in rows(order.folder)] == [1, 2]
    assert manifest_of(order.folder)["training"]["steps_done"] == 2


@pytest.mark.slow
def test_ctrl_c_in_the_middle_leaves_an_interrupted_run_with_its_rows(tmp_path: Path):
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    folder = tmp_path / "run"
    command = [
        *(sys.executable, "-m", "trainproof", "train", "--config", DEMO, "--smoke_config", SMOKE),
        *("--output", str(folder), "--set", "limits.steps=100000", "--set", "evaluation.eval_set=null"),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    metrics = folder / layout.METRICS
    deadline = time.monotonic() + 120
    while not (metrics.is_file() and metrics.read_text().count("\n") >= 5):
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 5, errors
    manifest = manifest_of(folder)
    assert manifest["status"] == "interrupted"
    assert manifest["result"]["stopped_because"] == "signal SIGINT"
    assert len(rows(folder)) == manifest["training"]["steps_done"] >= 5
    assert read_run(folder).status == "interrupted"
    assert "checkpoint at step" in output


TINY = """name: signals
model: {name: tiny-gpt2}
data: {max_length: 96}
optimizer: {learning_rate: 0.01}
batch: {microbatch_size: 4}
mesh: {device: cpu, devices: 1}
"""


# A shell in the background, or nohup, has its children ignore signals.
HEAR_SIGNALS = """
import os, signal, sys
for number in (signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_DFL)
os.execvp(sys.argv[1], sys.argv[1:])
"""


@pytest.fixture
def started(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen]]:
    """Yield a function that starts a real training in `run`; none outlives its test."""
    processes = []

    def start(*arguments: str, before: tuple[str, ...] = ()) -> subprocess.Popen:
        (tmp_path / "tiny.yaml").write_text(TINY)
        command = [
            *(*before, sys.executable, "-m", "trainproof", "train"),
            *("--config", str(tmp_path / "tiny.yaml"), "--output", str(tmp_path / "run"), *arguments),
        ]
        command = [sys.executable, "-c", HEAR_SIGNALS, *command]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.communicate()


def wait_for(process: subprocess.Popen, reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 120
    while not reached():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.02)


def logged(folder: Path, event: str) -> list[dict]:
    log = folder / layout.LOG
    return [row for row in rows(folder, layout.LOG) if row["event"] == event] if log.is_file() else []


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_run_with_few_rows_that_is_told_to_stop_counts_to_its_last_step(
    number: signal.Signals, started: Callable[..., subprocess.Popen], tmp_path: Path
):
    sparse = ("log_every_steps=100000", "chain_every_steps=1")
    settings = [each for setting in sparse for each in ("--set", f"recording.{setting}")]
    process = started(*settings, "--set", "limits.steps=100000")
    chain = tmp_path / "run" / layout.CHAIN
    wait_for(process, lambda: chain.is_file() and chain.read_text().count("\n") > 3)
    process.send_signal(number)
    _, errors = process.communicate(timeout=120)
    assert (process.returncode, errors) == (5, b"")
    manifest = manifest_of(tmp_path / "run")
    done = manifest["training"]["steps_done"]
    assert done > 2
    assert manifest["result"]["stopped_because"] == f"signal {number.name}"
    _, data = inputs_of(load_config(tmp_path / "run" / "config.yaml"))
    assert manifest["result"]["tokens_seen"] == data.source.tokens_before(done) < done * 4 * 96
    assert [row["step"] for row in rows(tmp_path / "run")] == [1, done]
    assert saved_steps(tmp_path / "run") == [str(done)]
    assert errors_of(tmp_path / "run") == []


@pytest.mark.slow
def test_a_hangup_that_is_ignored_stops_nothing(started: Callable[..., subprocess.Popen], tmp_path: Path):
    process = started("--set", "limits.steps=20", before=("sh", "-c", "trap '' HUP; exec \"$@\"", "sh"))
    wait_for(process, lambda: bool(logged(tmp_path / "run", "compiled")))
    process.send_signal(signal.SIGHUP)
    process.communicate(timeout=120)
    assert process.returncode == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux tells what a process has loaded")
@pytest.mark.parametrize("library", ["libjax", "tokenizers"])
def test_ctrl_c_before_there_is_a_run_ends_with_a_word(
    library: str, started: Callable[..., subprocess.Popen], tmp_path: Path
):
    process = started("--set", "data.generated_rows=200000")  # takes seconds to generate
    wait_for(process, lambda: library in Path(f"/proc/{process.pid}/maps").read_text())
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    assert (process.returncode, output) == (130, b"")
    assert errors == b"train was stopped before it began; nothing was written.\n"
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_training_whose_output_nobody_reads_goes_on(started: Callable[..., subprocess.Popen], tmp_path: Path):
    process = started("--set", "limits.steps=20")
    assert process.stdout is not None
    process.stdout.readline()
    process.stdout.close()
    assert process.stderr is not None
    with process.stderr as errors:
        assert errors.read() == b""
    assert process.wait(timeout=120) == 0
    assert manifest_of(tmp_path / "run")["status"] == "succeeded"


def test_a_failed_run_says_in_its_log_that_it_failed(
    config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    run_away(monkeypatch, loss=float("nan"))
    order = order_of(replace(config, limits=Limits(steps=400)))
    assert carried_out(order) == 4
    [said] = logged(order.folder, "trained")
    assert said["level"] == "error"
    assert said["message"].endswith(": the loss at step 3 is not finite")


def test_a_run_stopped_in_its_baseline_is_continued_with_the_whole_of_it(
    config: Config, order_of: Callable[..., RunRequest]
):
    asked = replace(config, evaluation=replace(config.evaluation, eval_set="eval_v1"))
    first, rest = order_of(asked, "first"), order_of(asked, "rest")
    stopped = replace(first, config=replace(asked, limits=Limits(steps=2, max_minutes=1e-6)))
    assert carried_out(stopped) == 5
    assert rows(first.folder, layout.BASELINE_PREDICTIONS) == []
    assert saved_steps(first.folder) == ["0"]
    assert carried_out(replace(rest, resume=first.folder)) == 0
    summary = json.loads((rest.folder / layout.EVAL_SUMMARY).read_text())
    assert summary["baseline"]["checkpoint"]["step"] == 0
    assert summary["baseline"]["predictions"]["rows"] == summary["eval_set"]["items"]
    assert errors_of(rest.folder) == []


def test_a_run_that_begins_later_says_that_the_untrained_model_is_not_asked(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    more = replace(config, limits=Limits(steps=4), evaluation=replace(config.evaluation, eval_set="eval_v1"))
    order = order_of(more, "more", resume=finished(config))
    assert carried_out(order) == 0
    [said] = logged(order.folder, "baseline_left_out")
    assert said["message"] == (
        "the untrained model is not asked: this run begins after step 2; what it answered stands in the run that began "
        "at step 0, if it was asked there"
    )
    assert errors_of(order.folder) == []


def test_a_killed_run_is_shown_as_interrupted(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config)
    carried_out(order)
    manifest = manifest_of(order.folder)
    (order.folder / layout.MANIFEST).write_text(json.dumps(manifest | {"status": "running", "exit": None}))
    (order.folder / layout.LOCK).write_text("1\n")
    assert read_run(order.folder).status == "interrupted"


def refusal(order: RunRequest) -> tuple[int, str]:
    with pytest.raises(ProblemError) as caught:
        carried_out(order)
    return caught.value.exit_code, as_text(caught.value.problems)


def test_a_folder_with_a_run_is_left_alone(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config)
    carried_out(order)
    before = {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()}
    assert refusal(order) == (
        2,
        (
            f"error TP031: {order.folder}: The folder already holds a run.\n"
            "  A run never writes over what is there.\n"
            f"  Next: Give --output another folder, or continue that run with --resume {order.folder}.\n"
        ),
    )
    assert {path: path.read_bytes() for path in order.folder.iterdir() if path.is_file()} == before


def test_a_folder_with_other_files_is_left_alone(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config)
    order.folder.mkdir()
    (order.folder / "thesis.tex").write_text("mine")
    code, text = refusal(order)
    assert code == 2
    assert "The folder is not empty: it holds thesis.tex." in text


NO_ID = (
    "  The id stands in every document of the run and in bundles.\n"
    "  Expected: letters, digits, dot, underscore and hyphen, a letter or digit first, at most 128.\n"
)


@pytest.mark.parametrize(("name", "like_it"), [("my run", "my-run"), ("_ä", "run"), ("x" * 129, "x" * 128)])
def test_a_folder_whose_name_is_no_run_id_is_refused_before_anything_is_planned(
    name: str, like_it: str, config: Config, order_of: Callable[..., RunRequest], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("trainer.run.read_inputs", lambda *_, **__: pytest.fail("it was planned first"))
    order = order_of(config, name)
    assert refusal(order) == (
        2,
        (
            f"error TP032: {order.folder}: The folder's name {name!r} cannot be the id of a run.\n{NO_ID}"
            f"  Next: Give --output a folder with such a name, for example {like_it}.\n"
        ),
    )
    assert not order.folder.exists()


def test_all_that_is_wrong_with_a_folder_is_said_at_once(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(config, "my run")
    order.folder.mkdir()
    (order.folder / "thesis.tex").write_text("mine")
    assert refusal(order) == (
        2,
        (
            f"error TP032: {order.folder}: The folder's name 'my run' cannot be the id of a run.\n{NO_ID}"
            "  Next: Give --output a folder with such a name, for example my-run.\n"
            f"error TP031: {order.folder}: The folder is not empty: it holds thesis.tex.\n"
            "  A run never writes over what is there.\n"
            "  Next: Give --output another folder.\n"
        ),
    )


def test_the_folder_one_is_in_gives_the_run_its_name(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert carried_out(replace(order_of(config), folder=Path())) == 0
    assert manifest_of(tmp_path / "here")["run_id"] == "here"
    assert errors_of(tmp_path / "here") == []


def test_a_run_whose_name_is_no_run_id_cannot_be_continued(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    copy = tmp_path / "copy of run"
    (copy / layout.CHECKPOINTS / "1").mkdir(parents=True)
    assert refusal(replace(order_of(config), resume=copy)) == (
        2,
        (
            f"error TP032: {copy}: The folder's name 'copy of run' cannot be the id of a run.\n{NO_ID}"
            "  Next: Give --resume a folder with such a name, for example copy-of-run.\n"
        ),
    )


def test_an_output_that_cannot_be_made_is_refused(config: Config, order_of: Callable[..., RunRequest], tmp_path: Path):
    (tmp_path / "file").write_text("")
    code, text = refusal(replace(order_of(config), folder=tmp_path / "file" / "run"))
    assert code == 2
    assert "The run folder cannot be written: Not a directory." in text


def test_an_absent_device_is_refused(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, mesh=replace(config.mesh, device="tpu")))
    assert refusal(order) == (
        3,
        (
            "error TP701: --device: No tpu device was found; JAX sees only: cpu.\n"
            "  Expected: at least one tpu device.\n"
            "  Next: On Kaggle choose Settings, Accelerator, TPU v5e-8 and install trainproof[tpu]; "
            "or use --device auto.\n"
        ),
    )
    assert not order.folder.exists()


def test_more_devices_than_there_are_is_refused(config: Config, order_of: Callable[..., RunRequest]):
    code, text = refusal(order_of(replace(config, mesh=replace(config.mesh, devices=9))))
    assert code == 3
    assert "mesh.devices asks for 9 cpu devices; JAX sees 8." in text


@pytest.mark.parametrize(
    ("name", "content", "text"),
    [
        ("none.jsonl", None, "There is no dataset"),
        ("empty.jsonl", "", "empty"),
        ("no-answer.jsonl", '{"prompt": "What?", "steps": [{"i": 0, "type": "a", "content": "b"}]}\n', "final_answer"),
        (
            "torn.jsonl",
            '{"prompt": "a", "completion": "b"}\n{"prompt": \n{"prompt": "a", "completion": "b"}\n',
            "line 2",
        ),
    ],
)
def test_a_bad_dataset_is_refused(
    name: str, content: str | None, text: str, config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    path = tmp_path / name
    if content is not None:
        path.write_text(content)
    order = order_of(replace(config, data=replace(config.data, dataset=str(path))))
    code, said = refusal(order)
    assert code == 2
    assert text in said
    assert not order.folder.exists()


def test_a_name_close_to_a_dataset_is_asked_about(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, data=replace(config.data, dataset="dev-reasoning-v1")))
    assert refusal(order) == (
        2,
        (
            "error TP010: dev-reasoning-v1: There is no dataset 'dev-reasoning-v1': it is not built in, "
            "and no such file exists.\n"
            "  Expected: a built-in name (dev-reasoning-v2, dev-stories-v1) or the path of a JSONL file.\n"
            "  Next: Did you mean dev-reasoning-v2? Else give --dataset one of these.\n"
        ),
    )


def test_an_unknown_model_is_refused(config: Config, order_of: Callable[..., RunRequest]):
    order = order_of(replace(config, model=replace(config.model, name="tiny-gpt3")))
    code, text = refusal(order)
    assert code == 2
    assert "tiny-gpt3 is not on this machine and could not be fetched." in text
    assert "Did you mean tiny-gpt2?" in text


def test_resuming_a_run_without_a_checkpoint_is_refused(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    code, text = refusal(replace(order_of(config), resume=tmp_path))
    assert code == 2
    assert "The run has no complete checkpoint to continue from." in text


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Config], Path]:
    """Return a function that gives the folder of a run that has all its steps; each configuration is trained once."""
    made: dict[Config, Path] = {}

    def train(config: Config) -> Path:
        if config not in made:
            folder = tmp_path_factory.mktemp("finished") / "run"
            assert carried_out(RunRequest(config=config, folder=folder, command=["trainproof", "train"])) == 0
            made[config] = folder
        return made[config]

    return train


def test_a_run_that_has_all_its_steps_is_not_continued_without_one(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    parent = finished(config)
    order = order_of(config, "more", resume=parent)
    said = (
        f"error TP051: {parent}: The newest checkpoint is at step 2 and limits.steps is 2: no step is left.\n"
        "  limits.steps counts from the first step of the first run.\n"
        "  Expected: limits.steps above 2.\n"
        "  Next: Raise it, as in --set limits.steps=4."
    )
    assert refusal(order) == (2, f"{said}\n")
    asked = replace(order, config=replace(config, evaluation=Evaluation(eval_set="eval_v1")))
    assert refusal(asked) == (2, f"{said} To answer eval_v1 as it is: trainproof evaluate {parent}.\n")
    assert not order.folder.exists()
    assert carried_out(replace(order, config=replace(config, limits=Limits(steps=3)))) == 0
    assert manifest_of(order.folder)["training"]["steps_done"] == 3


def test_a_checkpoint_of_another_state_is_refused_with_every_key_that_makes_it_one(
    config: Config,
    order_of: Callable[..., RunRequest],
    finished: Callable[[Config], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    parent = finished(config)
    monkeypatch.setattr("trainer.run.read_inputs", lambda *_, **__: pytest.fail("it was planned first"))
    other = replace(
        config,
        model=replace(config.model, name="demo"),
        optimizer=Optimizer(name="adafactor"),
        precision=replace(config.precision, params="bfloat16"),
        limits=Limits(steps=4),
    )
    order = order_of(other, resume=parent)
    why = "  A checkpoint holds params and opt_state of one model, optimizer and element type.\n"
    assert refusal(order) == (
        2,
        "".join(
            f"error TP052: {parent / layout.CONFIG} at /{key.replace('.', '/')}: "
            f'{key} is "{now}"; the run to continue has "{then}".\n{why}'
            f"  Next: Continue it with --set {key}={then}, or leave --resume out to begin anew.\n"
            for key, now, then in (
                ("model.name", "demo", "tiny-gpt2"),
                ("optimizer.name", "adafactor", "adamw"),
                ("precision.params", "bfloat16", "float32"),
            )
        ),
    )
    assert not order.folder.exists()


def test_a_run_is_not_continued_with_other_rows(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    parent = finished(config)
    other = replace(config, seed=7, data=replace(config.data, shuffle=False), limits=Limits(steps=4))
    order = order_of(other, resume=parent)
    why = "  Which rows a step sees, and tokens_seen, follow from it for every step of the run, those before too.\n"
    assert refusal(order) == (
        2,
        "".join(
            f"error TP054: {parent / layout.CONFIG} at /{key.replace('.', '/')}: "
            f"{key} is {now}; the run to continue has {then}.\n{why}"
            f"  Next: Continue it with --set {key}={then}, or leave --resume out to begin anew.\n"
            for key, now, then in (("seed", 7, 0), ("data.shuffle", "false", "true"))
        ),
    )
    assert not order.folder.exists()


def test_a_run_is_not_continued_with_a_dataset_that_changed_or_another_batch_size(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path], tmp_path: Path
):
    rows_file = tmp_path / "rows.jsonl"
    lines = [f'{{"prompt": "What is {n} + 1?", "completion": "{n + 1}"}}\n' for n in range(4)]
    rows_file.write_text("".join(lines))
    before = hashlib.sha256(rows_file.read_bytes()).hexdigest()
    mine = replace(config, data=replace(config.data, dataset=str(rows_file)))
    parent = finished(mine)
    rows_file.write_text("".join(reversed(lines)))
    after = hashlib.sha256(rows_file.read_bytes()).hexdigest()
    more = replace(mine, limits=Limits(steps=4), batch=replace(mine.batch, accumulation_steps=2))
    order = order_of(more, resume=parent)
    assert refusal(order) == (
        2,
        (
            f"error TP054: {parent / layout.MANIFEST} at /dataset/sha256: The dataset rows.jsonl has 4 rows with the "
            f"SHA-256 {after}; the run to continue read rows.jsonl, 4 rows with the SHA-256 {before}.\n"
            "  Which rows a step sees follows from the dataset for every step of the run, those before too.\n"
            "  Next: Name the dataset as it was, or leave --resume out to begin anew.\n"
            f"error TP054: {parent / layout.MANIFEST} at /training/batch_size: A step has 8 sequences over all "
            "devices; the run to continue has 4.\n"
            "  Which rows a step sees, and tokens_seen, follow from it for every step of the run, those before too.\n"
            "  Next: Set batch.microbatch_size and batch.accumulation_steps so that with the number of devices they "
            "make 4, or leave --resume out to begin anew.\n"
        ),
    )
    assert not order.folder.exists()


def test_adafactor_cannot_take_up_decay_where_its_state_has_none(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    plain = replace(config, optimizer=Optimizer(name="adafactor"))
    decaying = replace(plain, optimizer=replace(plain.optimizer, weight_decay=0.1), limits=Limits(steps=4))
    parent = finished(plain)
    assert refusal(order_of(decaying, resume=parent)) == (
        2,
        (
            f"error TP052: {parent / layout.CONFIG} at /optimizer/weight_decay: optimizer.weight_decay is 0.1; the run "
            "to continue has 0.0.\n"
            "  A checkpoint holds params and opt_state of one model, optimizer and element type.\n"
            "  Next: Continue it with --set optimizer.weight_decay=0.0, or leave --resume out to begin anew.\n"
        ),
    )


def test_what_does_not_change_the_state_may_change(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    parent = finished(config)
    changed = replace(
        config,
        optimizer=replace(config.optimizer, weight_decay=0.1, schedule="linear", warmup_steps=1),
        precision=replace(config.precision, compute="bfloat16"),
        mesh=replace(config.mesh, devices=2),
        batch=replace(config.batch, microbatch_size=2),
        limits=Limits(steps=3),
    )
    order = order_of(changed, "changed", resume=parent)
    assert carried_out(order) == 0
    [said] = logged(order.folder, "continued")
    assert (said["level"], said["message"]) == (
        "warning",
        (
            "goes on from step 2 of run, whose steps were computed otherwise: "
            'optimizer.schedule was "cosine", is "linear"; '
            "optimizer.warmup_steps was 0, is 1; optimizer.weight_decay was 0.0, is 0.1; "
            'batch.microbatch_size was 4, is 2; precision.compute was "float32", is "bfloat16"; '
            'limits.steps was 2, is 3; devices was "1 × cpu", is "2 × cpu"'
        ),
    )
    assert said["fields"]["changes"][0] == {"key": "optimizer.schedule", "before": "cosine", "after": "linear"}
    assert errors_of(order.folder) == []


def test_a_run_continued_as_it_was_says_so(
    config: Config, order_of: Callable[..., RunRequest], finished: Callable[[Config], Path]
):
    constant = replace(config, optimizer=replace(config.optimizer, schedule="constant"))
    parent = finished(constant)
    order = order_of(replace(constant, limits=Limits(steps=3)), "more", resume=parent)
    assert carried_out(order) == 0
    [said] = logged(order.folder, "continued")
    assert (said["level"], said["message"]) == ("info", "goes on from step 2 of run")
    assert said["fields"] == {"parent": {"run_id": "run", "step": 2, "link": link_at(parent, 2)}, "changes": []}


def test_a_continued_run_makes_no_first_state_and_needs_no_weights(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    model = tmp_path / "model"
    export(model, first_state_of(config).trained, resolve("tiny-gpt2"))
    read = replace(config, model=replace(config.model, name=str(model)))
    first, rest = order_of(read, "first"), order_of(replace(read, limits=Limits(steps=3)), "rest")
    assert carried_out(first) == 0
    (model / "model.safetensors").unlink()
    monkeypatch.setattr("trainer.run.initial_state", lambda _: pytest.fail("a first state was made"))
    assert carried_out(replace(rest, resume=first.folder)) == 0
    assert manifest_of(rest.folder)["model"]["weights"] == "pretrained"
    assert errors_of(rest.folder) == []
    weights = replace(
        rest, resume=first.folder, config=replace(rest.config, model=replace(read.model, weights="random"))
    )
    assert refusal(replace(weights, folder=tmp_path / "drawn")) == (
        2,
        (
            f"error TP052: {first.folder / layout.CONFIG} at /model/weights: "
            'model.weights is "random"; the run to continue has null.\n'
            "  A checkpoint holds params and opt_state of one model, optimizer and element type.\n"
            "  Next: Continue it with --set model.weights=null, or leave --resume out to begin anew.\n"
        ),
    )


def test_a_checkpoint_that_the_device_has_no_room_for_claims_no_folder(
    config: Config,
    order_of: Callable[..., RunRequest],
    finished: Callable[[Config], Path],
    monkeypatch: pytest.MonkeyPatch,
):
    parent = finished(config)

    def full(*_):
        message = "RESOURCE_EXHAUSTED: Out of memory allocating 1024 bytes."
        raise jax.errors.JaxRuntimeError(message)

    monkeypatch.setattr("trainer.loop.restoring.restored", full)
    order = order_of(replace(config, limits=Limits(steps=3)), "more", resume=parent)
    assert refusal(order) == (
        4,
        (
            f"error TP723: {parent}: The device ran out of memory: RESOURCE_EXHAUSTED: Out of memory allocating 1024 "
            "bytes.\n"
            "  The plan is an estimate; plan.json in the run folder says what it counted.\n"
            "  Next: Apply a change that plan.json lists under changes, largest saving first.\n"
        ),
    )
    assert not order.folder.exists()


def test_an_evaluation_set_with_an_id_twice_is_refused(
    config: Config, order_of: Callable[..., RunRequest], tmp_path: Path
):
    path = tmp_path / "items.jsonl"
    path.write_text('{"id": "a", "prompt": "x", "expected": "y"}\n' * 2)
    order = order_of(replace(config, evaluation=Evaluation(eval_set=str(path))))
    assert refusal(order) == (
        2,
        (
            f"error TP012: {path} at /id (line 2): The id 'a' is already used in line 1.\n"
            "  Expected: an id that no other item has.\n"
            "  Next: Give each item its own id; predictions are matched to items by it.\n"
        ),
    )
