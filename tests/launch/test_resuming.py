"""Which runs can be continued."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic import write_run

from evidence.lock import RunLock
from evidence.run import read_run
from launch.resuming import can_resume


def checkpointed(folder: Path, name: str = "20") -> Path:
    (folder / "checkpoints" / name).mkdir(parents=True)
    return folder


@pytest.mark.parametrize(
    ("status", "can"), [("interrupted", True), ("cancelled", True), ("failed", True), ("succeeded", False)]
)
def test_what_stopped_with_a_checkpoint_can_be_resumed(tmp_path: Path, status: str, can: bool) -> None:
    folder = write_run(tmp_path, "a", status=status)
    assert not can_resume(read_run(folder)), "nothing to go on from"
    checkpointed(folder)
    assert can_resume(read_run(folder)) is can


def test_a_checkpoint_must_be_complete_and_the_configuration_be_there(tmp_path: Path) -> None:
    folder = write_run(tmp_path, "a", status="interrupted")
    checkpointed(folder, "20.orbax-checkpoint-tmp-1")
    assert not can_resume(read_run(folder))
    checkpointed(folder)
    (folder / "config.yaml").unlink()
    assert not can_resume(read_run(folder))


@pytest.mark.slow
def test_a_run_at_work_is_not_resumed(tmp_path: Path) -> None:
    folder = checkpointed(write_run(tmp_path, "a", status="running"))
    with RunLock(folder):
        assert not can_resume(read_run(folder))
    assert can_resume(read_run(folder))
