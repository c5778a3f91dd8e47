"""Jobs on Kaggle, with the real `kaggle` command and a server that answers it.

In `test_a_run_goes_there_and_back` the session is real too: the kernel that was sent runs here, with the wheel that was
sent, and trains. The other tests play sessions.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from bundles import small_bundle
from fake_kaggle import USER, FakeKaggle, Session, serve
from pages import APP, labels, press, said, show
from stand_ins import now, output, wait_for
from streamlit.testing.v1 import AppTest
from synthetic import write_run

from dashboard.shared.state import LAUNCH
from evidence.bundle.build import build_bundle
from evidence.layout import SESSION
from launch import queue
from launch.jobs import Job, jobs, read_status
from launch.places.kaggle import PLACES, make_slug
from launch.places.place import Request
from launch.places.upload import build_wheel
from launch.remote import list_places, session_address
from schemas.problems import ProblemError
from schemas.validate import check_value

TINY = {
    "name": "tiny",
    "model": {"name": "tiny-gpt2"},
    "data": {"dataset": "rows.jsonl", "max_length": 128},
    "batch": {"microbatch_size": 4},
    "evaluation": {"eval_set": "eval_v1", "max_new_tokens": 16, "batch_size": 50},
    "checkpoint": {"save_every_steps": 1},
    "limits": {"steps": 2},
}
T4S = ["Tesla T4", "Tesla T4"]
NAMES = ("local", "kaggle-gpu", "kaggle-tpu")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    build_wheel(folder)
    [wheel] = folder.iterdir()
    return wheel


@pytest.fixture
def kaggle(tmp_path: Path, wheel: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeKaggle]:
    service = FakeKaggle()
    server = serve(service)
    for name, value in service.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TRAINPROOF_POLL_SECONDS", "0.2")
    monkeypatch.setenv("TRAINPROOF_WHEEL", str(wheel))
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent), prepend=os.pathsep)
    yield service
    server.shutdown()
    server.server_close()


@pytest.fixture
def root(tmp_path: Path, kaggle: FakeKaggle, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A runs folder beside the rows that the configuration names."""
    work = tmp_path / "work"
    work.mkdir()
    (work / "rows.jsonl").write_text('{"prompt": "What is 2 + 2?", "completion": "4"}\n' * 8)
    monkeypatch.chdir(work)
    root = tmp_path / "runs"
    yield root
    for job in jobs(root):
        queue.kill(job)
    wait_for(lambda: not queue.has_worker(root))


def ended(job: Job, seconds: float = 90) -> Job:
    wait_for(lambda: now(job).has_ended, seconds)
    return now(job)


def result_line(bundle: bytes, code: int = 0) -> str:
    return "trainproof session: " + json.dumps({"exit_code": code, "bundle_sha256": sha256(bundle).hexdigest()})


def played(folder: Path, **changes: Any) -> Callable[[Session], None]:
    """Return a session that leaves a bundle with the run that was asked for."""

    def play(session: Session) -> None:
        [files] = session.datasets.values()
        asked = json.loads(files["request.json"])
        run = write_run(folder / f"v{session.number}", asked["run"], steps=4, items=6)
        content = build_bundle([run], folder / f"bundle-{session.number}.zip").output.read_bytes()
        session.files["bundle.zip"] = changes.get("content", content)
        session.lines += changes.get("lines", ["step 1", "step 2", result_line(content)])
        session.end(**changes.get("end", {}))

    return play


