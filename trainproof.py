"""The `trainproof` command: one verb per function; each hands over to its package at once.

What lives here: the flags of each verb, and the one place where a `ProblemError` becomes text and an exit code.
What does not: any work. Heavy imports stand inside the verbs, so that `trainproof --help` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(
    name="trainproof",
    help="Fine-tune a small language model on scarce hardware and hand in evidence that stands.",
    add_completion=False,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


@app.callback()
def trainproof() -> None:
    """Fine-tune a small language model on scarce hardware and hand in evidence that stands."""


def main(arguments: list[str] | None = None) -> None:
    """Run the command line; flags may be written with `-` or `_`."""
    from schemas.problems import ProblemError

    given = sys.argv[1:] if arguments is None else arguments
    try:
        app([dashed(argument) for argument in given])
    except ProblemError as error:
        from schemas.render import as_text

        sys.stderr.write(as_text(error.problems))
        raise SystemExit(error.exit_code) from None


def dashed(argument: str) -> str:
    """Return a long flag with hyphens: `--smoke_steps=2` becomes `--smoke-steps=2`; its value is left alone."""
    if not argument.startswith("--"):
        return argument
    flag, equals, value = argument.partition("=")
    return flag.replace("_", "-") + equals + value


@app.command()
def train(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    output: Annotated[Path | None, typer.Option(help="Run folder; new, or empty. Default: submission_runs/<id>.")] = None,
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
    from trainer.command import TrainFlags, order_of
    from trainer.progress import Watch
    from trainer.run import run

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


if __name__ == "__main__":
    main()
