"""TP516 and TP525: what a run's own version always writes, every key of config.yaml among it, and this run leaves out.

Rules compare a fact wherever it is stated; without it they state nothing. So that leaving a fact out is no way around
them, a run that follows the present version of the schemas is held to everything that its recorder writes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

from evidence.records.facts import Document, Facts, finding
from evidence.rewards.written import written_steps
from evidence.rules.contradiction.scores import each_answer
from evidence.run import layout
from schemas.catalog import resolve_node, schema
from schemas.formats import join_words, quantity
from schemas.problems import Problem, pointer_to, truncate_problems

OF_CODE = ("committed_at", "source")
OF_DATASET = ("sequences", "tokens")
OF_EVENTS = {
    "run_started": ("run_id",),
    "devices_chosen": ("platform", "count"),
    "planned": ("need_bytes",),
    "compiled": ("compile_seconds", "lengths", "family", "weights_sha256", "state_bytes", "aliased_bytes"),
    "checkpoint_saved": ("step", "seconds"),
    "trained": ("train_seconds", "peak_memory_bytes"),
    "evaluated": ("metrics", "eval_set_sha256", "params_sha256"),
    "run_sealed": ("manifest_sha256",),
}
"""Fields of the events of every run."""
OF_ROWS = ("padding_fraction",)
OF_ROLLOUTS = ("reward_mean", "reward_std", "flat_groups", "completion_tokens_mean", "truncated_share", "entropy")
"""Fields of a row whose completions the model drew."""
OF_ANSWERS = ("output_token_ids", "fingerprint")
"""Fields of an answer that has tokens."""
CHAINED = 10
"""Into how many parts the chain divides a run where `recording.chain_every_steps` does not state it."""
_WIDTH = {"float32": 4, "bfloat16": 2, "float16": 2}


def nothing_is_left_out(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each document, event and row of a present run that lacks what its recorder writes."""
    if facts.manifest is None or not facts.succeeded or facts.manifest["schema_version"] == "1.0":
        return
    if absent := _absent(facts.manifest["code"], OF_CODE):
        what = f"{layout.MANIFEST} does not state {join_words(absent, last='and')} of the code."
        yield finding(facts.folder, "TP525", layout.MANIFEST, what, pointer="/code")
    if absent := _absent(facts.manifest["dataset"], OF_DATASET):
        what = f"{layout.MANIFEST} does not state {join_words(absent, last='and')} of the dataset."
        yield finding(facts.folder, "TP525", layout.MANIFEST, what, pointer="/dataset")
    yield from _of_overlap(facts, facts.manifest)
    yield from _of_scoring(facts, facts.manifest)
    yield from _of_rollouts(facts, facts.manifest)
    if "effective" not in facts.manifest:
        what = f"{layout.MANIFEST} does not state what came of each setting (effective)."
        yield finding(facts.folder, "TP525", layout.MANIFEST, what)
    yield from truncate_problems(_of_events(facts))
    yield from truncate_problems(_of_rows(facts))
    both = {layout.PREDICTIONS: facts.predictions, layout.BASELINE_PREDICTIONS: facts.baseline_predictions}
    for file, answers in both.items():
        yield from truncate_problems(_of_answers(facts, file, answers or ()))
    yield from truncate_problems(_of_chain(facts), limit=1)
    yield from _of_parameters(facts)


def _of_overlap(facts: Facts, manifest: Document) -> Iterator[Problem]:
    """Yield a problem where an evaluated run since version 1.2 does not state which items its rows are near."""
    dataset = manifest["dataset"]
    is_counted = manifest["schema_version"] >= "1.2" and dataset["overlap_with_eval"] is not None
    if is_counted and "overlap" not in dataset:
        what = f"{layout.MANIFEST} does not state which evaluation items the rows are near."
        yield finding(facts.folder, "TP525", layout.MANIFEST, what, pointer="/dataset")


def _of_scoring(facts: Facts, manifest: Document) -> Iterator[Problem]:
    """Yield problems where an evaluated run since version 1.2 does not state how its answers were read."""
    if facts.eval_summary is None or manifest["schema_version"] < "1.2":
        return
    if "scoring" not in facts.eval_summary:
        what = f"{layout.EVAL_SUMMARY} does not state how answers were read (scoring)."
        yield finding(facts.folder, "TP525", layout.EVAL_SUMMARY, what)
    for file, answers in (
        (layout.PREDICTIONS, facts.predictions),
        (layout.BASELINE_PREDICTIONS, facts.baseline_predictions),
    ):
        without = [row["id"] for row in answers or () if "lenient_correct" not in row]
        if without:
            what = f"{len(without):,} answers do not state whether they are right leniently; the first is {without[0]}."
            yield finding(facts.folder, "TP525", file, what)


def _of_events(facts: Facts) -> Iterator[Problem]:
    for line, record in enumerate(facts.log or [], start=1):
        if absent := _absent(record["fields"], OF_EVENTS.get(record["event"], ())):
            what = f"The event {record['event']} does not state {join_words(absent, last='and')}."
            yield finding(facts.folder, "TP525", layout.LOG, what, line=line, pointer="/fields")


def _of_rows(facts: Facts) -> Iterator[Problem]:
    needed: tuple[str, ...] = OF_ROWS
    if facts.draws_completions:
        updates = ((facts.config or {}).get("objective") or {}).get("updates_per_rollout")
        needed = (*OF_ROLLOUTS, "sampler_gap") if updates == 1 else OF_ROLLOUTS
    for line, row in enumerate(facts.metrics or [], start=1):
        if absent := _absent(row, needed):
            what = f"The row of step {row['step']} does not state {join_words(absent, last='and')}."
            yield finding(facts.folder, "TP525", layout.METRICS, what, line=line)


