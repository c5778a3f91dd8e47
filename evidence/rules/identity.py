"""Check that a run's documents agree: ids, devices, ending, log, examples, figures, settings and repeated facts."""

from __future__ import annotations

import json
from functools import cache
from itertools import pairwise
from pathlib import PurePath
from typing import Any

import numpy as np

from evidence import effective
from evidence.effective import FLOAT32, MANIFEST_PATHS, manifest_pointer
from evidence.hashes import sha256_json
from evidence.layout import CONFIG, EVAL_SUMMARY, FIRST_EXAMPLES, LOG, MANIFEST, METRICS, PLAN, SESSION
from evidence.rules.checker import Checker, ValidRun, rule
from evidence.run import Document, Run, same, where
from schemas.catalog import resolve_node, schema
from schemas.formats import format_value, join_words, tally
from schemas.problems import pointer_to
from schemas.reading import get_path

SEALED = "run_sealed"
EVENTS = ("run_started", "devices_chosen", "planned", "compiled", "trained", "evaluated", SEALED)
"""Events of the trainer in the order in which they first occur."""

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_FIRST_VERSION = "1.0"


def events(run: Run, name: str) -> list[tuple[int, Document]]:
    """Return the row and the fields of every event of this name in the log."""
    return [(row, event["fields"]) for row, event in enumerate(run.log or (), start=1) if event["event"] == name]


@rule("TP301", "manifest")
def run_id(run: ValidRun, check: Checker) -> None:
    """Compare the run id of all documents, the log and the command, and note a renamed folder."""
    own, folder = run.manifest["run_id"], run.folder.resolve().name
    check.require(folder == own, "", f"The folder {folder} holds the run {own}.", code="TP302")
    for file, document in ((FIRST_EXAMPLES, run.first_examples), (EVAL_SUMMARY, run.eval_summary)):
        if document:
            check.equal(file, "/run_id", document["run_id"], own, "the manifest")
    for line, event in enumerate(run.log or (), start=1):
        check.equal(LOG, "/fields/run_id", event["fields"].get("run_id", own), own, "the manifest", line=line)
    command = run.manifest["command"]
    if "--output" in command[:-1]:
        index = command.index("--output") + 1
        name = PurePath(command[index].replace("\\", "/")).name
        what = f"The command writes to the folder {name}, but the run is {own}."
        check.require(name in {own, "", ".", ".."}, MANIFEST, what, f"/command/{index}", expected=own)


@rule("TP362", "manifest")
def devices(run: ValidRun, check: Checker) -> None:
    """Compare the devices in use with the request and with their list."""
    stated = run.manifest["devices"]
    if stated["requested"] != "auto":
        check.equal(MANIFEST, "/devices/platform", stated["platform"], stated["requested"], "devices.requested")
    kinds, ids = {device["kind"] for device in stated["list"]}, [device["id"] for device in stated["list"]]
    listed = ", ".join(map(format_value, sorted(kinds)))
    what = f"devices.kind is {format_value(stated['kind'])}, but the list has {listed}."
    check.require(kinds == {stated["kind"]}, MANIFEST, what, "/devices/list")
    check.require(len(set(ids)) == len(ids), MANIFEST, "A device is listed twice.", "/devices/list")


@rule("TP367", "manifest")
def place(run: ValidRun, check: Checker) -> None:
    """Compare the accelerators of a session with the request, with those in use, and with the platform's log."""
    if (stated := run.manifest.get("place")) is None:
        return
    given, used = tally(stated["received"]), run.manifest["devices"]
    check.equal(MANIFEST, "/place/received", given, tally(stated["requested"]), "place.requested")
    what = f"devices.count is {used['count']}, but the session had {given}."
    fits = used["platform"] == "cpu" or used["count"] <= len(stated["received"])
    check.require(fits, MANIFEST, what, "/devices/count")
    if run.session is not None:
        check.equal(SESSION, "/place", run.session["place"], stated["name"], "the manifest")
        if run.session["received"] is not None:
            check.equal(SESSION, "/received", tally(run.session["received"]), given, "the manifest")


