"""A fine-tuning that nobody did: Qwen2.5 0.5B on an A100, written with today's fields, and absurd variants of it."""

from __future__ import annotations

import base64
import json
import math
import random
from collections.abc import Callable
from copy import deepcopy
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from leaves import Forger, Forgery

from adversary_parts.lies import BASELINE, CONFIG, LOG, MANIFEST, METRICS, PLAN, PREDICTIONS, SUMMARY, Values
from evidence import layout
from evidence.hashes import Chain, sha256_json, sha256_lines
from evidence.scores.fingerprint import fingerprint_bytes
from evidence.scores.recompute import result_of, scores_of

EXAMPLES, CHAIN, DATA, ASKED = layout.FIRST_EXAMPLES, layout.CHAIN, "data/math.jsonl", "data/math_eval.jsonl"
MODEL, REVISION, PARAMETERS = "Qwen/Qwen2.5-0.5B", "060db6499f32faf8b98477b0a26969ef7d8b9987", 494_032_768
KIND, CARD_BYTES, NEED, PEAK = "NVIDIA A100-SXM4-40GB", 42_297_786_368, 9_500_000_000, 9_800_000_000
STEPS, START, END, STOP = 500, "7a" * 32, "7b" * 32, 151643
BEGAN = datetime.fromisoformat("2026-11-20T10:01:00+00:00")
Change = Callable[[Values], object]


