"""Plans that are narrowed by measured runs: real ones, trained here in a second."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from tasks import inputs_of

from evidence import layout
from evidence.targets import load_target
from schemas.problems import ProblemError
from schemas.render import as_text
from trainer.config.load import config_text
from trainer.config.tree import BatchConfig, Config, DataConfig, LimitsConfig, MeshConfig, ModelConfig
from trainer.planning import calibration
from trainer.planning.calibration import Measured, measured_on, narrowed_answers
from trainer.planning.devices import this_machine
from trainer.planning.estimator import Estimator
from trainer.planning.measured_runs import layer_compile_seconds, measured_of
from trainer.planning.step_time import predicted_step
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run
from trainproof.orders.calibrate import calibrate_plans

pytestmark = pytest.mark.slow

SMALL = Config(
    name="measured",
    model=ModelConfig(name="tiny-gpt2"),
    data=DataConfig(max_length=64),
    batch=BatchConfig(microbatch_size=2),
    mesh=MeshConfig(device="cpu", devices=1),
    limits=LimitsConfig(steps=6),
)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of six steps on this CPU, in a process of its own: arrays of other tests would count as its memory."""
    stated = replace(SMALL, recording=replace(SMALL.recording, log_every_steps=1))
    folder = tmp_path_factory.mktemp("runs") / "first"
    config = folder.parent.with_suffix(".yaml")
    config.write_text(config_text(stated), "utf-8")
    subprocess.run(
        [sys.executable, "-m", "trainproof", "train", "--config", str(config), "--output", str(folder)], check=True
    )
    return folder


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Nothing of the user's own is read or written."""
    monkeypatch.setenv("TRAINPROOF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def step_on_this_machine(config: Config):
    """Return how long a step is said to take here, and the answers it is said from."""
    task, _ = inputs_of(config)
    target = this_machine(config)
    answers = Estimator(platform="cpu", available_bytes=target.memory_bytes).programs(task, None)
    return predicted_step(task, target, answers, measured=measured_on("cpu", ["cpu"]))


def test_a_measured_run_gives_plans_of_this_machine_a_time(trained: Path):
    assert step_on_this_machine(SMALL).band is None
    answer = calibrate_plans([trained.parent])
    assert [each["run"] for each in answer["used"]] == ["first"]
    step = step_on_this_machine(SMALL)
    rows = [json.loads(line)["step_seconds"] for line in (trained / layout.METRICS).read_text().splitlines()]
    observed = sorted(rows[1:])[len(rows[1:]) // 2]
    assert step.band is not None
    assert step.band.likely == pytest.approx(observed, rel=1e-3)
    assert step.band.low <= 0.9 * observed * 1.001
    assert step.band.high >= 1.1 * observed * 0.999
    assert "narrowed by 1 run on " in step.because
    assert step.because.endswith(": first")
    # Twice the tokens are twice the operations, or a little more.
    longer = step_on_this_machine(replace(SMALL, batch=BatchConfig(microbatch_size=4)))
    assert longer.band is not None
    assert 1.9 < longer.band.likely / step.band.likely < 2.2


def test_a_step_that_was_compiled_says_how_long_a_layer_takes():
    task, _ = inputs_of(SMALL)  # two layers
    found = [
        layer_compile_seconds(SimpleNamespace(manifest={"result": {"compile_seconds": 6.0, **more}}), task)
        for more in ({}, {"compiled_before": ["start"]}, {"compiled_before": ["train"]})
    ]
    assert found == [3.0, 3.0, None]


def test_what_was_held_against_an_older_formula_teaches_nothing():
    file = calibration.keep([measured("new"), measured("old")])
    entries = json.loads(file.read_text())
    file.write_text(json.dumps([entry if entry["run"] == "new" else entry | {"formula": 1} for entry in entries]))
    assert [each.run for each in calibration.known()] == ["new"]


def test_a_band_is_never_narrower_than_what_was_measured():
    task, _ = inputs_of(SMALL)
    chip = load_target("tpu-v5e-1")
    answers = Estimator(platform="tpu", available_bytes=chip.memory_bytes).programs(task, None)
    plain = predicted_step(task, chip, answers)
    assert plain.band is not None
    runs = [measured(f"run-{number}", step_ratio=ratio) for number, ratio in enumerate((0.7, 1.0, 1.6))]
    calibration.keep(runs)
    found = predicted_step(task, chip, answers, measured=measured_on("tpu", chip.device_kinds))
    assert found.band is not None
    assert found.band.low <= 0.7 * plain.band.likely
    assert found.band.high >= 1.6 * plain.band.likely
    assert "narrowed by 3 runs on TPU v5 lite: run-0, run-1, run-2" in found.because
    # The same runs say nothing of another kind of device.
    assert measured_on("gpu", ["Tesla T4"]) == ()


def measured(name: str, *, step_ratio: float = 1.0, memory_ratio: float | None = None) -> Measured:
    return Measured(
        run=name,
        device="TPU v5 lite",
        step_ratio=step_ratio,
        memory_ratio=memory_ratio,
        method=None if memory_ratio is None else "closed_form",
    )


def test_the_error_of_a_need_is_what_was_measured_once_three_runs_were():
    task, _ = inputs_of(SMALL)
    answers = Estimator(platform="tpu", available_bytes=2**34).programs(task, None)
    ratios = [measured(f"run-{number}", memory_ratio=ratio) for number, ratio in enumerate((0.98, 1.0, 1.03))]
    assert narrowed_answers(answers, ratios[:2]) == answers
    assert [each.error_fraction for each in narrowed_answers(answers, ratios)] == [0.04] * len(answers)
    # Runs that were far off widen it.
    far = [*ratios, measured("far", memory_ratio=1.2)]
    assert {each.error_fraction for each in narrowed_answers(answers, far)} == {0.21}


def changed(trained: Path, folder: Path, change: Callable[[dict], None]) -> Path:
    """Return a copy of a run whose manifest was changed."""
    shutil.copytree(trained, folder)
    path = folder / layout.MANIFEST
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))
    return folder


