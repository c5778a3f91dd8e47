"""A session at a remote place: check the device, train, and leave `bundle.zip`.

`trainproof push --to kaggle-tpu` sends this file as a script kernel, `--to ssh:HOST` into the folder of the session.
Next to it are `request.json`, the wheel of trainproof, `config.yaml` and the files that it names. Until the wheel is
installed, only the standard library is used. The last line of the output is `trainproof session: ` with a JSON object.
"""

import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

INPUT = Path(os.environ.get("TRAINPROOF_INPUT", "/kaggle/input"))
WORKING = Path(os.environ.get("TRAINPROOF_WORKING", "/kaggle/working"))
ENVIRONMENT = os.environ.get("TRAINPROOF_ENVIRONMENT")
"""Virtual environment to make and remove, or None to use the Python that runs this."""
PYTHON = f"{ENVIRONMENT}/bin/python" if ENVIRONMENT else sys.executable
WRONG_DEVICE, NO_INPUT = 71, 66
RESULT = "trainproof session: "
"""Begins the last line of the log; a JSON object follows."""
RESUMABLE = 5
"""Exit code of a run that the end of the session stopped."""
EXTRAS = {"cpu": "train", "gpu": "cuda12", "tpu": "tpu"}
"""Packages that are installed with trainproof, by the device."""
SEES = "import jax; print(jax.default_backend(), jax.device_count(), jax.devices()[0].device_kind, sep='|')"


def finish(code: int, what: str, **facts: object) -> NoReturn:
    """Print how the session ended, and exit. A run that can be continued is a success for the place."""
    if ENVIRONMENT:
        shutil.rmtree(ENVIRONMENT, ignore_errors=True)
    print(RESULT + json.dumps({"exit_code": code, "what": what, **facts}), flush=True)
    sys.exit(0 if code == RESUMABLE else code)


def given_devices() -> list[str]:
    """Return the name of each accelerator, as the environment of the TPU or the NVIDIA driver says it."""
    if "TRAINPROOF_DEVICES" in os.environ:  # a rehearsal on another machine
        return [str(kind) for kind in json.loads(os.environ["TRAINPROOF_DEVICES"])]
    if "TPU_ACCELERATOR_TYPE" in os.environ:  # v5litepod-8
        kind, _, count = os.environ["TPU_ACCELERATOR_TYPE"].rpartition("-")
        return [kind] * int(count)
    if shutil.which("nvidia-smi") is None:
        return []
    names = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(names, capture_output=True, text=True, check=False)
    return done.stdout.strip().splitlines() if done.returncode == 0 else []


def refuse_other_devices(asked: dict[str, Any], given: list[str]) -> None:
    """End the session unless it has the requested accelerators: platforms substitute silently."""
    if "kinds" not in asked:  # the user chose a machine, and takes what it has
        device = asked["device"] if asked["device"] != "auto" else "gpu" if given else "cpu"
        asked.update(device=device, count=len(given) if device == "gpu" else None)
        return
    if len(given) == asked["count"] and set(given) <= set(asked["kinds"]):
        print(f"{asked['count']} x {given[0]}, as requested", flush=True)
        place = {"name": asked["session"], "requested": asked["kinds"][:1] * asked["count"], "received": given}
        os.environ["TRAINPROOF_PLACE"] = json.dumps(place)  # for the manifests of the runs
        return
    found = ", ".join(f"{given.count(kind)} x {kind}" for kind in dict.fromkeys(given)) or "no accelerator"
    what = f"{asked['place']} gave {found}; requested were {asked['count']} x {asked['kinds'][0]}. Nothing was trained."
    finish(WRONG_DEVICE, what, received=given)


def trainproof(*arguments: object, folder: Path = WORKING, allowed: tuple[int, ...] = (0,)) -> int:
    """Run a command of trainproof; end the session if its exit code is not allowed."""
    print("$ trainproof", *arguments, flush=True)
    command = [PYTHON, "-m", "trainproof", *map(str, arguments)]
    code = subprocess.run(command, check=False, cwd=folder).returncode
    if code not in allowed:
        finish(code, f"trainproof {arguments[0]} ended with exit code {code}; the lines above say why.")
    return code


