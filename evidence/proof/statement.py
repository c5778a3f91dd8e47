"""An in-toto statement about one run: what it is, by the hashes of its files, in a form that others can sign.

The subjects are the files, so any of them can be attested by hash; the predicate states what they are. Its type is our
own, since no standard predicate knows training; `docs/witness.md` lists its fields. `trainproof sign`, Sigstore
and a GitHub workflow (`actions/attest`) can sign it.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from evidence.judge.judgement import report_of
from evidence.proof.envelope import STATEMENT
from evidence.proof.rules import refusal
from evidence.records.facts import facts_of
from evidence.records.ours import Run
from evidence.run import layout
from evidence.run.hashes import sha256_file
from schemas.problems import ProblemError

RUN_PREDICATE = "https://trainproof.example/run/v1"

_MODEL = ("name", "revision", "family", "parameters", "trainable_parameters", "weights", "weights_sha256")
_DATASET = ("name", "rows", "sha256", "split")
_DEVICES = ("platform", "kind", "count")
_CODE = ("version", "commit", "dirty")


def run_statement(run: Run, now: datetime) -> dict[str, Any]:
    """Return the statement about a run.

    Args:
        run: A run folder of ours whose manifest is valid and sealed.
        now: When the statement is made.

    Raises:
        ProblemError: Exit code 1: the run has no valid manifest, or is not sealed, so that its files have no hashes.
    """
    facts, report = facts_of(run), report_of(run)
    manifest = facts.manifest
    if manifest is None or not manifest["artifacts"]:
        what = "The run has no valid manifest." if manifest is None else "The run is not sealed: it lists no files."
        raise ProblemError([refusal("TP872", str(run.path), what)], exit_code=1)
    digest = sha256_file(run.path / layout.MANIFEST)
    files = {layout.MANIFEST: digest} | {each["path"]: each["sha256"] for each in manifest["artifacts"]}
    return {
        "_type": STATEMENT,
        "subject": [{"name": name, "digest": {"sha256": files[name]}} for name in sorted(files)],
        "predicateType": RUN_PREDICATE,
        "predicate": {
            "run_id": manifest["run_id"],
            "run_sha256": digest,
            "grade": report.grade.name,
            "mode": manifest["mode"],
            "status": manifest["status"],
            "started_at": manifest["started_at"],
            "finished_at": manifest["finished_at"],
            "code": _part(manifest["code"], _CODE),
            "config_sha256": files.get(layout.CONFIG),
            "dataset": _part(manifest["dataset"], _DATASET),
            "model": _part(manifest["model"], _MODEL),
            "devices": _part(manifest["devices"], _DEVICES),
            "packages": manifest["environment"]["packages"],
            "result": manifest["result"],
            "scores": _scores(facts.eval_summary),
            "stated_at": now.isoformat(timespec="seconds"),
        },
    }


def _part(group: dict[str, Any] | None, names: tuple[str, ...]) -> dict[str, Any] | None:
    return None if group is None else {name: group.get(name) for name in names}


def _scores(summary: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return each metric's value and how many items it is over; None where the run was not evaluated."""
    if summary is None:
        return None
    return {name: {"value": each["value"], "n": each["n"]} for name, each in summary["metrics"].items()}