@rule("TP363", "training")
def donation(run: ValidRun, check: Checker) -> None:
    """Check that the state counts as donated if the compiled step reuses 99 % of its bytes, and warn if it does not."""
    stated = run.training["donation"]
    aliased, state = stated["aliased_bytes"], stated["state_bytes"]
    expected = None if aliased is None else aliased >= 0.99 * state
    source, pointer = f"reusing {format_value(aliased)} of {state} bytes", "/training/donation/effective"
    check.equal(MANIFEST, pointer, stated["effective"], expected, source)
    is_declined = get_path(run.config, "memory", "donate") and stated["effective"] is False
    what = f"The compiled step reuses {aliased} of {state} bytes of the state."
    check.require(not is_declined, MANIFEST, what, pointer, code="TP304")


@rule("TP364", "training")
def schedule(run: ValidRun, check: Checker) -> None:
    """Check that no learning rate is above the peak, and that a constant schedule stays at it."""
    stated = run.training["schedule"]
    peak, final = stated["peak_learning_rate"], stated["final_learning_rate"]
    stays = stated["name"] == "constant" and stated["warmup_steps"] <= run.training["steps_planned"]
    fits = final <= peak * (1 + FLOAT32) and (not stays or final >= peak * (1 - FLOAT32))
    what = f"The {stated['name']} schedule peaks at {peak:g}, but ends at {final:g}."
    check.require(fits, MANIFEST, what, "/training/schedule/final_learning_rate")


@rule("TP330", "manifest")
def status(run: ValidRun, check: Checker) -> None:
    """Compare the status with the end of the run, its exit, its steps and its log."""
    state, end = run.manifest["status"], run.manifest["exit"]
    for key in ("finished_at", "exit"):
        what = f"status is {state}, but {key} is {format_value(run.manifest[key])}."
        check.require((run.manifest[key] is None) != run.is_sealed, MANIFEST, what, f"/{key}")
    if end and run.is_sealed:
        what = f"status is {state}, but the exit code is {end['code']}."
        check.require(run.succeeded == (end["code"] == 0), MANIFEST, what, "/exit/code")
        is_wrong = end["error"] is not None if run.succeeded else state == "failed" and end["error"] is None
        what = f"status is {state}, but the error is {format_value(end['error'])}."
        check.require(not is_wrong, MANIFEST, what, "/exit/error")
    for line, event in enumerate((run.log or ()) if run.succeeded else (), start=1):
        what = f"The run succeeded, but logged an error: {event['event']}: {format_value(event['message'])}."
        check.require(event["level"] != "error", LOG, what, "/level", line=line)
    if run.training:
        done, planned = run.training["steps_done"], run.training["steps_planned"]
        what = f"The status is {run.status}, but {done} of {planned} steps are done."
        fits = done == planned if run.succeeded else done <= planned
        check.require(fits, MANIFEST, what, "/training/steps_done")


@rule("TP331", "metrics")
def loss_not_finite(run: ValidRun, check: Checker) -> None:
    """Check that a loss that is not finite ended the run, unless its step was skipped."""
    may_skip = get_path(run.config, "optimizer", "max_nonfinite_steps") is not None
    skipped = np.diff([row.get("skipped_steps", 0) for row in run.metrics], prepend=0) > 0
    for index in where(np.isnan(run.columns["loss"]) & ~(skipped & may_skip))[:1]:
        row, following = run.metrics[index], len(run.metrics) - index - 1
        then = f"{following} rows follow" if following else "the run succeeded"
        what = f"The loss at step {row['step']} is null, but {then}."
        check.require(not following and not run.succeeded, METRICS, what, "/loss", line=index + 1)


@rule("TP332", "eval_summary", "training", "model")
def evaluated_checkpoint(run: ValidRun, check: Checker) -> None:
    """Check that the last parameters were evaluated and, as baseline, the first."""
    checkpoint, done = run.eval_summary["checkpoint"], run.training["steps_done"]
    check.equal(EVAL_SUMMARY, "/checkpoint/step", checkpoint["step"], done, "training.steps_done")
    if run.eval_summary["baseline"]:
        before, pointer = run.eval_summary["baseline"]["checkpoint"], "/baseline/checkpoint"
        first = (run.manifest["parent"] or {"step": 0})["step"]
        check.equal(EVAL_SUMMARY, f"{pointer}/step", before["step"], first, "the start of the run")
        stated, expected = before["params_sha256"], run.model["weights_sha256"]
        check.equal(EVAL_SUMMARY, f"{pointer}/params_sha256", stated, expected, "model.weights_sha256")


