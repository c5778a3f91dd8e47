"""A third liar's lies: places, times, scores, data and trainings, told of a run of forty steps that was trained here.

Each is repeated whole where `check` does not find it. Which of its steps are false is known: those whose rows are not
the run's, and all of them where a setting that decides numbers is told otherwise.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from adversary_parts.again import BOTH, asked, logged, setting, without
from adversary_parts.lies import (
    BASELINE,
    CONFIG,
    MANIFEST,
    METRICS,
    PLAN,
    PREDICTIONS,
    SUMMARY,
    Tell,
    Values,
    answers,
    every,
    losses,
    moved,
    one,
    put,
)
from evidence.run.hashes import sha256_lines
from schemas.reading import parse_time

TOKENIZER = Tokenizer.from_file(str(Path(__file__).parents[2] / "trainer" / "model" / "tokenizer" / "tokenizer.json"))

SETTING = "setting"
"""Family of lies after which another training would have been."""


def on_device(platform: str, kind: str, count: int, memory_bytes: int) -> Tell:
    """Return a lie told in every place that states the device."""

    def tell(values: Values) -> None:
        values[MANIFEST]["devices"] |= {
            "platform": platform,
            "kind": kind,
            "count": count,
            "memory_bytes": memory_bytes,
            "list": [{"id": number, "kind": kind} for number in range(count)],
        }
        values[CONFIG]["mesh"] |= {"device": platform, "devices": count}
        if "effective" in values[MANIFEST]:
            values[MANIFEST]["effective"].get("mesh", {}).update({"device": platform, "devices": count})
        if PLAN in values:
            values[PLAN]["target"] |= {"name": kind, "platform": platform}
        fields = logged(values, "devices_chosen")["fields"]
        fields |= {key: value for key, value in (("platform", platform), ("count", count)) if key in fields}

    return tell


def environment(**told: object) -> Tell:
    """Return a lie about where it ran."""
    return lambda values: values[MANIFEST]["environment"].update(told)


def package(name: str, version: str) -> Tell:
    """Return a lie about a package."""
    return one(f"{MANIFEST}/environment/packages/{name}", version)


def slower(factor: float) -> Tell:
    """Return a lie: everything took `factor` times as long, in every place that states a time."""

    def tell(values: Values) -> None:
        begin = parse_time(values[MANIFEST]["started_at"])
        assert begin is not None

        def later(value: Any) -> Any:
            if isinstance(value, dict):
                return {key: later(each) for key, each in value.items()}
            if isinstance(value, list):
                return [later(each) for each in value]
            at = parse_time(value) if isinstance(value, str) and len(value) > len("2026-01-01T00:00:00") else None
            return (begin + (at - begin) * factor).isoformat(timespec="milliseconds") if at and at > begin else value

        for name in values:
            values[name] = later(values[name])
        first = values[METRICS][0]["clock_seconds"]
        for row in values[METRICS]:
            row["step_seconds"] *= factor
            row["tokens_per_second"] /= factor
            row["clock_seconds"] = first + (row["clock_seconds"] - first) * factor
        for place in (values[MANIFEST]["result"], logged(values, "trained")["fields"]):
            place["train_seconds"] *= factor

    return tell


def hours(count: float) -> Tell:
    """Return a lie: everything was so many hours later."""
    return moved(timedelta(hours=count) / timedelta(days=1))


def spelled(row: dict[str, Any], text: str) -> None:
    """Let an output be a text, in the tokens that spell it."""
    tokens = TOKENIZER.encode(text, add_special_tokens=False).ids
    row |= {"output_text": text, "output_tokens": len(tokens), "finish_reason": "stop"}
    if "output_token_ids" in row:
        row["output_token_ids"] = " ".join(str(each) for each in tokens)


def drawn_right(share: float, *, files: tuple[str, ...] = (PREDICTIONS,)) -> Tell:
    """Return a lie: so many of the answers were right, drawn by their ids."""

    def change(row: dict[str, Any]) -> None:
        if random.Random(row["id"]).random() < share:
            spelled(row, f"<answer>{row['expected']}</answer>")

    return answers(change, files=files)


def worse_baseline(row: dict[str, Any]) -> None:
    """Let an answer of the untrained model be wrong."""
    spelled(row, "<answer>none</answer>")


def kept(count: int) -> Tell:
    """Return a lie: only the first items were asked."""

    def tell(values: Values) -> None:
        for file in BOTH:
            values[file] = values[file][:count]
        values[SUMMARY]["eval_set"]["items"] = count
        for place in (values[SUMMARY], values[SUMMARY]["baseline"]):
            place["predictions"]["rows"] = count
        answers(lambda row: None, files=BOTH)(values)

    return tell


def baseline_is_trained(values: Values) -> None:
    """Give the untrained model the trained one's answers, and the other way round."""
    values[PREDICTIONS], values[BASELINE] = values[BASELINE], values[PREDICTIONS]
    answers(lambda row: None, files=BOTH)(values)


