"""The `trainproof` command: one verb per function; each hands over to its package at once.

What lives here: the flags of the verbs, and the one place where a `ProblemError` becomes text and an exit code.
What does not: the verbs note, compare, package, sign and verify, which `trainproof.verbs.judging` adds, and any work. Heavy
imports stand inside the verbs, so that `trainproof --help` answers at once.
"""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from evidence.run.extras import need
from evidence.run.write import as_json_text
from trainproof.verbs.judging import AsJson, add_verbs

app = typer.Typer(
    name="trainproof",
    help="Fine-tune a small language model on scarce hardware and hand in evidence that stands.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


@app.callback()
def trainproof() -> None:
    """Fine-tune a small language model on scarce hardware and hand in evidence that stands."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; flags may be written with `-` or `_`."""
    from schemas.problems.problem import ProblemError

    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A name that is no UTF-8, or a terminal that knows only ASCII, costs a letter and not the answer.
            stream.reconfigure(errors="backslashreplace")
    given = sys.argv[1:] if arguments is None else arguments
    try:
        try:
            app([dashed(argument) for argument in given])
        finally:
            sys.stdout.flush()
    except ProblemError as error:
        from schemas.problems.render import as_text

        sys.stderr.write(as_text(error.problems))
        raise SystemExit(error.exit_code) from None
    except OSError as error:
        raise SystemExit(_refused_by_system(error)) from None


def _refused_by_system(error: OSError) -> int:
    """Say what the system did not let us do, and return the exit code; whoever stopped reading hears nothing."""
    # What is left to write has nowhere to go, and Python would say so once more at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.__stdout__.fileno() if sys.__stdout__ else 1)
    if isinstance(error, BrokenPipeError):
        return 1
    from schemas.problems.render import as_text
    from schemas.reading.unreadable import refused_by_system

    sys.stderr.write(as_text([refused_by_system(error)]))
    return 2


def dashed(argument: str) -> str:
    """Return a long flag with hyphens: `--smoke_steps=2` becomes `--smoke-steps=2`; its value is left alone."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


@app.command()
def train(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Run folder; new, or empty. Default: submission_runs/<id>.")
    ] = None,
    smoke_config: Annotated[Path | None, typer.Option(help="Second file whose keys win; makes it a smoke run.")] = None,
    smoke_steps: Annotated[int | None, typer.Option(help="Steps of a smoke run.")] = None,
    dataset: Annotated[str | None, typer.Option(help="Built-in dataset or JSONL file.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, gpu or tpu; an absent one is refused.")] = None,
    save_every_steps: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data order.")] = None,
    settings: Annotated[list[str] | None, typer.Option("--set", help="Any key, as in --set limits.steps=200.")] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue from the newest checkpoint of this run folder.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Start although the plan says it does not fit.")] = False,
) -> None:
    """Train a model and record the run."""
    need("train", "train")
    from trainer.loop.stop import ending_at_once

    with ending_at_once("train"):
        from trainer.recorder.progress import Watch
        from trainer.run import run
        from trainproof.verbs.train_order import TrainFlags, order_of

        flags = TrainFlags(
            config=config,
            resume=resume,
            output=output,
            smoke_config=smoke_config,
            smoke_steps=smoke_steps,
            dataset=dataset,
            device=device,
            save_every_steps=save_every_steps,
            seed=seed,
            settings=settings or (),
            force=force,
        )
        with Watch() as watch:
            code = run(order_of(flags), watch)
    raise typer.Exit(code)


@app.command()
def demo(
    root: Annotated[Path, typer.Option(help="Folder of runs.")] = Path("submission_runs"),
    no_serve: Annotated[bool, typer.Option("--no-serve", help="Stop before the dashboard.")] = False,
    again: Annotated[bool, typer.Option("--again", help="Train anew, beside the runs that are there.")] = False,
) -> None:
    """Train two small models, check, pack and verify them, then open the dashboard: the whole job in minutes."""
    need("demo", "train", *(() if no_serve else ("dashboard",)))
    from trainer.recorder.progress import Watch
    from trainproof.verbs.demo import demo as carry_out

    with Watch() as watch:
        code = carry_out(root, again=again, watch=watch)
    if code or no_serve:
        raise typer.Exit(code)
    from dashboard.serve import serve_anew

    serve_anew(root)


@app.command()
def plan(
    config: Annotated[Path, typer.Option(help="Configuration file.")],
    device: Annotated[str | None, typer.Option(help="auto, cpu, gpu or tpu.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any key, as in --set data.max_length=64.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a run fits on this machine before anything is spent. Exit 3: it does not."""
    need("plan", "train")
    from trainer.loop.stop import ending_at_once

    with ending_at_once("plan"):
        from trainproof.terminal.plans import plan_of, plan_text

        found = plan_of(config, device=device, settings=settings or ())
    sys.stdout.write(as_json_text(found) if as_json else plan_text(found))
    raise typer.Exit(3 if found["verdict"] == "does_not_fit" else 0)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder with a checkpoint, not evaluated yet.")],
    eval_set: Annotated[str | None, typer.Option(help="Built-in set or JSONL file. Default: the run's own.")] = None,
    as_json: AsJson = False,
) -> None:
    """Answer an evaluation set with a run's newest checkpoint and add the answers to its evidence."""
    need("evaluate", "train")
    from trainer.loop.stop import ending_at_once

    with ending_at_once("evaluate"):
        from trainer.evaluate_run import evaluate_run
        from trainer.recorder.progress import Watch

        with Watch(quiet=as_json) as watch:
            summary = evaluate_run(run, eval_set, watch)
    if as_json:
        sys.stdout.write(as_json_text(summary))