@rule("TP360", "log")
def logged_results(run: ValidRun, check: Checker) -> None:
    """Compare the checkpoints, scores and prompts in the log with the documents."""
    if run.training and run.is_sealed:
        done = run.training["steps_done"]
        for line, fields in events(run, "checkpoint_saved"):
            step = fields.get("step")
            what = f"A checkpoint was saved at step {format_value(step)}, but training.steps_done is {done}."
            check.require(not isinstance(step, int) or step <= done, LOG, what, expected=f"at most {done}", line=line)
    if run.eval_summary:
        evaluated = [(line, fields) for line, fields in events(run, "evaluated") if "metrics" in fields]
        for line, fields in evaluated[-1:] if run.training and run.is_sealed else ():
            what = "The event evaluated has other metrics than eval_summary.json."
            check.require(fields["metrics"] == run.eval_summary["metrics"], LOG, what, line=line)
        template = run.eval_summary["generation"]["prompt_template"]
        for line, fields in events(run, "prompt_form"):
            if fields.get("conversation") is False:
                # Logs of version 1.1 do not name the template, which had one form then.
                logged = fields.get("template", "{prompt}\n")
                logged = f"{system}\n\n{logged}" if (system := fields.get("system")) else logged
                check.equal(LOG, "/fields/template", logged, template, "eval_summary.json", line=line)


@rule("TP365", "manifest")
def logged_events(run: ValidRun, check: Checker) -> None:
    """Check that the log of a run that ended has every event that the trainer logs."""
    if (names := _trainer_events(run)) is None:
        return
    required = {*EVENTS} - {"evaluated"} if run.succeeded else {"run_started", SEALED}
    # An evaluation that was added later seals the run again instead.
    if run.succeeded and run.eval_summary and names.count(SEALED) == 1:
        required.add("evaluated")
    if missing := [event for event in EVENTS if event in required.difference(names)]:
        check.report(LOG, f"The log lacks {join_words(missing, last='and')}.")
    for line, fields in events(run, SEALED):
        check.require("manifest_sha256" in fields, LOG, "The event run_sealed lacks manifest_sha256.", line=line)
    if run.training and run.succeeded:
        done = run.training["steps_done"]
        saved: list[tuple[int | None, Document]] = [(None, {}), *events(run, "checkpoint_saved")]
        last_line, last = saved[-1]
        what = f"No checkpoint was saved at the last step, {done}."
        check.require(last.get("step") == done, LOG, what, line=last_line)


@rule("TP365", "manifest", "log")
def event_order(run: ValidRun, check: Checker) -> None:
    """Check that the trainer's events are in order, and that only the seal occurs again."""
    if (names := _trainer_events(run)) is None:
        return
    firsts = [name for name in dict.fromkeys(names) if name in EVENTS]
    for name, expected in zip(firsts, sorted(firsts, key=EVENTS.index), strict=True):
        if name != expected:
            check.report(LOG, f"The event {name} comes before {expected}.", line=names.index(name) + 1)
            break
    for name in firsts:
        again = [line for line, _ in events(run, name)][1:]
        if again and name != SEALED:
            check.report(LOG, f"The event {name} was logged twice.", line=again[0])
    if SEALED in names:
        check.require(names[-1] == SEALED, LOG, f"The event {names[-1]} comes after the seal.", line=len(names))
    if "continued" in names and run.manifest["parent"] is None:
        check.report(LOG, "The event continued is logged, but parent is null.", line=names.index("continued") + 1)


def _trainer_events(run: ValidRun) -> list[str] | None:
    """Return the logged events of a run that ended, or None if another program may have logged, as in version 1.0."""
    names = [event["event"] for event in run.log or ()]
    is_ours = SEALED in names or len({*names} & {*EVENTS} - {"evaluated"}) >= 3
    return names if run.is_sealed and (is_ours or run.manifest["schema_version"] != _FIRST_VERSION) else None