def test_a_contradictory_run_and_one_of_too_few_rows_are_not_used(trained: Path, tmp_path: Path):
    lied = changed(trained, tmp_path / "first", lambda manifest: manifest["training"].update(steps_done=5000))
    assert str(measured_of(lied)).startswith("its grade is contradictory: ")
    short = tmp_path / "short"
    with Watch(quiet=True) as watch:
        run(
            RunRequest(config=replace(SMALL, limits=LimitsConfig(steps=2)), folder=short, command=["trainproof"]), watch
        )
    assert measured_of(short) == "it has fewer than 3 rows of metrics.jsonl after the first"
    with pytest.raises(ProblemError) as caught:
        calibrate_plans([lied, short])
    assert caught.value.exit_code == 2
    assert "No run is of use: " in as_text(caught.value.problems)
    assert calibration.known() == ()


def test_what_was_learned_is_replaced_shown_and_forgotten(trained: Path, cache: Path):
    calibrate_plans([trained])
    calibrate_plans([trained])
    [kept] = calibration.known()
    # Of a CPU only the growth of the process is observed, which is not what a program needs.
    assert (kept.run, kept.method, kept.memory_ratio) == ("first", None, None)
    assert calibration.forget()
    assert not calibration.forget()
    assert calibration.known() == ()


@pytest.mark.parametrize("text", ["{", "[1]", '[{"run": "a"}]'])
def test_a_calibration_that_was_spoiled_is_named_with_the_way_out(text: str, cache: Path):
    cache.mkdir()
    (cache / calibration.FILE).write_text(text)
    with pytest.raises(ProblemError) as caught:
        measured_on("cpu", ["cpu"])
    assert caught.value.exit_code == 2
    assert "error TP746" in as_text(caught.value.problems)
    assert "trainproof plan --calibrate --forget" in as_text(caught.value.problems)