def install(asked: dict[str, Any], wheel: Path) -> None:
    """Install the wheel for the device, and compare the devices that JAX finds."""
    if ENVIRONMENT:
        subprocess.run([sys.executable, "-m", "venv", ENVIRONMENT], check=False)
    wanted = f"trainproof[{EXTRAS[asked['device']]}] @ {wheel.resolve().as_uri()}"
    command = [PYTHON, "-m", "pip", "install", "--quiet", wanted]
    if code := subprocess.run(command, check=False).returncode:
        finish(code, "pip cannot install trainproof. On Kaggle, internet needs a verified phone number.")
    if "TRAINPROOF_DEVICES" in os.environ:
        return
    # In a process of its own: one process at a time may hold a TPU.
    found = subprocess.run([PYTHON, "-c", SEES], capture_output=True, text=True, check=True).stdout
    backend, count, kind = found.strip().splitlines()[-1].split("|")
    if (backend, int(count)) != (asked["device"], asked["count"] or int(count)):
        finish(WRONG_DEVICE, f"JAX finds {count} x {kind} ({backend}), not {asked['device']} x {asked['count'] or 1}.")


def input_folder(dataset: Path) -> Path:
    """Return a folder with the files of the dataset; folders that are still zips are unpacked."""
    if not (zips := sorted(dataset.glob("*.zip"))):
        return dataset
    folder = WORKING / "inputs"
    folder.mkdir(exist_ok=True)
    for path in dataset.iterdir():
        if path not in zips and not (folder / path.name).exists():
            (folder / path.name).symlink_to(path)
    for path in zips:
        shutil.unpack_archive(path, folder / path.stem)
    return folder


def attached_weights(dataset: Path) -> list[str]:
    """Return the `--set` option for an attached model, or an empty list."""
    found = [path.parent for path in sorted(INPUT.glob("**/*.safetensors")) if (path.parent / "config.json").exists()]
    beside = [path for path in found if dataset not in path.parents and path != dataset and "runs" not in path.parts]
    return ["--set", f"model.name={beside[0]}"] if beside else []


def main() -> None:
    """Run the session."""
    signal.signal(signal.SIGINT, lambda *_: None)  # it stops the run, which saves a checkpoint that is packed here
    os.environ["TRAINPROOF_SESSION_STARTED"] = str(time.time())  # the hours of --session count from here
    requests = sorted(INPUT.glob("**/request.json"))
    if not requests:
        finish(NO_INPUT, f"{INPUT} does not contain request.json: the dataset is not attached.")
    dataset = requests[0].parent
    asked = json.loads(requests[0].read_text("utf-8"))
    given = given_devices()
    refuse_other_devices(asked, given)
    install(asked, next(dataset.glob("trainproof-*.whl")))
    folder, runs, run = input_folder(dataset), WORKING / "runs", asked["run"]
    device = os.environ.get("TRAINPROOF_DEVICE", asked["device"])
    common = ["train", "--config", "config.yaml", *attached_weights(dataset), "--device", device]
    trainproof(*common, "--smoke-steps", 2, "--output", runs / f"{run}-smoke", folder=folder)
    # Its checkpoint may be of the whole model, and the full run needs the disk.
    shutil.rmtree(runs / f"{run}-smoke" / "checkpoints", ignore_errors=True)
    limit = ["--session", asked["session"]] if asked.get("session") else []
    full = [*limit, "--resume", "auto", "--output", runs / run]
    code = trainproof(*common, *full, folder=folder, allowed=(0, RESUMABLE))
    bundle = WORKING / "bundle.zip"
    partial = ["--allow-partial"] if code == RESUMABLE else []
    trainproof("package", runs / f"{run}-smoke", runs / run, "--output", bundle, *partial)
    trainproof("verify", bundle)
    with bundle.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    what = "The session is over before the run is; the next one continues it." if code else "Trained and packed."
    finish(code, what, bundle_sha256=sha256, received=given)


if __name__ == "__main__":
    main()
