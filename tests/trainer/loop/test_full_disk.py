"""A disk that is really full: one megabyte of memory, mounted, and everything that writes sent there."""

from __future__ import annotations

import errno
import gc
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from refusals import catch_problems

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.hashes import sha256_file
from evidence.imports.importing import import_run
from evidence.index.index import check_paths
from evidence.report import report_text
from evidence.run import read_run
from schemas.render import render_text
from trainer.config.load import config_text
from trainer.config.tree import CheckpointConfig, Config, RecordingConfig
from trainer.evaluation.evaluate import evaluate_run
from trainer.export_run import export_run
from trainer.loop import checkpoints as module
from trainer.loop.checkpoints import Checkpoints
from trainer.loop.step import TrainState
from trainer.recorder.progress import Watch
from trainer.recorder.recorder import Recorder, claim, now
from trainer.run import RunRequest, run

pytestmark = pytest.mark.slow

QUIET = Watch(quiet=True)


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """Return the folder of a disk of one megabyte and forty files."""
    folder = tmp_path / "small"
    folder.mkdir()
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    mount = [*root, "mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=40,mode=1777", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"a disk cannot be mounted here: {error}")
    if done.returncode:
        pytest.skip(f"only root can mount a disk: {done.stderr.strip()}")
    yield folder
    subprocess.run([*root, "umount", str(folder)], check=True)


@pytest.fixture
def whole(config: Config) -> Config:
    """Two steps that save no state but the checkpoint."""
    return replace(config, recording=RecordingConfig(states_mib=0))


