"""The verb `train`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from evidence.extras import need
from trainproof.verbs.options import Resume, Session, Settings


def train(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    output: Annotated[
        Path | None, typer.Option(help="Run folder; new, or empty. Default: submission_runs/<id>.")
    ] = None,
    smoke_config: Annotated[Path | None, typer.Option(help="Second file whose keys win; makes it a smoke run.")] = None,
    smoke_steps: Annotated[
        int | None, typer.Option(help="Steps of a smoke run; its model's shape is made small where it is too large.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Built-in dataset or JSONL file.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu, gpu or tpu; a missing one is refused.")] = None,
    save_every_steps: Annotated[int | None, typer.Option(help="Steps between checkpoints.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of weights and data order.")] = None,
    settings: Settings = None,
    resume: Resume = None,
    session: Session = None,
    check: Annotated[
        bool, typer.Option("--check", help="Read configuration, model and data, say what is wrong, and train nothing.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Start although the plan says it does not fit.")] = False,
    profile: Annotated[
        int | None,
        typer.Option(min=1, metavar="STEPS", help="Trace so many steps, after the first, into .profile of the folder."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="With --check: print JSON for programs.")] = False,
) -> None:
    """Train a model and record the run."""
    if as_json and not check:
        message = "--json is for --check; a run records itself in its folder."
        raise typer.BadParameter(message)
    need("train", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("train"):
        from trainer.recorder.progress import Watch
        from trainproof.orders.continuing import carry_out, check_inputs
        from trainproof.orders.train import TrainFlags

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
            profile=profile,
            session=session,
        )
        if check:
            raise typer.Exit(check_inputs(flags, as_json=as_json))
        with Watch() as watch:
            code = carry_out(flags, watch)
    raise typer.Exit(code)
