"""Judge the runs of others: `replay`, `challenge`, `trust`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schemas.formats import join_lines, quantity, visible
from schemas.problems import ProblemError, problem_of
from trainproof.cli.options import AsJson, Fetch, JsonLines, RunOfBundle, using_trainer
from trainproof.output import print_event, print_json

if TYPE_CHECKING:
    from trainer.recorder.progress import Watch
    from trainer.replay.recorded import ReplayRequest

Tell = Callable[[dict[str, Any]], None]

MAX_EXAMPLES = 5
"""Failures and differences that are shown; the receipt has more."""


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
        from trainer.replay.recorded import ReplayRequest

        if pack_states is not None:
            target = output or Path("states.zip")
            count = pack_run_states(run, pack_states, target)
            states_of = f"{quantity(count, 'state')} of {run.resolve().name}"
            sys.stdout.write(f"{target}: {states_of}, checked against its chain.\n")
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
        )
        with local_models_only(unless=fetch):
            if ask:
                _print_requested_states(request, run_id, as_json=as_json)
                return
            receipt, code = run_replay(
                request, run_id=run_id, states=states, output=output, quiet=as_json or json_lines, lines=json_lines
            )
    if as_json:
        print_json(receipt)
    else:
        from evidence.proof.verification import explain_receipt

        head = f"{receipt['run_id']}: {receipt['said']}"
        sys.stdout.write(join_lines([head, *(f"  {line}" for line in explain_receipt(receipt))]))
    raise typer.Exit(code)


def run_replay(
    request: ReplayRequest, *, run_id: str | None = None, states: Path | None = None, **options: Any
) -> tuple[dict[str, Any], int]:
    """Replay a run folder or the run of a bundle, store the receipt, and return it with the exit code.

    Args:
        request: What to replay; its folder may be a bundle.
        run_id: Run of a bundle with several.
        states: Zip with the states that the author packed.
        options: See `_with_receipt`.

    Raises:
        ProblemError: See `trainer.replay.replay.replay`; with exit code 1 if the bundle is not valid.
    """
    from evidence.bundle.verify import sent_states, unpacked_run
    from evidence.proof.receipts import run_sha256
    from trainer.replay.replay import replay as replay_run

    def carry_out(watch: Watch, tell: Tell) -> tuple[dict[str, Any], int]:
        def show(event: dict[str, Any]) -> None:
            tell(event)
            if event["event"] == "step":
                watch.done("replay", event["step"], event["of"], f"loss {event['loss']:.4f}")
            elif event["event"] == "items" and "done" in event:
                watch.done("answers", event["done"], event["of"])

        with unpacked_run(request.folder, run_id) as folder, sent_states(states, run_sha256(folder)) as unpacked:
            return replay_run(replace(request, folder=folder, states=unpacked).with_seed(), watch.say, show)

    return _with_receipt(carry_out, **options)


def _with_receipt(
    carry_out: Callable[[Watch, Tell], tuple[dict[str, Any], int]],
    *,
    output: Path | None = None,
    quiet: bool = False,
    lines: bool = False,
) -> tuple[dict[str, Any], int]:
    """Store the receipt that a function returns, and return it with the exit code.

    Args:
        carry_out: Called with the progress and a function for events.
        output: Second place for the receipt.
        quiet: Whether to show no progress.
        lines: Whether to print events on standard error as JSON.
    """
    from schemas.render import render_json
    from trainer.recorder.progress import Watch

    tell: Tell = print_event if lines else lambda event: None
    try:
        with Watch(quiet=quiet) as watch:
            receipt, code = carry_out(watch, tell)
        store_receipt(receipt, output)
    except ProblemError as error:
        tell({"event": "refused", "problems": render_json(error.problems)})
        raise
    tell({"event": "done", "result": receipt["result"], "said": receipt["said"], "exit_code": code})
    return receipt, code


def store_receipt(receipt: dict[str, Any], output: Path | None) -> None:
    """Seal a receipt and store it among this user's receipts, and also in `output`.

    Raises:
        ProblemError: It cannot be written (exit code 2).
    """
    from evidence.proof.receipts import save_receipt
    from evidence.writing import output_error, write_json

    try:
        save_receipt(receipt)
        if output is not None:
            output.parent.mkdir(parents=True, exist_ok=True)
            write_json(output, receipt)
    except OSError as error:
        path = Path(error.filename or output or "this user's receipts")
        raise output_error(error, path, subject="The receipt") from error


def _print_requested_states(request: ReplayRequest, run_id: str | None, *, as_json: bool) -> None:
    """Print which states the seed of a request needs."""
    from evidence.bundle.verify import unpacked_run
    from trainer.replay.recorded import read_recorded
    from trainer.replay.replay import request_states

    with unpacked_run(request.folder, run_id) as folder:
        of_folder = replace(request, folder=folder).with_seed()
        document, lines = request_states(read_recorded(folder), of_folder, request.folder.name)
    if as_json:
        print_json(document)
    else:
        sys.stdout.write(join_lines(lines))


def pack_run_states(run: Path, steps: str, output: Path) -> int:
    """Pack the states of a run at the steps that a judge requested (`280,1120`), and return their number.

    Raises:
        ProblemError: The steps are not valid or the zip cannot be written (exit code 2), or a state cannot be
            reproduced (exit code 3).
    """
    from evidence.bundle.verify import MAX_STATES, pack_states
    from evidence.writing import output_error, scratch_folder
    from trainer.recorder.progress import Watch
    from trainer.replay.replay import write_states

    parts = steps.split(",")
    numbers = {int(part) for part in parts if part.strip().isdecimal() and len(part.strip()) <= 12}
    if not 0 < len(numbers) <= MAX_STATES or len(numbers) != len(parts):
        what = f"--pack-states {steps} is not a list of at most {MAX_STATES} different steps."
        raise ProblemError([problem_of("TP766", file=str(run), what=what)], exit_code=2)
    try:
        with scratch_folder("trainproof-answer-") as scratch, Watch() as watch:
            sha256 = write_states(run, sorted(numbers), scratch, watch.say)
            pack_states(scratch, sha256, output)
    except OSError as error:
        raise output_error(error, output, subject="The zip file of states") from error
    return len(numbers)


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
        from evidence.bundle.verify import unpacked_run
        from trainer.evaluation.challenge import ChallengeRequest, challenge_run
        from trainer.model.source import local_models_only

        if items is not None and generate is not None:
            what = f"Both --items {items} and --generate {generate} were given."
            raise ProblemError([problem_of("TP084", file=str(run), what=what)], exit_code=2)
        request = ChallengeRequest(
            folder=run,
            items=items,
            generate=generate or 50,
            seed=seed,
            again=again,
            model=None if model is None else str(model),
        )

        def carry_out(watch: Watch, tell: Tell) -> tuple[dict[str, Any], int]:
            with unpacked_run(run, run_id) as folder:
                receipt = challenge_run(replace(request, folder=folder), watch, tell)
            return receipt, 1 if receipt["result"] == "different" else 0

        with local_models_only(unless=fetch):
            receipt, code = _with_receipt(carry_out, output=output, quiet=as_json or json_lines, lines=json_lines)
    if as_json:
        print_json(receipt)
    else:
        sys.stdout.write(challenge_text(receipt))
    raise typer.Exit(code)


def challenge_text(receipt: dict[str, Any]) -> str:
    """Format the receipt of a challenge: stated and found score, regenerated answers, and failures."""
    return join_lines(_challenge_lines(receipt))


def _challenge_lines(receipt: dict[str, Any]) -> Iterator[str]:
    from evidence.proof.verification import explain_receipt

    score, items = receipt["score"], receipt["covered"]["items"]
    questions, stated, found = score["questions"], score["stated"], score["found"]
    yield f"{receipt['run_id']}: {'NOT POSSIBLE' if receipt['result'] == 'different' else 'possible'}."
    yield f"  stated  {_score(stated)} on {score['eval_set']}"
    yield f"  found   {_score(found)} on {questions['name']}{_excluded(questions['in_training'])}"
    if found["value"] >= stated["value"]:
        yield "  The score found is not below the stated one."
    else:
        verdict = "possible" if score["can_be_true"] else f"below {score['level']:g}, so it is not possible"
        yield f"  If the stated score is true, so low a score has probability {score['chance']:.2g}: {verdict}."
    counts = f"{items['identical']} identical, {items['within_tolerance']} within tolerance, "
    counts += f"{items['different']} different"
    scored = quantity(receipt["marks"]["score"]["trained_of"], "recorded answer")
    yield f"  {scored} scored with the weights; {items['drawn']:,} regenerated: {counts}."
    for each in items.get("differences", [])[:MAX_EXAMPLES]:
        yield f"    {each['id']}: {each['why']}"
    yield from (f"  {line}" for line in explain_receipt(receipt))
    if failures := score["failures"][:MAX_EXAMPLES]:
        yield f"  Failures, {len(failures)} of {found['n'] - round(found['value'] * found['n'])}:"
    for row in failures:
        answer = visible(row["output_text"][-80:]).replace("\n", " ")
        yield f"    {visible(row['prompt'])} expected {visible(row['expected'])}, answer: {answer or 'nothing'}"


def _score(score: dict[str, Any]) -> str:
    interval = f"{score['low']:.3f} to {score['high']:.3f}"
    return f"{score['value']:.3f} (95 % interval {interval}, {quantity(score['n'], 'item')})"


def _excluded(in_training: int | None) -> str:
    """Format how many questions were excluded because the training data contains them."""
    if in_training is None:
        return "; the training data is not available, so overlap was not checked"
    return f"; {in_training} more are in the training data and were excluded" if in_training else ""


trust = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Manage trusted keys, authorities and Sigstore instances.",
)


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
    from datetime import UTC, datetime

    from evidence.proof.trust import add_trusted

    for entry in add_trusted(source, name, datetime.now(UTC)):
        sys.stdout.write(join_lines([f"{entry.name}: {entry.kind} {entry.id} is trusted."]))


@trust.command("list")
def list_(as_json: AsJson = False) -> None:
    """List the trusted entries."""
    from evidence.proof.trust import trust_path, trusted_entries

    entries = trusted_entries()
    if as_json:
        print_json([asdict(entry) for entry in entries])
    else:
        lines = [f"{each.name}: {each.kind} {each.id}, since {each.added_at[:10]}" for each in entries]
        sys.stdout.write(join_lines(lines or [f"The list of trusted keys is empty: {trust_path()}."]))


@trust.command()
def remove(name: Annotated[str, typer.Argument(help="Name or id of the entry.")]) -> None:
    """Stop trusting an entry."""
    from evidence.proof.trust import remove_trusted

    removed = remove_trusted(name)
    sys.stdout.write(join_lines(f"{each.name}: {each.kind} {each.id} is no longer trusted." for each in removed))
