# %% [markdown]
# # trainproof on Kaggle
#
# Trains, records and packages a run on the requested accelerator. It ends within seconds if Kaggle provides another
# one, which happens silently. `docs/guides/kaggle.md` of trainproof explains how to push it and what it returns. This
# file is the source; `kaggle/make.py` makes the kernels and notebooks from it.

# %%
# 1. What was given? Asked of the driver, before anything is installed.
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

TARGET = "kaggle-tpu-v5e-8"

ASKED = {
    "kaggle-t4x2": {
        "kind": "Tesla T4",
        "count": 2,
        "device": "gpu",
        "extra": "cuda12",
        "config": "kaggle_t4x2.yaml",
        "session": "kaggle-gpu",
        "menu": "GPU T4 x2",
    },
    "kaggle-tpu-v5e-8": {
        "kind": "v5litepod",
        "count": 8,
        "device": "tpu",
        "extra": "tpu",
        "config": "submission_tpu.yaml",
        "session": "kaggle-tpu",
        "menu": "TPU v5e-8",
    },
}[TARGET]

os.environ["TRAINPROOF_SESSION_STARTED"] = str(time.time())  # the hours of --session count from here
INPUT = Path(os.environ.get("TRAINPROOF_INPUT", "/kaggle/input"))
WORKING = Path(os.environ.get("TRAINPROOF_WORKING", "/kaggle/working"))


def given_devices() -> list[str]:
    """Return the name of each accelerator, as the TPU's environment or the NVIDIA driver says it."""
    if "TRAINPROOF_DEVICES" in os.environ:  # a rehearsal on another machine answers for the device
        return [str(kind) for kind in json.loads(os.environ["TRAINPROOF_DEVICES"])]
    if "TPU_ACCELERATOR_TYPE" in os.environ:  # v5litepod-8
        kind, _, count = os.environ["TPU_ACCELERATOR_TYPE"].rpartition("-")
        return [kind] * int(count)
    if shutil.which("nvidia-smi") is None:
        return []
    ask = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    answer = subprocess.run(ask, capture_output=True, text=True, check=False)
    return answer.stdout.strip().splitlines() if answer.returncode == 0 else []


def refuse_another_device(given: list[str]) -> None:
    """End the session unless the accelerators are those that were asked for."""
    if given == [ASKED["kind"]] * ASKED["count"]:
        return
    found = ", ".join(f"{given.count(kind)} x {kind}" for kind in dict.fromkeys(given)) or "no accelerator"
    sys.exit(
        f"Kaggle gave {found}; asked for were {ASKED['count']} x {ASKED['kind']}. Nothing was spent on it. "
        f"Next: choose Settings, Accelerator, {ASKED['menu']}, see that the week's quota is not used up; start again."
    )


refuse_another_device(given_devices())
print(f"{ASKED['count']} x {ASKED['kind']}, as asked for")

# %%
# 2. Install trainproof from the wheel of the attached dataset, and see what JAX finds.
JAX_SEES = "import jax; print(jax.default_backend(), jax.device_count(), jax.devices()[0].device_kind, sep='|')"


def run(*arguments: object, may_end_with: tuple[int, ...] = (0,), folder: Path = WORKING) -> int:
    """Run trainproof in a folder, show what it prints, return its exit code; end the session on an unexpected one."""
    command = [sys.executable, "-m", "trainproof", *map(str, arguments)]
    print("$ trainproof", *arguments, flush=True)
    code = subprocess.run(command, check=False, cwd=folder).returncode
    if code not in may_end_with:
        sys.exit(f"trainproof {arguments[0]} ended with exit code {code}; its last lines above say why and what next.")
    return code


wheels = sorted(INPUT.glob("**/trainproof-*.whl"))
if not wheels:
    sys.exit(f"There is no trainproof wheel below {INPUT}. Next: attach the dataset with it (docs/guides/kaggle.md).")
wanted = f"trainproof[{ASKED['extra']}] @ {wheels[-1].resolve().as_uri()}"
subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", wanted], check=True)

# JAX is asked in a process of its own: one process at a time may hold a TPU.
if "TRAINPROOF_DEVICES" not in os.environ:
    seen = subprocess.run([sys.executable, "-c", JAX_SEES], capture_output=True, text=True, check=True).stdout.strip()
    backend, count, kind = seen.splitlines()[-1].split("|")
    if (backend, int(count)) != (ASKED["device"], ASKED["count"]):
        sys.exit(
            f"JAX sees {count} x {kind} ({backend}), not the {ASKED['count']} that are there. Nothing was trained."
        )
    print(f"JAX sees {count} x {kind}")

# %%
# 3. What to train: the preset of this machine, or config.yaml of the attached dataset; with attached weights, if any.
DEVICE = os.environ.get("TRAINPROOF_DEVICE", ASKED["device"])
RUNS = WORKING / "runs"

locate = "import trainer.config.tree as t, pathlib; print(pathlib.Path(t.__file__).parents[1] / 'configs')"
configs = Path(
    subprocess.run([sys.executable, "-c", locate], capture_output=True, text=True, check=True).stdout.strip()
)
own = sorted(INPUT.glob("**/config.yaml"))
# A run's folder has a config.yaml too: that one belongs to the run.
own = [path for path in own if not (path.parent / "run_manifest.json").exists()]
config = own[0] if own else configs / ASKED["config"]
# Rows, items and model that a configuration names lie beside it.
beside = config.parent if own else WORKING

weights = sorted(path.parent for path in INPUT.glob("**/*.safetensors") if (path.parent / "config.json").exists())
settings = ["--set", f"model.name={weights[0]}"] if weights and not own else []


print(f"Configuration: {config}; weights: {weights[0] if weights else 'from the hub'}")

# %%
# 4. Smoke: two steps of the configuration itself on this device; a model that takes long has its shape made small.
smoke = [*settings, "--smoke-steps", "2", "--device", DEVICE, "--output", RUNS / "smoke"]
run("train", "--config", config, *smoke, folder=beside)
# Its checkpoint may be of the whole model, and the full run needs the disk; no evidence is in it.
shutil.rmtree(RUNS / "smoke" / "checkpoints", ignore_errors=True)

# %%
# 5. Full: as long as the session lasts. It saves and stops by itself before Kaggle ends it (exit code 5). The newest
# attached run that a session before this one had to leave is continued.
full = [*settings, "--device", DEVICE, "--session", ASKED["session"], "--resume", "auto", "--output", RUNS / "full"]
ended = run("train", "--config", config, *full, may_end_with=(0, 5), folder=beside)

# %%
# 6. The bundle: both runs in one zip that anyone can verify with `trainproof verify`.
BUNDLE = WORKING / "bundle.zip"
packed = [RUNS / "smoke", RUNS / "full", "--output", BUNDLE]
run("package", *packed, *(["--allow-partial"] if ended == 5 else []))
run("verify", BUNDLE)
run("show", RUNS / "full")
if ended == 5:
    print("The session is over before the run is. Next: attach this output to the next session, which continues it.")
