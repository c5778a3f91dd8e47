"""Files of jobs: output as it is displayed, and whatever an untrusted runs folder may contain."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from stand_ins import now, output, put, wait_for

from evidence import hashes
from launch import process, queue
from launch.jobs import OUTPUT, PROCESS, jobs, launch_folder, read_job, tail
from launch.process import StartedProcess


def test_output_is_shown_as_a_terminal_leaves_it(tmp_path: Path) -> None:
    path = tmp_path / "output.log"
    path.write_bytes(b"first\n\x1b[31mred\x1b[0m\nstep 1\rstep 2\rstep 3\n\n\n")
    assert tail(path) == "first\nred\nstep 3"
    assert tail(path, lines=1) == "step 3"
    path.write_text("".join(f"line {number}\n" for number in range(100_000)))
    assert tail(path, lines=2) == "line 99998\nline 99999"
    path.write_text("HF_TOKEN=hf_abcdefghijklmnopqrstuvwx\n")
    assert tail(path) == "HF_TOKEN=[hidden]"
    assert tail(tmp_path / "missing") == ""


def test_a_reused_process_id_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    for name in ("kill", "killpg"):
        monkeypatch.setattr(os, name, lambda pid, number: sent.append((pid, number)))
    own = process.identify(os.getpid())
    reused = StartedProcess(pid=own.pid, created=own.created - 3600)
    assert not process.is_alive(reused)
    process.interrupt(reused)
    process.kill(reused)
    assert sent == []
    process.interrupt(own)
    assert (own.pid, signal.SIGINT) in sent


def test_a_process_is_recognized_after_the_clock_was_set() -> None:
    own = process.identify(os.getpid())
    assert own.booted
    assert process.is_alive(replace(own, created=own.created + 3600, booted=own.booted + 3600))
    assert not process.is_alive(replace(own, created=own.created + 3600))
    assert not process.is_alive(replace(own, created=own.created + 3600, booted=None))


def plant(root: Path, text: str, folder: str = "job-x", **files: str) -> Path:
    """Write a job that came with the runs folder."""
    path = launch_folder(root) / folder
    path.mkdir(parents=True)
    for name, content in {"job.json": text, **files}.items():
        (path / name).write_text(content)
    return path


ELSEWHERE = ("../../elsewhere", "/etc", "..", ["a"], "", ".launch", "a/b")
INVALID = ['{"run": ', "[]", "null", "[" * 100_000, f'{{"run": {"[" * 900}{"]" * 900}}}']
INVALID += [json.dumps({"run": run}) for run in ("../../elsewhere", ["x"])]


@pytest.mark.parametrize("text", [*INVALID, *(json.dumps({"run": "x", "resumes": each}) for each in ELSEWHERE)])
def test_invalid_jobs_are_skipped(root: Path, text: str) -> None:
    job = put(root, "")
    (launch_folder(root) / "empty").mkdir()
    (launch_folder(root) / "link").symlink_to("/")
    plant(root, text)
    assert [found.job_id for found in jobs(root)] == [job.job_id]


@pytest.mark.parametrize("pid", ["-1", "0", "true", "1e3", '"1"', "9" * 400])
@pytest.mark.parametrize("created", ["1", "-1", "NaN", "1e999", "9" * 400])
def test_impossible_processes_are_ignored(root: Path, pid: str, created: str) -> None:
    text = f'{{"job": {{"pid": {pid}, "created": {created}}}}}'
    job = read_job(plant(root, '{"run": "x"}', **{PROCESS: text, "exit_code": "9" * 5000, "position": "x"}))
    assert job
    assert (job.started, job.exit_code, job.position) == (None, None, 0)


@pytest.mark.parametrize("odd", ["null", "7", "{}", f"{'[' * 900}{']' * 900}", '"\\ud800"'])
def test_a_job_with_odd_values_is_read_and_not_started(root: Path, odd: str) -> None:
    keys = ("force", "working_folder", "device", "created_at", "place", "command")
    text = ", ".join(f'"{key}": {odd}' for key in keys)
    job = read_job(plant(root, f'{{"run": "x", {text}}}', seal=odd))
    assert job is not None
    assert (job.state, job.force, job.device) == ("unsealed", False, "auto")


def test_jobs_without_the_seal_of_this_user_are_not_started(root: Path) -> None:
    pwned = root / "pwned"
    code = f"open({str(pwned)!r}, 'w')"
    mine = put(root, "print('mine')")
    foreign = put(root, code)
    shutil.copytree(foreign.folder, launch_folder(root) / "job-copied")
    (foreign.folder / "seal").write_text("0" * 64)
    without = put(root, code)
    (without.folder / "seal").unlink()
    moved = put(root, code)
    request = json.loads((moved.folder / "job.json").read_text())
    (moved.folder / "job.json").write_text(json.dumps(request | {"working_folder": "/"}))
    edited = put(root, "print('mine')")
    (edited.folder / "config.yaml").write_text(yaml.safe_dump({"code": code}))
    plant(root, json.dumps({"run": "y", "command": ["touch", str(pwned)], "working_folder": "/"}), position="1")
    queue.start_worker(root)
    wait_for(lambda: now(mine).has_ended)
    wait_for(lambda: not queue.has_worker(root))
    assert output(mine) == "mine\n"
    assert [job.state for job in jobs(root) if job.job_id != mine.job_id] == ["unsealed"] * 6
    assert not pwned.exists()
    assert queue.retry(root, now(moved)).working_folder == str(Path.cwd()), "the folder of an unsealed job is not used"


def test_no_link_is_followed(root: Path, tmp_path: Path) -> None:
    private = tmp_path / "private"
    private.write_text("a private line\n")
    folder = plant(root, '{"run": "x"}')
    for link in (folder / OUTPUT, folder / "config.yaml", launch_folder(root) / "worker.log"):
        link.symlink_to(private)
    job = read_job(folder)
    assert job is not None
    assert tail(folder / OUTPUT) == ""
    for action in (lambda: queue.retry(root, job), lambda: queue.start_worker(root)):
        with pytest.raises(OSError, match="It is a link, which is not followed: "):
            action()
    assert private.read_text() == "a private line\n"
    for name in ("config.yaml", "position", "seal", "job.json"):
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to("/dev/zero")  # reading it would never end
        assert [found.position for found in jobs(root)] == ([] if name == "job.json" else [0])


def test_the_secret_is_private_and_an_empty_one_is_not_used(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    assert put(root, "").state == "waiting"
    path = hashes.secret_path()
    assert path == tmp_path / "data" / "trainproof" / "seal.key"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [job.state for job in jobs(root)] == ["waiting"]
    path.write_bytes(b"")
    assert [job.state for job in jobs(root)] == ["unsealed"]
    assert put(root, "").state == "waiting"


def test_programs_of_the_current_folder_are_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = tmp_path / "clone"
    for name in ("trainproof/__main__.py", "launch/__init__.py", "launch/worker.py", "yaml.py"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(f"open({str(tmp_path / 'pwned')!r}, 'w')")
    monkeypatch.chdir(here)
    job = queue.start(tmp_path / "runs", {"name": "x y"})
    wait_for(lambda: now(job).has_ended)
    assert (now(job).state, job.working_folder) == ("failed", str(here))
    assert "at name" in output(job)
    assert not (tmp_path / "pwned").exists()
