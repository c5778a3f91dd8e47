"""Runs on a cluster of two CPUs that the tests start, one device in each process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import psutil
import pytest
from commands import run_command
from compiled import QUICK
from pages import APP, said, show
from stand_ins import now, output, wait_for
from streamlit.testing.v1 import AppTest
from whole_runs import manifest_of, rows, saved_steps

from evidence import layout
from launch import queue
from launch.jobs import Job, enqueue, jobs
from launch.places import get_place
from launch.places import ray as place
from schemas.problems import ProblemError
from schemas.reading import read_yaml, write_yaml

ray = pytest.importorskip("ray")

PORT = 6391
SECONDS = 400
CONFIG = """
name: on-ray
model: {name: tiny-gpt2}
data: {max_length: 96}
optimizer: {learning_rate: 0.01}
batch: {microbatch_size: 1}
mesh: {device: cpu, devices: 2}
checkpoint: {save_every_steps: 3}
recording: {log_every_steps: 1}
limits: {steps: 60}
"""
PROGRAM = str(Path(sys.executable).with_name("ray"))
EXACT = ("step", "tokens_seen", "loss", "grad_norm")


def flags(devices: int) -> str:
    return f"--xla_force_host_platform_device_count={devices} --xla_cpu_max_isa=AVX2 {QUICK}"


def config_of(**groups: dict) -> dict:
    config = read_yaml(CONFIG, file="config.yaml").value
    return {name: {**value, **groups.get(name, {})} if name in groups else value for name, value in config.items()}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory) -> Iterator[None]:
    """Start a cluster of two CPUs for the tests of this file, and stop all its processes in the end."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}.items():
            patch.setenv(name, value)
        options = ["--num-cpus=2", f"--port={PORT}", "--object-store-memory=100000000", "--include-dashboard=false"]
        log = tmp_path_factory.mktemp("ray") / "log"
        with log.open("w") as written:
            head = subprocess.Popen(
                [PROGRAM, "start", "--head", "--block", "--disable-usage-stats", *options],
                env={**os.environ, "XLA_FLAGS": flags(1)},
                stdout=written,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        processes = [psutil.Process(head.pid)]
        try:
            wait_for(lambda: "Ray runtime started" in log.read_text() or head.poll() is not None, SECONDS)
            assert head.poll() is None, log.read_text()
            patch.setenv("RAY_ADDRESS", f"127.0.0.1:{PORT}")
            yield
        finally:
            processes += processes[0].children(recursive=True) if head.poll() is None else []
            head.terminate()
            head.wait()
            _, left = psutil.wait_procs(processes[1:], timeout=30)
            for process in left:
                process.kill()


@pytest.fixture
def root(cluster: None, tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "runs"
    for job in jobs(tmp_path / "runs"):
        queue.cancel(job)
    wait_for(lambda: not queue.has_worker(tmp_path / "runs"), SECONDS)


def exact(*folders: Path) -> list[list[object]]:
    return [[row.get(key) for key in EXACT] for folder in folders for row in rows(folder)]


def has_rows(root: Path, job: Job, count: int = 1) -> bool:
    metrics = root / now(job).run / layout.METRICS
    assert not now(job).has_ended, output(job)
    return metrics.is_file() and metrics.read_text().count("\n") >= count


def trainers() -> list[psutil.Process]:
    """Return the processes that train, of this cluster alone."""
    head = next(each for each in psutil.process_iter() if f"--port={PORT}" in " ".join(command(each)))
    return [each for each in head.children(recursive=True) if "RayTrainWorker" in " ".join(command(each))]


def command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


@pytest.mark.slow
def test_two_processes_give_the_losses_of_one_even_if_one_is_killed(root, tmp_path):
    file, whole = tmp_path / "config.yaml", tmp_path / "whole"
    file.write_text(CONFIG)
    train = [sys.executable, "-m", "trainproof", "train", "--config", str(file), "--output", str(whole)]
    subprocess.run(train, env={**os.environ, "XLA_FLAGS": flags(2)}, check=True, capture_output=True)
    job = queue.start(root, config_of(), place="ray")
    wait_for(lambda: has_rows(root, job, 5), SECONDS)
    # The run does not need the process that watches it.
    watching, first = now(job).started, now(job).run
    assert watching is not None
    os.kill(watching.pid, signal.SIGKILL)
    trainers()[1].kill()
    wait_for(lambda: now(job).state in {"waiting", "running"} and now(job).started != watching, SECONDS)
    wait_for(lambda: now(job).has_ended, SECONDS)
    ended = now(job)
    assert (ended.exit_code, ended.run != first) == (0, True), output(job)
    manifest = manifest_of(root / ended.run)
    assert (manifest["devices"]["processes"], manifest["parent"]["run_id"]) == (2, first)
    before, after = exact(root / first), exact(root / ended.run)
    assert before == exact(whole)[: len(before)]
    assert after == exact(whole)[-len(after) :]
    assert len(after) < 60
    assert output(job).count("step 60/60") == 1


@pytest.mark.slow
def test_two_jobs_run_at_a_time_and_are_stopped_with_a_checkpoint(root):
    long = config_of(mesh={"devices": 1}, limits={"steps": 100_000}, checkpoint={"save_every_steps": 0})
    both = [queue.start(root, long, place="ray") for _ in range(2)]
    wait_for(lambda: all(has_rows(root, job) for job in both), SECONDS)
    for job in both:
        queue.cancel(job)
    wait_for(lambda: all(now(job).has_ended for job in both), SECONDS)
    assert [now(job).state for job in both] == ["interrupted"] * 2, output(both[0])
    assert all(saved_steps(root / job.run) for job in both)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of Ray itself
def test_processes_that_do_not_know_each_other_are_refused(root, monkeypatch):
    from ray.train.v2 import jax as engine

    real = engine.JaxConfig
    monkeypatch.setattr(engine, "JaxConfig", lambda **_: real())
    config = write_yaml(config_of())
    job = enqueue(root, run="apart", working_folder=root, now=place.datetime.now(place.UTC), config=config, place="ray")
    with place._connected() as nodes:
        code = place._fit(job.folder, place.plan_workers(config_of(), nodes))
    printed = (job.folder / "process-0.log").read_text()
    assert (code, "TP781" in printed) == (3, True), printed
    assert not (root / "apart").exists()


@pytest.mark.slow
def test_what_a_cluster_lacks_is_named(root, monkeypatch):
    def refusal(**changes) -> str:
        with pytest.raises(ProblemError) as refused:
            queue.start(root, config_of(**changes), place="ray")
        return refused.value.problems[0].what

    assert "The run needs 3 CPU" in (said := refusal(mesh={"devices": 3}))
    assert said.endswith("The cluster has: 2 CPU.")
    assert "The run needs 1 GPU" in refusal(mesh={"device": "gpu", "devices": None})
    job = enqueue(root, run="lost", working_folder=root, now=place.datetime.now(place.UTC), config="{}", place="ray")
    absent = ModuleType("absent")
    exec("def probe(folder, expected): return ''", absent.__dict__)  # the workers do not have it
    with place._connected() as nodes:
        with pytest.raises(ProblemError, match="does not see the folder"):
            place._probe_nodes(replace(job, folder=Path("/nowhere")), nodes)
        monkeypatch.setitem(sys.modules, "absent", absent)
        monkeypatch.setattr(place, "probe", absent.probe)
        with pytest.raises(ProblemError, match=r"cannot start trainproof: .*No module named 'absent'"):
            place._probe_nodes(job, nodes)
    monkeypatch.setattr(ray, "__version__", "2.0.0")
    assert "Version mismatch" in refusal()
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    assert "Ray cannot be used on 127.0.0.1:1" in refusal()
    assert [job.run for job in jobs(root)] == ["lost"]


@pytest.mark.slow
@pytest.mark.skipif(not os.environ.get("TRAINPROOF_NIGHTLY"), reason="several minutes; TRAINPROOF_NIGHTLY=1 runs it")
@pytest.mark.filterwarnings("ignore:Target and region quantiles")  # all scores are 0
def test_a_sweep_of_twelve_trials_ends_with_a_table_and_a_page(root, tmp_path, monkeypatch, capsys):
    search = {"optimizer.learning_rate": {"low": 1e-4, "high": 1e-2, "log": True}}
    sweep = {"name": "small", "config": "config.yaml", "trials": 12, "parallel": 2, "place": "ray", "search": search}
    evaluation = {"eval_set": "eval_v1", "baseline": False, "max_new_tokens": 4, "batch_size": 50}
    config = config_of(mesh={"devices": 1}, limits={"steps": 2}) | {"evaluation": evaluation}
    monkeypatch.chdir(tmp_path)
    Path("config.yaml").write_text(write_yaml(config))
    Path("sweep.yaml").write_text(write_yaml(sweep))
    code, said_there, errors = run_command(capsys, "sweep", "sweep.yaml", "--root", root)
    assert code == 0, errors
    document = json.loads((root / layout.SWEEPS / "small" / "sweep.json").read_text())
    assert [trial["state"] for trial in document["trials"]] == ["succeeded"] * 12
    assert said_there.startswith(f"Best of 12: trial {document['best']['number']}")
    assert {job.place for job in jobs(root)} == {"ray"}
    show(root, tmp_path, monkeypatch)
    app = AppTest.from_file(APP, default_timeout=60).run()
    app.switch_page(str(APP.parent / "views" / "sweep.py")).run()
    assert "Best of 12" in said(app)


@pytest.mark.parametrize(
    ("mesh", "machines", "expected"),
    [
        ({"devices": None}, [{"CPU": 4.0}], (1, {"CPU": 1})),
        ({"devices": 3}, [{"CPU": 1.0}, {"CPU": 2.0}], (3, {"CPU": 1})),
        ({"devices": None}, [{"CPU": 8.0}, {"CPU": 8.0, "GPU": 4.0}], (1, {"GPU": 4})),
        ({"devices": 2}, [{"CPU": 8.0, "GPU": 4.0}], (1, {"GPU": 2})),
        ({"devices": 8}, [{"GPU": 4.0}, {"GPU": 4.0}], (2, {"GPU": 4})),
        ({"devices": 6}, [{"GPU": 4.0}, {"GPU": 4.0}], None),
        ({"devices": 1, "device": "tpu"}, [{"CPU": 4.0}], None),
        ({"devices": 1}, [], None),
    ],
)
def test_a_run_gets_whole_machines_or_part_of_one(mesh, machines, expected):
    nodes = [{"Resources": each, "Labels": {}} for each in machines]
    if expected is None:
        with pytest.raises(ProblemError):
            place.plan_workers({"mesh": mesh}, nodes)
    else:
        found = place.plan_workers({"mesh": mesh}, nodes)
        assert (found["num_workers"], found["resources_per_worker"]) == expected


def test_ray_schedules_its_jobs():
    assert get_place("ray").has_own_queue
