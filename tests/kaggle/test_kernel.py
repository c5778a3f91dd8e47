"""The Kaggle kernels: generated from one source, with the right metadata, and run here with faked devices.

Only the devices are faked (TRAINPROOF_DEVICES, TRAINPROOF_DEVICE, or an nvidia-smi of the test); wheel, installation,
training, packing and verification are real and small.
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
    """Return the folder with the kernels of one account."""
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
    assert "given_devices" in cells[0], "devices are queried first"
    for cell in cells:
        assert cell in script
        compile(cell, machine, "exec")
    words = [line for line in script.splitlines() if line and not line.startswith("#")]
    assert [line for line in "\n".join(cells).splitlines() if line and not line.startswith("#")] == words


@pytest.mark.parametrize(
    ("machine", "shape", "gpu", "tpu"),
    [("t4x2", "NvidiaTeslaT4", "true", "false"), ("tpu-v5e-8", "TpuV5E8", "false", "true")],
)
def test_kernel_metadata(machine, shape, gpu, tpu, sent):
    told = json.loads((sent / machine / "kernel-metadata.json").read_text("utf-8"))
    assert set(told) <= DOCUMENTED | UNDOCUMENTED
    assert (told["machine_shape"], told["enable_gpu"], told["enable_tpu"]) == (shape, gpu, tpu)
    assert (told["kernel_type"], told["is_private"], told["enable_internet"]) == ("script", "true", "true")
    assert (sent / machine / told["code_file"]).is_file()
    assert told["id"] == f"ada/{told['title']}", "a slug is the title in lower case with hyphens"
    assert (told["title"], told["dataset_sources"]) == (f"trainproof-{machine}", ["ada/trainproof-wheel"])


T4X2, V5E8 = ("t4x2", "2 x Tesla T4"), ("tpu-v5e-8", "8 x v5litepod")


@pytest.mark.parametrize(
    ("machine", "cards", "chips", "found"),
    [
        (T4X2, ["Tesla T4"] * 2, "", None),
        (T4X2, [], "", "no accelerator"),
        (T4X2, ["Tesla T4"], "", "1 x Tesla T4"),
        (T4X2, ["Tesla P100-PCIE-16GB"], "", "1 x Tesla P100-PCIE-16GB"),
        (T4X2, ["Tesla T4"] * 3, "", "3 x Tesla T4"),
        (V5E8, [], "v5litepod-8", None),
        (V5E8, [], "v5litepod-4", "4 x v5litepod"),
        (V5E8, [], "v3-8", "8 x v3"),
        (V5E8, [], "v6e-8", "8 x v6e"),
        (V5E8, ["Tesla T4"] * 2, "", "2 x Tesla T4"),
    ],
)
def test_another_machine_ends_the_session_in_its_first_cell(machine, cards, chips, found, tmp_path):
    if cards:
        program = tmp_path / "nvidia-smi"
        program.write_text("#!/bin/sh\n" + "".join(f"echo '{name}'\n" for name in cards))
        program.chmod(0o755)
    name, asked = machine
    environment = {"PATH": str(tmp_path), **({"TPU_ACCELERATOR_TYPE": chips} if chips else {})}
    command = [sys.executable, "-c", code_cells(name)[0]]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == (1 if found else 0)
    if found:
        assert f"Kaggle gave {found}; asked for were {asked}. Nothing was spent on it." in done.stderr
        assert "choose Settings, Accelerator, " in done.stderr
        assert "Traceback" not in done.stderr
    else:
        assert done.stdout == f"{asked}, as asked for\n"


@pytest.mark.slow
def test_a_whole_session_leaves_a_bundle(sent, tmp_path):
    """Pip takes the wheel alone, into a folder that Python looks into first."""
    wheel, working, site = (tmp_path / name for name in ("input/trainproof-wheel", "working", "site"))
    wheel.mkdir(parents=True)
    working.mkdir()
    checkout = checkout_in(tmp_path / "checkout")
    subprocess.run([sys.executable, "-c", BUILD, str(wheel)], cwd=checkout, capture_output=True, check=True)
    (wheel / "config.yaml").write_text(TINY)
    (wheel / "rows.jsonl").write_text('{"prompt": "What is 2 + 2?", "completion": "4"}\n' * 8)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("GIT_", "PYTHON"))}
    environment |= {"TRAINPROOF_DEVICES": '["Tesla T4", "Tesla T4"]', "TRAINPROOF_DEVICE": "cpu"}
    environment |= {"TRAINPROOF_INPUT": str(wheel.parent), "TRAINPROOF_WORKING": str(working)}
    environment |= {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_TARGET": str(site), "PYTHONPATH": str(site)}
    command = [sys.executable, sent / "t4x2" / "kernel.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
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
    environment |= {"TRAINPROOF_DEVICES": '["Tesla T4", "Tesla T4"]', "TRAINPROOF_INPUT": str(tmp_path / "input")}
    command = [sys.executable, "-c", cells[0] + "\n" + cells[2]]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    said = done.stdout.splitlines()[-1]
    assert "configs/kaggle_t4x2.yaml" in said
    assert f"weights: {weights}" in said