@rule("TP361", "first_examples")
def example_counts(run: ValidRun, check: Checker) -> None:
    """Check that the counts over all rows include the examples shown."""
    counts, examples = run.first_examples["counts"], run.first_examples["examples"]
    for key, least in (
        ("supervised_tokens", sum(token["supervised"] for example in examples for token in example["tokens"])),
        ("truncated_rows", sum(example["truncated"] for example in examples)),
        ("rows", max(example["row"] for example in examples) + 1),
        ("rows", max(counts["rows_without_answer"], counts["truncated_rows"])),
    ):
        what = f"counts.{key} is {counts[key]}; examples and other counts give at least {least}."
        check.require(least <= counts[key], FIRST_EXAMPLES, what, f"/counts/{key}", expected=f"at least {least}")
    for example in examples if counts["end_token_supervised"] else ():
        is_open = not example["truncated"] and example["tokens"] and not example["tokens"][-1]["supervised"]
        what = f"counts.end_token_supervised is true, but the last token of row {example['row']} is not supervised."
        check.require(not is_open, FIRST_EXAMPLES, what, "/counts/end_token_supervised")


@rule("TP366", "first_examples")
def examples(run: ValidRun, check: Checker) -> None:
    """Check that each example supervises one completion, and that its tokens and template fit its text and prompt."""
    keys = ("supervise", "template", "system_prompt")
    every_turn, declared, system_prompt = (get_path(run.config, "data", key) for key in keys)
    if None not in (declared, system_prompt):
        declared = f"{system_prompt}\n\n{declared}"
    for index, example in enumerate(run.first_examples["examples"]):
        row, pointer, template = example["row"], f"/examples/{index}", example.get("template")
        supervised = [token["supervised"] for token in example["tokens"]]
        if supervised[:1] == [True]:
            what = f"The first token of row {row} is supervised, but nothing predicts it."
            check.report(FIRST_EXAMPLES, what, f"{pointer}/tokens/0/supervised")
        elif supervised != sorted(supervised) and every_turn != "all":
            place = next(place for place, (one, then) in enumerate(pairwise(supervised), start=1) if one > then)
            what = f"Token {place} of row {row} is not supervised, but the token before it is."
            check.report(FIRST_EXAMPLES, what, f"{pointer}/tokens/{place}/supervised")
        spelt = "".join(token["text"] for token in example["tokens"])
        # A token alone may lose its spaces or be a part of a character.
        fits = "\ufffd" in spelt or "".join(spelt.split()) == "".join(example["text"].split())
        check.require(fits, FIRST_EXAMPLES, f"The tokens of row {row} do not spell its text.", f"{pointer}/text")
        if template is not None and declared is not None:
            check.equal(FIRST_EXAMPLES, f"{pointer}/template", template, declared, "config.yaml")
        if template is not None and "prompt_utf8" in example:
            start, *rest = template.encode("utf-8", "surrogatepass").split(b"{prompt}")
            prompt = bytes.fromhex(example["prompt_utf8"])
            what = f"The prompt of row {row} does not match the template {format_value(template)}."
            fits = prompt.startswith(start) and prompt.endswith(rest[-1] if rest else b"")
            check.require(fits, FIRST_EXAMPLES, what, f"{pointer}/prompt_utf8")


@rule("TP306", "training", "model")
def training_figures(run: ValidRun, check: Checker) -> None:
    """Recompute the manifest's figures that are products, sums or counts of others."""
    training, found, model, mesh = run.training, run.manifest["devices"], run.model, run.training["mesh"]
    batch = training["microbatch_size"] * training["accumulation_steps"] * mesh["devices"]
    tokens = training["batch_size"] * training["sequence_length"]
    figures = [
        ("/training/batch_size", training["batch_size"], batch, "microbatch_size × accumulation_steps × devices"),
        ("/training/tokens_per_step", training["tokens_per_step"], tokens, "batch_size × sequence_length"),
        ("/devices/count", found["count"], len(found["list"]), "the length of devices.list"),
        ("/training/mesh/devices", mesh["devices"], found["count"], "devices.count"),
    ]
    trainable = model["trainable_parameters"]
    if found["count"] == 1:
        figures.append(("/training/mesh/shard_params", mesh["shard_params"], False, "a single device"))
    if run.trains_all:
        source = "model.parameters, all of which full training updates,"
        figures.append(("/model/trainable_parameters", trainable, model["parameters"], source))
    for pointer, stated, expected, source in figures:
        check.equal(MANIFEST, pointer, stated, expected, source)
    size = _ITEM_BYTES.get(model["dtypes"].get("trained", model["dtypes"]["params"]))
    if size and not mesh["shard_params"]:
        stated, expected = training["donation"]["state_bytes"], trainable * size + training["optimizer"]["state_bytes"]
        # The state also holds counters and random keys.
        if abs(stated - expected) > max(0.001 * expected, 4096):
            source = "the sum of parameters and optimizer state"
            check.equal(MANIFEST, "/training/donation/state_bytes", stated, expected, source)