def from_step(step: int, change: Callable[[dict[str, Any]], None]) -> Tell:
    """Return a change of the rows from a step on."""

    def tell(values: Values) -> None:
        for row in values[METRICS]:
            if row["step"] >= step:
                change(row)

    return tell


def noisy(row: dict[str, Any]) -> None:
    """Let a loss be another one by a thousandth at most, in float32."""
    row["loss"] = float(np.float32(row["loss"] * random.Random(row["step"]).uniform(0.999, 1.001)))


def within_sevens(all_: list[float]) -> list[float]:
    """Shuffle losses within sevens."""
    draw, found = random.Random(1), []
    for begin in range(0, len(all_), 7):
        part = all_[begin : begin + 7]
        found += draw.sample(part, len(part))
    return found


def norms_of_another(values: Values) -> None:
    """Draw every gradient norm anew around a falling mean."""
    draw = random.Random(2)
    for row in values[METRICS]:
        row["grad_norm"] = float(np.float32(draw.uniform(0.8, 1.4) * (1 + 20 / (row["step"] + 10))))


def larger_rows(values: Values) -> None:
    """State twice the rows of training."""
    values[MANIFEST]["dataset"]["rows"] *= 2


def no_overlap(values: Values) -> None:
    """State that no row of training is near an item."""
    found = values[MANIFEST]["dataset"]
    for key in [key for key in found if "overlap" in key]:
        found[key] = 0 if isinstance(found[key], int) else found[key]
    if isinstance(found.get("contamination"), dict):
        found["contamination"] |= {key: 0 for key, value in found["contamination"].items() if isinstance(value, int)}


def renamed(values: Values) -> None:
    """Call it a run of one's own, of another commit."""
    values[CONFIG]["name"] = "ours"
    values[MANIFEST]["code"]["commit"] = "7c" * 20


def downgraded(values: Values) -> None:
    """Say that it is of the first version of the schemas, which stated less."""
    for name in (MANIFEST, SUMMARY, CONFIG, PLAN):
        if "schema_version" in values.get(name, {}):
            values[name]["schema_version"] = "1.0"


def message(event: str, text: str) -> Tell:
    """Return a lie in the words of the log alone."""
    return lambda values: put({"x": logged(values, event)}, "x/message", text)


def questions_reworded(values: Values) -> None:
    """Say that other questions were asked, in both files."""
    answers(lambda row: row.update(prompt=f"Please: {row['prompt']}"), files=BOTH)(values)
    values[SUMMARY]["eval_set"]["prompts_sha256"] = sha256_lines(row["prompt"] for row in values[PREDICTIONS])


