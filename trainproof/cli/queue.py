"""Train configurations in the background: `queue`; on another machine: `push`; with many settings: `sweep`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.extras import need
from evidence.targets import load_target
from evidence.writing import as_json_text
from schemas.formats import NOTHING, join_lines, visible
from schemas.problems import Problem, collect_problems
from schemas.reading import get_number
from schemas.render import render_json
from trainproof.cli.options import RUNS, AsJson, Force, Phases, Root, Settings, SmokeConfig, load_phases
from trainproof.output import align

if TYPE_CHECKING:
    from launch.jobs import Job
    from launch.places.place import Place
    from launch.places.printed import Task
    from trainer.config.tree import Config

queue = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)

REMOTE_PLACES = "kaggle-tpu, kaggle-gpu, ray or ssh:HOST"  # for help texts, which do not import `launch.places`
JobName = Annotated[str, typer.Argument(help="Job or run name, as in `trainproof queue list`.")]


@queue.callback()
def queue_() -> None:
    """Train one run after another in the background."""


@queue.command()
def add(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    phases: Phases = None,
    smoke_config: SmokeConfig = None,
    settings: Settings = None,
    force: Force = False,
    place: Annotated[str, typer.Option(help=f"Where it runs: local, {REMOTE_PLACES}.")] = "local",
    root: Root = RUNS,
) -> None:
    """Add a run to the queue. It starts when its device is free, even if this terminal is closed."""
    given = locals()
    need("queue", "train")
    from launch.phases import queue_phases
    from launch.queue import start
    from trainer.config.tree import to_document

    if phases is not None:
        file = load_phases(phases, given, "force", "place", "root", place=place)
        _print_queued(*queue_phases(root, phases, *file, force=force, place=place))
        return
    config_document = to_document(_load(config, smoke_config, settings))
    _print_queued(start(root, config_document, force=force, place=place))


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

    found, job = find_resumable(root, run)
    _print_queued(resume(root, found, stopped=job))


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


def _load(config: Path | None, smoke_config: Path | None, settings: list[str] | None) -> Config:
    """Load the configuration of `--config`."""
    from trainer.config.load import load_config

    if config is None:
        message = "Pass --config FILE or --phases FILE."
        raise typer.BadParameter(message)
    mode = "smoke" if smoke_config else None
    return load_config(config, overlay=smoke_config, flags={"mode": mode}, settings=settings or ())


def _print_queued(*jobs: Job) -> None:
    sys.stdout.write(join_lines(f"{job.run} is queued as {job.job_id}." for job in jobs))


def push(
    to: Annotated[str, typer.Option(help=f"Place: {REMOTE_PLACES}; with --print also slurm, sky or jobset.")],
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    phases: Phases = None,
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
    on: Annotated[str | None, typer.Option(help="With --print: machine of a node, as in `plan --on`.")] = None,
    nodes: Annotated[int, typer.Option(min=1, help="With --print: number of machines.")] = 1,
    root: Root = RUNS,
) -> None:
    """Plan a run, send it to another machine, and fetch and verify its bundle; or print a file for a cluster."""
    given = locals()
    need("push", "train")
    from launch.jobs import LOCAL
    from launch.phases import find_runs, queue_phases
    from launch.places import NAMES, get_place
    from launch.places.place import RemotePlace
    from launch.places.printed import FORMATS
    from launch.queue import start
    from launch.remote import print_output
    from trainer.config.tree import build_config, to_document

    if print_ or to in FORMATS or on is not None or nodes > 1:
        if not print_ or to not in FORMATS or on is None or config is None:
            message = f"{', '.join(FORMATS)} can only be printed, for you to submit: with --print and --on MACHINE."
            raise typer.BadParameter(message, param_hint="--to")
        loaded = _load(config, smoke_config, settings)
        sys.stdout.write(FORMATS[to](_plan_task(loaded, on, nodes=nodes, root=root, force=force)))
        return
    place = get_place(to)
    if to == LOCAL:
        others = ", ".join(name for name in NAMES if name != to)
        message = f"{to} is this machine. Use `trainproof train`, or one of: {others}."
        raise typer.BadParameter(message, param_hint="--to")
    if phases is not None:
        allowed = ("to", "force", "check", "as_json", "yes", "detach", "nodes", "root")
        file = load_phases(phases, given, *allowed, place=to)
        done = {name for name, run in find_runs(root, file[1]).items() if run.succeeded}
        configs = [build_config(phase.config) for phase in file[1] if phase.name not in done]
    else:
        configs = [_load(config, smoke_config, settings)]
    is_possible = _show_offers(place, configs, force=force, as_json=as_json)
    if check or as_json:
        raise typer.Exit(0 if is_possible else 3)
    if not yes and isinstance(place, RemotePlace):
        typer.confirm(f"Send it to {to}?", abort=True)
    if phases is not None:
        queued = queue_phases(root, phases, *file, force=force, place=to)
    else:
        queued = [start(root, to_document(configs[0]), force=force, place=to)]
    _print_queued(*queued)
    if not detach:
        sys.stdout.write("Ctrl-C stops watching, not the job. `trainproof queue list` shows it.\n")
        raise typer.Exit(max(map(print_output, queued)))


def _show_offers(place: Place, configs: Sequence[Config], *, force: bool, as_json: bool) -> bool:
    """Print what runs take at a place, and return whether they can be sent there."""
    from launch.places.place import RemotePlace, Request
    from launch.remote import ask, now
    from trainer.config.tree import to_document
    from trainer.planning.plan import describe_offers

    requests = [Request(run=each.name, config=to_document(each), working_folder=Path.cwd()) for each in configs]
    rows, problems = list[tuple[str, str]](), list[Problem]()
    with collect_problems(problems) if as_json else nullcontext():
        if isinstance(place, RemotePlace):
            offers = [ask(partial(place.offer, request)) for request in requests]
            rows = describe_offers(configs, offers, force=force)
        else:
            for request in requests:
                place.check(request.config)
            rows = [("cluster", "has the devices; nothing is sent, because its machines share the runs folder")]
    if as_json:
        sys.stdout.write(as_json_text({"asked_at": now(), "rows": rows, "findings": render_json(problems)}))
    else:
        sys.stdout.write(join_lines(f"{name:<8} {text}" for name, text in rows))
    return not problems


def _plan_task(config: Config, on: str, *, nodes: int, root: Path, force: bool) -> Task:
    """Plan a run for a file to print, with a time limit that is well above the plan."""
    from launch.places.place import Request
    from launch.places.printed import Task
    from launch.places.upload import check_files
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
    check_files(request)
    minutes = None if hours is None else round(hours * 90) + 20
    options = ("--force",) if force else ()
    return Task(request=request, root=root, target=target, nodes=nodes, minutes=minutes, options=options)


def sweep(
    file: Annotated[Path, typer.Argument(help="Sweep file: configuration, settings to search, number of trials.")],
    root: Root = RUNS,
    as_json: AsJson = False,
) -> None:
    """Train with many settings, stop bad trials early, and evaluate the best again."""
    need("sweep", "train", "sweep")
    from trainer.sweep import load_sweep

    def say(line: str) -> None:
        typer.echo(visible(line), err=True)

    prepared = load_sweep(root, file, say)
    say("Ctrl-C stops only this command. Repeat it to continue.")
    try:
        document = prepared.run()
    except KeyboardInterrupt:
        raise typer.Exit(5) from None
    sys.stdout.write(as_json_text(document) if as_json else _format_sweep(document))
    raise typer.Exit(0 if document["best"] else 4)


def _format_sweep(document: Mapping[str, Any]) -> str:
    """Format the best of all trials with both scores, and a table of the trials."""
    from evidence.report import describe_sweep

    sign = -1 if document["direction"] == "maximize" else 1
    rows = [("trial", "state", document["settings"]["metric"], *document["settings"]["search"], "run")]
    for each in sorted(document["trials"], key=lambda each: (each["value"] is None, sign * (each["value"] or 0))):
        state = each["state"] if each["step"] is None else f"{each['state']} at step {each['step']}"
        values = [f"{one:.4g}" if isinstance(one, float) else str(one) for one in each["settings"].values()]
        value = NOTHING if each["value"] is None else f"{each['value']:.4g}"
        rows.append((str(each["number"]), state, value, *values, each["reason"] or each["run"]))
    return join_lines(describe_sweep(document)) + align(rows)