@rule("TP306", "manifest")
def manifest_figures(run: ValidRun, check: Checker) -> None:
    """Compare the dataset's rows and tokens with the rendered examples, and the time of compiling with the plan."""
    dataset = run.manifest["dataset"]
    generated, seed = dataset["generated_rows"], dataset["generator_seed"]
    what = f"The dataset has {generated} generated rows, but the generator seed is {format_value(seed)}."
    check.require((generated == 0) == (seed is None), MANIFEST, what, "/dataset/generator_seed")
    if run.first_examples:
        counts = run.first_examples["counts"]
        source = "the manifest's dataset.rows + dataset.generated_rows"
        check.equal(FIRST_EXAMPLES, "/counts/rows", counts["rows"], dataset["rows"] + generated, source)
        kinds = (get_path(run.config, "data", "kind"), get_path(run.config, "objective", "kind"))
        is_plain = set(kinds) <= {None, "rows", "supervised"} and not counts["truncated_rows"]
        if dataset.get("tokens") is not None and is_plain:
            expected = counts["prompt_tokens"] + counts["supervised_tokens"]
            source = "prompt_tokens + supervised_tokens in first_examples.json"
            check.equal(MANIFEST, "/dataset/tokens", dataset["tokens"], expected, source)

    result, programs = run.manifest["result"], (run.plan or {}).get("programs") or ()
    compiled = [program for program in programs if program["name"].startswith("train")]
    stated = result["compile_seconds"]
    if stated is not None and all("what was compiled is what runs" in program["because"] for program in compiled):
        seconds = sum(program["seconds"] or 0.0 for program in compiled)
        # The plan rounds to hundredths.
        if compiled and abs(seconds - stated) > 0.011 * len(compiled):
            source = "compiling the programs of plan.json"
            check.equal(MANIFEST, "/result/compile_seconds", stated, round(seconds, 2), source)


@rule("TP307", "manifest")
def code_identity(run: ValidRun, check: Checker) -> None:
    """Check that commit, dirty flag and diff can come from one git checkout."""
    code = run.manifest["code"]
    commit, dirty, diff = code["commit"], code["dirty"], code["diff_sha256"]
    what = f"commit is {format_value(commit)}, but dirty is {format_value(dirty)}."
    check.require((commit is None) == (dirty is None), MANIFEST, what, "/code/dirty")
    what = f"dirty is {format_value(dirty)}, but diff_sha256 is {format_value(diff)}."
    check.require(bool(dirty) == (diff is not None), MANIFEST, what, "/code/diff_sha256")


@rule("TP306", "plan")
def plan_figures(run: ValidRun, check: Checker) -> None:
    """Recompute the memory need and the verdict of the plan and of each change that it proposes."""
    plan, need, available = run.plan, run.plan["need_bytes"], run.plan["available_bytes"]
    check.equal(PLAN, "/need_bytes", need, sum(part["bytes"] for part in plan["parts"]), "the sum of the parts")
    memory = plan["target"]["memory_bytes"]
    if plan["target"]["platform"] == "cpu" and None not in (available, memory):
        # On a CPU the memory that the process keeps after reading weights is not available.
        what = f"available_bytes is {available}, but target.memory_bytes is {memory}."
        check.require(available <= memory, PLAN, what, "/available_bytes")
    else:
        check.equal(PLAN, "/available_bytes", available, memory, "target.memory_bytes")
    source = f"a need of {need} in {format_value(available)} bytes"
    check.equal(PLAN, "/verdict", plan["verdict"], _verdict(plan, need), source)
    for index, change in enumerate(plan.get("changes", ())):  # only in plans of earlier releases
        saves, pointer = change["saves_bytes"], f"/changes/{index}/fits"
        fits = _verdict(plan, need - saves) == "fits"
        check.equal(PLAN, pointer, change["fits"], fits, f"saving {saves} of {need} bytes")
    for index, change in enumerate(plan.get("advice", ())):
        freed = need - change["need_bytes"]
        check.equal(PLAN, f"/advice/{index}/frees_bytes", change["frees_bytes"], freed, f"{need} bytes less its need")