GIB = 2**30
THIRD: tuple[tuple[str, str, Tell], ...] = (
    ("device", "an RTX 4090", on_device("gpu", "NVIDIA GeForce RTX 4090", 1, 24 * GIB)),
    ("device", "an H100", on_device("gpu", "NVIDIA H100 80GB HBM3", 1, 80 * GIB)),
    ("device", "two T4s", on_device("gpu", "Tesla T4", 2, 15 * GIB)),
    ("device", "a TPU of one chip", on_device("tpu", "TPU v5 lite", 1, 16 * GIB)),
    ("device", "a TPU of eight chips", on_device("tpu", "TPU v5 lite", 8, 16 * GIB)),
    ("place", "an Apple M4", environment(cpu="Apple M4", os="Darwin 25.1.0 arm64")),
    ("place", "Windows", environment(os="Windows 11 AMD64")),
    ("place", "64 cores and 512 GiB", environment(cpu_count=64, memory_bytes=512 * GIB)),
    ("place", "another processor of the name", one(f"{MANIFEST}/environment/processor/model", 1)),
    ("place", "no AVX-512", one(f"{MANIFEST}/environment/processor/instructions", ["avx", "avx2", "fma"])),
    ("place", "Python 3.13", environment(python="3.13.1")),
    ("place", "a jaxlib that never was", package("jaxlib", "0.10.9")),
    ("place", "an older flax", package("flax", "0.10.0")),
    ("place", "a command without --set", lambda values: values[MANIFEST]["command"].append("--device=cpu")),
    ("place", "a dirty tree told clean", one(f"{MANIFEST}/code/dirty", value=False)),
    ("time", "an hour later", hours(1)),
    ("time", "thirty days earlier", hours(-720)),
    ("time", "half the time", slower(0.5)),
    ("time", "three times the time", slower(3)),
    ("time", "ten times the time", slower(10)),
    ("score", "all right", drawn_right(1)),
    ("score", "95 % right", drawn_right(0.95)),
    ("score", "a third right", drawn_right(0.33)),
    ("score", "the untrained model a third right", drawn_right(0.33, files=(BASELINE,))),
    ("score", "the untrained model never has the form", answers(worse_baseline, files=(BASELINE,))),
    ("score", "trained and untrained exchanged", baseline_is_trained),
    ("score", "ten items alone", kept(10)),
    ("score", "without tokens and fingerprints", lambda values: [without("output_token_ids")(values[f]) for f in BOTH]),
    ("score", "another number of new tokens", asked("max_new_tokens", 32)),
    ("score", "other questions", questions_reworded),
    ("data", "twice the rows", larger_rows),
    ("data", "nothing overlaps", no_overlap),
    ("data", "another hash of the rows", one(f"{MANIFEST}/dataset/sha256", "e1" * 32)),
    ("data", "another set by the name", one(f"{MANIFEST}/dataset/name", "dev-stories-v1")),
    ("losses", "lower by a third", losses(lambda all_: [loss * 0.667 for loss in all_], deep=True)),
    ("losses", "shuffled within sevens", losses(within_sevens, deep=True)),
    ("losses", "moved by a row", losses(lambda all_: [*all_[1:], all_[-1]], deep=True)),
    (
        "losses",
        "smoothed",
        losses(lambda all_: [sum(all_[max(0, n - 4) : n + 1]) / min(5, n + 1) for n in range(len(all_))], deep=True),
    ),
    ("losses", "half of them a thousandth off", from_step(21, noisy)),
    ("losses", "the last alone", from_step(40, noisy)),
    ("losses", "gradient norms drawn anew", norms_of_another),
    (SETTING, "another weight decay", setting("optimizer.weight_decay", 0.1)),
    (SETTING, "another beta2", setting("optimizer.beta2", 0.95)),
    (SETTING, "no clipping", setting("optimizer.max_grad_norm", None)),
    (SETTING, "another seed", every((f"{CONFIG}/seed", 11), (f"{MANIFEST}/training/seed", 11))),
    (SETTING, "another length", setting("data.max_length", 64)),
    (SETTING, "native instructions", setting("precision.cpu_isa", "native")),
    (SETTING, "bfloat16", setting("precision.compute", "bfloat16")),
    ("another's", "renamed, another commit", renamed),
    ("another's", "of schema 1.0", downgraded),
    ("another's", "a message of the log", message("evaluated", "exact match on eval_v1: 0.940")),
)
"""Family, name, and the lie."""


def false_steps(family: str, told: list[dict[str, Any]], honest: list[dict[str, Any]]) -> frozenset[int]:
    """Return the steps that are not as they are told."""
    if family == SETTING:
        return frozenset(row["step"] for row in honest)
    by_step = {row["step"]: row for row in honest}
    judged = ("tokens_seen", "loss", "learning_rate", "grad_norm")
    return frozenset(row["step"] for row in told if any(row[key] != by_step[row["step"]][key] for key in judged))
