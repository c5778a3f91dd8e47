"""Train configurations one after another in the background: `queue`; send one to another machine: `push`."""

from __future__ import annotations

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evidence.extras import need
from evidence.targets import load_target
from evidence.writing import as_json_text
from schemas.formats import NOTHING, join_lines
from schemas.problems import ProblemError
from schemas.reading import get_number
from schemas.render import render_json
from trainproof.cli.options import RUNS, AsJson, Force, Root, Settings, SmokeConfig
from trainproof.output import align

if TYPE_CHECKING:
    from launch.jobs import Job
    from launch.places.printed import Task
    from trainer.config.tree import Config

queue = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)

JobName = Annotated[str, typer.Argument(help="Job or run name, as in `trainproof queue list`.")]


@queue.callback()
def queue_() -> None:
    """Train one run after another in the background."""


@queue.command()
def add(
    config: Annotated[Path, typer.Option(help="Configuration file.")],
    smoke_config: SmokeConfig = None,
    settings: Settings = None,
    force: Force = False,
    place: Annotated[str, typer.Option(help="Where it runs: local, kaggle-tpu, kaggle-gpu or ssh:HOST.")] = "local",
    root: Root = RUNS,
) -> None:
    """Add a run to the queue. It starts when its device is free, even if this terminal is closed."""
    need("queue", "train")
    from launch.queue import start
    from trainer.config.load import load_config
    from trainer.config.tree import to_document

    mode = "smoke" if smoke_config else None
    loaded = load_config(config, overlay=smoke_config, flags={"mode": mode}, settings=settings or ())
    _print_queued(start(root, to_document(loaded), force=force, place=place))


@queue.command("list")
def list_(root: Root = RUNS, as_json: AsJson = False) -> None:
    """List the jobs in the order of the queue."""
    need("queue", "queue")
    from launch.jobs import explain_signal, jobs
    from launch.remote import describe_session

    found = jobs(root)
    if as_json:
        names = ("state", "run", "resumes", "device", "place", "force", "created_at", "exit_code")
        documents = [{"job": job.job_id, **{name: getattr(job, name) for name in names}} for job in found]
        for document, job in zip(documents, found, strict=True):
            document["pid"] = job.started.pid if job.started and not job.has_ended else None
        sys.stdout.write(as_json_text(documents))
    elif not found:
        sys.stdout.write("The queue is empty.\n")
    else:
        rows = [("job", "state", "device", "exit code", "added at", "run")]
        for job in found:
            code = NOTHING if job.exit_code is None else str(job.exit_code)
            rows.append((job.job_id, job.state, job.device, code, job.created_at[:19].replace("T", " "), job.run))
        notes = [explain_signal(job, job.exit_code) or describe_session(job) for job in found]
        sys.stdout.write(align(rows) + join_lines(filter(None, notes)))


@queue.command()
def places(root: Root = RUNS, as_json: AsJson = False) -> None:
    """Ask the places where jobs can run for account and quota, and list them with their jobs."""
    need("queue", "queue")
    from launch.remote import list_places, now

    found = list_places(root)
    if as_json:
        sys.stdout.write(as_json_text({"asked_at": now(), "places": found}))
        return
    names = ("place", "account", "left_hours", "refreshes_at", "waiting", "running")
    rows = [names, *([NOTHING if each[name] is None else str(each[name]) for name in names] for each in found)]
    notes = [f"{each['place']}: {one['what']} {one['next']}" for each in found for one in each["findings"]]
    sys.stdout.write(align(rows) + join_lines(notes))


@queue.command()
def cancel(
    job: JobName,
    now: Annotated[bool, typer.Option("--now", help="Kill it without a checkpoint.")] = False,
    root: Root = RUNS,
) -> None:
    """Cancel a queued job, or let a running one save a checkpoint and end."""
    need("queue", "queue")
    from launch.queue import cancel, find_job, kill

    (kill if now else cancel)(find_job(root, job))


@queue.command()
def retry(job: JobName, root: Root = RUNS) -> None:
    """Add the configuration of a job to the queue again, as a new run."""
    need("queue", "train")
    from launch.queue import find_job, retry

    _print_queued(retry(root, find_job(root, job)))


@queue.command()
def resume(
    run: Annotated[Path, typer.Argument(help="Run folder in the root that stopped before its end.")], root: Root = RUNS
) -> None:
    """Add the continuation of a stopped run to the queue, as a new run."""
    need("queue", "train")
    from launch.queue import find_resumable, resume

    stopped, after = find_resumable(root, run)
    _print_queued(resume(root, stopped, after=after))


@queue.command()
def logs(
    job: JobName, lines: Annotated[int, typer.Option(min=1, help="Number of lines.")] = 40, root: Root = RUNS
) -> None:
    """Print the end of a job's output, with secrets masked."""
    need("queue", "queue")
    from launch.jobs import OUTPUT, tail
    from launch.queue import find_job

    if text := tail(find_job(root, job).folder / OUTPUT, lines):
        sys.stdout.write(text + "\n")