def _verdict(plan: Document, need: int) -> str:
    """Return the verdict on a need; since schema version 1.1 the plan's error is added to it."""
    available, error = plan["available_bytes"], plan["error_fraction"]
    if plan["verdict"] == "unsupported" or available is None:
        return "unsupported" if plan["verdict"] == "unsupported" else "unknown"
    if plan["schema_version"] == _FIRST_VERSION:
        return "fits" if need <= available else "does_not_fit"
    if need * (1 + error) <= available:
        return "fits"
    least = need if plan["method"] == "compiler" else need * (1 - error)
    return "tight" if least <= available else "does_not_fit"


@rule("TP308", "plan", "training")
def refused_by_plan(run: ValidRun, check: Checker) -> None:
    """Check that no run trained whose plan does not fit, unless it was forced."""
    is_refused = run.plan["verdict"] == "does_not_fit" and not run.plan["forced"]
    what = "The plan does not fit and the run was not forced, but it trained."
    check.require(not is_refused or run.training["steps_done"] == 0, PLAN, what, "/verdict")


# Settings, and facts that are repeated

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
    differing = [
        (key, agreement.declared, agreement.effective, agreement.pointer)
        for key, agreement in effective.compare_settings(run.config, run.manifest).items()
        if agreement.state == "differs" and key not in _CHECKED_APART
    ]
    declared, requested = get_path(run.config, "mesh", "device"), run.manifest["devices"]["requested"]
    if declared not in (None, requested):
        differing.append(("mesh.device", declared, requested, "/devices/requested"))
    for key, declared, used, pointer in differing:
        what = f"{key} is {format_value(used)} in the manifest and {format_value(declared)} in config.yaml."
        check.report(MANIFEST, what, pointer, expected=format_value(declared), group=key)
    for key, pointer in (
        ("memory.donate", "/training/donation/effective"),
        ("mesh.shard_params", "/training/mesh/shard_params"),
    ):
        if get_path(run.config, *key.split(".")) is False and get_path(run.manifest, *pointer[1:].split("/")):
            check.report(MANIFEST, f"{key} is on in the manifest, but off in config.yaml.", pointer, expected="false")


@rule("TP377", "manifest")
def effective_group(run: ValidRun, check: Checker) -> None:
    """Compare the manifest's group `effective` with its other groups."""
    if run.manifest.get("effective") is not None:
        group = effective.effective_settings(run.manifest)
        for key, stated in effective.settings_in_manifest(run.manifest).items():
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
    """Check that as many examples are shown as configured or as the first step has, which with packing are more."""
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
    check.equal(PLAN, "/config_sha256", run.plan["config_sha256"], sha256_json(run.config), "config.yaml")


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
                        check.equal(LOG, f"/fields/{field}", fields[field], value, f"{file} at {path}", line=line)
            elif (planned := get_path(documents[name], *other.split("."))) is not None:
                check.equal(file, "/" + path.replace(".", "/"), value, planned, f"{name} at {other}", code="TP305")


@rule("TP303", "config", "manifest")
def command_settings(run: ValidRun, check: Checker) -> None:
    """Compare the settings in the command with config.yaml, which they override."""
    declared = effective.flatten(run.config)
    for key, (index, text) in _parse_settings(run.manifest["command"]).items():
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = text
        if key in declared and not isinstance(value, dict | list):
            given, stated = format_value(value), format_value(declared[key])
            what = f"The command sets {key} to {given}, but config.yaml has {stated}."
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
    """Return every setting with the schema version that added it; `x-late` marks those added after runs of theirs."""
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
