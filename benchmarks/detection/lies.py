"""False statements about a real run, each with the other changes that a careful forger would make.

*Single*: one value changes. *Deep*: values computed from it change too. *Wide*: every copy of the value changes.
*Absurd*: impossible values. The families marked *again* were written by a second author independently.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from leaves import Forger, Forgery
from synthetic import write_run
from synthetic_documents import merged
from synthetic_rows import STARTED

from evidence.hashes import Chain, sha256_json, sha256_lines
from evidence.scores.reading import Scoring, accepted_answers
from evidence.scores.recompute import compute_result, compute_scores
from schemas.reading import parse_time

Values = dict[str, Any]
"""Documents and rows of a run by file name."""
Tell = Callable[[Values], object]
Row = dict[str, Any]

BASELINE = "baseline_predictions.jsonl"
CHAIN = "chain.jsonl"
CONFIG = "config.yaml"
EXAMPLES = "first_examples.json"
LOG = "log.jsonl"
MANIFEST = "run_manifest.json"
METRICS = "metrics.jsonl"
PLAN = "plan.json"
PREDICTIONS = "predictions.jsonl"
SUMMARY = "eval_summary.json"
BOTH = (PREDICTIONS, BASELINE)


def tell(forger: Forger, lie: Tell) -> Path:
    """Apply a lie to the copy of a run, recompute every hash and the chain, and return the folder."""
    forger.restore()
    original = forger.values
    forger.values = deepcopy(original)
    path = forger.folder / CHAIN
    forger.values[CHAIN] = [json.loads(line) for line in path.read_text("utf-8").splitlines()]
    lie(forger.values)
    chain = Chain()
    written = 0
    lines = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in forger.values[METRICS]]
    for entry in forger.values.pop(CHAIN):
        for line in lines[written : entry["rows"]]:
            chain.row(line)
        written = max(written, entry["rows"])
        chain.entry(**{key: entry[key] for key in ("step", "data_position", "state_sha256", "params_sha256")})
    path.write_text("".join(json.dumps(entry) + "\n" for entry in chain.entries), "utf-8")
    forger.values[MANIFEST]["chain"] = chain.document()
    forger._reseal(forger.values, Forgery(file="all", what="lie"))
    forger.values = original
    return forger.folder


def put(*paths: str, value: Any) -> Tell:
    """Set the value at each `file/key/key`; a function gets the old value."""

    def lie(values: Values) -> None:
        for path in paths:
            holder, (*keys, last) = values, path.split("/")
            for key in keys:
                holder = holder[int(key) if isinstance(holder, list) else key]
            holder[last] = value(holder[last]) if callable(value) else value

    return lie


def rows(change: Callable[[Row], object], *files: str) -> Tell:
    """Change every row of files."""

    def lie(values: Values) -> None:
        for file in files:
            for row in values[file]:
                change(row)

    return lie


def both(*lies: Tell) -> Tell:
    """Apply several lies in order."""

    def lie_all(values: Values) -> None:
        for lie in lies:
            lie(values)

    return lie_all


def losses(change: Callable[[list[float]], list[float]], *, deep: bool = True) -> Tell:
    """Change the losses, in float32; deep: with the result that follows."""

    def lie(values: Values) -> None:
        for row, loss in zip(values[METRICS], change([row["loss"] for row in values[METRICS]]), strict=True):
            row["loss"] = float(np.float32(loss))
        if deep:
            values[MANIFEST]["result"] |= compute_result(values[METRICS])

    return lie


def answers(change: Callable[[Row], object], *files: str) -> Tell:
    """Change answers, score them again, and write every score and hash that follows."""

    def lie(values: Values) -> None:
        for file in files or (PREDICTIONS,):
            for row in values[file]:
                change(row)
                verdict = Scoring().verdict(row["output_text"], row["finish_reason"], accepted_answers(row))
                row |= {key: value for key, value in verdict.items() if key in row}
            holder = values[SUMMARY] if file == PREDICTIONS else values[SUMMARY]["baseline"]
            holder |= compute_scores(values[file])
            holder["predictions"]["rows"] = len(values[file])
        stated = values[SUMMARY]["eval_set"]
        stated["items"] = len(values[PREDICTIONS])
        for key, name in (("id", "ids_sha256"), ("prompt", "prompts_sha256"), ("expected", "expected_sha256")):
            stated[name] = sha256_lines(row[key] for row in values[PREDICTIONS])
        event("evaluated", metrics=values[SUMMARY]["metrics"])(values)

    return lie


def event(name: str, **fields: Any) -> Tell:
    """Change fields of a log event."""

    def lie(values: Values) -> None:
        for record in values[LOG]:
            if record["event"] == name:
                record["fields"].update(fields)

    return lie


def times(days: float) -> Tell:
    """Shift every time by a number of days."""

    def later(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: later(each) for key, each in value.items()}
        if isinstance(value, list):
            return [later(each) for each in value]
        at = parse_time(value) if isinstance(value, str) and len(value) > len("2026-01-01T00:00:00") else None
        return (at + timedelta(days=days)).isoformat(timespec="milliseconds") if at else value

    return lambda values: values.update({name: later(value) for name, value in values.items()})


def setting(key: str, value: object) -> Tell:
    """Change a setting in the configuration and in the effective settings."""

    def lie(values: Values) -> None:
        group, name = key.split("/")
        values[CONFIG][group][name] = value
        if name in (effective := values[MANIFEST].get("effective", {}).get(group, {})):
            effective[name] = value

    return lie


def seed(number: int) -> Tell:
    """Change every copy of the seed."""
    return put(f"{CONFIG}/seed", f"{MANIFEST}/training/seed", f"{MANIFEST}/effective/seed", value=number)


def generation(key: str, value: object) -> Tell:
    """Change a generation setting, and its hash."""

    def lie(values: Values) -> None:
        stated = {name: old for name, old in values[SUMMARY]["generation"].items() if name != "sha256"} | {key: value}
        values[SUMMARY]["generation"] = stated | {"sha256": sha256_json(stated)}

    return lie


def device(kind: str, platform: str) -> Tell:
    """Change every copy of the device."""
    stated = {"platform": platform, "kind": kind, "list": [{"id": 0, "kind": kind}]}
    return both(
        put(f"{MANIFEST}/devices", value=lambda old: old | stated),
        put(f"{PLAN}/target", value=lambda old: old | {"name": kind, "platform": platform}),
        event("devices_chosen", platform=platform),
    )


def memory(size: int) -> Tell:
    """Change every copy of the peak memory."""
    return both(
        put(f"{MANIFEST}/result/peak_memory_bytes", value=size),
        rows(lambda row: row.update(device_memory_bytes=size), METRICS),
        event("trained", peak_memory_bytes=size),
    )


def right(row: Row) -> None:
    """Make an answer the expected one."""
    row["output_text"] = f"<reasoning>so.</reasoning>\n<answer>{row['expected']}</answer>"
    row["finish_reason"], row["output_tokens"] = "stop", 9


def right_in_its_tokens(row: Row) -> None:
    """Make an answer the expected one, but keep its stated length, tokens and finish reason."""
    row["output_text"] = f"<answer>{row['expected']}</answer>"


def delete_wrong_answers(values: Values) -> None:
    """Delete two thirds of the wrong answers."""
    kept = [row["correct"] or place % 3 == 0 for place, row in enumerate(values[PREDICTIONS])]
    for file in BOTH:
        values[file] = [row for row, keep in zip(values[file], kept, strict=True) if keep]
    answers(lambda row: None, *BOTH)(values)


def warmer(values: Values) -> None:
    """Double every copy of the learning rate."""
    for place in (CONFIG, f"{MANIFEST}/effective"):
        put(f"{place}/optimizer/learning_rate", value=lambda old: 2 * old)(values)
    for key in ("peak_learning_rate", "final_learning_rate"):
        values[MANIFEST]["training"]["schedule"][key] *= 2
    rows(lambda row: row.update(learning_rate=2 * row["learning_rate"]), METRICS)(values)


def accumulated(values: Values) -> None:
    """State two accumulation steps with half the microbatch everywhere."""
    batch = {"microbatch_size": values[CONFIG]["batch"]["microbatch_size"] // 2, "accumulation_steps": 2}
    for holder in (values[CONFIG]["batch"], values[MANIFEST]["effective"]["batch"], values[MANIFEST]["training"]):
        holder.update(batch)


def error_in_the_log(values: Values) -> None:
    """Log an error in a run that succeeded."""
    place = next(i for i, record in enumerate(values[LOG]) if record["event"] == "trained")
    error = {"level": "error", "event": "step_failed", "message": "loss is not finite", "fields": {}}
    values[LOG].insert(place, values[LOG][place] | error)


def fast_steps(values: Values, factor: float = 0.5) -> None:
    """Shorten every step time, but keep the timestamps."""
    for row in values[METRICS]:
        row["step_seconds"] *= factor
        row["tokens_per_second"] /= factor


def keep_three_items(values: Values) -> None:
    """Delete all answers after the third."""
    for file in BOTH:
        del values[file][3:]


def untrained(values: Values) -> None:
    """State the initial parameters as the final ones."""
    start = values[CHAIN][0]["params_sha256"]
    values[CHAIN][-1]["params_sha256"] = values[SUMMARY]["checkpoint"]["params_sha256"] = start
    event("evaluated", params_sha256=start)(values)


def tokens(change: Callable[[list[str]], list[str]]) -> Tell:
    """Change the tokens of every answer."""
    return rows(lambda row: row.update(output_token_ids=" ".join(change(row["output_token_ids"].split()))), PREDICTIONS)


def lower_at_random(all_: list[float]) -> list[float]:
    """Lower the second half at random."""
    draw, half = random.Random(5), len(all_) // 2
    return [*all_[:half], *(loss * draw.uniform(0.3, 0.7) for loss in all_[half:])]


M, C, S = MANIFEST, CONFIG, SUMMARY
HALF = 40_000_000
LIES: dict[str, dict[str, Tell]] = {
    "single": {
        "first loss halved": losses(lambda all_: [all_[0] / 2, *all_[1:]], deep=False),
        "gradient norm below 0": put(f"{METRICS}/0/grad_norm", value=-1.0),
        "peak memory of one byte": put(f"{M}/result/peak_memory_bytes", value=1),
        "generator seed": put(f"{M}/dataset/generator_seed", value=3),
        "hash of the dataset": put(f"{M}/dataset/sha256", value="5" * 64),
        "model called pretrained": put(f"{M}/model/weights", value="pretrained"),
        "start weights": put(f"{M}/model/weights_sha256", value="5" * 64),
        "hash of the evaluation set": put(f"{S}/eval_set/sha256", value="5" * 64),
        "commit": put(f"{M}/code/commit", value="1" * 40),
        "system": put(f"{M}/environment/os", value="Windows 11"),
        "command": put(f"{M}/command", value=lambda old: [*old, "--force"]),
    },
    "deep": {
        "all losses halved": losses(lambda all_: [loss / 2 for loss in all_]),
        "losses of a far better model": losses(lambda all_: [loss / 100 for loss in all_]),
        "losses of 600": losses(lambda all_: [600.0 - at for at in range(len(all_))]),
        "last loss lowered": losses(lambda all_: [*all_[:-1], all_[-1] * 0.9]),
        "gradient norms a hundredth higher": rows(
            lambda row: row.update(grad_norm=float(np.float32(row["grad_norm"] * 1.01))), METRICS
        ),
        "every answer right": answers(right),
        "every answer right in as many tokens": answers(right_in_its_tokens),
        "one answer right in as many tokens": answers(
            lambda row: right_in_its_tokens(row) if row["id"].endswith("-007") else None
        ),
        "baseline raised": answers(right, BASELINE),
        "other categories in both files": answers(lambda row: row.update(category="arithmetic"), *BOTH),
        "all items easy in both files": answers(lambda row: row.update(difficulty="easy"), *BOTH),
        "other expected answers in both files": answers(lambda row: row.update(expected="0"), *BOTH),
        "other questions in both files": answers(lambda row: row.update(prompt="Repeat: 7"), *BOTH),
        "log reduced to its seal": lambda values: values.update(
            {LOG: [record for record in values[LOG] if record["event"] == "run_sealed"]}
        ),
        "log without fields": rows(
            lambda record: record.update(fields=record["fields"] if record["event"] == "run_sealed" else {}), LOG
        ),
        "everything 400 days later": times(400),
        "everything in 1999": times(-27 * 365.25),
    },
    "wide": {
        "another seed": seed(5),
        "a graphics card": device("NVIDIA H100 80GB HBM3", "gpu"),
        "a published model": put(f"{M}/model/name", f"{C}/model/name", value="google/gemma-2b"),
        "another dataset": put(f"{M}/dataset/name", f"{C}/data/dataset", value="dev-stories-v1"),
        "another evaluation set": put(f"{S}/eval_set/name", f"{C}/evaluation/eval_set", value="eval_v2"),
        "another weight decay": put(f"{C}/optimizer/weight_decay", value=0.0),
        "another beta2": put(f"{C}/optimizer/beta2", value=0.9),
        "no clipping": put(f"{C}/optimizer/max_grad_norm", value=None),
    },
    "single, again": {
        "gradient norm of one step": put(f"{METRICS}/1/grad_norm", value=1.5),
        "a better processor": put(f"{M}/environment/cpu", value="AMD EPYC 9965 192-Core Processor"),
        "512 cores": put(f"{M}/environment/cpu_count", value=512),
        "branch": put(f"{M}/code/branch", value="release/1.0"),
        "a flag of the compiler": put(f"{M}/environment/flags", value={"XLA_FLAGS": "--xla_a=1"}),
        "duplicates in the data": lambda values: values[M]["dataset"].update(duplicates=17),
        "split of the data": lambda values: values[M]["dataset"].update(split="train"),
        "tokens of the data": lambda values: values[M]["dataset"].update(tokens=40966),
        "a token of an answer": put(
            f"{PREDICTIONS}/3/output_token_ids", value=lambda old: " ".join(["21", *old.split()[1:]])
        ),
        "half the arrays": put(f"{M}/result/peak_arrays/bytes", value=7_000_000),
        "command of other steps": put(
            f"{M}/command", value=lambda old: ["50" if each == "2" else each for each in old]
        ),
        "method of the manifest alone": put(f"{M}/training/method", value="lora"),
    },
    "deep, again": {
        "a tenth of the memory": both(
            put(f"{M}/result/peak_memory_bytes", value=HALF), event("trained", peak_memory_bytes=HALF)
        ),
        "a tenth of the compile time": both(
            put(f"{M}/result/compile_seconds", value=lambda old: old / 10),
            lambda values: event("compiled", compile_seconds=values[M]["result"]["compile_seconds"])(values),
        ),
        "losses 3 % lower": losses(lambda all_: [loss * 0.97 for loss in all_]),
        "second half lower at random": losses(lower_at_random),
        "losses of two rows exchanged": losses(lambda all_: [all_[1], all_[0], *all_[2:]]),
        "losses drop to a hundredth after one step": losses(lambda all_: [all_[0], *(x / 100 for x in all_[1:])]),
        "gradient norms a millionfold": rows(
            lambda row: row.update(grad_norm=float(np.float32(row["grad_norm"] * 1e6))), METRICS
        ),
        "wrong answers deleted": delete_wrong_answers,
        "expected answers replaced by the outputs": answers(
            lambda row: row.update(expected=row["output_text"].strip() or row["expected"]), *BOTH
        ),
        "ten wrong answers right": answers(lambda row: right(row) if row["id"] < "eval_v1-011" else None),
        "no tokens": rows(lambda row: row.pop("output_token_ids", None), *BOTH),
        "steps twice as fast": fast_steps,
        "an error in the log": error_in_the_log,
        "another prompt template": generation("prompt_template", "Q: {prompt}\nA:"),
        "another end token": generation("stop_token_id", 2),
        "training examples in another order": lambda values: values[EXAMPLES]["examples"].reverse(),
    },
    "wide, again": {
        "another beta1": setting("optimizer/beta1", 0.8),
        "another epsilon": setting("optimizer/epsilon", 1e-3),
        "clipping at a half": setting("optimizer/max_grad_norm", 0.5),
        "rows in their order": setting("data/shuffle", value=False),
        "the learning rate doubled": warmer,
        "products in bfloat16": both(
            setting("precision/compute", "bfloat16"), put(f"{M}/model/dtypes/compute", value="bfloat16")
        ),
        "batches in two halves": accumulated,
        "rows of one's own": both(
            setting("data/dataset", "my/rows.jsonl"),
            put(f"{M}/dataset", value=lambda old: old | {"name": "my/rows.jsonl", "sha256": "1f" * 32}),
        ),
        "seed 3": seed(3),
        "parameters at the end": both(
            put(f"{S}/checkpoint/params_sha256", value="5c" * 32), event("evaluated", params_sha256="5c" * 32)
        ),
    },
    "absurd": {
        "900,000 parameters": put(f"{M}/model/parameters", f"{M}/model/trainable_parameters", value=900_000),
        "three items": both(
            keep_three_items,
            answers(lambda row: None, *BOTH),
        ),
        "a first loss of 80": losses(lambda all_: [80.0, *all_[1:]]),
        "losses of next to nothing": losses(lambda all_: [1e-12 * (place + 1) for place in range(len(all_))]),
        "more memory than the device has": memory(80 << 30),
        "100 kB of memory": memory(100_000),
        "the year 1987": times(-39 * 365),
        "the year 2090": times(64 * 365),
        "steps of a microsecond": lambda values: fast_steps(values, 1e-6),
        "Python 2.7": put(f"{M}/environment/python", value="2.7.18"),
        "jax 0.1": put(f"{M}/environment/packages/jax", f"{M}/environment/packages/jaxlib", value="0.1.0"),
        "an unknown GPU": device("Quantum Z1", "gpu"),
        "50 answers in no time": lambda values: values[S].update(finished_at=values[S]["started_at"]),
        "one gradient norm": rows(lambda row: row.update(grad_norm=1.0), METRICS),
        "a half that comes again": losses(lambda all_: [*all_[: len(all_) // 2]] * 2),
        "losses of three decimals": losses(lambda all_: [round(loss, 3) for loss in all_]),
        "an exponential": losses(lambda all_: [2 * math.exp(-place / 20) for place in range(len(all_))]),
        "items in the training data": lambda values: values[M]["dataset"].update(overlap_with_eval=50),
        "answers without an end": tokens(lambda ids: [*ids[:-1], "77"]),
        "answers that end twice": tokens(lambda ids: ["1", *ids[1:-1], "1"]),
        "another family": both(put(f"{M}/model/family", value="mistral"), event("compiled", family="mistral")),
        "parameters of the start": untrained,
        "one state for every step": rows(lambda entry: entry.update(state_sha256="cd" * 32), CHAIN),
        "a commit of one digit": put(f"{M}/code/commit", value="f" * 40),
        "two rows of data": put(f"{M}/dataset/rows", value=2),
        "two billion tokens": rows(lambda row: row.update(tokens_seen=1_000_000_000 * row["step"]), METRICS),
    },
}


# Forged runs

PARAMETERS, KIND, CHIP_BYTES = 2_506_172_416, "TPU v5 lite", 16_911_433_728
_CHIP = {"platform": "tpu", "memory_bytes": CHIP_BYTES}
FORGERY: dict[str, Any] = {
    "config": {"mesh": {"device": "tpu"}, "model": {"name": "google/gemma-2b", "weights": "pretrained"}},
    "manifest": {
        "devices": {"requested": "tpu", "kind": KIND, "list": [{"id": 0, "kind": KIND}], **_CHIP},
        "model": {"family": "gemma", "parameters": PARAMETERS, "trainable_parameters": PARAMETERS},
        "training": {
            "optimizer": {"state_bytes": 8 * PARAMETERS},
            "donation": {"state_bytes": 12 * PARAMETERS, "aliased_bytes": 12 * PARAMETERS},
        },
        "result": {"peak_memory_bytes": 15_000_000_000},
    },
    "plan": {
        "target": {"name": KIND, "memory_source": "limit reported by the device", **_CHIP},
        "available_bytes": CHIP_BYTES,
    },
}


def forge_run(root: Path, name: str, changes: dict[str, Any]) -> Path:
    """Write the forged run with changes, nested as in `write_run`."""
    return write_run(root, name.replace(" ", "-"), **merged(FORGERY, changes))


def _manifest(group: str, **values: Any) -> dict[str, Any]:
    return {"manifest": {group: values}}


EVAL_V2 = {"config": {"evaluation": {"eval_set": "eval_v2"}}, "eval_summary": {"eval_set": {"name": "eval_v2"}}}
UNKNOWN_CHIP = _manifest("devices", kind="Quantum v9", list=[{"id": 0, "kind": "Quantum v9"}])
VARIANTS: dict[str, dict[str, Any]] = {
    "unchanged": {},
    "7,000 parameters": _manifest("model", parameters=7000, trainable_parameters=7000),
    "a trillion parameters": _manifest("model", parameters=10**12, trainable_parameters=10**12),
    "one byte of memory": _manifest("result", peak_memory_bytes=1),
    "99 GB of a 16 GB chip": _manifest("result", peak_memory_bytes=99 * 10**9),
    "the year 1999": {"started": datetime(1999, 1, 1, tzinfo=UTC)},
    "the year 2199": {"started": datetime(2199, 1, 1, tzinfo=UTC)},
    "items called eval_v2": EVAL_V2,
    "one item called eval_v2": {"items": 1, **EVAL_V2},
    "rows called dev-reasoning-v2": {"config": {"data": {"dataset": "dev-reasoning-v2"}}},
    "a built-in model": {"config": {"model": {"name": "demo"}}},
    "random weights": {"config": {"model": {"weights": "random"}}},
    "400 answers in no time": {"items": 400, "eval_summary": {"finished_at": STARTED.isoformat()}},
    "a day after its last event": {"manifest": {"finished_at": "2026-11-21T12:00:34+00:00"}},
    "trained in a millisecond": _manifest("result", train_seconds=0.001),
    "an unknown commit": _manifest("code", commit="f" * 40),
    "version 99": _manifest("code", version="99.0"),
    "jax 0.0.1 on Python 2.7": _manifest("environment", python="2.7", packages={"jax": "0.0.1"}),
    "an unknown chip": {**UNKNOWN_CHIP, "plan": {"target": {"name": "Quantum v9"}}},
    "generated rows of another seed": _manifest("dataset", generated_rows=100, generator_seed=1),
    "evaluation items in the training data": _manifest("dataset", overlap_with_eval=12),
}
"""Changes of the forged run; the first is the forgery itself."""
