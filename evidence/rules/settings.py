"""Compare what was configured with what ran, and every fact that documents and log repeat."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import numpy as np

from evidence.effective import (
    MANIFEST_PATHS,
    compare_settings,
    effective_settings,
    flatten,
    manifest_pointer,
    settings_in_manifest,
)
from evidence.hashes import sha256_json
from evidence.layout import CONFIG, EVAL_SUMMARY, FIRST_EXAMPLES, LOG, MANIFEST, METRICS, PLAN
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.rules.identity import events
from evidence.run import same, where
from schemas.catalog import resolve_node, schema
from schemas.formats import format_value
from schemas.problems import pointer_to
from schemas.reading import get_path

RESTATED = (
    ("run_manifest.json devices.platform", "plan.json target.platform", "log.jsonl devices_chosen.platform"),
    ("run_manifest.json devices.kind", "plan.json target.name"),
    ("run_manifest.json devices.memory_bytes", "plan.json target.memory_bytes"),
    ("run_manifest.json devices.count", "plan.json target.devices", "log.jsonl devices_chosen.count"),
    ("run_manifest.json training.forced", "plan.json forced"),
    ("plan.json need_bytes", "log.jsonl planned.need_bytes"),
    ("run_manifest.json result.compile_seconds", "log.jsonl compiled.compile_seconds"),
    ("run_manifest.json model.family", "log.jsonl compiled.family"),
    ("run_manifest.json model.weights_sha256", "log.jsonl compiled.weights_sha256"),
    ("run_manifest.json training.donation.state_bytes", "log.jsonl compiled.state_bytes"),
    ("run_manifest.json training.donation.aliased_bytes", "log.jsonl compiled.aliased_bytes"),
    ("run_manifest.json result.train_seconds", "log.jsonl trained.train_seconds"),
    ("run_manifest.json result.peak_memory_bytes", "log.jsonl trained.peak_memory_bytes"),
    ("eval_summary.json eval_set.sha256", "log.jsonl evaluated.eval_set_sha256"),
    ("eval_summary.json checkpoint.params_sha256", "log.jsonl evaluated.params_sha256"),
)
"""Facts that a run repeats: the place that defines each, then its copies; in the log an event and a field."""

_CHECKED_APART = {"memory.donate", "mesh.shard_params", "mesh.device"}
"""Settings with rules of their own: a compiler may decline the first two, and a device may be chosen."""

_FLAGS = {"--smoke_steps": "limits.steps", "--smoke-steps": "limits.steps"}
"""Settings that have a flag of their own; `--set` takes precedence."""


@rule("TP303", "config", "manifest")
def declared_settings(run: ValidRun, check: Checker) -> None:
    """Compare the settings of config.yaml with the effective ones of the manifest."""
    for key, agreement in compare_settings(run.config, run.manifest).items():
        if agreement.state == "differs" and key not in _CHECKED_APART:
            _report_setting(check, key, agreement.declared, agreement.effective, agreement.pointer)
    declared, requested = get_path(run.config, "mesh", "device"), run.manifest["devices"]["requested"]
    if declared not in (None, requested):
        _report_setting(check, "mesh.device", declared, requested, "/devices/requested")
    for key, pointer in (
        ("memory.donate", "/training/donation/effective"),
        ("mesh.shard_params", "/training/mesh/shard_params"),
    ):
        if get_path(run.config, *key.split(".")) is False and get_path(run.manifest, *pointer[1:].split("/")):
            check.report(MANIFEST, f"{key} is on in the manifest, but off in config.yaml.", pointer, expected="false")


def _report_setting(check: Checker, key: str, declared: Any, effective: Any, pointer: str) -> None:
    what = f"{key} is {format_value(effective)} in the manifest and {format_value(declared)} in config.yaml."
    check.report(MANIFEST, what, pointer, expected=format_value(declared), group=key)


@rule("TP304", "config", "training")
def donation_declined(run: ValidRun, check: Checker) -> None:
    """Warn if donation was requested, but the compiled step does not reuse the state's memory."""
    donation = run.training["donation"]
    is_declined = get_path(run.config, "memory", "donate") and donation["effective"] is False
    what = f"The compiled step reuses {donation['aliased_bytes']} of {donation['state_bytes']} bytes of the state."
    check.require(not is_declined, MANIFEST, what, "/training/donation/effective")


@rule("TP377", "manifest")
def effective_group(run: ValidRun, check: Checker) -> None:
    """Compare the manifest's group `effective` with its other groups."""
    if run.manifest.get("effective") is not None:
        group = effective_settings(run.manifest)
        for key, stated in settings_in_manifest(run.manifest).items():
            if key in group:
                check.equal(MANIFEST, manifest_pointer(run.manifest, key), group[key], stated, MANIFEST_PATHS[key])


