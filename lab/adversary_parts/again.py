"""A second liar's lies, written without a look at the first one's: the same three families, told of the same run."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np

from adversary_parts.lies import (
    BASELINE,
    CONFIG,
    LOG,
    MANIFEST,
    METRICS,
    PREDICTIONS,
    SUMMARY,
    Tell,
    Values,
    answers,
    losses,
    one,
    put,
    right,
)
from evidence.hashes import sha256_json

EXAMPLES = "first_examples.json"
BOTH = (PREDICTIONS, BASELINE)


def logged(values: Values, event: str) -> dict[str, Any]:
    """Return an event of the log."""
    found: dict[str, Any] = next(record for record in values[LOG] if record["event"] == event)
    return found


def rows(change: Callable[[list[dict[str, Any]]], Any], *files: str) -> Tell:
    """Return a lie about the rows of files."""

    def tell(values: Values) -> None:
        for file in files:
            change(values[file])

    return tell


def setting(key: str, value: object) -> Tell:
    """Return a setting that configuration and effective settings state."""

    def tell(values: Values) -> None:
        group, name = key.split(".")
        put(values, f"{CONFIG}/{group}/{name}", value)
        if name in values[MANIFEST]["effective"].get(group, {}):
            put(values, f"{MANIFEST}/effective/{group}/{name}", value)

    return tell


def asked(key: str, value: object) -> Tell:
    """Return another way of asking, with its hash."""

    def tell(values: Values) -> None:
        how = {name: stated for name, stated in values[SUMMARY]["generation"].items() if name != "sha256"} | {
            key: value
        }
        values[SUMMARY]["generation"] = how | {"sha256": sha256_json(how)}

    return tell


def memory(values: Values) -> None:
    """State a tenth of the memory, in the log too."""
    values[MANIFEST]["result"]["peak_memory_bytes"] = 40_000_000
    logged(values, "trained")["fields"]["peak_memory_bytes"] = 40_000_000


def compiled_at_once(values: Values) -> None:
    """State a tenth of the time of the compiler, in the log too."""
    values[MANIFEST]["result"]["compile_seconds"] /= 10
    logged(values, "compiled")["fields"]["compile_seconds"] /= 10


def wrong_rows_deleted(values: Values) -> None:
    """Take two thirds of the wrong answers away."""
    kept = [row["correct"] or place % 3 == 0 for place, row in enumerate(values[PREDICTIONS])]
    for file in BOTH:
        values[file] = [row for row, keep in zip(values[file], kept, strict=True) if keep]
    values[SUMMARY]["eval_set"]["items"] = sum(kept)
    for place in (values[SUMMARY], values[SUMMARY]["baseline"]):
        place["predictions"]["rows"] = sum(kept)
    answers(lambda row: None, files=BOTH)(values)


def bent(row: dict[str, Any]) -> None:
    """Let the expected answer be what the model said."""
    row["expected"] = row["output_text"].strip() or row["expected"]


def warmer(values: Values) -> None:
    """Say everywhere that the learning rate was twice as high."""
    values[CONFIG]["optimizer"]["learning_rate"] *= 2
    values[MANIFEST]["effective"]["optimizer"]["learning_rate"] *= 2
    for key in ("peak_learning_rate", "final_learning_rate"):
        values[MANIFEST]["training"]["schedule"][key] *= 2
    for row in values[METRICS]:
        row["learning_rate"] *= 2


def accumulated(values: Values) -> None:
    """Say everywhere that a batch was taken in two halves."""
    batch = {"microbatch_size": values[CONFIG]["batch"]["microbatch_size"] // 2, "accumulation_steps": 2}
    holders = (values[CONFIG]["batch"], values[MANIFEST]["effective"]["batch"], values[MANIFEST]["training"])
    for holder in holders:
        holder.update(batch)


def bfloat16(values: Values) -> None:
    """Say everywhere that products were in bfloat16."""
    setting("precision.compute", "bfloat16")(values)
    values[MANIFEST]["model"]["dtypes"]["compute"] = "bfloat16"


def own_rows(values: Values) -> None:
    """Say everywhere that own rows were learned."""
    setting("data.dataset", "my/rows.jsonl")(values)
    values[MANIFEST]["dataset"] |= {"name": "my/rows.jsonl", "sha256": "1f" * 32}


def other_seed(values: Values) -> None:
    """Say everywhere that the seed was 3."""
    values[CONFIG]["seed"] = values[MANIFEST]["training"]["seed"] = values[MANIFEST]["effective"]["seed"] = 3


def other_end(values: Values) -> None:
    """Say that the evaluation was of other parameters, in the log too."""
    values[SUMMARY]["checkpoint"]["params_sha256"] = "5c" * 32
    logged(values, "evaluated")["fields"]["params_sha256"] = "5c" * 32


def error_logged(values: Values) -> None:
    """Log an error in a run that succeeded."""
    trained = logged(values, "trained")
    record = {**trained, "level": "error", "event": "step_failed", "message": "loss is not finite", "fields": {}}
    values[LOG].insert(values[LOG].index(trained), record)


def twice_as_fast(values: Values) -> None:
    """Halve every step's time and leave the stamps."""
    for row in values[METRICS]:
        row["step_seconds"] /= 2
        row["tokens_per_second"] *= 2


