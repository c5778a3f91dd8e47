"""A Ray cluster whose machines share the runs folder: the one of `RAY_ADDRESS`, or one that runs on this machine.

A job is a detached actor that starts the processes of its run with Ray Train's `JaxTrainer`, and starts them again from
the last checkpoint if one is lost. It outlives the process of the job, which prints the logs and can find it again.
"""

from __future__ import annotations

import logging
import os
import runpy
import socket
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from evidence.extras import need
from evidence.layout import CHECKPOINTS, CONFIG, MANIFEST, new_run_id
from evidence.writing import write_text
from launch import jobs
from launch.jobs import Job, read_job, read_object
from launch.places.place import Place
from schemas.problems import INTERNAL_ERROR, ProblemError, first_line, problem_of
from schemas.reading import get_path, get_str, read_yaml

NAMESPACE = "trainproof"
MAX_FAILURES = 3
"""How often the processes of a run are started again."""
POLL_SECONDS = 1.0
PROBE_SECONDS = 300.0
KINDS = {"tpu": "TPU", "gpu": "GPU", "cpu": "CPU"}
"""Ray's names of devices, in the order of `mesh.device=auto`."""


class Ray(Place):
    """The Ray cluster."""

    has_own_queue = True
    title = "Ray cluster"

    def command(self, job: Job) -> list[str]:
        """Return the command of the process that starts the actor of a job, or finds it, and prints its logs."""
        return [sys.executable, "-m", "launch.remote", str(job.folder)]

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse a run if there is no cluster, or it lacks the devices."""
        with _connected() as nodes:
            plan_workers(config, nodes)

    def run(self, job: Job, session: Mapping[str, Any], save: Callable[..., None]) -> int:
        """Take a job through the cluster, save changes of its session, and return the exit code of its run."""
        with _connected(get_str(session, "address")) as nodes:
            import ray

            if "reference" not in session:
                scaling = plan_workers(read_yaml(_config_of(job).read_text("utf-8"), file=CONFIG).value, nodes)
                _probe_nodes(job, nodes)
                address = os.environ.get("RAY_ADDRESS") or ray.get_runtime_context().gcs_address
                save(reference=job.job_id, address=address, scaling=scaling, state="sent", printed={})
            # If the cluster was restarted, there is no such actor, and the run continues in a new one.
            options = {"name": job.job_id, "lifetime": "detached", "get_if_exists": True, "num_cpus": 0}
            actor = ray.remote(_Run).options(**options).remote()
            asked, is_over = actor.train.remote(str(job.folder), session["scaling"]), False
            while not is_over:
                try:
                    is_over = bool(ray.wait([asked], timeout=POLL_SECONDS)[0])
                    printed = dict(_print_logs(job.folder, session["printed"]))
                    save(printed=printed, state="running" if printed else "queued")
                except KeyboardInterrupt:
                    sys.stdout.write("Stopping the run …\n")
                    jobs.mark_cancelled(job.folder)  # the run looks at this file
                    if not session["printed"]:
                        ray.kill(actor)
                        return jobs.STOPPED_BEFORE_RUN
            try:
                code = int(ray.get(asked))
            except ray.exceptions.RayError as error:
                sys.stdout.write(f"The cluster lost the run, which can be resumed: {first_line(error)}\n")
                return INTERNAL_ERROR
            ray.kill(actor)
            return code


PLACES = {"ray": Ray()}


@contextmanager
def _connected(address: str | None = None) -> Iterator[list[dict[str, Any]]]:
    """Connect to the cluster and give its machines, or refuse with Ray's reason."""
    need("push", "ray")
    import ray
    from ray._private.services import get_ray_address_from_environment

    try:
        found = address or get_ray_address_from_environment("auto", None)
        if "://" not in found:
            host, _, port = found.rpartition(":")
            socket.create_connection((host, int(port)), timeout=10).close()  # `ray.init` would try for minutes
        ray.init(found, namespace=NAMESPACE, log_to_driver=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        where = address or os.environ.get("RAY_ADDRESS") or "this machine"
        what = f"Ray cannot be used on {where}: {' '.join(str(error).split())[:400]}"
        fix = "Start a cluster with `ray start --head`, or set RAY_ADDRESS to the HOST:PORT of one."
        if "ersion mismatch" in what:
            fix = "Install the versions of the cluster here, or start the cluster with those of this machine."
        raise ProblemError([problem_of("TP770", file="ray", what=what, why=None, next=fix)], exit_code=2) from error
    try:
        yield [node for node in ray.nodes() if node["Alive"]]
    finally:
        ray.shutdown()


def plan_workers(config: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the arguments of Ray's `ScalingConfig` for `mesh.device` and `mesh.devices`.

    A process has the GPUs or TPUs of one machine, or one CPU. A run with more devices has several processes.

    Raises:
        ProblemError: The cluster never has so many devices, so that the run would wait forever (exit code 3).
    """
    there = [node["Resources"] for node in nodes]
    device = get_path(config, "mesh", "device") or "auto"
    if device == "auto":
        device = next((name for name, kind in KINDS.items() if any(kind in each for each in there)), "cpu")
    kind = KINDS[device]
    counts = [int(each.get(kind, 0)) for each in there]
    largest = 1 if device == "cpu" else max([1, *counts])
    devices = get_path(config, "mesh", "devices") or largest
    each = min(devices, largest)
    count, rest = divmod(devices, each)
    if rest or sum(number // each for number in counts) < count:
        machines = "; ".join(
            ", ".join(f"{each[name]:g} {name}" for name in KINDS.values() if name in each) for each in there
        )
        what = f"The run needs {devices} {kind}, the same number on each machine. The cluster has: {machines}."
        fix = f"Add machines with `ray start --address`, or change mesh.devices, which is {devices}, or mesh.device."
        raise ProblemError([problem_of("TP770", file="ray", what=what, why=None, next=fix)], exit_code=3)
    labels = (
        next(node["Labels"] for node in nodes if kind in node["Resources"]) if device == "tpu" and count > 1 else {}
    )
    return {
        "num_workers": count,
        "use_gpu": device == "gpu",
        "use_tpu": device == "tpu",
        "resources_per_worker": {kind: each},
        "topology": labels.get("ray.io/tpu-topology"),
        "accelerator_type": labels.get("ray.io/accelerator-type"),
    }


def _config_of(job: Job) -> Path:
    return job.folder / jobs.CONFIG if job.resumes is None else job.root / job.resumes / CONFIG


def probe(folder: str, expected: str) -> str:
    """Return what is wrong with a machine of the cluster, or an empty text."""
    if (found := version("trainproof")) != expected:
        return f"has trainproof {found} instead of {expected}"
    return "" if Path(folder).is_dir() else f"does not see the folder {folder}"


def _probe_nodes(job: Job, nodes: Sequence[Mapping[str, Any]]) -> None:
    """Refuse machines without this trainproof, or without the runs folder (`ProblemError`, exit code 2)."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    problems = []
    for node in nodes:
        there = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        task = ray.remote(num_cpus=0, max_retries=0, scheduling_strategy=there)(probe)
        try:
            said = ray.get(task.remote(str(job.folder), version("trainproof")), timeout=PROBE_SECONDS)
        except ray.exceptions.RayError as error:
            said = f"cannot start trainproof: {str(error).strip().splitlines()[-1]}"
        if said:
            what = f"The machine {node['NodeManagerHostname']} {said}."
            fix = (
                "All machines need this trainproof, and the runs folder (--root) on shared storage under the same path."
            )
            problems.append(problem_of("TP770", file="ray", what=what, why=None, next=fix))
    if problems:
        raise ProblemError(problems, exit_code=2)


def _print_logs(folder: Path, printed: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Print what is new in the logs of the processes, and yield how many bytes of each have been printed."""
    for path in sorted(folder.glob("process-*.log")):
        with path.open("rb") as log:
            log.seek(printed.get(path.name, 0))
            sys.stdout.write(log.read().decode("utf-8", "replace"))
            sys.stdout.flush()
            yield path.name, log.tell()


class _Run:
    """Actor of a job. Its first call trains; later calls wait for it and return the same exit code."""

    code: int | None = None

    def train(self, folder: str, scaling: Mapping[str, Any]) -> int:
        """Train until the run has ended, and return its exit code."""
        if self.code is None:
            self.code = _fit(Path(folder), scaling)
        return self.code


def _fit(folder: Path, scaling: Mapping[str, Any]) -> int:
    from ray.train import FailureConfig, RunConfig, ScalingConfig
    from ray.train.v2.api.exceptions import TrainingFailedError
    from ray.train.v2.jax import JaxConfig, JaxTrainer

    # Without one of the two, the processes would not know each other. On CPUs, JAX_PLATFORMS overrides `use_gpu`.
    is_shared, use_tpu = scaling["num_workers"] > 1, scaling["use_tpu"]
    environment = {} if scaling["use_gpu"] or use_tpu else {"JAX_PLATFORMS": "cpu"}
    environment["TRAINPROOF_PROCESSES"] = str(scaling["num_workers"])
    environment["TRAINPROOF_STOP_FILE"] = str(folder / jobs.CANCELLED)
    run = RunConfig(
        name="ray",
        storage_path=str(folder),
        failure_config=FailureConfig(max_failures=MAX_FAILURES),
        worker_runtime_env={"env_vars": environment},
    )
    backend = JaxConfig(use_tpu=is_shared and use_tpu, use_gpu=is_shared and not use_tpu)
    workers, loop = ScalingConfig(**scaling), {"folder": str(folder)}
    trainer = JaxTrainer(
        train_process, train_loop_config=loop, jax_config=backend, scaling_config=workers, run_config=run
    )
    try:
        code = trainer.fit().return_value
    except TrainingFailedError as error:
        with (folder / "process-0.log").open("a", encoding="utf-8") as log:
            log.write(f"The processes of the run were lost {MAX_FAILURES + 1} times: {first_line(error)}\n")
        return INTERNAL_ERROR
    return code if isinstance(code, int) else INTERNAL_ERROR


def train_process(settings: Mapping[str, str]) -> int:
    """Run `trainproof train` in a process of the cluster, and return its exit code."""
    from ray.train import get_context
    from ray.train.collective import broadcast_from_rank_zero

    logging.getLogger().setLevel(logging.WARNING)  # Ray shows everything that libraries log
    job, index = read_job(Path(settings["folder"])), get_context().get_world_rank()
    assert job is not None, "the actor was started for a job"
    code = get_path(read_object(job.root / job.run / MANIFEST), "exit", "code")
    if code not in {None, INTERNAL_ERROR}:  # a process was lost after the run had ended
        return int(code)
    os.chdir(job.working_folder)
    log = (job.folder / f"process-{index}.log").open("a", encoding="utf-8", buffering=1)
    for number in (1, 2):
        os.dup2(log.fileno(), number)
    sys.stdout = sys.stderr = log
    sys.argv = ["trainproof", "train", *broadcast_from_rank_zero(_arguments(job) if index == 0 else [])]
    try:
        runpy.run_module("trainproof", run_name="__main__")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else INTERNAL_ERROR
    return 0


def _arguments(job: Job) -> list[str]:
    """Return the arguments of the run; after a loss it is resumed as a new one."""
    run, resumes = job.run, job.resumes
    if (job.root / run / MANIFEST).exists():
        saved = (path.name for path in (job.root / run / CHECKPOINTS).glob("*"))
        resumes = run if any(name.isdecimal() for name in saved) else resumes
        run = new_run_id(run.rsplit("-", 3)[0], datetime.now(UTC))
        write_text(job.folder / jobs.RUN, run)
    resume = ["--resume", str(job.root / resumes)] if resumes else []
    force = ["--force"] if job.force else []
    return ["--config", str(_config_of(job)), *resume, "--output", str(job.root / run), *force]
