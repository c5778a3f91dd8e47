"""The Kaggle kernels: made from one source, asked for the right machine, and run here with a device that is answered.

The device question alone is answered by the tests (TRAINPROOF_DEVICES, TRAINPROOF_DEVICE, or a driver of theirs); the
wheel, its installation, training, packing and verification are real and small.
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkouts import checkout_in

KAGGLE = Path("kaggle").resolve()
DOCUMENTED = {
    *("id", "id_no", "title", "code_file", "language", "kernel_type", "is_private", "enable_gpu", "enable_internet"),
    *("machine_shape", "dataset_sources", "competition_sources", "kernel_sources", "model_sources"),
}
"""Keys of kernel-metadata.json in Kaggle/kaggle-cli docs/kernels_metadata.md, September 2026."""
UNDOCUMENTED = {"enable_tpu"}
"""Written by `kaggle kernels init`, and in every kernel on a TPU."""

BUILD = "import sys; from setuptools.build_meta import build_wheel; print(build_wheel(sys.argv[1]))"
TINY = """\
name: tiny
model: {name: tiny-gpt2}
data: {dataset: rows.jsonl, max_length: 128}
batch: {microbatch_size: 4}
evaluation: {eval_set: eval_v1, max_new_tokens: 16, batch_size: 50}
checkpoint: {save_every_steps: 1}
limits: {steps: 2}
"""


@pytest.fixture(scope="module")
def make():
    spec = importlib.util.spec_from_file_location("make_kaggle", KAGGLE / "make.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code_cells(machine: str) -> list[str]:
    cells = json.loads((KAGGLE / machine / "kernel.ipynb").read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture(scope="module")
def sent(make, tmp_path_factory):
    """What one account sends."""
    folder = tmp_path_factory.mktemp("sent")
    make.write("ada", folder)
    return folder


def test_what_is_committed_is_what_is_made(make):
    made = make.made(None)
    assert {name: (KAGGLE / name).read_text("utf-8") for name in made} == made
    assert {str(path.relative_to(KAGGLE)) for path in KAGGLE.glob("*/*")} - {"__pycache__"} >= set(made)


@pytest.mark.parametrize("machine", ["t4x2", "tpu-v5e-8"])
def test_a_notebook_is_its_script_in_cells(machine, sent):
    script = (sent / machine / "kernel.py").read_text("utf-8")
    assert (sent / machine / "kernel.ipynb").read_bytes() == (KAGGLE / machine / "kernel.ipynb").read_bytes()
    cells = code_cells(machine)
    assert len(cells) == 6
    assert "given_devices" in cells[0], "the device is asked for first"
    for cell in cells:
        assert cell in script
        compile(cell, machine, "exec")
    words = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert [line for line in "\n".join(cells).splitlines() if line and not line.startswith("#")] == words


@pytest.mark.parametrize(
    ("machine", "shape", "gpu", "tpu"),
    [("t4x2", "NvidiaTeslaT4", "true", "false"), ("tpu-v5e-8", "TpuV5E8", "false", "true")],
)
def test_what_kaggle_is_told(machine, shape, gpu, tpu, sent):
    told = json.loads((sent / machine / "kernel-metadata.json").read_text("utf-8"))
    assert set(told) <= DOCUMENTED | UNDOCUMENTED
    assert (told["machine_shape"], told["enable_gpu"], told["enable_tpu"]) == (shape, gpu, tpu)
    assert (told["kernel_type"], told["is_private"], told["enable_internet"]) == ("script", "true", "true")
    assert (sent / machine / told["code_file"]).is_file()
    assert told["id"].partition("/")[2] == told["title"], "a slug is the title in lower case with hyphens"


def test_one_account_gets_its_own_names(sent):
    told = json.loads((sent / "t4x2" / "kernel-metadata.json").read_text("utf-8"))
    assert told["id"] == "ada/trainproof-t4x2"
    assert told["dataset_sources"] == ["ada/trainproof-wheel"]


def first_cell(machine: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the first cell on a machine with only what is given."""
    return subprocess.run(
        [sys.executable, "-c", code_cells(machine)[0]],
        cwd=folder,
        env={"PATH": str(folder), **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def driver(folder: Path, *names: str) -> None:
    """Put an nvidia-smi into a folder that names these cards."""
    program = folder / "nvidia-smi"
    program.write_text("#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in names))
    program.chmod(0o755)


@pytest.mark.parametrize("cards", [(), ("Tesla T4",), ("Tesla P100-PCIE-16GB",), ("Tesla T4", "Tesla T4", "Tesla T4")])
def test_other_cards_than_two_t4s_end_the_session_in_its_first_cell(cards, tmp_path):
    if cards:
        driver(tmp_path, *cards)
    done = first_cell("t4x2", tmp_path)
    assert done.returncode == 1
    found = f"{len(cards)} x {cards[0]}" if cards else "no accelerator"
    assert f"Kaggle gave {found}; asked for were 2 x Tesla T4. Nothing was spent on it." in done.stderr
    assert "choose Settings, Accelerator, GPU T4 x2" in done.stderr
    assert "Traceback" not in done.stderr


def test_two_t4s_are_what_was_asked_for(tmp_path):
    driver(tmp_path, "Tesla T4", "Tesla T4")
    done = first_cell("t4x2", tmp_path)
    assert (done.returncode, done.stdout) == (0, "2 x Tesla T4, as asked for\n")


@pytest.mark.parametrize(("given", "code"), [("v5litepod-8", 0), ("v5litepod-4", 1), ("v3-8", 1), ("v6e-8", 1)])
def test_only_eight_v5e_chips_are_what_was_asked_for(given, code, tmp_path):
    done = first_cell("tpu-v5e-8", tmp_path, TPU_ACCELERATOR_TYPE=given)
    assert done.returncode == code
    if code:
        kind, _, count = given.rpartition("-")
        assert f"Kaggle gave {count} x {kind}; asked for were 8 x v5litepod" in done.stderr


def test_a_gpu_is_no_tpu(tmp_path):
    driver(tmp_path, "Tesla T4", "Tesla T4")
    done = first_cell("tpu-v5e-8", tmp_path)
    assert done.returncode == 1
    assert "Kaggle gave 2 x Tesla T4; asked for were 8 x v5litepod" in done.stderr


@pytest.fixture(scope="module")
def session(tmp_path_factory):
    """A session: a folder with the wheel and a small configuration attached, and one to work in."""
    folder = tmp_path_factory.mktemp("session")
    wheel = folder / "input" / "trainproof-wheel"
    wheel.mkdir(parents=True)
    (folder / "working").mkdir()
    checkout = checkout_in(tmp_path_factory.mktemp("checkout"))
    subprocess.run([sys.executable, "-c", BUILD, str(wheel)], cwd=checkout, capture_output=True, check=True)
    (wheel / "config.yaml").write_text(TINY)
    (wheel / "rows.jsonl").write_text('{"prompt": "What is 2 + 2?", "completion": "4"}\n' * 8)
    return folder


def rehearsed(script: Path, folder: Path, devices: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a whole kernel; pip takes the wheel alone, into a folder that Python looks into first."""
    site = folder / "site"
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
    environment |= {
        "TRAINPROOF_DEVICES": json.dumps(devices),
        "TRAINPROOF_DEVICE": "cpu",
        "TRAINPROOF_INPUT": str(folder / "input"),
        "TRAINPROOF_WORKING": str(folder / "working"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_INDEX": "1",
        "PIP_TARGET": str(site),
        "PYTHONPATH": str(site),
    }
    return subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_a_whole_session_leaves_a_bundle(session, sent):
    done = rehearsed(sent / "t4x2" / "kernel.py", session, ["Tesla T4", "Tesla T4"])
    assert done.returncode == 0, done.stdout + done.stderr
    working = session / "working"
    smoke, full = (
        json.loads((working / "runs" / name / "run_manifest.json").read_text()) for name in ("smoke", "full")
    )
    assert (smoke["mode"], full["mode"], full["status"]) == ("smoke", "full", "succeeded")
    assert full["code"]["source"] == "wheel"
    assert full["command"][-6:-3] == ["--session", "kaggle-gpu", "--resume"]
    log = [json.loads(line) for line in (working / "runs" / "full" / "log.jsonl").read_text().splitlines()]
    [left] = [record["fields"]["left_seconds"] for record in log if record["event"] == "session"]
    assert 11 * 3600 < left <= 12 * 3600 - 600, "it counts from the first cell, and keeps time for the bundle"
    verify = [sys.executable, "-m", "trainproof", "verify", working / "bundle.zip"]
    assert subprocess.run(verify, capture_output=True, check=False).returncode == 0


def test_a_runs_own_configuration_is_not_the_sessions(tmp_path):
    """Cells 1 and 3: a run of an earlier session is attached, and weights are."""
    folder = tmp_path / "input" / "trainproof-t4x2" / "runs" / "full"
    folder.mkdir(parents=True)
    (folder / "run_manifest.json").write_text("{}")
    (folder / "config.yaml").write_text(TINY)
    weights = tmp_path / "input" / "gemma" / "transformers" / "2b" / "2"
    weights.mkdir(parents=True)
    (weights / "config.json").write_text("{}")
    (weights / "model.safetensors").write_bytes(b"")
    cells = code_cells("t4x2")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    done = subprocess.run(
        [sys.executable, "-c", cells[0] + "\n" + cells[2]],
        env=environment
        | {"TRAINPROOF_DEVICES": '["Tesla T4", "Tesla T4"]', "TRAINPROOF_INPUT": str(tmp_path / "input")},
        capture_output=True,
        text=True,
        check=True,
    )
    said = done.stdout.splitlines()[-1]
    assert "configs/kaggle_t4x2.yaml" in said
    assert f"weights: {weights}" in said
