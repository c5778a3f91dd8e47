"""Files for clusters, printed and not submitted: a Slurm script, a SkyPilot task and a Kubernetes JobSet.

Names and settings are the user's, so the shell and YAML texts quote each of them.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import version
from pathlib import Path

from evidence.targets import Target
from launch.places.kaggle import make_slug
from launch.places.place import Request
from launch.places.session import EXTRAS
from launch.places.upload import find_files, rename_files
from schemas.reading import write_yaml

WHEEL = f"trainproof-{version('trainproof')}-py3-none-any.whl"
PORT = 8476
CPUS = 8
"""CPU cores of a process on Slurm, which gives one unless it is asked for more."""
_TPUS = {
    "TPU v3": ("tpu-v3-8", "tpu-v3-slice", "2x2"),
    "TPU v4": ("tpu-v4-8", "tpu-v4-podslice", "2x2x1"),
    "TPU v5": ("tpu-v5p-8", "tpu-v5p-slice", "2x2x1"),
    "TPU v5 lite": ("tpu-v5litepod-{0}", "tpu-v5-lite-podslice", "2x4"),
    "TPU v6 lite": ("tpu-v6e-{0}", "tpu-v6e-slice", "2x4"),
}
"""SkyPilot's name of a machine with TPUs, and Google Kubernetes Engine's name and topology."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """A run to print.

    Attributes:
        root: Runs folder.
        target: Machine of each node.
        minutes: Time limit, or None if the plan states no time.
        options: Further options of `trainproof train`.
    """

    request: Request
    root: Path
    target: Target
    nodes: int
    minutes: int | None
    options: tuple[str, ...] = ()

    @property
    def slug(self) -> str:
        """Name of the job. Kubernetes needs one this short, because it adds suffixes."""
        return make_slug(self.request.run, 40)

    def script(self, folder: str, file: Path, runs: Path, *, launch: str = "", flags: str = "") -> str:
        """Return a shell script that writes the configuration and trains; folder, launch and flags are shell text."""
        train = ["trainproof", "train", "--config", file, "--resume", "auto", "--output", runs / self.request.run]
        return "\n".join(
            [
                "set -eu",
                f"cd {folder}",
                f"mkdir -p {shlex.quote(str(runs))}",
                f"cat > {shlex.quote(str(file))} <<'END_OF_CONFIG'",
                f"{write_yaml(dict(self.request.config))}END_OF_CONFIG",
                f"{launch}{shlex.join(map(str, [*train, *self.options]))}{flags if self.nodes > 1 else ''}",
                "",
            ]
        )

    def moved(self) -> Task:
        """Return the task on another machine, where all its files are in one folder."""
        names = {str(path): name for name, path in find_files(self.request).items()}
        return replace(self, request=replace(self.request, config=rename_files(self.request, names)))


def _slurm(task: Task) -> str:
    """Return a script for `sbatch`. JAX detects Slurm, where each process uses one device."""
    options = {
        "job-name": task.slug,
        "nodes": task.nodes,
        "ntasks-per-node": task.target.devices if task.nodes > 1 else 1,
        "cpus-per-task": CPUS,
        "gpus-per-node": task.target.devices if task.target.platform == "gpu" else None,
        "time": task.minutes,
        "signal": "TERM@600",
        "output": f"{task.slug}.log",
    }
    about = (
        "#!/bin/bash\n# Submit it with `sbatch FILE`, from an environment with trainproof. Ten minutes before its time"
    )
    about += "\n# is over, the run saves a checkpoint; another printed file continues it.\n"
    lines = "".join(f"#SBATCH --{name}={value}\n" for name, value in options.items() if value is not None)
    file, folder = task.root / f"{task.request.run}.yaml", shlex.quote(str(task.request.working_folder))
    launch = f"srun --kill-on-bad-exit=1 --cpus-per-task={CPUS} "  # srun does not take it from sbatch
    return about + lines + task.script(folder, file, task.root, launch=launch, flags=" --distributed")


def _sky(task: Task) -> str:
    """Return a task for `sky launch`."""
    target, file = task.target, Path(f"{task.request.run}.yaml")
    flags = f' --coordinator "$(echo "$SKYPILOT_NODE_IPS" | head -n 1):{PORT}"'
    flags += ' --processes "$SKYPILOT_NUM_NODES" --process "$SKYPILOT_NODE_RANK"'
    launch = "" if task.minutes is None else f"timeout --signal=TERM {task.minutes}m "
    # Such as T4, A100-80GB and RTX4090; the name of TPUs contains their number.
    gpu = re.search(r"RTX \d+|[A-Z]+\d+", target.kind)
    name = gpu[0].replace(" ", "") + "-80GB" * ("A100" in target.kind and "80GB" in target.kind) if gpu else target.kind
    machine = {_TPUS[target.kind][0].format(target.devices): 1} if target.kind in _TPUS else {name: target.devices}
    files = {name: str(path.resolve()) for name, path in find_files(task.request).items()} | {WHEEL: WHEEL}
    document = {
        "name": task.slug,
        "num_nodes": task.nodes,
        "resources": {} if target.platform == "cpu" else {"accelerators": machine},
        "file_mounts": {f"~/trainproof/{name}": path for name, path in files.items()},
        "setup": f"pip install ~/trainproof/{WHEEL}'[{EXTRAS[target.platform]}]'",
        "run": task.moved().script('"$HOME"/trainproof', file, Path("runs"), launch=launch, flags=flags),
    }
    about = f"# Start it with `sky launch -c {task.slug} --idle-minutes-to-autostop 30 FILE`,\n"
    about += f"# next to {WHEEL} (`pip wheel --no-deps SOURCE`). Then fetch the run:\n"
    return f"{about}# rsync -a {task.slug}:trainproof/runs .\n{write_yaml(document)}"


def _jobset(task: Task) -> str:
    """Return a JobSet for `kubectl apply`. Each pod has all devices of its node."""
    target, name = task.target, task.slug
    flags = f' --coordinator {name}-train-0-0.{name}:{PORT} --processes {task.nodes} --process "$JOB_COMPLETION_INDEX"'
    script = f"pip install --quiet /work/{WHEEL}'[{EXTRAS[target.platform]}]'\n"
    script += task.moved().script("/work", Path(f"/tmp/{task.request.run}.yaml"), Path("runs"), flags=flags)  # noqa: S108
    resource = {"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"}.get(target.platform)
    chips = 4 if target.kind == "TPU v3" else target.devices  # of a v3 chip, JAX shows two halves
    _, kind, topology = _TPUS.get(target.kind, ("", "", ""))
    gke = {"gke-tpu-accelerator": kind, "gke-tpu-topology": "1x1" if chips == 1 else topology} if kind else {}
    container = {
        "name": "train",
        "image": "python:3.12",
        "command": ["bash", "-c", script.replace("$(", "$$(")],  # Kubernetes would replace $(NAME)
        "ports": [{"containerPort": PORT}],
        "resources": {"limits": {resource: chips}} if resource else {},
        "volumeMounts": [{"name": "work", "mountPath": "/work"}],
    }
    pod = {
        "restartPolicy": "Never",
        "nodeSelector": {f"cloud.google.com/{key}": value for key, value in gke.items()},
        "containers": [container],
        "volumes": [{"name": "work", "persistentVolumeClaim": {"claimName": "trainproof"}}],
    }
    pods = {"parallelism": task.nodes, "completions": task.nodes, "completionMode": "Indexed", "backoffLimit": 0}
    limit = {} if task.minutes is None else {"activeDeadlineSeconds": 60 * task.minutes}
    document = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {
            "replicatedJobs": [
                {"name": "train", "replicas": 1, "template": {"spec": {**pods, **limit, "template": {"spec": pod}}}}
            ]
        },
    }
    files = ", ".join(map(json.dumps, [WHEEL, *find_files(task.request)]))  # file names can have line breaks
    about = (
        f"# Start it with `kubectl apply -f FILE`. The volume claim `trainproof` keeps the run, and\n# has {files}.\n"
    )
    return about + write_yaml(document)


FORMATS: Mapping[str, Callable[[Task], str]] = {"slurm": _slurm, "sky": _sky, "jobset": _jobset}
"""Functions that print a task, by the name of the place."""
