"""The verb `queue`: whatever the Launch page can do with the queue of a root."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evidence.run.extras import need
from evidence.run.write import as_json_text
from trainproof.verbs.options import RUNS, AsJson, Root, Settings

if TYPE_CHECKING:
    from launch.jobs import Job

queue = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Runs one after the other in the background.")

JobName = Annotated[str, typer.Argument(help="Job, or the run that it writes; `trainproof queue list` names both.")]


@queue.command()
def add(
    config: Annotated[Path, typer.Option(help="Configuration file.")],
    smoke_config: Annotated[Path | None, typer.Option(help="Second file whose keys win; makes it a smoke run.")] = None,
    settings: Settings = None,
    force: Annotated[bool, typer.Option("--force", help="Start although the plan says it does not fit.")] = False,
    root: Root = RUNS,
) -> None:
    """Put a run into the queue. It starts when its device is free, and this terminal may be closed."""
    need("queue", "train")
    from launch.queue import start
    from trainer.config.load import load_config
    from trainer.config.tree import document_of

    mode = {"mode": "smoke"} if smoke_config else {}
    loaded = load_config(config, overlay=smoke_config, flags=mode, settings=settings or ())
    _say(start(root, document_of(loaded), force=force))


@queue.command(name="list")
def list_(root: Root = RUNS, as_json: AsJson = False) -> None:
    """List the jobs of a root, first in the queue first, with the state of each."""
    need("queue", "queue")
    from launch.jobs import jobs
    from trainproof.terminal.jobs import jobs_json, jobs_text

    known = jobs(root)
    sys.stdout.write(as_json_text(jobs_json(known)) if as_json else jobs_text(known))


@queue.command()
def cancel(
    job: JobName,
    now: Annotated[bool, typer.Option("--now", help="Kill it: it saves no checkpoint and seals no run.")] = False,
    root: Root = RUNS,
) -> None:
    """Stop a job: a queued one never starts, a running one saves a checkpoint, seals its run and ends."""
    need("queue", "queue")
    from launch.queue import cancel, kill

    (kill if now else cancel)(_named(root, job))


@queue.command()
def retry(job: JobName, root: Root = RUNS) -> None:
    """Put the same configuration into the queue again, as a new run."""
    need("queue", "train")
    from launch.queue import retry

    _say(retry(root, _named(root, job)))


@queue.command()
def resume(
    run: Annotated[Path, typer.Argument(help="Run folder in the root that stopped before its end.")],
    root: Root = RUNS,
) -> None:
    """Put the continuation of a stopped run into the queue, as a new run that names this one."""
    need("queue", "train")
    from launch.finding import resumable
    from launch.queue import resume

    stopped, after = resumable(root, run)
    _say(resume(root, stopped, after=after))


@queue.command()
def logs(
    job: JobName,
    lines: Annotated[int, typer.Option(min=1, help="Lines to print, the last ones.")] = 40,
    root: Root = RUNS,
) -> None:
    """Print the last lines of a job's output, with secrets masked."""
    need("queue", "queue")
    from launch.queue import PLACE

    if text := PLACE.logs(_named(root, job), lines):
        sys.stdout.write(text + "\n")


@queue.command()
def up(job: JobName, root: Root = RUNS) -> None:
    """Let a queued job start before the one that is before it."""
    need("queue", "queue")
    from launch.queue import move_up

    move_up(root, _named(root, job))


@queue.command(name="continue")
def continue_(root: Root = RUNS) -> None:
    """Go on with the queue after the machine or its worker was stopped."""
    need("queue", "queue")
    from launch.places.local import start_worker

    start_worker(root)


def _named(root: Path, name: str) -> Job:
    from launch.finding import job_named

    return job_named(root, name)


def _say(job: Job) -> None:
    sys.stdout.write(f"{job.run} is queued as {job.job_id}.\n")