@app.command()
def export(
    run: Annotated[Path, typer.Argument(help="Run folder with a checkpoint.")],
    output: Annotated[Path | None, typer.Option(help="New folder. Default: export/ in the run folder.")] = None,
) -> None:
    """Write a run's model as a Hugging Face folder: config.json, safetensors, tokenizer."""
    need("export", "train")
    from trainer.loop.stop import ending_at_once

    with ending_at_once("export"):
        from trainer.evaluate_run import export_run
        from trainer.recorder.progress import Watch

        with Watch() as watch:
            export_run(run, output, watch)


@app.command()
def check(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, folders of runs, or single documents.")],
    as_json: AsJson = False,
    as_github: Annotated[bool, typer.Option("--github", help="Print annotations for GitHub Actions.")] = False,
    as_sarif: Annotated[bool, typer.Option("--sarif", help="Print SARIF 2.1.0.")] = False,
    as_junit: Annotated[bool, typer.Option("--junit", help="Print a JUnit report.")] = False,
) -> None:
    """Hold runs against their own evidence; exit 1 if anything is wrong."""
    from evidence.index.check import check_paths
    from evidence.judge.report_forms import report_as

    report = check_paths(paths)
    form = {"json": as_json, "github": as_github, "sarif": as_sarif, "junit": as_junit}
    sys.stdout.write(report_as(report, [name for name, asked in form.items() if asked]))
    raise typer.Exit(0 if report.ok else 1)


@app.command()
def grade(
    paths: Annotated[list[Path], typer.Argument(help="Run folders, or folders of runs.")],
    as_json: AsJson = False,
) -> None:
    """Say what each run is worth, and why."""
    from evidence.index.check import check_paths
    from evidence.judge.report_forms import grades_json, grades_text

    reports = check_paths(paths).runs
    sys.stdout.write(as_json_text(grades_json(reports)) if as_json else grades_text(reports))


@app.command()
def runs(
    root: Annotated[Path, typer.Argument(help="Folder of runs.")] = Path("submission_runs"),
    archived: Annotated[
        bool, typer.Option("--archived", help="List archived runs too; --json always has them.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List the runs of a folder, newest first."""
    from evidence.index.runs import index_folder
    from trainproof.terminal.runs import print_runs, runs_json

    summaries = index_folder(root)
    if as_json:
        sys.stdout.write(as_json_text(runs_json(summaries)))
    else:
        print_runs(summaries, archived=archived)


@app.command()
def show(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    as_json: AsJson = False,
) -> None:
    """Show the figures, the grade and the findings of one run."""
    from evidence.records.ours import read_existing_run
    from trainproof.terminal.runs import run_json, run_text

    found = read_existing_run(run)
    sys.stdout.write(as_json_text(run_json(found)) if as_json else run_text(found))


@app.command(name="import")
def import_(
    folder: Annotated[Path, typer.Argument(help="Folder that another tool wrote: logs, metrics, answers.")],
    name: Annotated[str, typer.Option(help="Beginning of the new run's name.")],
    root: Annotated[Path, typer.Option(help="Where the new run folder is made.")] = Path("submission_runs"),
    as_json: AsJson = False,
) -> None:
    """Make a run folder of what another tool wrote: originals with hashes, and what they state, with sources."""
    from datetime import UTC, datetime

    from evidence.records.importing import import_run
    from trainproof.terminal.imports import import_json, import_text

    imported = import_run(folder, name=name, root=root, now=datetime.now(UTC))
    sys.stdout.write(as_json_text(import_json(imported)) if as_json else import_text(imported))


add_verbs(app)


@app.command()
def dashboard(
    root: Annotated[Path, typer.Option(help="Folder of runs; it need not exist yet.")] = Path("submission_runs"),
    port: Annotated[int | None, typer.Option(help="Port; otherwise the first free one from 8501 on.")] = None,
    address: Annotated[str, typer.Option(help="Address to listen on; others need a login.")] = "127.0.0.1",
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Do not open a browser.")] = False,
) -> None:
    """Show the runs in a browser: look, compare, launch, package."""
    need("dashboard", "dashboard")
    from dashboard.serve import serve

    serve(root, port=port, address=address, open_browser=not no_browser)
