"""Judge the runs of others: `replay`, `challenge`, `trust`."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer

from evidence.bundle.verify import MAX_STATES, pack_states, sent_states, unpacked_run
from evidence.proof.receipts import run_sha256, save_receipt
from evidence.proof.trust import add_trusted, remove_trusted, trust_path, trusted_entries
from evidence.proof.verification import explain_receipt
from evidence.writing import as_json_text, output_error, scratch_folder, write_json
from schemas.formats import join_lines, quantity, visible
from schemas.problems import ProblemError, problem_of
from schemas.render import render_json
from trainproof.cli.options import AsJson, Fetch, JsonLines, RunOfBundle, using_trainer
from trainproof.output import print_event

if TYPE_CHECKING:
    from trainer.recorder.progress import Watch

Receipt = dict[str, Any]
Tell = Callable[[dict[str, Any]], None]

MAX_FAILURES = 5
"""Wrong answers that are shown; the receipt has more."""


def replay(
    run: Annotated[Path, typer.Argument(help="Run folder or bundle.")],
    whole: Annotated[bool, typer.Option("--all", help="Replay every segment and regenerate every answer.")] = False,
    segments: Annotated[int, typer.Option(min=0, help="Segments to draw between the first and the last.")] = 4,
    items: Annotated[int, typer.Option(min=0, help="Answers to regenerate; the others are scored.")] = 10,
    minutes: Annotated[float | None, typer.Option(min=0, help="Replay as many segments as this time allows.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draw. Default: random.")] = None,
    run_id: RunOfBundle = None,
    dataset: Annotated[str | None, typer.Option(help="Path of the run's dataset here; its hash is checked.")] = None,
    model: Annotated[str | None, typer.Option(help="Path of the run's model here; its hash is checked.")] = None,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Replay with other package versions, within a tolerance.")
    ] = False,
    fetch: Fetch = False,
    states: Annotated[
        Path | None, typer.Option(help="States that the author packed with --pack-states for your seed.")
    ] = None,
    ask: Annotated[bool, typer.Option("--ask", help="Print which states your seed needs, and stop.")] = False,
    pack_states: Annotated[
        str | None, typer.Option(metavar="STEPS", help="As the author: pack the states that a judge requested.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option(help="Write the receipt here too; with --pack-states, the zip.")
    ] = None,
    as_json: AsJson = False,
    json_lines: JsonLines = False,
) -> None:
    """Repeat a run, or parts of it, bit for bit. Exit code 1: it differs; 3: it cannot be replayed here."""
    with using_trainer("replay", how="and nothing was written"):
        from trainer.model.source import local_models_only
        from trainer.replay.recorded import ReplayRequest, read_recorded
        from trainer.replay.replay import replay as replay_run
        from trainer.replay.replay import request_states

        if pack_states is not None:
            sys.stdout.write(_pack_states(run, pack_states, output or Path("states.zip")))
            return
        request = ReplayRequest(
            folder=run,
            whole=whole,
            segments=segments,
            items=items,
            minutes=minutes,
            seed=seed,
            anyway=anyway,
            dataset=dataset,
            model=model,
        ).with_seed()

        def carry_out(folder: Path, watch: Watch, tell: Tell) -> tuple[Receipt, int]:
            def show(event: dict[str, Any]) -> None:
                tell(event)
                if event["event"] == "step":
                    watch.done("replay", event["step"], event["of"], f"loss {event['loss']:.4f}")
                elif event["event"] == "items" and "done" in event:
                    watch.done("answers", event["done"], event["of"])

            with sent_states(states, run_sha256(folder)) as sent:
                return replay_run(replace(request, folder=folder, states=sent), watch.say, show)

        with local_models_only(unless=fetch):
            if ask:
                with unpacked_run(run, run_id) as folder:
                    document, lines = request_states(read_recorded(folder), request, run.name)
                sys.stdout.write(as_json_text(document) if as_json else join_lines(lines))
                return
            _judge(carry_out, run, run_id, output=output, as_json=as_json, json_lines=json_lines)


def _judge(
    carry_out: Callable[[Path, Watch, Tell], tuple[Receipt, int]],
    run: Path,
    run_id: str | None,
    *,
    output: Path | None,
    as_json: bool,
    json_lines: bool,
) -> NoReturn:
    """Call `carry_out` with a run folder, store and print the receipt that it returns, and exit with its code.

    The run folder may come from a bundle. With JSON output no progress is shown.
    """
    from trainer.recorder.progress import Watch

    tell: Tell = partial(print_event, err=True) if json_lines else lambda event: None
    try:
        with Watch(quiet=as_json or json_lines) as watch, unpacked_run(run, run_id) as folder:
            receipt, code = carry_out(folder, watch, tell)
        _store_receipt(receipt, output)
    except ProblemError as error:
        tell({"event": "refused", "problems": render_json(error.problems)})
        raise
    tell({"event": "done", "result": receipt["result"], "said": receipt["said"], "exit_code": code})
    sys.stdout.write(as_json_text(receipt) if as_json else join_lines(_receipt_lines(receipt)))
    raise typer.Exit(code)


def _receipt_lines(receipt: Receipt) -> Iterator[str]:
    """Yield the result and the coverage of a replay or challenge, and the wrong answers of a challenge."""
    yield f"{receipt['run_id']}: {receipt['said']}"
    score = receipt.get("score")
    excluded = score["questions"]["in_training"] if score else 0
    if excluded is None:
        yield "  The training data is not available, so its overlap with the questions was not checked."
    elif excluded:
        yield f"  {quantity(excluded, 'question')} more are in the training data and were excluded."
    yield from (f"  {line}" for line in explain_receipt(receipt))
    for row in score["failures"][:MAX_FAILURES] if score else ():
        answer = visible(row["output_text"][-80:]).replace("\n", " ")
        yield f"  wrong: {row['prompt']} expected {row['expected']}, answer: {answer or 'nothing'}"


def _store_receipt(receipt: Receipt, output: Path | None) -> None:
    """Seal a receipt and store it among this user's receipts, and also in `output`."""
    try:
        save_receipt(receipt)
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_json(output, receipt)
    except OSError as error:
        path = Path(error.filename or output or "this user's receipts")
        raise output_error(error, path, subject="The receipt") from error


