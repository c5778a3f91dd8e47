"""Check the files of a run: unchanged (TP2xx), complete (TP5xx), without placeholders and leftovers (TP507, TP6xx)."""

from __future__ import annotations

import hashlib
import os
import re
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from evidence import layout
from evidence.hashes import CHUNK_BYTES, sha256_file, sha256_manifest
from evidence.imports.keys import iter_texts
from evidence.layout import BASELINE_PREDICTIONS, CHAIN, EVAL_SUMMARY, LOG, MANIFEST, METRICS, PREDICTIONS
from evidence.rewards import logged_rollout_steps
from evidence.rules.checker import Checker, ValidRun, rule, shorten
from evidence.rules.identity import SEALED, events
from evidence.rules.scores import each_answer
from evidence.run import Document, Run, finding, where
from schemas.catalog import schema
from schemas.formats import format_value, join_words, quantity
from schemas.problems import Problem, pointer_to, truncate_problems
from schemas.reading import get_path

REQUIRED = (MANIFEST, layout.CONFIG, layout.PLAN, METRICS, LOG, layout.FIRST_EXAMPLES)
"""Files that every finished run has."""

_ADDED_LATER = {MANIFEST, layout.NOTES, layout.STAMPS, layout.SESSION, layout.LOCK, *layout.ROLES}
"""Names that the artifact list of a run need not contain; evidence files have a rule of their own."""


@rule("TP212", "manifest", "log")
def manifest_hash(run: ValidRun, check: Checker) -> None:
    """Compare the manifest with its hash in the last seal of the log."""
    seals = [fields["manifest_sha256"] for _, fields in events(run, SEALED) if "manifest_sha256" in fields]
    if run.is_sealed and seals and seals[-1] != (actual := sha256_manifest(run.manifest)):
        what = f"The manifest's hash is {shorten(actual)}; the log's last seal gives {shorten(seals[-1])}."
        check.report(MANIFEST, what, expected=str(seals[-1]))


@rule("TP203", "manifest")
def listed_files(run: ValidRun, check: Checker) -> None:
    """Compare every listed file with its size, hash and role, and check that a sealed run lists all its evidence."""
    seen: set[str] = set()
    for index, artifact in enumerate(run.manifest["artifacts"]):
        path, pointer = artifact["path"], f"/artifacts/{index}"
        what = f"The artifact list contains {'itself' if path == MANIFEST else f'{path} twice'}."
        check.require(path not in seen and path != MANIFEST, MANIFEST, what, pointer, code="TP205")
        seen.add(path)
        role, source = layout.ROLES.get(path, "other"), "the file's name"
        check.equal(MANIFEST, f"{pointer}/role", artifact["role"], role, source, code="TP208")
        if path in run.files and path != MANIFEST:
            _compare_file(run.folder / path, artifact, pointer, check)
        # Evidence files that are links or folders are reported when the folder is read.
        elif path != MANIFEST and not (path in layout.ROLES and os.path.lexists(run.folder / path)):
            what = f"{path} is listed, but missing from the folder."
            check.report(MANIFEST, what, pointer, expected=f"{path} with {artifact['bytes']} bytes")
    for name in sorted(layout.ROLES.keys() & set(run.files) - seen) if run.is_sealed else ():
        check.report(name, f"{name} is not in the manifest's artifact list.", code="TP204")


def _compare_file(file: Path, artifact: Document, pointer: str, check: Checker) -> None:
    path, expected = artifact["path"], artifact["sha256"]
    try:
        actual, size = sha256_file(file), file.stat().st_size
    except OSError as error:
        check.report(path, f"{path} cannot be read: {error.strerror or error}.", code="TP210")
        return
    if layout.is_lfs_pointer(file):
        what = f"{path} is a Git LFS pointer of {size} bytes, not the file itself."
        check.report(path, what, code="TP213")
    elif actual == expected:
        check.equal(MANIFEST, f"{pointer}/bytes", artifact["bytes"], size, "the file", code="TP207")
    elif conversion := _line_end_conversion(file, expected):
        check.report(path, f"{path} matches its hash after {conversion} conversion.", code="TP202")
    else:
        sizes = "" if size == artifact["bytes"] else f"; it has {size} bytes instead of {artifact['bytes']}"
        what = f"{path} has the hash {shorten(actual)}; the manifest lists {shorten(expected)}{sizes}."
        check.report(path, what, code="TP201", expected=expected)


