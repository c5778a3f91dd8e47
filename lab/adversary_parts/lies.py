"""Lies about a run: what is changed, and what a careful liar changes with it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np

from evidence.run.hashes import sha256_lines
from evidence.scores.reading import Scoring, accepted_of
from evidence.scores.recompute import result_of, scores_of
from schemas.reading import parse_time

Values = dict[str, Any]
"""The documents and rows of a run by file name."""
Tell = Callable[[Values], None]

MANIFEST, METRICS, LOG, PLAN, CONFIG = (
    "run_manifest.json",
    "metrics.jsonl",
    "log.jsonl",
    "plan.json",
    "config.yaml",
)
SUMMARY, PREDICTIONS, BASELINE = "eval_summary.json", "predictions.jsonl", "baseline_predictions.jsonl"


def put(values: Values, path: str, value: Any) -> None:
    """Set the value at `file/key/key`."""
    file, *keys = path.split("/")
    holder = values[file]
    for key in keys[:-1]:
        holder = holder[key]
    holder[keys[-1]] = value


def one(path: str, value: Any) -> Tell:
    """Return a lie that sets one value."""
    return lambda values: put(values, path, value)


def every(*pairs: tuple[str, Any]) -> Tell:
    """Return a lie that sets a value in every place that states it."""

    def tell(values: Values) -> None:
        for path, value in pairs:
            put(values, path, value)

    return tell


def losses(change: Callable[[list[float]], list[float]], *, deep: bool) -> Tell:
    """Return a lie about the losses, in float32; deep: with the result that follows."""

    def tell(values: Values) -> None:
        rows = values[METRICS]
        for row, loss in zip(rows, change([row["loss"] for row in rows]), strict=True):
            row["loss"] = float(np.float32(loss))
        if deep:
            values[MANIFEST]["result"] |= result_of(rows)

    return tell


def answers(change: Callable[[dict[str, Any]], None], *, files: tuple[str, ...] = (PREDICTIONS,)) -> Tell:
    """Return a lie about answers, scored again, with every score and hash that follows."""

    def tell(values: Values) -> None:
        for file in files:
            for row in values[file]:
                change(row)
                verdict = Scoring().verdict(row["output_text"], row["finish_reason"], accepted_of(row))
                row |= {key: value for key, value in verdict.items() if key in row}
            place = values[SUMMARY] if file == PREDICTIONS else values[SUMMARY]["baseline"]
            place |= scores_of(values[file])
        stated = values[SUMMARY]["eval_set"]
        for key, name in (("id", "ids_sha256"), ("prompt", "prompts_sha256"), ("expected", "expected_sha256")):
            stated[name] = sha256_lines(row[key] for row in values[PREDICTIONS])
        for record in values[LOG]:
            if record["event"] == "evaluated":
                record["fields"]["metrics"] = values[SUMMARY]["metrics"]

    return tell


def right(row: dict[str, Any]) -> None:
    """Make an answer the expected one."""
    row["output_text"] = f"<reasoning>so.</reasoning>\n<answer>{row['expected']}</answer>"
    row["finish_reason"], row["output_tokens"] = "stop", 9


def right_in_its_tokens(row: dict[str, Any]) -> None:
    """Make an answer the expected one, and leave how long it is, its tokens and how it ended as they were."""
    row["output_text"] = f"<answer>{row['expected']}</answer>"


def gradient_norms(values: Values) -> None:
    """Raise every gradient norm by a hundredth, in float32."""
    for row in values[METRICS]:
        row["grad_norm"] = float(np.float32(row["grad_norm"] * 1.01))


def relabelled(key: str, value: str) -> Callable[[dict[str, Any]], None]:
    """Return a change of the label of an item."""
    return lambda row: row.update({key: value})


def moved(days: float) -> Tell:
    """Return a lie about when everything happened."""

    def later(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: later(one) for key, one in value.items()}
        if isinstance(value, list):
            return [later(one) for one in value]
        at = parse_time(value) if isinstance(value, str) and len(value) > len("2026-01-01T00:00:00") else None
        return (at + timedelta(days=days)).isoformat(timespec="milliseconds") if at else value

    def tell(values: Values) -> None:
        for name in values:
            values[name] = later(values[name])

    return tell


def seed(values: Values) -> None:
    """Say everywhere that another seed was used."""
    put(values, f"{MANIFEST}/training/seed", 5)
    put(values, f"{CONFIG}/seed", 5)
    if "effective" in values[MANIFEST]:
        values[MANIFEST]["effective"]["seed"] = 5


def device(values: Values) -> None:
    """Say everywhere that a graphics card did it."""
    kind = "NVIDIA H100 80GB HBM3"
    values[MANIFEST]["devices"] |= {"platform": "gpu", "kind": kind, "list": [{"id": 0, "kind": kind}]}
    values[PLAN]["target"] |= {"name": kind, "platform": "gpu"}
    for record in values[LOG]:
        if record["event"] == "devices_chosen":
            record["fields"]["platform"] = "gpu"


def only_the_seal(values: Values) -> None:
    """Take every event but the last from the log."""
    values[LOG] = [record for record in values[LOG] if record["event"] == "run_sealed"]


def without_fields(values: Values) -> None:
    """Take from every event but the seal what it states."""
    for record in values[LOG]:
        if record["event"] != "run_sealed":
            record["fields"] = {}


BOTH = (PREDICTIONS, BASELINE)
LIES: tuple[tuple[str, str, Tell], ...] = (
    ("single", "first loss halved", losses(lambda all_: [all_[0] / 2, *all_[1:]], deep=False)),
    ("single", "gradient norm below 0", lambda values: put({"x": values[METRICS][0]}, "x/grad_norm", -1.0)),
    ("single", "peak memory of one byte", one(f"{MANIFEST}/result/peak_memory_bytes", 1)),
    ("single", "generator seed", one(f"{MANIFEST}/dataset/generator_seed", 3)),
    ("single", "hash of the dataset", one(f"{MANIFEST}/dataset/sha256", "5" * 64)),
    ("single", "model called pretrained", one(f"{MANIFEST}/model/weights", "pretrained")),
    ("single", "start weights", one(f"{MANIFEST}/model/weights_sha256", "5" * 64)),
    ("single", "hash of the evaluation set", one(f"{SUMMARY}/eval_set/sha256", "5" * 64)),
    ("single", "commit", one(f"{MANIFEST}/code/commit", "1" * 40)),
    ("single", "system", one(f"{MANIFEST}/environment/os", "Windows 11")),
    ("single", "command", lambda values: values[MANIFEST]["command"].append("--force")),
    ("deep", "all losses halved", losses(lambda all_: [loss / 2 for loss in all_], deep=True)),
    ("deep", "losses of a far better model", losses(lambda all_: [loss / 100 for loss in all_], deep=True)),
    ("deep", "losses of 600", losses(lambda all_: [600 - at for at in range(len(all_))], deep=True)),
    ("deep", "last loss lowered", losses(lambda all_: [*all_[:-1], all_[-1] * 0.9], deep=True)),
    ("deep", "gradient norms a hundredth higher", gradient_norms),
    ("deep", "every answer right", answers(right)),
    ("deep", "every answer right in as many tokens", answers(right_in_its_tokens)),
    (
        "deep",
        "one answer right in as many tokens",
        answers(lambda row: right_in_its_tokens(row) if row["id"].endswith("-007") else None),
    ),
    ("deep", "baseline raised", answers(right, files=(BASELINE,))),
    ("deep", "other categories in both files", answers(relabelled("category", "arithmetic"), files=BOTH)),
    ("deep", "all items easy in both files", answers(relabelled("difficulty", "easy"), files=BOTH)),
    ("deep", "other expected answers in both files", answers(relabelled("expected", "0"), files=BOTH)),
    ("deep", "other questions in both files", answers(relabelled("prompt", "Repeat: 7"), files=BOTH)),
    ("deep", "log reduced to its seal", only_the_seal),
    ("deep", "log without fields", without_fields),
    ("deep", "everything 400 days later", moved(400)),
    ("deep", "everything in 1999", moved(-27 * 365.25)),
    ("wide", "another seed", seed),
    ("wide", "a graphics card", device),
    (
        "wide",
        "a published model",
        every((f"{MANIFEST}/model/name", "google/gemma-2b"), (f"{CONFIG}/model/name", "google/gemma-2b")),
    ),
    (
        "wide",
        "another dataset",
        every((f"{MANIFEST}/dataset/name", "dev-stories-v1"), (f"{CONFIG}/data/dataset", "dev-stories-v1")),
    ),
    (
        "wide",
        "another evaluation set",
        every((f"{SUMMARY}/eval_set/name", "eval_v2"), (f"{CONFIG}/evaluation/eval_set", "eval_v2")),
    ),
    ("wide", "another weight decay", one(f"{CONFIG}/optimizer/weight_decay", 0.0)),
    ("wide", "another beta2", one(f"{CONFIG}/optimizer/beta2", 0.9)),
    ("wide", "no clipping", one(f"{CONFIG}/optimizer/max_grad_norm", None)),
)
"""Family, name, and the lie. A setting that the configuration alone states is told everywhere when it is told there."""
