"""Numbers of one document that follow from others of the same document: products, sums, counts, presence."""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Document, Facts, finding, same
from evidence.rewards.headroom import pass_rates
from evidence.run import layout
from schemas.formats import format_value
from schemas.problems import Problem

_ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2, "float64": 8}
_STATE_FRACTION = 0.001
_HUNDREDTH = 0.011
"""Seconds by which the plan rounds, and a hair."""
IS_WHAT_RUNS = "what was compiled is what runs"
"""What the plan states of a program that was compiled once, for the plan and for the run."""
_STATE_BYTES = 4096
"""Counters and random keys, which are state too."""


def manifest_adds_up(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each figure of the manifest that does not follow from its parts."""
    if facts.manifest is None or facts.training is None or facts.model is None:
        return
    training, devices, model = facts.training, facts.manifest["devices"], facts.model
    per_device = training["microbatch_size"] * training["accumulation_steps"]
    batch = per_device * training["mesh"]["devices"]
    tokens = training["batch_size"] * training["sequence_length"]
    figures = (
        ("/training/batch_size", training["batch_size"], batch, "microbatch_size × accumulation_steps × devices"),
        ("/training/tokens_per_step", training["tokens_per_step"], tokens, "batch_size × sequence_length"),
        ("/devices/count", devices["count"], len(devices["list"]), "the length of the device list"),
        ("/training/mesh/devices", training["mesh"]["devices"], devices["count"], "devices.count"),
    )
    for pointer, stated, right, meaning in figures:
        if stated != right:
            yield _wrong(facts, layout.MANIFEST, pointer, stated, right, meaning)
    if devices["count"] == 1 and training["mesh"]["shard_params"]:
        yield _wrong(facts, layout.MANIFEST, "/training/mesh/shard_params", True, False, "a single device")  # noqa: FBT003
    yield from _state_bytes(facts, training, model)
    if facts.trains_all and model["trainable_parameters"] != model["parameters"]:
        yield _wrong(
            facts,
            layout.MANIFEST,
            "/model/trainable_parameters",
            model["trainable_parameters"],
            model["parameters"],
            "model.parameters (full training changes every one)",
        )


def _state_bytes(facts: Facts, training: Document, model: Document) -> Iterator[Problem]:
    """Yield a problem where an unsplit state is not as large as trained parameters and optimizer state."""
    size = _ITEM_BYTES.get(model["dtypes"].get("trained", model["dtypes"]["params"]))
    stated = training["donation"]["state_bytes"]
    if size is None or training["mesh"]["shard_params"]:
        return
    right = model["trainable_parameters"] * size + training["optimizer"]["state_bytes"]
    if abs(stated - right) > max(_STATE_FRACTION * right, _STATE_BYTES):
        meaning = "parameters and optimizer state"
        yield _wrong(facts, layout.MANIFEST, "/training/donation/state_bytes", stated, right, meaning)


def dataset_adds_up(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the rows that were rendered are not those of the dataset, or a seed stands without rows."""
    if facts.manifest is None:
        return
    dataset = facts.manifest["dataset"]
    if (dataset["generated_rows"] == 0) != (dataset["generator_seed"] is None):
        stated = f"{dataset['generated_rows']} generated rows and the seed {format_value(dataset['generator_seed'])}"
        yield finding(
            facts.folder,
            "TP306",
            layout.MANIFEST,
            f"The dataset has {stated}.",
            expected="a seed if rows were generated, and null otherwise",
            pointer="/dataset/generator_seed",
        )
    if facts.first_examples is not None:
        rows = dataset["rows"] + dataset["generated_rows"]
        stated = facts.first_examples["counts"]["rows"]
        if stated != rows:
            meaning = "the manifest's dataset.rows + dataset.generated_rows"
            yield _wrong(facts, layout.FIRST_EXAMPLES, "/counts/rows", stated, rows, meaning)
        yield from _tokens(facts, dataset, facts.first_examples["counts"])


def _tokens(facts: Facts, dataset: Document, counts: Document) -> Iterator[Problem]:
    """Yield a problem where one pass over plain rows has other tokens than their prompts and completions together."""
    config = facts.config or {}
    is_plain = (config.get("data") or {}).get("kind", "rows") == "rows"
    right = counts["prompt_tokens"] + counts["supervised_tokens"]
    if dataset.get("tokens") not in (None, right) and is_plain and facts.is_supervised and not counts["truncated_rows"]:
        meaning = "prompt_tokens + supervised_tokens of all rows"
        yield _wrong(facts, layout.MANIFEST, "/dataset/tokens", dataset["tokens"], right, meaning)


def code_identity_is_whole(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the fields of `code` cannot have come from one checkout."""
    if facts.manifest is None:
        return
    code = facts.manifest["code"]
    if (code["commit"] is None) != (code["dirty"] is None):
        what = f"commit is {format_value(code['commit'])} and dirty is {format_value(code['dirty'])}."
        yield finding(facts.folder, "TP307", layout.MANIFEST, what, pointer="/code/dirty")
    if bool(code["dirty"]) != (code["diff_sha256"] is not None):
        what = f"dirty is {format_value(code['dirty'])} and diff_sha256 is {format_value(code['diff_sha256'])}."
        expected = "a hash of the difference if dirty is true, and null otherwise"
        yield finding(facts.folder, "TP307", layout.MANIFEST, what, expected=expected, pointer="/code/diff_sha256")


def plan_adds_up(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the parts of a plan are not its need, or its verdict does not follow from its figures."""
    if facts.plan is None:
        return
    plan = facts.plan
    need, available = plan["need_bytes"], plan["available_bytes"]
    total = sum(part["bytes"] for part in plan["parts"])
    if total != need:
        yield _wrong(facts, layout.PLAN, "/need_bytes", need, total, "the sum of the parts")
    if plan["target"]["memory_bytes"] != available:
        meaning = "target.memory_bytes, the same memory,"
        yield _wrong(facts, layout.PLAN, "/available_bytes", available, plan["target"]["memory_bytes"], meaning)
    verdict = _verdict(plan, need)
    if plan["verdict"] != verdict:
        yield _wrong(
            facts, layout.PLAN, "/verdict", plan["verdict"], verdict, f"{need} of {format_value(available)} bytes"
        )
    for index, change in enumerate(plan["changes"]):
        fits = _verdict(plan, need - change["saves_bytes"]) == "fits"
        if change["fits"] != fits:
            meaning = f"{need} bytes less {change['saves_bytes']}, of {format_value(available)},"
            yield _wrong(facts, layout.PLAN, f"/changes/{index}/fits", change["fits"], fits, meaning)


def _verdict(plan: Document, need: int) -> str:
    """Return the verdict that follows from a need: until version 1.0 of the bare figure, since then of its band."""
    available, error = plan["available_bytes"], plan["error_fraction"]
    if plan["verdict"] == "unsupported":
        return "unsupported"
    if available is None:
        return "unknown"
    if plan["schema_version"] == "1.0":
        return "fits" if need <= available else "does_not_fit"
    if need * (1 + error) <= available:
        return "fits"
    least = need if plan["method"] == "compiler" else need * (1 - error)
    return "tight" if least <= available else "does_not_fit"


def plan_let_the_run_start(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where a run trained although its plan refused it and no one forced it."""
    if facts.plan is None or facts.plan["verdict"] != "does_not_fit" or facts.plan["forced"]:
        return
    if facts.training is not None and facts.training["steps_done"] > 0:
        what = "The plan says that the run does not fit and that it was not forced, and the run trained."
        yield finding(facts.folder, "TP308", layout.PLAN, what, pointer="/verdict")


def _wrong(facts: Facts, name: str, pointer: str, stated: object, right: object, meaning: str) -> Problem:
    what = f"{pointer.rsplit('/', 1)[-1]} is {format_value(stated)}; {meaning} gives {format_value(right)}."
    return finding(facts.folder, "TP306", name, what, expected=format_value(right), pointer=pointer)


def compiling_took_as_long_as_planned(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the programs that the plan compiled, and that then ran, took another time than stated."""
    stated = ((facts.manifest or {}).get("result") or {}).get("compile_seconds")
    programs = [each for each in (facts.plan or {}).get("programs") or [] if each["name"].startswith("train")]
    if stated is None or not programs or any(IS_WHAT_RUNS not in each["because"] for each in programs):
        return
    seconds = sum(each["seconds"] or 0.0 for each in programs)
    if abs(seconds - stated) > _HUNDREDTH * len(programs):
        meaning = "the seconds of the programs in plan.json that were compiled to run"
        yield _wrong(facts, layout.MANIFEST, "/result/compile_seconds", stated, round(seconds, 2), meaning)


def headroom_follows_from_its_counts(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where pass@1 or pass@k before training is not what the right completions of each prompt give."""
    stated = ((facts.manifest or {}).get("result") or {}).get("headroom")
    if stated is None:
        return
    if max(stated["right"]) > stated["samples"]:
        meaning = "samples, the completions to each prompt"
        yield _wrong(facts, layout.MANIFEST, "/result/headroom/right", max(stated["right"]), stated["samples"], meaning)
        return
    for name, right in pass_rates(stated["right"], stated["samples"]).items():
        if not same(stated[name], right):
            meaning = "right completions of each prompt"
            yield _wrong(facts, layout.MANIFEST, f"/result/headroom/{name}", stated[name], right, meaning)


CHECKS = (
    manifest_adds_up,
    dataset_adds_up,
    code_identity_is_whole,
    plan_adds_up,
    plan_let_the_run_start,
    compiling_took_as_long_as_planned,
    headroom_follows_from_its_counts,
)
