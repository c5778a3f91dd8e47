"""The verb `queue`: whatever the Launch page can do with the queue of a root."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evidence.extras import need
from evidence.writing import as_json_text
from schemas.formats import NOTHING, as_lines
from trainproof.verbs.options import RUNS, AsJson, Root, Settings

if TYPE_CHECKING:
    from launch.jobs.folder import Job

queue = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Runs one after the other in the background.")

JobName = Annotated[str, typer.Argument(help="Job, or the run that it writes; `trainproof queue list` names both.")]


@queue.command()
def add(
    config: Annotated[Path, typer.Option(help="Configuration file.")],
    smoke_config: Annotated[Path | None, typer.Option(help="Second file whose keys win; makes it a smoke run.")] = None,
    settings: Settings = None,
    force: Annotated[bool, typer.Option("--force", help="Start although the plan says it does not fit.")] = False,
    place: Annotated[str, typer.Option(help="Where it runs: a file of launch/places.")] = "local",
    root: Root = RUNS,
) -> None:
    """Put a run into the queue. It starts when its device is free, and this terminal may be closed."""
    need("queue", "train")
    from launch.queue import start
    from trainer.config.load import load_config
    from trainer.config.tree import to_document

    mode = {"mode": "smoke"} if smoke_config else {}
    loaded = load_config(config, overlay=smoke_config, flags=mode, settings=settings or ())
    _say(start(root, to_document(loaded), force=force, place=place))


@queue.command(name="list")
def list_(root: Root = RUNS, as_json: AsJson = False) -> None:
    """List the jobs of a root, first in the queue first, with the state of each."""
    need("queue", "queue")
    from launch.jobs.folder import jobs

    known = jobs(root)
    sys.stdout.write(as_json_text(_values(known)) if as_json else _text(known))


@queue.command()
def cancel(
    job: JobName,
    now: Annotated[bool, typer.Option("--now", help="Kill it: it saves no checkpoint and seals no run.")] = False,
    root: Root = RUNS,
) -> None:
    """Stop a job: a queued one never starts, a running one saves a checkpoint, seals its run and ends."""
    need("queue", "queue")
    from launch.queue import cancel, kill

    (kill if now else cancel)(_job_named(root, job))


@queue.command()
def retry(job: JobName, root: Root = RUNS) -> None:
    """Put the same configuration into the queue again, as a new run."""
    need("queue", "train")
    from launch.queue import retry

    _say(retry(root, _job_named(root, job)))


@queue.command()
def resume(
    run: Annotated[Path, typer.Argument(help="Run folder in the root that stopped before its end.")], root: Root = RUNS
) -> None:
    """Put the continuation of a stopped run into the queue, as a new run that names this one."""
    need("queue", "train")
    from launch.queue import resumable, resume

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
    from launch.jobs.folder import OUTPUT
    from launch.jobs.output import tail

    if text := tail(_job_named(root, job).folder / OUTPUT, lines):
        sys.stdout.write(text + "\n")


@queue.command()
def up(job: JobName, root: Root = RUNS) -> None:
    """Let a queued job start before the one that is before it."""
    need("queue", "queue")
    from launch.queue import move_up

    move_up(root, _job_named(root, job))


@queue.command(name="continue")
def continue_(root: Root = RUNS) -> None:
    """Go on with the queue after the machine or its worker was stopped."""
    need("queue", "queue")
    from launch.jobs.working import start_worker

    start_worker(root)


def _job_named(root: Path, name: str) -> Job:
    from launch.queue import job_named

    return job_named(root, name)


def _say(job: Job) -> None:
    sys.stdout.write(f"{job.run} is queued as {job.job_id}.\n")


def _text(jobs: Sequence[Job]) -> str:
    """Return the jobs as aligned text, first in the queue first."""
    if not jobs:
        return as_lines(["The queue is empty."])
    from launch.jobs.output import what_killed
    from trainproof.terminal.comparisons import align

    heads = ("job", "state", "device", "exit code", "asked for", "run")
    rows = [
        (
            job.job_id,
            job.state,
            job.device,
            NOTHING if job.exit_code is None else str(job.exit_code),
            job.created_at[:19].replace("T", " "),
            job.run,
        )
        for job in jobs
    ]
    return align([heads, *rows]) + as_lines([said for job in jobs if (said := what_killed(job))])


def _values(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Return what each job is, and what can be done with it, as values."""
    return [
        {
            "job": job.job_id,
            "state": job.state,
            "run": job.run,
            "resumes": job.resumes,
            "device": job.device,
            "place": job.place,
            "force": job.force,
            "created_at": job.created_at,
            "exit_code": job.exit_code,
            "pid": job.started.pid if job.started and not job.has_ended else None,
        }
        for job in jobs
    ]
