"""Files for clusters, printed and not submitted: a Slurm script, a SkyPilot task and a Kubernetes JobSet.

The shell and YAML texts quote every name and setting, because they come from the user.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evidence.targets import Target
from launch.places.kaggle import make_slug
from launch.places.place import DATA, Request
from launch.places.session import EXTRAS
from launch.places.upload import collect_files
from schemas.reading import read_yaml, write_yaml

WHEEL = f"trainproof-{version('trainproof')}-py3-none-any.whl"
PORT = 8476
CPUS = 8
"""CPU cores per process on Slurm, whose default is one."""
_TPUS = DATA["printed"]["tpus"]


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

    def script(
        self, config: Mapping[str, Any], folder: str, file: Path, runs: Path, *, launch: str = "", flags: str = ""
    ) -> str:
        """Return a shell script that writes the configuration and trains; folder, launch and flags are shell text."""
        train = ["trainproof", "train", "--config", file, "--resume", "auto", "--output", runs / self.request.run]
        return f"""\
set -eu
cd {folder}
mkdir -p {shlex.quote(str(runs))}
cat > {shlex.quote(str(file))} <<'END_OF_CONFIG'
{write_yaml(dict(config))}END_OF_CONFIG
{launch}{shlex.join(map(str, [*train, *self.options]))}{flags if self.nodes > 1 else ""}
"""


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
    lines = "\n".join(f"#SBATCH --{name}={value}" for name, value in options.items() if value is not None)
    request, file = task.request, task.root / f"{task.request.run}.yaml"
    launch = f"srun --kill-on-bad-exit=1 --cpus-per-task={CPUS} "  # srun does not take it from sbatch
    folder = shlex.quote(str(request.working_folder))
    script = task.script(request.config, folder, file, task.root, launch=launch, flags=" --distributed")
    return f"""\
#!/bin/bash
# Submit it with `sbatch FILE`, from an environment with trainproof. Ten minutes before its time
# is over, the run saves a checkpoint; another printed file continues it.
{lines}
{script}"""


def _sky(task: Task) -> str:
    """Return a task for `sky launch`."""
    target, (files, config) = task.target, collect_files(task.request)
    flags = f' --coordinator "$(echo "$SKYPILOT_NODE_IPS" | head -n 1):{PORT}"'
    flags += ' --processes "$SKYPILOT_NUM_NODES" --process "$SKYPILOT_NODE_RANK"'
    launch = "" if task.minutes is None else f"timeout --signal=TERM {task.minutes}m "
    file, home = Path(f"{task.request.run}.yaml"), '"$HOME"/trainproof'
    # Such as T4, A100-80GB and RTX4090; the name of TPUs contains their number.
    gpu = re.search(r"RTX \d+|[A-Z]+\d+", target.kind)
    name = gpu[0].replace(" ", "") + "-80GB" * ("A100" in target.kind and "80GB" in target.kind) if gpu else target.kind
    machine = {_TPUS[target.kind][0].format(target.devices): 1} if target.kind in _TPUS else {name: target.devices}
    mounts = {WHEEL: WHEEL} | {name: str(path.resolve()) for name, path in files.items()}
    document = {
        "name": task.slug,
        "num_nodes": task.nodes,
        "resources": {} if target.platform == "cpu" else {"accelerators": machine},
        "file_mounts": {f"~/trainproof/{name}": path for name, path in mounts.items()},
        "setup": f"pip install ~/trainproof/{WHEEL}'[{EXTRAS[target.platform]}]'",
        "run": task.script(config, home, file, Path("runs"), launch=launch, flags=flags),
    }
    return f"""\
# Start it with `sky launch -c {task.slug} --idle-minutes-to-autostop 30 FILE`,
# next to {WHEEL} (`pip wheel --no-deps SOURCE`). Then fetch the run:
# rsync -a {task.slug}:trainproof/runs .
{write_yaml(document)}"""


def _jobset(task: Task) -> str:
    """Return a JobSet for `kubectl apply`. Each pod has all devices of its node."""
    target, name, (files, config) = task.target, task.slug, collect_files(task.request)
    flags = f' --coordinator {name}-train-0-0.{name}:{PORT} --processes {task.nodes} --process "$JOB_COMPLETION_INDEX"'
    script = f"pip install --quiet /work/{WHEEL}'[{EXTRAS[target.platform]}]'\n"
    script += task.script(config, "/work", Path(f"/tmp/{task.request.run}.yaml"), Path("runs"), flags=flags)  # noqa: S108
    resource = {"gpu": "nvidia.com/gpu", "tpu": "google.com/tpu"}.get(target.platform)
    chips = 4 if target.kind == "TPU v3" else target.devices  # of a v3 chip, JAX shows two halves
    _, kind, topology = _TPUS.get(target.kind, ("", "", ""))
    gke = {"gke-tpu-accelerator": kind, "gke-tpu-topology": "1x1" if chips == 1 else topology} if kind else {}
    document = read_yaml(Path(__file__).with_name("jobset.yaml").read_text("utf-8"), file="jobset.yaml").value
    [jobs] = document["spec"]["replicatedJobs"]
    job = jobs["template"]["spec"]
    [container] = job["template"]["spec"]["containers"]
    document["metadata"]["name"] = name
    job |= {"parallelism": task.nodes, "completions": task.nodes}
    job |= {} if task.minutes is None else {"activeDeadlineSeconds": 60 * task.minutes}
    job["template"]["spec"]["nodeSelector"] = {f"cloud.google.com/{key}": value for key, value in gke.items()}
    container["command"].append(script.replace("$(", "$$("))  # Kubernetes would replace $(NAME)
    container["ports"].append({"containerPort": PORT})
    container["resources"] = {"limits": {resource: chips}} if resource else {}
    return f"""\
# Start it with `kubectl apply -f FILE`. The volume claim `trainproof` keeps the run, and
# has {", ".join(map(json.dumps, [WHEEL, *files]))}.
{write_yaml(document)}"""


FORMATS: Mapping[str, Callable[[Task], str]] = {"slurm": _slurm, "sky": _sky, "jobset": _jobset}
"""Functions that print a task, by the name of the place."""