def _line_end_conversion(path: Path, sha256: str) -> str | None:
    """Return the line ends to convert to get the stated hash, `CRLF` or `LF`, or None if neither gives it."""
    as_lf, as_crlf = hashlib.sha256(), hashlib.sha256()
    with path.open(encoding="latin-1") as file:  # reads each line end as a newline, and any other byte as it is
        while text := file.read(CHUNK_BYTES):
            as_lf.update(text.encode("latin-1"))
            as_crlf.update(text.replace("\n", "\r\n").encode("latin-1"))
    return {as_lf.hexdigest(): "CRLF", as_crlf.hexdigest(): "LF"}.get(sha256)


@rule("TP211", "manifest", "eval_summary")
def scored_predictions(run: ValidRun, check: Checker) -> None:
    """Check that the scores were computed from the predictions that the manifest lists."""
    hashes = {artifact["path"]: artifact["sha256"] for artifact in run.manifest["artifacts"]}
    for pointer, scores in (("", run.eval_summary), ("/baseline", run.eval_summary["baseline"])):
        name = scores["predictions"]["path"] if scores else None
        if name in hashes:
            stated = scores["predictions"]["sha256"]
            source = f"the manifest's entry for {name}"
            check.equal(EVAL_SUMMARY, f"{pointer}/predictions/sha256", stated, hashes[name], source)


@rule("TP504")
def required_files(run: ValidRun, check: Checker) -> None:
    """Check that the manifest exists and, in a run that succeeded, every file that its configuration asks for."""
    for name in REQUIRED if run.succeeded else (MANIFEST,):
        is_there = name in run.files or os.path.lexists(run.folder / name)
        check.require(is_there, "", f"{name} is missing.", code="TP503" if name == MANIFEST else "TP504")
    has_chain = CHAIN in run.files or "chain_every_steps" not in (run.config or {}).get("recording", {})
    what = "chain.jsonl is missing, but config.yaml sets recording.chain_every_steps."
    check.require(has_chain or not run.succeeded, "", what, code="TP531")
    if run.succeeded and EVAL_SUMMARY not in run.files:
        eval_set = get_path(run.config, "evaluation", "eval_set")
        asked = f", but evaluation.eval_set is {format_value(eval_set)}" if eval_set is not None else ""
        check.report("", f"eval_summary.json is missing{asked}.", code="TP508" if asked else "TP509")


@rule("TP505", "metrics")
def recorded_steps(run: ValidRun, check: Checker) -> None:
    """Check that a run that succeeded has rows and events, and that no run skips rows."""
    check.require(run.metrics or not run.succeeded, METRICS, "metrics.jsonl is empty.")
    check.require(run.log != [] or not run.succeeded, LOG, "log.jsonl is empty.", code="TP515")
    every = get_path(run.config, "recording", "log_every_steps")
    if every is None or not run.manifest:
        return
    first = (run.manifest["parent"] or {"step": 0})["step"]
    steps = run.columns["step"]
    for index in where(np.diff(steps, prepend=first) > np.where(np.arange(len(steps)) == 0, 1, every)):
        step, before = int(steps[index]), int(steps[index - 1]) if index else first
        what = f"Step {step} follows step {before}, but recording.log_every_steps is {every}."
        check.report(METRICS, what, "/step", line=index + 1, code="TP512")


@rule("TP506", "manifest")
def results(run: ValidRun, check: Checker) -> None:
    """Check that a run that succeeded has measured what cannot be recomputed, and warn about one that was killed."""
    is_killed = run.manifest["status"] == "running" and run.status == "interrupted"
    what = f"The run was killed; metrics.jsonl has {quantity(len(run.metrics or ()), 'row')}."
    check.require(not is_killed, MANIFEST, what, "/status", code="TP513")
    results = ("train_seconds", "compile_seconds", "peak_memory_bytes", "stopped_because")
    paths = ["model", "training", *(f"result.{name}" for name in results)]
    if get_path(run.config, "evaluation", "eval_set") is not None:
        paths.append("dataset.overlap_with_eval")
    for path in paths if run.succeeded else ():
        is_there = get_path(run.manifest, *path.split(".")) is not None
        check.require(is_there, MANIFEST, f"{path} is null.", "/" + path.replace(".", "/"))


