"""The verbs about runs that are there: note, compare, package, sign and verify. `trainproof` adds them to its own.

What lives here: their flags. What does not: any work; every verb hands over at once, with imports inside, so that
`trainproof --help` answers at once.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for programs instead of text.")]


def add_verbs(app: typer.Typer) -> None:
    """Add the verbs of this module to a command, in the order in which its help lists them."""
    for verb in (note, compare, package, sign, verify):
        app.command()(verb)


def note(
    runs: Annotated[list[Path], typer.Argument(help="Run folders.")],
    tag: Annotated[list[str] | None, typer.Option(help="Tag to give, one word; may be given again.")] = None,
    untag: Annotated[list[str] | None, typer.Option(help="Tag to take away.")] = None,
    text: Annotated[str | None, typer.Option(help='The note; "" takes it away.')] = None,
    archive: Annotated[
        bool | None, typer.Option("--archive/--restore", help="Take the runs out of lists, or back into them.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Tag runs, write a note, archive or restore them; without options, show their notes. No grade depends on it."""
    from datetime import UTC, datetime

    from evidence.run.notes import Change, change_notes
    from trainproof.terminal.notes import notes_json, notes_text

    change = Change(add=tuple(tag or ()), remove=tuple(untag or ()), note=text, archive=archive)
    noted = dict(zip(runs, change_notes(runs, change, datetime.now(UTC)), strict=True))
    sys.stdout.write(notes_json(noted) if as_json else notes_text(noted))


def compare(
    runs: Annotated[list[Path], typer.Argument(help="Two or more run folders; the first is held against the others.")],
    require: Annotated[
        list[str] | None, typer.Option(help='What every run must reach, as in --require "exact_match>=0.4".')
    ] = None,
    baseline: Annotated[Path | None, typer.Option(help="Run that the others are held against.")] = None,
    no_worse_than: Annotated[
        float | None, typer.Option(help="How much worse than the baseline exact match may be, as in 0.02.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Show how runs differ, and whether their scores differ by more than chance.

    Exit 1: scores cannot be compared, or a requirement is not met.
    """
    from trainproof.terminal.gates import outcome_of, printed

    outcome = outcome_of(runs, require=require or (), baseline=baseline, no_worse_than=no_worse_than)
    sys.stdout.write(printed(outcome, as_json=as_json))
    raise typer.Exit(0 if outcome.ok else 1)


def package(
    runs: Annotated[list[Path] | None, typer.Argument(help="Run folders.")] = None,
    run_dir: Annotated[list[Path] | None, typer.Option(help="Run folder; the same as naming it.")] = None,
    output: Annotated[Path | None, typer.Option(help="Zip to write. Default: bundles/<run>.zip.")] = None,
    allow_partial: Annotated[
        bool, typer.Option("--allow-partial", help="Pack unfinished runs and runs with errors, labelled as such.")
    ] = False,
    with_weights: Annotated[
        bool, typer.Option("--with-weights", help="Pack checkpoints, adapters and exports too.")
    ] = False,
    redact: Annotated[
        bool, typer.Option("--redact", help="Mask secrets and home folders in the packed copies of logs and texts.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Pack runs into one zip that anyone can verify. Exit 1: a run must not be packed; 2: no such folder."""
    from evidence.bundle.build import build_bundle
    from evidence.run.write import as_json_text
    from trainproof.terminal.bundles import build_dict, build_text, default_output, progress_bar

    folders = [*(runs or []), *(run_dir or [])]
    with progress_bar("Packing") as progress:
        report = build_bundle(
            folders,
            output or default_output(folders),
            allow_partial=allow_partial,
            with_weights=with_weights,
            redact=redact,
            progress=progress,
        )
    sys.stdout.write(as_json_text(build_dict(report)) if as_json else build_text(report))


def sign(
    bundle: Annotated[Path | None, typer.Argument(help="The zip.")] = None,
    key: Annotated[Path | None, typer.Option(help="Private key to sign with.")] = None,
    new_key: Annotated[Path | None, typer.Option(help="Make a private key here, and its public key beside it.")] = None,
) -> None:
    """Sign a bundle with a key of your own, beside it as .sig. Exit 1: the bundle does not hold."""
    from trainproof.terminal.signatures import signed

    sys.stdout.write(signed(bundle, key, new_key))


def verify(
    bundle: Annotated[Path, typer.Argument(help="The zip.")],
    signature: Annotated[Path | None, typer.Option(help="Its signature. Default with a key: the zip's .sig.")] = None,
    public_key: Annotated[Path | None, typer.Option(help="Public key of whoever is to have signed it.")] = None,
    as_json: AsJson = False,
) -> None:
    """Check a bundle with nothing but the zip: hashes, documents, cross-checks, grades. Exit 1: it does not hold."""
    from evidence.run.write import as_json_text
    from trainproof.terminal.bundles import progress_bar, verdict_dict, verdict_on, verdict_text
    from trainproof.terminal.signatures import with_signature

    with progress_bar("Verifying") as progress:
        verdict = with_signature(verdict_on(bundle, progress), signature, public_key)
    sys.stdout.write(as_json_text(verdict_dict(verdict)) if as_json else verdict_text(verdict))
    raise typer.Exit(0 if verdict.ok else 1)
