"""A disk that is really full: one megabyte of memory, mounted, and everything that writes sent there."""

import errno
import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import jax.numpy as jnp
import pytest
from refusals import refusal_text
from tasks import with_settings
from whole_runs import QUIET, refusal

from evidence import layout
from evidence.bundle.build import build_bundle
from evidence.hashes import sha256_file
from evidence.imports.importing import import_run
from evidence.index.index import check_paths
from evidence.report import report_text
from evidence.run import read_run
from trainer.config.tree import Config
from trainer.evaluation.evaluate import evaluate_run
from trainer.export_run import export_run
from trainer.loop.checkpoints import Checkpoints
from trainer.loop.step import TrainState
from trainer.recorder.recorder import Recorder, claim, now
from trainer.run import RunRequest

pytestmark = pytest.mark.slow


@pytest.fixture
def small(tmp_path) -> Iterator[Path]:
    """Return the folder of a disk of one megabyte and forty files."""
    folder = tmp_path / "small"
    folder.mkdir()
    root = [] if os.geteuid() == 0 else ["sudo", "-n"]
    mount = [*root, "mount", "-t", "tmpfs", "-o", "size=1m,nr_inodes=40,mode=1777", "tmpfs", str(folder)]
    try:
        subprocess.run(mount, capture_output=True, check=True)
    except (FileNotFoundError, subprocess.CalledProcessError) as error:
        pytest.skip(f"a disk cannot be mounted here, which needs root: {error}")
    yield folder
    subprocess.run([*root, "umount", str(folder)], check=True)


@pytest.fixture
def whole(config: Config) -> Config:
    """Two steps that save no state but the checkpoint."""
    return with_settings(config, recording={"states_mib": 0})


def fill(folder: Path, *, leave_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    (folder / "ballast").write_bytes(bytes(free - leave_bytes))


def files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): sha256_file(path) for path in sorted(folder.rglob("*")) if path.is_file()}


def order(config: Config, folder: Path, every: int) -> RunRequest:
    saving = with_settings(config, checkpoint={"save_every_steps": every})
    return RunRequest(config=saving, folder=folder, command=["-"])


@pytest.mark.parametrize(
    ("every", "what"),
    [(0, "a checkpoint of 2,036,748 bytes"), (1, "2 checkpoints of 2,036,748 bytes")],
)
def test_a_run_whose_checkpoints_have_no_room_is_refused(every, what, small, config):
    folder = small / "run"
    free = shutil.disk_usage(small).free
    code, told = refusal(order(config, folder, every))
    needs = f"error TP722: {folder}: The run needs disk space for {what}, and {free:,} bytes are free."
    assert (code, told.splitlines()[0]) == (2, needs)
    assert not folder.exists()


def test_a_run_whose_disk_fills_up_is_sealed_as_failed(small, config, monkeypatch):
    monkeypatch.setattr("trainer.run.check_disk_space", lambda *_, **__: None)
    folder = small / "run"
    _, told = refusal(order(config, folder, 1))
    what = r"The disk is full: a checkpoint needs 2,036,748 bytes, and ([\d,]+) are free;"
    found = re.match(rf"error TP722: .*/run/checkpoints: {what}", told)
    assert int(found[1].replace(",", "")) < 1 << 20
    found = read_run(folder)
    assert (len(found.rows(layout.METRICS).values), found.manifest["exit"]["error"]) == (1, "disk_full")
    assert report_text(check_paths([folder])).startswith(f"{folder}  partial\n  The run failed after 1 of 2 steps.\n")


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


def test_a_recorder_that_fills_the_disk_keeps_every_row_before(small):
    folder = small / "run"
    claim(folder)
    numbers = ("tokens_seen", "loss", "learning_rate", "grad_norm", "step_seconds", "tokens_per_second")
    row = dict.fromkeys(numbers, 1) | {"device_memory_bytes": None, "time": now()}
    written = 0

    def record() -> None:
        nonlocal written
        with Recorder(folder, say=lambda _line: None) as recorder:
            recorder.document("run_manifest.json", {"status": "running"})
            while True:
                recorder.metric(row | {"step": written + 1})
                written += 1

    assert refusal_text(record, exit_code=4).startswith(f"error TP722: {folder}: The disk is full;")
    found = read_run(folder)
    assert [each["step"] for each in found.rows(layout.METRICS).values] == list(range(1, written + 1))
    assert written > 1000
    assert found.status == "interrupted"
    assert json.loads((folder / "run_manifest.json").read_text()) == {"status": "running"}


def bundle(small: Path, trained: Path, theirs: Path):
    output = small / "run.zip"
    build_bundle([trained], output)
    return lambda: build_bundle([trained], output), f"TP848: {output}: The bundle cannot be written: No space left on"


def imported(small: Path, trained: Path, theirs: Path):
    shutil.copytree(Path(__file__).parents[2] / "cases/foreign/hf_trainer/folder", theirs)
    (theirs / "notes.txt").write_bytes(b"x" * 100_000)
    told = f"TP089: {small}: The import could not be written: the disk is full."
    return lambda: import_run(theirs, name="theirs", root=small, now=datetime.now(UTC)), told


def exported(small: Path, trained: Path, theirs: Path):
    target = small / "model"
    return lambda: export_run(trained, target, QUIET), f"TP089: {target}: The export could not be written: the disk is"


def evaluated(small: Path, trained: Path, theirs: Path):
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
    assert refusal_text(act).startswith(f"error {told}")
    assert files(small) == before
    assert not (small / "model").exists()