def rehearse(folder: Path, devices: list[str]) -> Callable[[Session], None]:
    """Return a session that runs the kernel that was sent. pip installs the wheel alone, into a folder of its own."""

    def run(session: Session) -> None:
        own = folder / next(iter(session.datasets)).partition("/")[2]
        attached, working, site = (own / str(session.number) / name for name in ("input", "working", "site"))
        for name, files in session.datasets.items():
            for file, content in files.items():
                path = attached / name.partition("/")[2] / file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
        working.mkdir()
        (script := working / "session.py").write_text(session.request["text"])
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
        variables |= {"TRAINPROOF_DEVICES": json.dumps(devices), "TRAINPROOF_DEVICE": "cpu"}
        variables |= {"TRAINPROOF_INPUT": str(attached), "TRAINPROOF_WORKING": str(working)}
        variables |= {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_TARGET": str(site), "PYTHONPATH": str(site)}
        command = [sys.executable, str(script)]
        with subprocess.Popen(
            command, cwd=working, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        ) as process:
            for line in process.stdout:
                session.lines.append(line.rstrip())
        for path in working.rglob("*"):
            if path.is_file() and path != script:
                session.files[path.relative_to(working).as_posix()] = path.read_bytes()
        code = process.returncode
        session.end(*(("ERROR", f"Your notebook exited with code {code}") if code else ("COMPLETE", "")))

    return run


def trainproof(*arguments: object) -> str:
    command = [sys.executable, "-m", "trainproof", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_run_is_pushed_watched_fetched_verified_and_compared(kaggle, root, tmp_path):
    kaggle.run = rehearse(tmp_path / "session", T4S)
    Path("tiny.yaml").write_text(json.dumps(TINY))
    said = trainproof("push", "--config", "tiny.yaml", "--to", "kaggle-gpu", "--yes", "--root", root)
    assert "30 h left until 2026-12-05" in said
    assert "the wheel of trainproof, config.yaml, rows.jsonl" in said
    assert "2 x Tesla T4, as requested" in said
    [job] = jobs(root)
    assert (job.state, job.exit_code) == ("succeeded", 0)
    full, smoke = (
        json.loads((root / name / "run_manifest.json").read_text()) for name in (job.run, f"{job.run}-smoke")
    )
    assert (full["mode"], full["status"], smoke["mode"]) == ("full", "succeeded", "smoke")
    assert full["command"][-6:-3] == ["--session", "kaggle-gpu", "--resume"]
    witness = json.loads((root / job.run / SESSION).read_text())
    assert full["place"] == {"name": "kaggle-gpu", "requested": T4S, "received": T4S} == smoke["place"]
    assert (witness["place"], witness["received"], check_value("session", witness, file=SESSION)) == (
        "kaggle-gpu",
        T4S,
        [],
    )
    assert (witness["reference"], witness["is_in_log"]) == (f"{USER}/{make_slug(job.run)}/1", True)
    assert "session.json" not in trainproof("check", root / job.run)
    assert "limits.steps" not in trainproof("compare", root / f"{job.run}-smoke", root / job.run)
    trainproof("package", root / job.run, "--output", tmp_path / "again.zip")
    trainproof("verify", tmp_path / "again.zip")


@pytest.mark.slow
def test_the_same_by_the_page_alone(kaggle, root, tmp_path, monkeypatch):
    kaggle.run = rehearse(tmp_path / "session", T4S)
    show(root, Path.cwd(), monkeypatch)
    settings = [
        "data.dataset=rows.jsonl",
        "limits.steps=2",
        "evaluation.eval_set=eval_v1",
        "checkpoint.save_every_steps=1",
    ]
    app = AppTest.from_file(APP, default_timeout=120).run()
    app.switch_page(str(APP.parent / LAUNCH.file))
    app.query_params["source"], app.query_params["set"] = "tiny.yaml", settings
    app = press(app.run(), "choose kaggle-gpu")
    assert "Quota: unknown" in said(app)
    press(app, "Ask for the quota")
    wait_for(lambda: "Quota: 30 h left until 2026-12-05" in said(app.run()), 90)
    press(app, "Show hours and uploads")
    wait_for(lambda: "Send to kaggle-gpu" in labels(app.run()), 300)
    assert ("the wheel of trainproof, config.yaml, rows.jsonl" in said(app), "ada" in said(app)) == (True, True)
    assert not {"StartBlobUpload", "SaveKernel"} & set(kaggle.calls)
    app = press(app, "Send to kaggle-gpu")
    [job] = jobs(root)
    app.switch_page(str(APP.parent / LAUNCH.file))
    wait_for(lambda: any("h of the session left" in box.label for box in app.run().get("status")), 90)
    wait_for(lambda: "2 x Tesla T4, as requested" in "".join(box.value for box in app.run().code), 90)
    ended(job, 300)
    app = press(app.run(), "Open run")
    reference = f"{USER}/{make_slug(job.run)}"
    assert f'<a href="https://www.kaggle.com/code/{reference}"' in said(app)
    assert "2 × Tesla T4, as requested · its log states the hash of the bundle" in said(app)
    wait_for(lambda: "Smoke → TPU" in labels(app.run()), 60)  # the index has seen both runs
    app = press(app, "Smoke → TPU")
    assert job.run in app.query_params["full"]
    assert f"{job.run}-smoke" in app.query_params["smoke"]
    assert "passed" in said(app)


def test_the_quota_of_every_place_is_listed_or_why_it_is_not(kaggle, root, monkeypatch):
    kaggle.tpu_used = 20 * 3600
    local, gpu, tpu = (next(one for one in list_places(root) if one["place"] == name) for name in NAMES)
    assert (local["account"], gpu["account"], gpu["left_hours"], gpu["findings"]) == (None, USER, 30, [])
    assert [one["code"] for one in tpu["findings"]] == ["TP771"]
    kaggle.troubles = {"GetAcceleratorQuotaStatistics": [503] * 2}
    assert [one["findings"] != [] for one in list_places(root)] == [True, True, False, False]
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    assert {one["code"] for place in list_places(root) for one in place["findings"]} == {"TP770"}


@pytest.mark.slow
def test_another_device_ends_the_session_at_once(kaggle, root, tmp_path):
    kaggle.run = rehearse(tmp_path / "session", ["Tesla P100-PCIE-16GB"])
    job = ended(queue.start(root, TINY, place="kaggle-gpu"))
    assert (job.state, list(root.glob("tiny*"))) == ("failed", [])
    assert "Kaggle gave 1 x Tesla P100-PCIE-16GB; requested were 2 x Tesla T4. Nothing was trained." in output(job)


def test_what_is_sent(kaggle, root, tmp_path):
    (Path("rewards.py")).write_text("def score(attempt):\n    return 1.0\n")
    config = {
        **TINY,
        "data": TINY["data"] | {"system_prompt": "Show your steps. " * 50},
        "model": {"name": "google/gemma-2b"},
        "objective": {"rewards": ["rewards.py:score"]},
    }
    request = Request(run="tiny-20261127-101010-abcd", config=config, working_folder=Path.cwd())
    for name, shape in (("kaggle-tpu", "TpuV5E8"), ("kaggle-gpu", "NvidiaTeslaT4")):
        folder = tmp_path / name
        folder.mkdir()
        PLACES[name].prepare(request, folder)
        told = json.loads((folder / "kernel" / "kernel-metadata.json").read_text())
        assert told["machine_shape"] == shape
        # A pinned image would make a TPU session one without a TPU.
        assert not {"docker_image", "docker_image_pinning_type"} & set(told)
        assert (told["is_private"], told["dataset_sources"]) == (True, [f"{USER}/trainproof-tiny-20261127-101010-abcd"])
        assert told["model_sources"] == ["google/gemma/transformers/2b/2"]
        names = {path.name for path in (folder / "dataset").iterdir()}
        assert {"config.yaml", "request.json", "rows.jsonl", "rewards.py", "dataset-metadata.json"} < names
        assert any(name.endswith(".whl") for name in names)
        assert "rewards.py:score" in (folder / "dataset" / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("method", "answers"),
    [
        ("SaveKernel", ["lost"]),
        *(
            pytest.param(*trouble, marks=pytest.mark.slow)
            for trouble in (
                ("SaveKernel", [503]),
                ("CreateDataset", ["lost"]),
                ("GetKernelSessionStatus", [500, 502]),
                ("GetKernelSessionStatus", [401, 401, 401]),
                ("GetAcceleratorQuotaStatistics", [504]),
                ("output", [7]),
            )
        ),
    ],
)
def test_a_lost_connection_neither_loses_nor_repeats_anything(method, answers, kaggle, root, tmp_path):
    kaggle.run, kaggle.troubles = played(tmp_path / "played"), {method: answers}
    job = ended(queue.start(root, TINY, place="kaggle-tpu"))
    assert (job.state, (root / job.run / SESSION).is_file()) == ("succeeded", True), output(job)
    assert len(kaggle.datasets) == len(kaggle.sessions) == 1
    assert [len(versions) for versions in kaggle.sessions.values()] == [1]


@pytest.mark.slow
def test_a_killed_process_goes_on_from_its_session(kaggle, root, tmp_path):
    hold = SimpleNamespace(done=False)

    def wait(session: Session) -> None:
        session.lines.append("step 1")
        wait_for(lambda: hold.done)
        played(tmp_path / "played")(session)

    kaggle.run = wait
    job = queue.start(root, TINY, place="kaggle-tpu")
    wait_for(lambda: "step 1" in output(job))
    status = read_status(job.folder)
    for process in (status.worker, status.started):  # as when the machine is switched off
        queue.process.kill(process)
    hold.done = True
    queue.start_worker(root)
    job = ended(job)
    assert (job.state, (root / job.run / SESSION).is_file()) == ("succeeded", True), output(job)
    assert [len(versions) for versions in kaggle.sessions.values()] == [1]
    assert output(job).count("step 1") <= 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lines": [result_line(b"another")]}, "the log of the session states"),
        ({"content": b"PK not a zip"}, "the log of the session states"),
        ({"content": b"", "lines": [result_line(b"")]}, "does not verify"),
    ],
)
def test_output_that_is_not_the_sessions_is_not_imported(change, says, kaggle, root, tmp_path):
    kaggle.run = played(tmp_path / "played", **change)
    job = ended(queue.start(root, TINY, place="kaggle-tpu"))
    assert (job.state, list(root.glob("tiny*"))) == ("failed", [])
    assert says in output(job)