def fill(folder: Path, *, leave_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    (folder / "ballast").write_bytes(bytes(free - leave_bytes))


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(act: Callable[[], object], exit_code: int) -> str:
    return render_text(catch_problems(act, exit_code=exit_code))


@pytest.mark.parametrize(
    ("every", "what"),
    [(0, "a checkpoint of 2,036,748 bytes"), (1, "2 checkpoints of 2,036,748 bytes")],
)
def test_a_run_whose_checkpoints_have_no_room_is_refused(every, what, small, config):
    folder = small / "run"
    saving = replace(config, checkpoint=CheckpointConfig(save_every_steps=every))
    free = shutil.disk_usage(small).free
    told = refused(lambda: run(RunRequest(config=saving, folder=folder, command=["-"]), QUIET), 2)
    needs = f"error TP722: {folder}: The run needs disk space for {what}, and {free:,} bytes are free."
    assert told.splitlines()[0] == needs
    assert not folder.exists()


def test_a_run_whose_disk_fills_up_is_sealed_as_failed(small, config, monkeypatch):
    monkeypatch.setattr("trainer.run.check_disk_space", lambda *_, **__: None)
    folder = small / "run"
    saving = replace(config, checkpoint=CheckpointConfig(save_every_steps=1))
    told = refused(lambda: run(RunRequest(config=saving, folder=folder, command=["-"]), QUIET), 4)
    what = r"The disk is full: a checkpoint needs 2,036,748 bytes, and ([\d,]+) are free;"
    found = re.match(rf"error TP722: .*/run/checkpoints: {what}", told)
    assert int(found[1].replace(",", "")) < 1 << 20
    found = read_run(folder)
    end = (found.status, len(found.rows(layout.METRICS).values), found.manifest["exit"]["error"])
    assert end == ("failed", 1, "disk_full")
    assert report_text(check_paths([folder])).startswith(f"{folder}  partial\n  The run failed after 1 of 2 steps.\n")


def test_a_checkpoint_that_finds_the_disk_full_leaves_none(small, whole, tmp_path):
    """Orbax needs more than the state's bytes, so the disk is full in the middle of writing."""
    saving = replace(whole, checkpoint=CheckpointConfig(save_every_steps=1))
    (tmp_path / "config.yaml").write_text(config_text(saving))
    trial = f"""
from trainproof.cli.app import main
from trainer import run
from trainer.loop import checkpoints
checkpoints.require_space = lambda folder, state: None
run.check_disk_space = lambda folder, task: None
main(["train", "--config", "{tmp_path}/config.yaml", "--output", "{small}/run"])
"""
    done = subprocess.run([sys.executable, "-c", trial], capture_output=True, text=True, check=False)
    what = f"error TP722: {small}/run/checkpoints: The disk is full; the run cannot be recorded any further.\n"
    assert (done.returncode, done.stderr.startswith(what), "Traceback" in done.stderr) == (4, True, False)
    assert list((small / "run/checkpoints").iterdir()) == []
    found = read_run(small / "run")
    assert (found.status, found.manifest["exit"]["error"]) == ("failed", "disk_full")


def test_a_checkpoint_that_fails_at_any_of_its_files_leaves_none(small, capfd):
    """The disk has room for one file more each time, until the checkpoint has all of its own."""
    weights = {"kernel": jnp.ones((8, 8)), "bias": jnp.ones(8)}
    state = TrainState(step=jnp.asarray(3), trained=weights, opt_state=weights)
    checkpoints = Checkpoints(small, keep=1)
    fillers = [small / f"filler-{number}" for number in range(os.statvfs(small).f_ffree)]
    for filler in fillers:
        filler.touch()
    failures = []
    for filler in fillers:
        try:
            checkpoints.save(state)
            break
        except OSError as error:
            failures.append((error.errno, error.filename, len(list((small / "checkpoints").iterdir()))))
        filler.unlink()
    checkpoints.close()
    assert len(failures) > 10
    assert set(failures) == {(errno.ENOSPC, str(small / "checkpoints"), 0)}
    assert [path.name for path in (small / "checkpoints").iterdir()] == ["3"]
    assert capfd.readouterr() == ("", "")


def test_failing_writers_of_a_checkpoint_are_reported_once(small, monkeypatch, caplog):
    monkeypatch.setattr(module, "require_space", lambda folder, state: None)
    noise = np.random.default_rng(0)
    weights = {f"layer_{number}": jnp.asarray(noise.random((64, 256)), jnp.float32) for number in range(16)}
    checkpoints = Checkpoints(small, keep=1)
    fill(small, leave_bytes=500_000)
    for _ in range(5):
        with pytest.raises(OSError, match="No space left on device"):
            checkpoints.save(TrainState(step=jnp.asarray(3), trained=weights, opt_state=weights))
    checkpoints.close()
    gc.collect()
    assert [record.getMessage() for record in caplog.records if record.name in {"absl", "asyncio"}] == []


def test_a_recorder_that_fills_the_disk_keeps_every_row_before(small):
    folder = small / "run"
    claim(folder)
    row = {"step": 0, "tokens_seen": 0, "loss": 1.0, "learning_rate": 0.1, "grad_norm": 1.0, "step_seconds": 0.1}
    row |= {"tokens_per_second": 1.0, "device_memory_bytes": None, "time": now()}
    written = 0

    def record() -> None:
        nonlocal written
        with Recorder(folder, say=lambda _line: None) as recorder:
            recorder.document("run_manifest.json", {"status": "running"})
            while True:
                recorder.metric(row | {"step": written + 1})
                written += 1

    assert refused(record, 4).startswith(f"error TP722: {folder}: The disk is full;")
    found = read_run(folder)
    assert [each["step"] for each in found.rows(layout.METRICS).values] == list(range(1, written + 1))
    assert written > 1000
    assert found.status == "interrupted"
    assert json.loads((folder / "run_manifest.json").read_text()) == {"status": "running"}


def bundle(small: Path, trained: Path, theirs: Path) -> tuple[Callable[[], object], str]:
    output = small / "run.zip"
    build_bundle([trained], output)
    return lambda: build_bundle([trained], output), f"TP848: {output}: The bundle cannot be written: No space left on"


def imported(small: Path, trained: Path, theirs: Path) -> tuple[Callable[[], object], str]:
    shutil.copytree(Path(__file__).parents[2] / "cases/foreign/hf_trainer/folder", theirs)
    (theirs / "notes.txt").write_bytes(b"x" * 100_000)
    told = f"TP089: {small}: The import could not be written: the disk is full."
    return lambda: import_run(theirs, name="theirs", root=small, now=datetime.now(UTC)), told


def exported(small: Path, trained: Path, theirs: Path) -> tuple[Callable[[], object], str]:
    target = small / "model"
    return lambda: export_run(trained, target, QUIET), f"TP089: {target}: The export could not be written: the disk is"


def evaluated(small: Path, trained: Path, theirs: Path) -> tuple[Callable[[], object], str]:
    folder = small / "run"
    shutil.copytree(trained, folder, ignore=shutil.ignore_patterns("checkpoints"))
    (folder / "checkpoints").symlink_to(trained / "checkpoints")
    return lambda: evaluate_run(folder, "eval_v1", QUIET), f"TP089: {folder}: The evaluation could not be written: the"


@pytest.mark.parametrize(
    ("prepare", "room"), [(bundle, 50_000), (imported, 50_000), (exported, 100_000), (evaluated, 5_000)]
)
def test_what_does_not_fit_leaves_the_disk_as_it_was(prepare, room, small, finished, whole, tmp_path):
    act, told = prepare(small, finished(whole), tmp_path / "theirs")
    fill(small, leave_bytes=room)
    before = files(small)
    assert refused(act, 2).startswith(f"error {told}")
    assert files(small) == before
    assert not (small / "model").exists()