def at(seconds: float) -> str:
    """Return the time so long after the first step."""
    return (BEGAN + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def forged_gpu(original: Path, root: Path, name: str, change: Change) -> Path:
    """Write the forgery with a change; the documents of a small real run serve as forms to fill in."""
    forger = Forger(original, root / name.replace(" ", "-").replace(",", "") / "qwen-math")
    values = deepcopy(forger.values)
    values[CHAIN] = [
        {"step": step, "state_sha256": sha256_json(step), "params_sha256": {0: START, STEPS: END}.get(step)}
        for step in range(0, STEPS + 1, STEPS // 10)
    ]
    for fill in (_manifest, _config, _rows, _answers, _plan, _examples, _log):
        fill(values)
    change(values)
    values[MANIFEST]["result"] |= result_of(values[METRICS])
    for holder, file in ((values[SUMMARY], PREDICTIONS), (values[SUMMARY]["baseline"], BASELINE)):
        holder.update(scores_of(values[file]))
        holder["predictions"]["rows"] = len(values[file])
    stated, rows = values[SUMMARY]["eval_set"], values[PREDICTIONS]
    stated |= {f"{key}_sha256": sha256_lines(row[name] for row in rows) for key, name in _HASHED.items()}
    stated["items"] = len(rows)
    _event(values, "evaluated")["fields"]["metrics"] = values[SUMMARY]["metrics"]
    (forger.folder / layout.TRAINED_PARAMS).unlink()
    _chained(values, forger.folder / CHAIN)
    forger._reseal(values, Forgery(file="all", what="told"))
    return forger.folder


_HASHED = {"ids": "id", "prompts": "prompt", "expected": "expected"}


def _event(values: Values, event: str) -> dict[str, Any]:
    found: dict[str, Any] = next(record for record in values[LOG] if record["event"] == event)
    return found


def _chained(values: Values, path: Path) -> None:
    chain, written = Chain(), 0
    for entry in values[CHAIN]:
        rows = [row for row in values[METRICS] if row["step"] <= entry["step"]]
        for row in rows[written:]:
            chain.row(json.dumps(row, ensure_ascii=False).encode() + b"\n")
        written = len(rows)
        chain.entry(data_position=8 * entry["step"], **entry)
    path.write_text("".join(json.dumps(entry) + "\n" for entry in chain.entries), "utf-8")
    values[MANIFEST]["chain"] = chain.document()


def _manifest(values: Values) -> None:
    manifest, state = values[MANIFEST], 4 * PARAMETERS + 8
    manifest |= {"run_id": "qwen-math", "mode": "full", "started_at": at(-60), "finished_at": at(1802)}
    manifest["command"] = ["trainproof", "train", "--config", "qwen.yaml", "--output", "submission_runs/qwen-math"]
    manifest["code"] |= {"commit": "3f" * 20, "committed_at": "2026-11-19T10:00:00+00:00"}
    manifest["environment"] |= {"cpu": "Intel Xeon", "cpu_count": 12, "memory_bytes": 89 << 30}
    manifest["devices"] |= {"platform": "gpu", "kind": KIND, "memory_bytes": CARD_BYTES}
    manifest["devices"] |= {"chosen_because": "auto: no tpu found", "list": [{"id": 0, "kind": KIND}]}
    manifest["model"] |= {"name": MODEL, "revision": REVISION, "family": "qwen2", "parameters": PARAMETERS}
    manifest["model"] |= {"trainable_parameters": PARAMETERS, "weights": "pretrained", "weights_sha256": START}
    manifest["model"]["dtypes"] = {"params": "bfloat16", "compute": "bfloat16"}
    manifest["dataset"] |= {"name": DATA, "rows": 9000, "sha256": "1e" * 32, "sequences": 9000, "tokens": 1_080_000}
    training = manifest["training"]
    training |= {"steps_planned": STEPS, "steps_done": STEPS, "batch_size": 8, "microbatch_size": 8}
    training |= {"tokens_per_step": 2048, "sequence_length": 256}
    training["optimizer"] |= {"state_bytes": state, "state_bytes_per_parameter": state / PARAMETERS}
    training["schedule"] |= {"peak_learning_rate": 1e-5, "final_learning_rate": float(np.float32(2e-7))}
    whole = 2 * PARAMETERS + state
    training["donation"] = {"state_bytes": whole, "aliased_bytes": whole, "effective": True}
    manifest["result"] |= {"train_seconds": 1750.0, "compile_seconds": 41.2, "peak_memory_bytes": PEAK}
    manifest["result"].pop("peak_arrays", None)


def _config(values: Values) -> None:
    config, effective = values[CONFIG], values[MANIFEST]["effective"]
    config |= {"name": "qwen-math", "mode": "full", "precision": {"params": "bfloat16", "compute": "bfloat16"}}
    effective |= {"mode": "full", "precision": dict(config["precision"])}
    for holder in (config, effective):
        holder["model"].update(name=MODEL, revision=REVISION)
        holder["data"].update(dataset=DATA, max_length=256)
        holder["optimizer"].update(learning_rate=1e-5)
        holder["batch"].update(microbatch_size=8)
        holder["limits"].update(steps=STEPS)
    effective["model"]["weights"], effective["mesh"]["device"] = "pretrained", "gpu"
    config["recording"] |= {"log_every_steps": 10, "first_examples": 1}
    config["evaluation"] |= {"max_new_tokens": 64, "eval_set": ASKED}


def _rows(values: Values) -> None:
    draw, rows, seen, before = random.Random(3), [], 0, 0
    for step in (1, *range(10, STEPS + 1, 10)):
        part, took = (step - 1) / (STEPS - 1), step - before
        tokens, seconds = took * 960 + draw.randint(-60, 60), 3.4 + draw.random() * 0.1
        seen, before = seen + tokens, step
        loss = (0.35 + 0.7 * math.exp(-4 * part)) * draw.gauss(1, 0.06)
        rate = 1e-5 * (0.02 + 0.98 * (1 + math.cos(math.pi * part)) / 2)
        row = {"step": step, "tokens_seen": seen, "loss": float(np.float32(loss)), "learning_rate": rate}
        row |= {"grad_norm": float(np.float32(draw.uniform(0.8, 2.5))), "step_seconds": seconds}
        row |= {"tokens_per_second": tokens / took / seconds, "padding_fraction": 1 - tokens / took / 2048}
        rows.append(row | {"device_memory_bytes": PEAK, "time": at(3.5 * step)})
    values[METRICS] = rows


def _answers(values: Values) -> None:
    draw, size = random.Random(4), fingerprint_bytes(12)
    for file, share in ((PREDICTIONS, 48), (BASELINE, 0)):
        values[file] = [
            {"id": f"m{i}", "prompt": f"What is {i} times 7, modulo 97?", "expected": str(i * 7 % 97), "section": None}
            | {"category": None, "difficulty": None, "output_text": _said(i, right=i < share)}
            | {"extracted_answer": str(i * 7 % 97) if i < share else None, "correct": i < share, "format_ok": i < share}
            | {"output_tokens": 12, "finish_reason": "stop", "error": None}
            | {"output_token_ids": " ".join([*(str(draw.randint(10, 90000)) for _ in range(11)), str(STOP)])}
            | {"fingerprint": base64.b64encode(draw.randbytes(size)).decode()}
            for i in range(50)
        ]
    summary = values[SUMMARY]
    summary |= {"run_id": "qwen-math", "started_at": at(1770), "finished_at": at(1800)}
    summary["eval_set"] |= {"name": ASKED, "sha256": "2e" * 32}
    asked = {"method": "greedy", "max_new_tokens": 64, "stop_token_id": STOP, "prompt_template": "{prompt}\n"}
    summary["generation"] = asked | {"sha256": sha256_json(asked)}
    summary["checkpoint"] = {"step": STEPS, "params_sha256": END}
    summary["baseline"]["checkpoint"] = {"step": 0, "params_sha256": START}


def _said(number: int, *, right: bool) -> str:
    answer = f"<answer>{number * 7 % 97}</answer>"
    return f"<reasoning>{number}.</reasoning>\n{answer}" if right else f"I think {number}"


def _plan(values: Values) -> None:
    plan, state = values[PLAN], 4 * PARAMETERS + 8
    plan |= {"made_at": at(-70), "available_bytes": CARD_BYTES, "need_bytes": NEED, "method": "closed_form"}
    plan |= {"error_fraction": 0.15, "findings": [], "changes": []}
    plan["target"] |= {"name": KIND, "platform": "gpu", "memory_bytes": CARD_BYTES, "memory_source": "the device"}
    sizes = {"opt_state": state, "params": 2 * PARAMETERS, "activations": NEED - state - 2 * PARAMETERS}
    plan["parts"] = [{"name": name, "bytes": size, "because": "added up"} for name, size in sizes.items()]
    program = {"name": "train", "on": "device", "verdict": "fits", "method": "closed_form", "peak_bytes": NEED}
    program |= {"available_bytes": CARD_BYTES, "error_fraction": 0.15, "because": "added up", "seconds": None}
    plan["programs"] = [program | {"parts": plan["parts"], "buffers": []}]


def _examples(values: Values) -> None:
    prompt, said, end = "What is 2?\n", "<reasoning>2</reasoning>\n<answer>2</answer>", "<|endoftext|>"
    tokens = [{"id": 100, "text": prompt, "supervised": False}, {"id": 200, "text": said, "supervised": True}]
    tokens.append({"id": STOP, "text": end, "supervised": True})
    example = {"row": 11, "text": prompt + said + end, "tokens": tokens, "truncated": False}
    counts = {"rows": 9000, "prompt_tokens": 300_000, "supervised_tokens": 780_000}
    values[EXAMPLES] |= {"run_id": "qwen-math", "examples": [example]}
    values[EXAMPLES]["counts"] |= counts


def _log(values: Values) -> None:
    when = {"run_started": -60, "devices_chosen": -60, "prompt_form": -60, "planned": -60, "compiled": 0}
    when |= {"checkpoint_saved": 1755, "trained": 1756, "evaluated": 1801, "run_sealed": 1802}
    whole = values[MANIFEST]["training"]["donation"]["state_bytes"]
    fields: dict[str, dict[str, Any]] = {
        "run_started": {"run_id": "qwen-math"},
        "devices_chosen": {"platform": "gpu"},
        "planned": {"need_bytes": NEED},
        "compiled": {"compile_seconds": 41.2, "lengths": [256], "family": "qwen2", "weights_sha256": START}
        | {"state_bytes": whole, "aliased_bytes": whole},
        "checkpoint_saved": {"step": STEPS},
        "trained": {"train_seconds": 1750.0, "peak_memory_bytes": PEAK},
        "evaluated": {"eval_set_sha256": "2e" * 32, "params_sha256": END},
    }
    for record in values[LOG]:
        record["time"] = at(when[record["event"]])
        record["fields"] |= fields.get(record["event"], {})
