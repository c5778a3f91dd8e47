"""The verb `sign`, and the signature behind `verify`: which files are meant, and the words.

What lives here: what the user named and left out. What does not: any signature (`evidence.bundle.signature`).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from evidence.bundle.format.rules import BAD_KEY, refusal
from evidence.bundle.signature import check_signature, new_key, public_of, sign_bundle, signature_of
from evidence.bundle.verdict import Verdict
from schemas.problems.problem import ProblemError
from schemas.problems.visible import as_lines
from trainproof.terminal.bundles import verdict_on


def signed(bundle: Path | None, key: Path | None, make: Path | None) -> str:
    """Make a key, sign a bundle, or both in this order, and return what was done as the terminal shows it.

    Raises:
        ProblemError: Exit code 2: neither was asked for, no key was named, or one cannot be used. Exit code 1: the
            bundle does not hold.
    """
    used = key or make
    if used is None:
        what = "No key was named." if bundle else "Neither a bundle nor a key was named."
        raise ProblemError([refusal(BAD_KEY, "", what)], exit_code=2)
    lines = []
    if make:
        lines.append(f"{make}: new private key {new_key(make)}; keep it to yourself.")
        lines.append(f"{public_of(make)}: its public key; give it to those who verify.")
    if bundle:
        made = sign_bundle(verdict_on(bundle), used)
        lines.append(f"{made.path}: signature of {bundle.name} with {made.key_id}.")
    return as_lines(lines)


def with_signature(verdict: Verdict, signature: Path | None, public_key: Path | None) -> Verdict:
    """Return a verdict with what its signature is worth, if the user named one or a key.

    Raises:
        ProblemError: Exit code 2: a signature was named without a key, or the key cannot be used.
    """
    if public_key is None:
        if signature is None:
            return verdict
        what = "A signature proves nothing without the public key of whoever is to have made it."
        raise ProblemError([refusal(BAD_KEY, str(signature), what)], exit_code=2)
    check = check_signature(verdict, signature or signature_of(verdict.path), public_key)
    return replace(verdict, signature=check)