def _of_rollouts(facts: Facts, manifest: Document) -> Iterator[Problem]:
    """Yield a problem where completions that a run writes down are not there."""
    if not facts.draws_completions or facts.config is None or facts.training is None:
        return
    is_measured = facts.config["objective"].get("headroom_items") and not manifest["parent"]
    if is_measured and "headroom" not in manifest["result"]:
        what = f"{layout.MANIFEST} does not state what there was to gain before training (headroom)."
        yield finding(facts.folder, "TP525", layout.MANIFEST, what, pointer="/result")
    if layout.ROLLOUTS not in facts.files:
        what = f"{layout.ROLLOUTS} is not there: rewards and advantages cannot be computed again."
        yield finding(facts.folder, "TP525", layout.ROLLOUTS, what)
    if facts.rollouts is None:
        return
    first = manifest["parent"]["step"] if manifest["parent"] else 0
    there, done = {row["step"] for row in facts.rollouts}, facts.training["steps_done"]
    updates = facts.config["objective"].get("updates_per_rollout", 1)
    steps = written_steps(facts.training["steps_planned"], updates)
    if absent := [step for step in steps if first < step <= done and step not in there]:
        what = f"{layout.ROLLOUTS} has no completions of {quantity(len(absent), 'step')}; the first is {absent[0]}."
        yield finding(facts.folder, "TP525", layout.ROLLOUTS, what)


def _of_answers(facts: Facts, file: str, answers: Sequence[Document]) -> Iterator[Problem]:
    for line, pointer, row in each_answer(answers):
        if row["error"] is None and row["output_tokens"] and (absent := _absent(row, OF_ANSWERS)):
            what = f"The answer {row['id']} does not state {join_words(absent, last='and')}."
            yield finding(facts.folder, "TP525", file, what, line=line, pointer=pointer)


def _of_chain(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each step at which the recorder enters the state and the chain has no entry."""
    steps = ((facts.config or {}).get("limits") or {}).get("steps")
    recording = (facts.config or {}).get("recording") or {}
    if not facts.chain or facts.training is None or facts.manifest is None or not isinstance(steps, int):
        return
    first = facts.manifest["parent"]["step"] if facts.manifest["parent"] else 0
    every, done = recording.get("chain_every_steps") or max(1, steps // CHAINED), facts.training["steps_done"]
    there = {entry["step"] for entry in facts.chain}
    between = (step for step in range(every, min(done, steps - 1) + 1, every) if step > first)
    for step in (first, *between, done):
        if step not in there:
            what = f"{layout.CHAIN} has no entry at step {step}; the recorder enters the state every {every} steps."
            yield finding(facts.folder, "TP525", layout.CHAIN, what)


def _of_parameters(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where what was trained is small enough to be kept, and was not."""
    most = ((facts.config or {}).get("recording") or {}).get("params_mib")
    if facts.training is None or facts.model is None or facts.manifest is None or not isinstance(most, int):
        return
    dtypes = facts.model["dtypes"]
    # Adapters are kept in float32, whatever their base is held in.
    width = _WIDTH.get(dtypes.get("trained", dtypes["params"]), 4) if facts.trains_all else 4
    size, listed_there = facts.model["trainable_parameters"] * width, {a["path"] for a in facts.manifest["artifacts"]}
    # A run of a later version keeps its adapters whatever their size.
    is_kept = not facts.trains_all and facts.manifest["schema_version"] not in ("1.0", "1.1")
    if (is_kept or size <= most << 20) and layout.TRAINED_PARAMS not in listed_there:
        kept = "adapters are kept" if is_kept else f"{most} MiB are kept"
        what = f"{layout.TRAINED_PARAMS} is not there: {size:,} bytes were trained, and {kept}."
        yield finding(facts.folder, "TP525", layout.MANIFEST, what, pointer="/artifacts")


def _absent(holder: Document, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name not in holder]


def every_setting_is_stated(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each key that config.yaml leaves out."""
    if facts.config is None or facts.manifest is None:
        return
    config = facts.config
    version = str(config.get("schema_version") or facts.manifest["schema_version"])
    yield from truncate_problems(
        finding(facts.folder, "TP516", layout.CONFIG, f"{'.'.join(keys)} is not stated.", pointer=pointer_to(keys[:-1]))
        for keys, since in _since().items()
        if since <= version and not _has(config, keys)
    )


def settings() -> tuple[tuple[str, ...], ...]:
    """Return the keys of every setting, in the order of the schema: `("limits", "steps")`."""
    return tuple(_since())


@cache
def _since() -> dict[tuple[str, ...], str]:
    """Return every setting with the version of the schema that it came with; an older run does not know it.

    Left out are settings that came when runs of their version had been recorded (`x-late`).
    """
    return dict(_settings(schema("train_config"), (), "1.0"))


def _settings(node: dict[str, Any], above: tuple[str, ...], since: str) -> Iterator[tuple[tuple[str, ...], str]]:
    document = schema("train_config")
    for key, item in resolve_node(node, document).get("properties", {}).items():
        inner = resolve_node(item, document)
        came = inner.get("x-since", since)
        if "properties" in inner:
            yield from _settings(inner, (*above, key), came)
        elif not inner.get("x-late"):
            yield (*above, key), came


def _has(config: Any, keys: tuple[str, ...]) -> bool:
    for key in keys:
        if not isinstance(config, dict) or key not in config:
            return False
        config = config[key]
    return True


CHECKS = (nothing_is_left_out, every_setting_is_stated)
