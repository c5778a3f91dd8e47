"""The rules of family TP8xx about keys, signatures, time stamps and attestations. The checks are in the files here."""

from __future__ import annotations

from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of
from schemas.problems.visible import visible

BAD_SIGNATURE = Rule(
    "TP834",
    "Signature does not hold",
    "The file is not a signature, or it was not made with this key for what it carries.",
    "Ask for the signature and the public key of whoever made the bundle, and get the key another way.",
)
OTHER_CONTENT_SIGNED = Rule(
    "TP835",
    "Signature of something else",
    "The key signed other content than this bundle has, so its holder did not sign this one.",
    "Ask for the bundle that was signed, or for a signature of this one.",
)
BAD_OUTPUT = Rule(
    "TP848",
    "Bundle cannot be written there",
    "The output cannot be written, or lies inside a run folder and would become part of it.",
    "Give another path with `--output`.",
)
BAD_KEY = Rule(
    "TP855",
    "Key cannot be used",
    "Signatures are made with Ed25519 keys in PEM files, private ones without a password.",
    "Make a pair with `trainproof sign --new-key FILE`; verify with the FILE.pub of it.",
)
NO_SIGNATURE = Rule(
    "TP869",
    "No signature there",
    "A key was named to check a signature with, and the file of the signature is missing or cannot be read.",
    "Ask for the .sig file and put it beside, or name it with `--signature`.",
)
SIGNATURE_OF_OTHERS = Rule(
    "TP870",
    "Signature of somebody else in the way",
    "The signature file beside holds signatures of other keys for other content; they are never overwritten.",
    "Move the .sig file away, then sign again.",
)
NOTHING_TO_SIGN = Rule(
    "TP871",
    "Not something to sign",
    "Signed are bundles, receipts and in-toto statements.",
    "Name a zip of `trainproof package`, a receipt, or a file that `trainproof statement` wrote.",
)
NOTHING_TO_STATE = Rule(
    "TP872",
    "Run that cannot be stated",
    "A statement names the files of a run by the hashes of its sealed manifest.",
    "Wait until the run has ended, or run `trainproof check` on the folder.",
)
BAD_TRUST = Rule(
    "TP859",
    "Not something to trust",
    "The trust list holds public keys of Ed25519, root certificates of time authorities, and roots of Sigstore.",
    "Name a PEM file, or a trusted root in JSON.",
)
TRUST_LIST_BROKEN = Rule(
    "TP860",
    "Trust list cannot be read",
    "It is not as trainproof wrote it, so nobody on it is trusted until it is mended.",
    "Correct the file, or move it away and add the keys again.",
)
NOT_STAMPED = Rule(
    "TP861",
    "No time stamp",
    "The time authority could not be reached, or its answer is not a time stamp of what it was asked for.",
    "Try again later, or name another authority; the run itself is not touched.",
)
BAD_STAMP = Rule(
    "TP862",
    "Time stamp does not hold",
    "The stamp was made for other content, or not by an authority whose root certificate was named.",
    "Get the authority's root certificate from the authority itself; without a stamp that holds, no time is proven.",
)
BAD_ATTESTATION = Rule(
    "TP863",
    "Attestation does not hold",
    "The file is not an attestation of a workflow, or its signature, certificate or log entry does not verify.",
    "Download it again with `gh attestation download`, and check which trusted root was named.",
)
OTHER_ATTESTED = Rule(
    "TP864",
    "Attestation of something else",
    "The workflow attested another file, ran at another commit, or belongs to another repository.",
    "Ask for the file that was attested, or for the attestation of this one.",
)


def refusal(rule: Rule, file: str, what: str, *, expected: str | None = None, next: str | None = None) -> Problem:
    """Return the problem of a rule about a file whose name may be hostile.

    `next` may state more than the rule's fix.
    """
    return problem_of(rule, file=visible(file), what=what, expected=expected, next=next)