@queue.command("continue")
def continue_(root: Root = RUNS) -> None:
    """Start the worker again after the machine or the worker was stopped."""
    need("queue", "queue")
    from launch.queue import start_worker

    start_worker(root)


def _print_queued(job: Job) -> None:
    sys.stdout.write(f"{job.run} is queued as {job.job_id}.\n")


def push(
    config: Annotated[Path, typer.Option(help="Configuration file.")],
    to: Annotated[
        str, typer.Option(help="Place: kaggle-tpu, kaggle-gpu or ssh:HOST; with --print also slurm, sky or jobset.")
    ],
    smoke_config: SmokeConfig = None,
    settings: Settings = None,
    force: Force = False,
    check: Annotated[
        bool, typer.Option("--check", help="Show memory, hours, quota and uploads. Send nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As --check, in JSON.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is sent.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the run.")] = False,
    print_: Annotated[bool, typer.Option("--print", help="Print the file for slurm, sky or jobset.")] = False,
    on: Annotated[
        str | None, typer.Option(help="With --print: machine of a node, as in `trainproof plan --on`.")
    ] = None,
    nodes: Annotated[int, typer.Option(min=1, help="With --print: number of machines.")] = 1,
    root: Root = RUNS,
) -> None:
    """Plan a run, send it to another machine, and fetch and verify its bundle; or print a file for a cluster."""
    need("push", "train")
    from launch.places import PLACES, get_place
    from launch.places.place import RemotePlace, Request
    from launch.places.printed import FORMATS
    from launch.queue import start
    from launch.remote import ask, now, print_output
    from trainer.config.load import load_config
    from trainer.config.tree import to_document
    from trainer.planning.plan import describe_offer

    mode = "smoke" if smoke_config else None
    if print_ or to in FORMATS or on is not None or nodes > 1:
        if not print_ or to not in FORMATS or on is None:
            message = f"{', '.join(FORMATS)} can only be printed, for you to submit: with --print and --on MACHINE."
            raise typer.BadParameter(message, param_hint="--to")
        loaded = load_config(config, overlay=smoke_config, flags={"mode": mode}, settings=settings or ())
        sys.stdout.write(FORMATS[to](_plan_task(loaded, on, nodes=nodes, root=root, force=force)))
        return
    place = get_place(to)
    if not isinstance(place, RemotePlace):
        message = f"{to} is this machine. Use `trainproof train`, or one of: {', '.join(set(PLACES) - {to})}."
        raise typer.BadParameter(message, param_hint="--to")
    loaded = load_config(config, overlay=smoke_config, flags={"mode": mode}, settings=settings or ())
    document = to_document(loaded)
    rows, findings = [], []
    try:
        offer = ask(lambda: place.offer(Request(run=loaded.name, config=document, working_folder=Path.cwd())))
        rows = describe_offer(loaded, offer, force=force)
    except ProblemError as error:
        if not as_json:
            raise
        findings = render_json(error.problems)
    if as_json:
        sys.stdout.write(as_json_text({"asked_at": now(), "rows": rows, "findings": findings}))
    else:
        sys.stdout.write(join_lines(f"{name:<8} {text}" for name, text in rows))
    if check or as_json:
        raise typer.Exit(0 if rows else 3)
    if not yes:
        typer.confirm(f"Send it to {to}?", abort=True)
    job = start(root, document, force=force, place=to)
    _print_queued(job)
    if not detach:
        sys.stdout.write("Ctrl-C stops watching, not the job. `trainproof queue list` shows it.\n")
        raise typer.Exit(print_output(job))


def _plan_task(config: Config, on: str, *, nodes: int, root: Path, force: bool) -> Task:
    """Plan a run for a file to print, with a time limit that is well above the plan."""
    from launch.places.place import Request
    from launch.places.printed import Task
    from launch.places.upload import find_files, find_upload_secrets
    from launch.queue import name_run
    from trainer.config.tree import to_document
    from trainer.planning.plan import PlanOptions, plan_config, refuse_what_does_not_fit
    from trainer.planning.subject import resolve_shape

    target = load_target(on)
    if target.platform == "tpu" and nodes > 1:
        message = "Machines with TPUs work together as a slice, which is a machine of its own: write a target for it."
        raise typer.BadParameter(message, param_hint="--nodes")
    plan = plan_config(resolve_shape(config, target), target, PlanOptions())
    refuse_what_does_not_fit({**plan, "forced": force}, model=config.model.name)
    hours = get_number(plan, "time", "hours", "high")
    run = name_run(config.name, datetime.now(UTC))
    request = Request(run=run, config=to_document(config), working_folder=Path.cwd())
    if secrets := find_upload_secrets(request, find_files(request)):
        raise ProblemError(secrets, exit_code=3)
    return Task(
        request=request,
        root=root,
        target=target,
        nodes=nodes,
        minutes=None if hours is None else round(hours * 90) + 20,
        options=("--force",) if force else (),
    )
