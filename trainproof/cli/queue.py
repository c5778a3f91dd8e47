"""Train configurations in the background: `queue`; on another machine: `push`; with many settings: `sweep`."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.extras import need
from evidence.writing import as_json_text
from schemas.formats import NOTHING, join_lines, visible
from trainproof.cli.options import RUNS, AsJson, Force, Root, Settings, SmokeConfig
from trainproof.output import align

if TYPE_CHECKING:
    from launch.jobs import Job

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
    place: Annotated[str, typer.Option(help="Where it runs: local, kaggle-tpu or kaggle-gpu.")] = "local",
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
    to: Annotated[str, typer.Option(help="Place: kaggle-tpu or kaggle-gpu.")],
    smoke_config: SmokeConfig = None,
    settings: Settings = None,
    force: Force = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask before it is sent.")] = False,
    detach: Annotated[bool, typer.Option("--detach", help="Do not wait for the run.")] = False,
    root: Root = RUNS,
) -> None:
    """Plan a run, send it to another machine, and fetch and verify its bundle."""
    need("push", "train")
    from launch.places import PLACES, get_place
    from launch.places.place import RemotePlace, Request
    from launch.queue import start
    from launch.remote import print_output
    from trainer.config.load import load_config
    from trainer.config.tree import to_document
    from trainer.planning.plan import describe_offer

    place = get_place(to)
    if not isinstance(place, RemotePlace):
        message = f"{to} is this machine. Use `trainproof train`, or one of: {', '.join(set(PLACES) - {to})}."
        raise typer.BadParameter(message, param_hint="--to")
    mode = {"mode": "smoke"} if smoke_config else {}
    loaded = load_config(config, overlay=smoke_config, flags=mode, settings=settings or ())
    document = to_document(loaded)
    offer = place.offer(Request(run=loaded.name, config=document, working_folder=Path.cwd()))
    rows = describe_offer(loaded, offer, force=force)
    sys.stdout.write(join_lines(f"{name:<8} {text}" for name, text in rows))
    if not yes:
        typer.confirm(f"Send it to {to}?", abort=True)
    job = start(root, document, force=force, place=to)
    _print_queued(job)
    if not detach:
        sys.stdout.write("Ctrl-C stops watching; the job goes on. `trainproof queue list` shows it.\n")
        raise typer.Exit(print_output(job))


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