@pytest.mark.slow
def test_the_bundle_of_another_job_is_not_imported(kaggle, root, tmp_path):
    other = small_bundle(tmp_path / "other").read_bytes()
    kaggle.run = played(tmp_path / "played", content=other, lines=[result_line(other)])
    job = ended(queue.start(root, TINY, place="kaggle-tpu"))
    assert (job.state, [path.name for path in root.iterdir()]) == ("failed", [".launch"])
    assert "left no run" in output(job)


@pytest.mark.slow
def test_a_killed_session_leaves_its_rows(kaggle, root, tmp_path):
    def killed(session: Session) -> None:
        [files] = session.datasets.values()
        run = write_run(tmp_path / "killed", json.loads(files["request.json"])["run"], steps=4, items=0)
        for path in run.iterdir():
            session.files[f"runs/{run.name}/{path.name}"] = path.read_bytes()
        session.files[f"runs/{run.name}/checkpoints/4/weights"] = b"0" * 100
        session.end("ERROR", "Your notebook tried to allocate more memory than is available.")

    kaggle.run = killed
    job = ended(queue.start(root, TINY, place="kaggle-tpu"))
    assert (root / job.run / "metrics.jsonl").is_file()
    assert not (root / job.run / "checkpoints").exists()
    assert "more memory than is available" in output(job)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("method", "answer", "says"),
    [
        ("SaveKernel", {"error": "Maximum batch TPU session count of 1 reached."}, "Wait until another session"),
        ("SaveKernel", {"error": "You must accept the terms of google/gemma."}, "Accept the terms"),
        ("CreateDataset", {"status": "error", "error": "The dataset is too large."}, "make the upload smaller"),
        ("GetAcceleratorQuotaStatistics", 401, "kaggle auth login"),
    ],
)
def test_a_refusal_says_what_to_do(method, answer, says, kaggle, root):
    kaggle.troubles = {method: [answer] * 3}
    job = ended(queue.start(root, TINY, place="kaggle-tpu"))
    assert job.state == "failed"
    assert says in output(job)
    assert kaggle.sessions == {}
    assert "Traceback" not in output(job)