@rule("TP303", "config", "training")
def logged_steps(run: ValidRun, check: Checker) -> None:
    """Check that only the steps that `recording.log_every_steps` asks for have a row."""
    every = get_path(run.config, "recording", "log_every_steps")
    evaluated = get_path(run.config, "evaluation", "every_steps") or every
    first = (run.manifest["parent"] or {"step": 0})["step"] + 1
    always = (first, run.training["steps_planned"], run.training["steps_done"])
    steps = run.columns["step"]
    for index in where((steps % every != 0) & (steps % evaluated != 0) & ~np.isin(steps, always))[:1] if every else ():
        what = f"Step {steps[index]:.0f} has a row, but recording.log_every_steps is {every}."
        check.report(METRICS, what, "/step", line=index + 1)


@rule("TP303", "config", "training", "first_examples")
def shown_examples(run: ValidRun, check: Checker) -> None:
    """Check that as many examples are shown as configured, or as the first step has.

    With packing, a step has more rows than sequences, as many as fit.
    """
    configured, shown = get_path(run.config, "recording", "first_examples"), len(run.first_examples["examples"])
    group = (get_path(run.config, "objective", "group_size") or 1) if run.draws_completions else 1
    there = min(run.training["batch_size"] // group, run.first_examples["counts"]["rows"])
    if configured:
        least = min(configured, there)
        most = configured if get_path(run.config, "data", "packing") else least
        what = f"recording.first_examples is {configured} and the first step has {there} examples; shown: {shown}."
        check.require(least <= shown <= most, FIRST_EXAMPLES, what, "/examples")


@rule("TP305", "plan", "config")
def planned_config(run: ValidRun, check: Checker) -> None:
    """Check that the plan was made for this configuration."""
    expected = sha256_json(run.config)
    check.equal(PLAN, "/config_sha256", run.plan["config_sha256"], expected, "config.yaml")


@rule("TP360")
def restated_facts(run: ValidRun, check: Checker) -> None:
    """Compare every copy of a fact with the place that defines it."""
    documents = {MANIFEST: run.manifest, PLAN: run.plan, EVAL_SUMMARY: run.eval_summary}
    for primary, *copies in RESTATED:
        file, _, path = primary.partition(" ")
        value = get_path(documents[file], *path.split("."))
        for copy in copies if value is not None else ():
            name, _, other = copy.partition(" ")
            if name == LOG:
                event, field = other.split(".")
                for line, fields in events(run, event):
                    if field in fields:
                        source = f"{file} at {path}"
                        check.equal(LOG, f"/fields/{field}", fields[field], value, source, line=line)
            elif (planned := get_path(documents[name], *other.split("."))) is not None:
                pointer = "/" + path.replace(".", "/")
                check.equal(file, pointer, value, planned, f"{name} at {other}", code="TP305")


@rule("TP303", "config", "manifest")
def command_settings(run: ValidRun, check: Checker) -> None:
    """Compare the settings in the command with config.yaml, which they override."""
    declared = flatten(run.config)
    for key, (index, text) in _parse_settings(run.manifest["command"]).items():
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if key in declared and not isinstance(value, dict | list):
            what = (
                f"The command sets {key} to {format_value(value)}, but config.yaml has {format_value(declared[key])}."
            )
            check.require(same(value, declared[key]), MANIFEST, what, f"/command/{index}")


def _parse_settings(command: list[str]) -> dict[str, tuple[int, str]]:
    """Return the index and the value of every setting in a command."""
    given: dict[str, tuple[int, str]] = {}
    for index, word in enumerate(command):
        flag, _, value = word.partition("=")
        at_value = index if value else index + 1
        if flag not in {"--set", *_FLAGS} or at_value >= len(command):
            continue
        value = value or command[at_value]
        if flag in _FLAGS:
            given.setdefault(_FLAGS[flag], (at_value, value))
        elif "=" in value:
            key, _, value = value.partition("=")
            given[key] = (at_value, value)
    return given


@rule("TP516", "config", "manifest")
def every_setting(run: ValidRun, check: Checker) -> None:
    """Check that config.yaml contains every setting of its schema version."""
    version = str(run.config.get("schema_version") or run.manifest["schema_version"])
    for keys, since in _settings().items():
        group = get_path(run.config, *keys[:-1])
        is_there = isinstance(group, dict) and keys[-1] in group
        check.require(is_there or since > version, CONFIG, f"{'.'.join(keys)} is missing.", pointer_to(keys[:-1]))


@cache
def _settings() -> dict[tuple[str, ...], str]:
    """Return every setting with the schema version that added it.

    Settings marked `x-late` are skipped, because they were added after runs of their version had been recorded.
    """
    document, found = schema("train_config"), dict[tuple[str, ...], str]()
    nodes: list[tuple[tuple[str, ...], str, dict[str, Any]]] = [((), "1.0", document)]
    for above, since, node in nodes:
        for key, item in resolve_node(node, document).get("properties", {}).items():
            inner = resolve_node(item, document)
            added = inner.get("x-since", since)
            if "properties" in inner:
                nodes.append(((*above, key), added, inner))
            elif not inner.get("x-late"):
                found[*above, key] = added
    return found