def smoke_steps(values: Values) -> None:
    """Let the command ask for fifty steps."""
    command = values[MANIFEST]["command"]
    command[command.index("--smoke_steps") + 1] = "50"


def jittered(all_: list[float]) -> list[float]:
    """Lower the second half at random."""
    draw, half = random.Random(5), len(all_) // 2
    return [*all_[:half], *(loss * draw.uniform(0.3, 0.7) for loss in all_[half:])]


def token_of_another(found: list[dict[str, Any]]) -> None:
    """Change the first token of an answer and not its text."""
    found[3]["output_token_ids"] = " ".join(["21", *found[3]["output_token_ids"].split()[1:]])


def raised(found: list[dict[str, Any]]) -> None:
    """Raise gradient norms a millionfold, in float32."""
    for row in found:
        row["grad_norm"] = float(np.float32(row["grad_norm"] * 1e6))


def swapped(name: str) -> Callable[[list[dict[str, Any]]], None]:
    """Return an exchange of a field of two rows."""

    def change(found: list[dict[str, Any]]) -> None:
        found[0][name], found[1][name] = found[1][name], found[0][name]

    return change


def without(*names: str) -> Callable[[list[dict[str, Any]]], None]:
    """Return a change that leaves fields out."""
    return lambda found: [row.pop(name, None) for row in found for name in names] and None


def backwards(values: Values) -> None:
    """Show the training examples in another order."""
    values[EXAMPLES]["examples"].reverse()


AGAIN: tuple[tuple[str, str, Tell], ...] = (
    ("single", "gradient norm of one step", lambda values: put({"x": values[METRICS][1]}, "x/grad_norm", 1.5)),
    ("single", "a better processor", one(f"{MANIFEST}/environment/cpu", "AMD EPYC 9965 192-Core Processor")),
    ("single", "512 cores", one(f"{MANIFEST}/environment/cpu_count", 512)),
    ("single", "branch", one(f"{MANIFEST}/code/branch", "release/1.0")),
    ("single", "a flag of the compiler", one(f"{MANIFEST}/environment/flags", {"XLA_FLAGS": "--xla_a=1"})),
    ("single", "duplicates in the data", one(f"{MANIFEST}/dataset/duplicates", 17)),
    ("single", "split of the data", one(f"{MANIFEST}/dataset/split", "train")),
    ("single", "tokens of the data", one(f"{MANIFEST}/dataset/tokens", 40966)),
    ("single", "a token of an answer", rows(token_of_another, PREDICTIONS)),
    ("single", "fingerprints exchanged", rows(swapped("fingerprint"), PREDICTIONS)),
    ("single", "baseline's fingerprints exchanged", rows(swapped("fingerprint"), BASELINE)),
    ("single", "half the arrays", one(f"{MANIFEST}/result/peak_arrays/bytes", 7_000_000)),
    ("single", "command of other steps", smoke_steps),
    ("single", "method of the manifest alone", one(f"{MANIFEST}/training/method", "lora")),
    ("deep", "a tenth of the memory", memory),
    ("deep", "compiled at once", compiled_at_once),
    ("deep", "losses 3 % lower", losses(lambda all_: [loss * 0.97 for loss in all_], deep=True)),
    ("deep", "second half lower at random", losses(jittered, deep=True)),
    ("deep", "losses of two rows exchanged", losses(lambda all_: [all_[1], all_[0], *all_[2:]], deep=True)),
    (
        "deep",
        "losses fall a hundredfold at once",
        losses(lambda all_: [all_[0], *(x / 100 for x in all_[1:])], deep=True),
    ),
    ("deep", "gradient norms a millionfold", rows(raised, METRICS)),
    ("deep", "wrong answers deleted", wrong_rows_deleted),
    ("deep", "expected answers bent to what was said", answers(bent, files=BOTH)),
    ("deep", "ten wrong answers right", answers(lambda row: right(row) if row["id"] < "eval_v1-011" else None)),
    ("deep", "no tokens and fingerprints", rows(without("output_token_ids", "fingerprint"), *BOTH)),
    ("deep", "steps twice as fast", twice_as_fast),
    ("deep", "an error in the log", error_logged),
    ("deep", "another prompt template", asked("prompt_template", "Q: {prompt}\nA:")),
    ("deep", "another end token", asked("stop_token_id", 2)),
    ("deep", "training examples in another order", backwards),
    ("wide", "another beta1", setting("optimizer.beta1", 0.8)),
    ("wide", "another epsilon", setting("optimizer.epsilon", 1e-3)),
    ("wide", "clipping at a half", setting("optimizer.max_grad_norm", 0.5)),
    ("wide", "rows in their order", setting("data.shuffle", value=False)),
    ("wide", "the learning rate doubled", warmer),
    ("wide", "products in bfloat16", bfloat16),
    ("wide", "batches in two halves", accumulated),
    ("wide", "rows of one's own", own_rows),
    ("wide", "seed 3", other_seed),
    ("wide", "parameters at the end", other_end),
)
"""Family, name, and the lie."""