def _pack_states(run: Path, steps: str, output: Path) -> str:
    """Pack the states of a run at the steps that a judge requested (`280,1120`), and describe the zip."""
    from trainer.recorder.progress import Watch
    from trainer.replay.replay import write_states

    numbers = [int(step) for step in steps.split(",")] if re.fullmatch(r"\d{1,12}( *, *\d{1,12})*", steps) else []
    if not 0 < len(numbers) <= MAX_STATES or len(set(numbers)) != len(numbers):
        what = f"--pack-states {steps} is not a list of at most {MAX_STATES} different steps."
        raise ProblemError([problem_of("TP766", file=str(run), what=what)], exit_code=2)
    try:
        with scratch_folder("trainproof-answer-") as scratch, Watch() as watch:
            pack_states(scratch, write_states(run, sorted(numbers), scratch, watch.say), output)
    except OSError as error:
        raise output_error(error, output, subject="The zip file of states") from error
    return f"{output}: {quantity(len(numbers), 'state')} of {run.resolve().name}, checked against its chain.\n"


def challenge(
    run: Annotated[Path, typer.Argument(help="Run folder or bundle.")],
    items: Annotated[Path | None, typer.Option(help="Your own questions: JSONL with id, prompt, expected.")] = None,
    generate: Annotated[
        int | None, typer.Option(min=1, max=100_000, help="New questions of the run's kinds. Default: 50.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=2**53 - 1, help="Default: from the run's hash.")] = None,
    again: Annotated[int, typer.Option(min=0, help="Recorded answers to regenerate.")] = 10,
    run_id: RunOfBundle = None,
    model: Annotated[Path | None, typer.Option(help="Folder of the base model, if it is not found.")] = None,
    fetch: Fetch = False,
    output: Annotated[Path | None, typer.Option(help="Write the receipt here too.")] = None,
    as_json: AsJson = False,
    json_lines: JsonLines = False,
) -> None:
    """Ask a run's model new questions, and some recorded ones again. Exit code 1: the stated score is impossible."""
    with using_trainer("challenge", how="and nothing was written"):
        from trainer.evaluation.challenge import ChallengeRequest, challenge_run
        from trainer.model.source import local_models_only

        if items is not None and generate is not None:
            what = f"Both --items {items} and --generate {generate} were given."
            raise ProblemError([problem_of("TP084", file=str(run), what=what)], exit_code=2)
        questions, base = generate or 50, None if model is None else str(model)

        def carry_out(folder: Path, watch: Watch, tell: Tell) -> tuple[Receipt, int]:
            request = ChallengeRequest(
                folder=folder, items=items, generate=questions, seed=seed, again=again, model=base
            )
            receipt = challenge_run(request, watch, tell)
            return receipt, 1 if receipt["result"] == "different" else 0

        with local_models_only(unless=fetch):
            _judge(carry_out, run, run_id, output=output, as_json=as_json, json_lines=json_lines)


trust = typer.Typer(no_args_is_help=True, rich_markup_mode=None, add_completion=False)


@trust.callback()
def trust_() -> None:
    """Manage trusted keys, authorities and Sigstore instances."""


@trust.command()
def add(
    source: Annotated[
        str,
        typer.Argument(
            metavar="KEY", help="SSH public key, root certificate or Sigstore root: a file, URL or github:USER."
        ),
    ],
    name: Annotated[str | None, typer.Option(help="Name of the entry. Default: the GitHub user.")] = None,
) -> None:
    """Trust a person's SSH keys, a time authority or a Sigstore instance."""
    for entry in add_trusted(source, name, datetime.now(UTC)):
        sys.stdout.write(join_lines([f"{entry.name}: {entry.kind} {entry.id} is trusted."]))


@trust.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the trusted entries."""
    entries = trusted_entries()
    lines = [f"{each.name}: {each.kind} {each.id}, since {each.added_at[:10]}" for each in entries]
    text = join_lines(lines or [f"The list of trusted keys is empty: {trust_path()}."])
    sys.stdout.write(as_json_text([asdict(entry) for entry in entries]) if as_json else text)


@trust.command()
def remove(name: Annotated[str, typer.Argument(help="Name or id of the entry.")]) -> None:
    """Stop trusting an entry."""
    removed = remove_trusted(name)
    sys.stdout.write(join_lines(f"{each.name}: {each.kind} {each.id} is no longer trusted." for each in removed))