@rule("TP510", "eval_summary")
def predictions(run: ValidRun, check: Checker) -> None:
    """Check that scores have predictions, that a configured baseline exists, and that no item is unanswered."""
    summary, baseline = run.eval_summary, run.eval_summary["baseline"]
    for name, scores in ((PREDICTIONS, summary), (BASELINE_PREDICTIONS, baseline)):
        path = scores["predictions"]["path"] if scores else name
        check.require(path == name, EVAL_SUMMARY, f"The scores name {path}, not {name}.")
        has_rows = not scores or path != name or name in run.files
        check.require(has_rows, EVAL_SUMMARY, f"There are scores, but no {name}.")
    # A run that continues another, or stopped early, cannot evaluate the untrained model.
    can_have_baseline = run.succeeded and run.manifest["parent"] is None
    configured = (run.config or {}).get("evaluation", {})
    if can_have_baseline and configured.get("eval_set") is not None and configured.get("baseline"):
        what = "evaluation.baseline is true, but the baseline is missing."
        check.require(baseline is not None, EVAL_SUMMARY, what, "/baseline", code="TP511")
    what = f"{summary['predictions']['rows']} of {summary['eval_set']['items']} items were answered."
    check.require(summary["status"] != "partial", EVAL_SUMMARY, what, "/status", code="TP514")


@rule("TP525", "manifest")
def recorded_fields(run: ValidRun, check: Checker) -> None:
    """Check that a run has every optional field, marked by `x-recorded`, that the recorder of its version writes."""
    version = run.manifest["schema_version"]
    if not run.succeeded or version == "1.0":
        return

    def report(file: str, holder: str, fields: Document, names: Sequence[str], pointer: str, line: int | None) -> None:
        if missing := [name for name in names if name not in fields]:
            check.report(file, f"{holder} lacks {join_words(missing, last='and')}.", pointer or None, line=line)

    rollouts, objective = run.draws_completions, get_path(run.config, "objective") or {}
    conditions = {"always", "rollouts" if rollouts else "without rollouts"}
    if rollouts and objective.get("updates_per_rollout") == 1:
        conditions.add("one update per rollout")
    if run.manifest["dataset"]["overlap_with_eval"] is not None:
        conditions.add("evaluation")
    for number, event in enumerate(run.log or (), start=1):
        names = schema("log_record")["properties"]["fields"]["x-recorded"].get(event["event"], ())
        report(LOG, f"The event {event['event']}", event["fields"], names, "/fields", number)
    for file, kind, rows in (
        (MANIFEST, "run_manifest", [(None, "", run.manifest)]),
        (EVAL_SUMMARY, "eval_summary", [(None, "", run.eval_summary)] if run.eval_summary else []),
        (METRICS, "metric_row", ((line, "", row) for line, row in enumerate(run.metrics or (), start=1))),
        (PREDICTIONS, "prediction_row", each_answer(run.predictions or ())),
        (BASELINE_PREDICTIONS, "prediction_row", each_answer(run.baseline_predictions or ())),
    ):
        fields = _recorded_fields(kind, version, frozenset(conditions))
        with_output = _recorded_fields(kind, version, frozenset({*conditions, "output"}))
        for line, pointer, row in rows:
            for group, names in (with_output if row.get("output_tokens") and row["error"] is None else fields).items():
                holder = ".".join(group) or (file if line is None else f"Row {line}")
                report(file, holder, get_path(row, *group), names, pointer + pointer_to(group), line)


@cache
def _recorded_fields(kind: str, version: str, conditions: frozenset[str]) -> dict[tuple[str, ...], list[str]]:
    """Return the required optional fields of a document by the path of their group."""
    fields: dict[tuple[str, ...], list[str]] = defaultdict(list)
    nodes: list[tuple[tuple[str, ...], Document]] = [((), schema(kind))]
    for group, node in nodes:
        for name, inner in node.get("properties", {}).items():
            nodes.append(((*group, name), inner))
            if inner.get("x-recorded") in conditions and inner.get("x-since", "1.0") <= version:
                fields[group].append(name)
    return fields


