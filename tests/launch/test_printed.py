"""Files for clusters, checked by bash, by Slurm's `sbatch`, and by the schemas of SkyPilot and JobSet."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import jsonschema
import pytest
import yaml

from evidence.targets import load_target
from launch.places.place import Request
from launch.places.printed import FORMATS, Task
from launch.queue import name_run

NASTY = 'it\'s "$(touch hacked)" `touch hacked`; touch hacked\nEND_OF_CONFIG\ntouch hacked\n# $HOME $(VAR) %j é'
RECORD = '#!/bin/sh\nfor each; do printf "%s\\0" "$each"; done > "$RECORD"\n'
SCHEMAS = json.loads(Path(__file__).with_name("clusters.schema.json").read_text())


def task(folder: Path, *, nodes: int = 1, on: str = "a100-80", name: str = "mine", **changes: object) -> Task:
    config = {"name": name, "data": {"dataset": "rows.jsonl", **changes}}
    run = name_run(name, datetime.now(UTC))
    request = Request(run=run, config=config, working_folder=folder)
    return Task(request=request, root=Path("runs"), target=load_target(on), nodes=nodes, minutes=90)


def printed(place: str, task: Task) -> dict:
    return yaml.safe_load(FORMATS[place](task))


def shell(place: str, task: Task) -> str:
    """Return the shell script in a printed file."""
    if place == "slurm":
        return FORMATS[place](task)
    document = printed(place, task)
    if place == "sky":
        return document["run"]
    [container] = pod(document)["containers"]
    return container["command"][2].replace("$$(", "$(")  # as Kubernetes does


def pod(document: dict) -> dict:
    return document["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]


@pytest.mark.parametrize("place", FORMATS)
def test_no_text_of_the_user_is_a_command(place, tmp_path):
    (home := tmp_path / "home").mkdir()
    (work := home / "trainproof" if place == "sky" else tmp_path / "it's $(touch hacked) work").mkdir()
    (tmp_path / "rows $(touch hacked)\n.jsonl").write_text("{}")
    (tmp_path / "bin").mkdir()
    for name in ("srun", "timeout", "trainproof", "pip"):
        (program := tmp_path / "bin" / name).write_text(RECORD)
        program.chmod(0o755)
    nasty = task(work, name=NASTY, dataset=str(tmp_path / "rows $(touch hacked)\n.jsonl"), system_prompt=NASTY)
    script = shell(place, nasty)
    if place == "jobset":
        script = script.replace("cd /work", f"cd {shlex.quote(str(work))}")
    environment = {"PATH": f"{tmp_path / 'bin'}:/usr/bin:/bin", "HOME": str(home), "RECORD": str(tmp_path / "record")}
    subprocess.run(["bash", "-c", script], env=environment, cwd=tmp_path, check=True)
    called = (tmp_path / "record").read_text().split("\0")
    config = Path(called[called.index("--config") + 1])
    written = yaml.safe_load((work / config).read_text("utf-8"))
    assert (written["name"], written["data"]["system_prompt"]) == (NASTY, NASTY)
    assert Path(written["data"]["dataset"]).name == "rows $(touch hacked)\n.jsonl"
    assert called[called.index("--output") + 1].startswith("runs/it-s--")
    assert not [*tmp_path.rglob("hacked")]
    config.unlink() if config.is_absolute() else None


@pytest.mark.parametrize("nodes", [1, 4])
@pytest.mark.parametrize("on", ["a100-80", "kaggle-t4x2", "tpu-v5p-8", "tpu-v5e-1", "rtx-4090"])
@pytest.mark.parametrize("place", ["sky", "jobset"])
def test_a_document_is_valid_by_the_schema_of_its_tool(place, on, nodes, tmp_path):
    (tmp_path / "rows.jsonl").write_text("{}")
    document = printed(place, task(tmp_path, on=on, nodes=nodes))
    jsonschema.Draft202012Validator(SCHEMAS[place]).validate(document)
    if place == "sky":
        assert document["num_nodes"] == nodes
        assert document["file_mounts"]["~/trainproof/rows.jsonl"] == str(tmp_path / "rows.jsonl")
    else:
        assert document["spec"]["replicatedJobs"][0]["template"]["spec"]["completions"] == nodes
        assert len(document["metadata"]["name"]) <= 45  # the limit of JobSet, with its suffixes


@pytest.mark.slow
def test_the_command_prints_a_planned_file_and_says_when_it_cannot():
    def push(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "trainproof", "push", "--config", "trainer/configs/tiny.yaml", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    done = push("--to", "slurm", "--print", "--on", "a100-80", "--nodes", "2", "--set", "mesh.device=gpu")
    assert done.returncode == 0, done.stderr
    assert "#SBATCH --nodes=2\n" in done.stdout
    assert re.search(r"#SBATCH --time=\d+\n", done.stdout)
    assert done.stdout.rstrip().endswith("--distributed")
    subprocess.run(["bash", "-n"], input=done.stdout, text=True, check=True)
    for wrong in (
        ["slurm"],
        ["slurm", "--print"],
        ["kaggle-tpu", "--print", "--on", "l4"],
        ["ssh:box", "--nodes", "2"],
    ):
        refused = push("--to", *wrong)
        assert (refused.returncode, "can only be printed" in refused.stderr) == (2, True), refused.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("sbatch") is None, reason="needs Slurm's sbatch")
@pytest.mark.parametrize(("nodes", "processes"), [(1, "1"), (4, "2")])
def test_sbatch_accepts_the_options(nodes, processes, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    conf = (
        f"ClusterName=x\nSlurmctldHost=localhost(127.0.0.1)\nSlurmctldPort={port}\nAuthType=auth/none\nGresTypes=gpu\n"
    )
    plugins = Path(str(shutil.which("sbatch"))).resolve().parents[1] / "lib/x86_64-linux-gnu/slurm-wlm"
    (tmp_path / "slurm.conf").write_text(conf + (f"PluginDir={plugins}\n" if plugins.is_dir() else ""))

    def submit(script: str) -> str:
        (tmp_path / "job.sh").write_text(script)
        environment = os.environ | {"SLURM_CONF": str(tmp_path / "slurm.conf")}
        command = ["sbatch", "--test-only", str(tmp_path / "job.sh")]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False).stderr

    script = FORMATS["slurm"](task(tmp_path, nodes=nodes, on="kaggle-t4x2"))
    assert f"--ntasks-per-node={processes}\n" in script
    assert "Unable to contact slurm controller" in submit(script)  # there is none here
    assert "Invalid --signal" in submit(script.replace("TERM@600", "TREM@600"))
    assert "nrecognized option" in submit(script.replace("--gpus-per-node", "--gpus-per-nodes"))