@pytest.mark.parametrize(
    ("prepare", "code", "says"),
    [
        (lambda kaggle: setattr(kaggle, "tpu_used", 20 * 3600), "TP771", "No hours are left this week for"),
        (lambda _: Path("rows.jsonl").write_text(f'{{"prompt": "hf_{"aB3" * 12}"}}\n'), "TP846", "rows.jsonl"),
        (lambda _: os.environ.__setitem__("PATH", "/nowhere"), "TP770", "not installed"),
    ],
)
def test_nothing_is_sent_that_cannot_run(prepare, code, says, kaggle, root, monkeypatch):
    monkeypatch.setenv("PATH", os.environ["PATH"])
    if code == "TP770":
        monkeypatch.setattr(sys, "executable", "/nowhere/python")
    prepare(kaggle)
    with pytest.raises(ProblemError) as raised:
        PLACES["kaggle-tpu"].offer(Request(run="tiny", config=TINY, working_folder=Path.cwd()))
    assert (raised.value.problems[0].code, says in str(raised.value.problems[0])) == (code, True), raised.value
    assert not {"StartBlobUpload", "SaveKernel"} & set(kaggle.calls)


@pytest.mark.slow
def test_the_next_session_continues_a_run(kaggle, root, tmp_path):
    kaggle.run = played(tmp_path / "played")
    first = ended(queue.start(root, TINY, place="kaggle-tpu"))
    manifest = root / first.run / "run_manifest.json"
    document = json.loads(manifest.read_text())
    manifest.write_text(json.dumps({**document, "status": "interrupted"}))
    run, after = queue.find_resumable(root, Path(first.run))
    again = ended(queue.resume(root, run, stopped=after))
    assert again.place == "kaggle-tpu"
    [session] = kaggle.sessions[f"{USER}/{make_slug(again.run)}"]
    assert session.request["kernelDataSources"] == [f"{USER}/{make_slug(first.run)}"]
    assert "rows.jsonl" in session.datasets[f"{USER}/{make_slug(again.run)}"]


