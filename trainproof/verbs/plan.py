"""The verb `plan`."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from evidence.extras import need
from evidence.writing import as_json_text
from trainproof.verbs.options import RUNS, AsJson, Settings

ExplainOom = Annotated[
    str | None,
    typer.Option(help="Explain a pasted out-of-memory text: a file, or - for standard input.", metavar="FILE|-"),
]
Hours = Annotated[
    float | None, typer.Option(min=0, help="Hours of training that somebody stated; the plan says if they hold.")
]
Calibrate = Annotated[
    bool,
    typer.Option("--calibrate", help="Compare measured RUNS with their plans; with --config, use them."),
]
Runs = Annotated[
    list[Path] | None, typer.Argument(help="With --calibrate: runs, or folders of them. Default: submission_runs.")
]

FROM_A_CONFIGURATION = "A plan needs --config FILE; --set changes any key, as in --set model.name=google/gemma-2b."


def plan(
    config: Annotated[Path | None, typer.Option(help="Configuration file.")] = None,
    on: Annotated[
        str | None, typer.Option(help="A machine of the table, or a YAML file of your own. Default: this machine.")
    ] = None,
    where: Annotated[bool, typer.Option("--where", help="Plan for every machine of the table.")] = False,
    exact: Annotated[bool, typer.Option("--exact", help="Compile every program, also far from the limit.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Compile nothing: formulas alone.")] = False,
    grid: Annotated[bool, typer.Option("--grid", help="Which microbatches fit at which length.")] = False,
    max_batch: Annotated[bool, typer.Option("--max-batch", help="Search the largest microbatch that fits.")] = False,
    device: Annotated[str | None, typer.Option(help="auto, cpu, gpu or tpu, of this machine.")] = None,
    settings: Settings = None,
    explain_oom: ExplainOom = None,
    hours: Hours = None,
    calibrate: Calibrate = False,
    runs: Runs = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a run fits on a machine, and what it takes, before anything is spent. Exit 3: it does not fit."""
    if explain_oom is not None:
        _explain(explain_oom, config=config, settings=settings or (), as_json=as_json)
        return
    if calibrate and config is None:
        _calibrate(runs or [RUNS], as_json=as_json)
        return
    if config is None or (runs and not calibrate):
        what = f"'{runs[0]}' is for --calibrate." if runs else "Missing option --config."
        message = f"{what} {FROM_A_CONFIGURATION}"
        raise typer.BadParameter(message)
    _refuse_what_excludes_each_other(where=where, on=on, grid=grid, max_batch=max_batch, exact=exact, quick=quick)
    need("plan", "train")
    from trainer.loop.session import exit_on_interrupt

    with exit_on_interrupt("plan", how="early; what a compiler has answered is kept"):
        from trainproof.orders.plan import PlanFlags, answer_of

        flags = PlanFlags(
            config=config,
            on=on,
            device=device,
            settings=settings or (),
            where=where,
            exact=exact,
            quick=quick,
            grid=grid,
            max_batch=max_batch,
            hours=hours,
            calibrate=(runs or [RUNS]) if calibrate else (),
        )
        answer = answer_of(flags)
    if as_json:
        sys.stdout.write(as_json_text(answer))
    else:
        from trainproof.terminal.plans import plan_text, where_text

        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else None
        sys.stdout.write(where_text(answer["where"]) if where else plan_text(answer, width=width))
    raise typer.Exit(exit_code(answer))


def _refuse_what_excludes_each_other(**given: str | bool | None) -> None:
    """Refuse flags of which one would be left out in silence."""
    if given["exact"] and given["quick"]:
        message = "--exact compiles every program, and --quick compiles nothing: give one of them."
        raise typer.BadParameter(message)
    of_one = [f"--{name.replace('_', '-')}" for name in ("on", "grid", "max_batch") if given[name]]
    if given["where"] and of_one:
        message = f"--where plans for every machine of the table, {' and '.join(of_one)} for one: give one of them."
        raise typer.BadParameter(message)


def _explain(text: str, *, config: Path | None, settings: Sequence[str], as_json: bool) -> None:
    """Explain a pasted out-of-memory text."""
    from trainer.planning.out_of_memory import explanation_text
    from trainproof.orders.out_of_memory import explain

    answer = explain(text, config=config, settings=settings)
    sys.stdout.write(as_json_text(answer) if as_json else explanation_text(answer))


def _calibrate(runs: list[Path], *, as_json: bool) -> None:
    """Compare measured runs with their predictions."""
    need("plan", "train")
    from trainproof.orders.calibrate import calibrate_plans, calibration_text

    answer = calibrate_plans(runs)
    sys.stdout.write(as_json_text(answer) if as_json else calibration_text(answer))


def exit_code(answer: dict[str, Any]) -> int:
    """Return 3 where the run fits nowhere that was planned for, else 0."""
    verdicts = [row["verdict"] for row in answer.get("where", [answer])]
    return 3 if all(verdict in ("does_not_fit", "unsupported") for verdict in verdicts) else 0