@rule("TP525", "manifest", "config", "training")
def recorded_files(run: ValidRun, check: Checker) -> None:
    """Check that rollouts, chain and trained parameters are as complete as the recorder writes them."""
    config, version, done = run.config, run.manifest["schema_version"], run.training["steps_done"]
    if not run.succeeded or version == "1.0":
        return
    first = (run.manifest["parent"] or {"step": 0})["step"]
    if run.draws_completions:
        check.require(layout.ROLLOUTS in run.files, layout.ROLLOUTS, "rollouts.jsonl is missing.")
        steps = logged_rollout_steps(run.training["steps_planned"], config["objective"].get("updates_per_rollout", 1))
        _require_steps(check, layout.ROLLOUTS, run.rollouts, [step for step in steps if first < step <= done])
    planned, limit = get_path(config, "limits", "steps"), get_path(config, "recording", "params_mib")
    if run.chain and planned is not None:
        # Without a setting, the chain has ten entries.
        every = get_path(config, "recording", "chain_every_steps") or max(1, planned // 10)
        between = range(every, min(done, planned - 1) + 1, every)
        _require_steps(check, CHAIN, run.chain, [first, *(step for step in between if step > first), done])
    if run.model and limit is not None:
        dtype = run.model["dtypes"].get("trained", run.model["dtypes"]["params"])
        # Adapters are saved in float32 and, since version 1.2, whatever their size.
        size = run.model["trainable_parameters"] * (2 if run.trains_all and dtype in {"bfloat16", "float16"} else 4)
        is_due = size <= limit << 20 or (not run.trains_all and version != "1.1")
        is_listed = any(artifact["path"] == layout.TRAINED_PARAMS for artifact in run.manifest["artifacts"])
        what = f"{layout.TRAINED_PARAMS} is missing; {size:,} bytes were trained and recording.params_mib is {limit}."
        check.require(is_listed or not is_due, MANIFEST, what, "/artifacts")


def _require_steps(check: Checker, file: str, rows: Sequence[Document] | None, steps: Sequence[int]) -> None:
    recorded = {row["step"] for row in rows or ()}
    if rows is not None and (missing := [step for step in steps if step not in recorded]):
        check.report(file, f"{file} lacks {quantity(len(missing), 'step')}; the first is {missing[0]}.")


def unlisted_files(run: Run) -> tuple[str, ...]:
    """Return the files of a sealed run that its artifact list does not contain, without weights and evidence."""
    if run.manifest is None or not run.is_sealed:
        return ()
    known = {artifact["path"] for artifact in run.manifest["artifacts"]} | _ADDED_LATER
    unknown = (name for name in run.files if name not in known and not name.endswith(".tmp"))
    return tuple(n for n in unknown if not n.startswith(f"{layout.RECEIPTS}/") and not layout.is_weight_file(n))


@rule("TP602")
def leftover_files(run: ValidRun, check: Checker) -> None:
    """Report unlisted files, temporary files and an import.json next to a manifest."""
    what = "The folder holds both import.json and run_manifest.json."
    check.require(not {layout.IMPORT, MANIFEST} <= set(run.files), layout.IMPORT, what, code="TP376")
    for name in unlisted_files(run):
        check.report(name, f"{name} is not in the artifact list.", group="")
    for name in run.files:
        is_left = name.endswith(".tmp") and run.status != "running"
        check.require(not is_left, name, "A temporary file was left over.", code="TP601", group="")


_PLACEHOLDER = re.compile(
    r"<\s*(?i:pending|todo|tbd|fill[ _-]?in|insert|placeholder|your)\b[^>]*>"
    r"|\b(?:TBD|TODO|FIXME)\b|\bX+\.X{2,}\b"
    r"|(?i:paste (?:your |the )?(?:outputs?|logs?|results?) here)"
)
_PLACEHOLDER_SIGNS = ("<", "tbd", "todo", "fixme", "x.xx", "paste")
"""Parts of placeholders; searching for these first is many times faster than the pattern."""

_FREE_TEXT = {"examples", "prompt_template", "flags"}
"""Keys of data and of the user's environment, which may contain anything."""


def placeholders(run: Run) -> Iterator[Problem]:
    """Yield a problem for each placeholder (TP507) in a document, valid or not."""
    for name in (MANIFEST, layout.CONFIG, layout.PLAN, layout.FIRST_EXAMPLES, EVAL_SUMMARY):
        yield from truncate_problems(
            finding(run.path, "TP507", name, f"The value is still {format_value(text)}.", pointer=pointer_to(path))
            for path, text in iter_texts(run.raw(name), skip=_FREE_TEXT)
            if is_placeholder(text)
        )


def is_placeholder(text: str) -> bool:
    """Return whether a text contains a placeholder of a template that was never filled in."""
    folded = text.casefold()
    return any(sign in folded for sign in _PLACEHOLDER_SIGNS) and _PLACEHOLDER.search(text) is not None