@pytest.mark.slow
def test_the_adapter_of_a_phase_is_sent_with_the_next_and_merged_here(kaggle, root, tmp_path):
    kaggle.run = rehearse(tmp_path / "session", T4S)
    base = Path(__file__).parents[2] / "trainer" / "configs" / "countdown_start"
    shared = {"model": {"name": str(base)}, "method": {"kind": "lora", "rank": 2}, "evaluation": {"eval_set": None}}
    phases = {"code": {}, "math": {"parent": "code", "set": {"seed": 1}}}
    file = {"name": "tiny", "config": TINY | shared, "phases": phases, "merge": {"weights": {"math": 0.5}}}
    Path("phases.yaml").write_text(json.dumps(file))
    said = trainproof("push", "--phases", "phases.yaml", "--to", "kaggle-gpu", "--yes", "--root", root)
    code, math, end = jobs(root)
    assert [job.state for job in (code, math, end)] == ["succeeded"] * 3, said
    (_, first), (_, second) = [next(iter(each.datasets.items())) for [each] in kaggle.sessions.values()]
    assert "trained_params.safetensors" not in first
    assert second["trained_params.safetensors"] == (root / code.run / "trained_params.safetensors").read_bytes()
    manifest = json.loads((root / math.run / "run_manifest.json").read_text())
    assert (manifest["phase"]["parent"], manifest["phase"]["file"]) == (code.run, "phases.yaml")
    assert (Path("bundles") / "tiny.zip").is_file()
    assert "The merged model is in bundles/tiny-" in said
    # Nothing is sent again.
    trainproof("push", "--phases", "phases.yaml", "--to", "kaggle-gpu", "--yes", "--root", root)
    assert len(kaggle.sessions) == 2


@pytest.mark.slow
def test_the_hours_of_all_phases_are_compared_with_the_week(kaggle, root):
    kaggle.tpu_used = 19.9 * 3600
    phases = {name: {"set": {"limits.steps": 5_000_000, "seed": seed}} for seed, name in enumerate("abcd")}
    Path("phases.yaml").write_text(json.dumps({"name": "tiny", "config": TINY, "phases": phases}))
    command = [sys.executable, "-m", "trainproof", "push", "--phases", "phases.yaml", "--to", "kaggle-tpu", "--yes"]
    done = subprocess.run([*command, "--root", str(root)], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "4 runs together: at least" in done.stderr
    assert jobs(root) == []


@pytest.mark.slow
def test_cancelling_ends_the_session(kaggle, root):
    kaggle.run = lambda session: session.ended.wait(60)
    job = queue.start(root, TINY, place="kaggle-tpu")
    wait_for(lambda: "is at https://www.kaggle.com/code/" in output(job))
    time.sleep(0.3)
    queue.cancel(job)
    assert ended(job).state == "cancelled"
    assert (kaggle.sessions, "DeleteKernel" in kaggle.calls) == ({}, True)


@pytest.mark.parametrize(
    ("place", "reference"),
    [
        ("kaggle-tpu", "javascript:alert(1)//a/1"),
        ("kaggle-tpu", "ada/../../evil/1"),
        ("kaggle-tpu", None),
        ("local", "ada/tiny/1"),
        ("elsewhere", "ada/tiny/1"),
    ],
)
def test_a_link_leads_to_the_place_or_nowhere(place, reference):
    assert session_address("kaggle-tpu", "ada/tiny/1") == "https://www.kaggle.com/code/ada/tiny"
    assert session_address(place, reference) is None
