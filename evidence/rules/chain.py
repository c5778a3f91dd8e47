"""Check that the chain of training states is unbroken and agrees with rows, manifest, evaluation and saved parameters.

Only repeating the run confirms the hash of a state; the links show that no entry was changed by itself.
"""

from __future__ import annotations

import hashlib
import json
import math
from typing import Any

from evidence.hashes import hash_entry
from evidence.layout import CHAIN, MANIFEST, METRICS, TRAINED_PARAMS, is_lfs_pointer
from evidence.rules.checker import Checker, ValidRun, rule
from schemas.reading import get_path

_LENGTH_BYTES = 8
_LARGEST_HEADER = 1 << 24
_WIDEST_TYPE = 8
"""Bytes of the widest element type."""
_DTYPES = {"F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2), "F64": ("float64", 8)}
"""Name and bytes of the element types of safetensors."""


@rule("TP324", "chain")
def links(run: ValidRun, check: Checker) -> None:
    """Check that each entry holds the hash of the previous one, and that no two steps have the same state."""
    parent = get_path(run.manifest, "parent") or {}
    previous, step = parent.get("link"), parent.get("step", 0)
    first_step: dict[str, int] = {}
    for line, entry in enumerate(run.chain, start=1):
        if line > 1 or run.manifest is not None:
            source = "the hash of the previous entry" if line > 1 else "the start of the run"
            check.equal(CHAIN, "/previous", entry["previous"], previous, source, line=line)
        what = f"Step {entry['step']} comes after step {step}."
        check.require(entry["step"] >= step, CHAIN, what, "/step", line=line)
        same_state = first_step.setdefault(entry["state_sha256"], entry["step"])
        what = f"The state after step {entry['step']} is that after step {same_state}, bit for bit."
        check.require(same_state == entry["step"], CHAIN, what, "/state_sha256", line=line)
        previous, step = hash_entry(entry), entry["step"]


@rule("TP326", "manifest", "chain")
def end_of_chain(run: ValidRun, check: Checker) -> None:
    """Compare the end of the chain with the one in the manifest."""
    stated, entries = run.manifest.get("chain"), len(run.chain)
    if not run.is_sealed:
        return
    if stated is None:
        what = f"chain.jsonl has {entries} entries, but the manifest does not state its end."
        check.require(not entries, MANIFEST, what, "/chain")
        return
    check.equal(MANIFEST, "/chain/entries", stated["entries"], entries, CHAIN)
    if entries and stated["entries"] == entries:
        check.equal(MANIFEST, "/chain/head", stated["head"], hash_entry(run.chain[-1]), "the last entry of chain.jsonl")


@rule("TP325", "chain", "metrics")
def rows_of_chain(run: ValidRun, check: Checker) -> None:
    """Compare the rows and the data position of each entry with metrics.jsonl and the batch size."""
    steps, lines = run.columns["step"], _metric_lines(run)
    digest, hashed = hashlib.sha256(), 0
    for line, entry in enumerate(run.chain, start=1):
        step, rows = entry["step"], entry["rows"]
        for text in lines[hashed:rows]:
            digest.update(text)
        hashed = max(hashed, min(rows, len(lines)))
        written = int((steps <= step).sum())
        # A run that is stopped writes its last row after an entry of the same step, and then one more entry.
        fewest = written if line == len(run.chain) else int((steps < step).sum())
        if not fewest <= rows <= written:
            what = f"The chain counts {rows} rows at step {step}, but metrics.jsonl has {written} until then."
            check.report(CHAIN, what, "/rows", line=line)
        elif entry["rows_sha256"] != digest.hexdigest():
            what = f"The first {rows} rows of metrics.jsonl do not have the hash in the chain at step {step}."
            check.report(CHAIN, what, "/rows_sha256", line=line)
        if run.training is not None:
            position, source = step * run.training["batch_size"], "step × batch_size"
            check.equal(CHAIN, "/data_position", entry["data_position"], position, source, line=line)
    if run.succeeded and run.chain:
        end, done = run.chain[-1], get_path(run.training, "steps_done")
        what = f"The chain ends at step {end['step']} and row {end['rows']}; the run at {done} and {len(run.metrics)}."
        fits = end["step"] == done and end["rows"] == len(run.metrics)
        check.require(fits, CHAIN, what, line=len(run.chain))


def _metric_lines(run: ValidRun) -> list[bytes]:
    """Return the whole lines of metrics.jsonl; converted line ends are another rule's finding."""
    if METRICS not in run.files:
        return []
    return [line + b"\n" for line in (run.folder / METRICS).read_bytes().replace(b"\r\n", b"\n").split(b"\n")[:-1]]


@rule("TP327", "chain")
def parameters_of_chain(run: ValidRun, check: Checker) -> None:
    """Compare the parameters of the first and the last entry with manifest and evaluation."""
    evaluated, pointer = get_path(run.eval_summary, "checkpoint"), "/params_sha256"
    if run.chain and run.model is not None:
        stated, expected = run.chain[0]["params_sha256"], run.model["weights_sha256"]
        check.equal(CHAIN, pointer, stated, expected, "model.weights_sha256", line=1)
    if run.chain and evaluated and evaluated["step"] == run.chain[-1]["step"]:
        stated, expected = run.chain[-1]["params_sha256"], evaluated["params_sha256"]
        check.equal(CHAIN, pointer, stated, expected, "the evaluation", line=len(run.chain))


@rule("TP328", "training", "model")
def saved_parameters(run: ValidRun, check: Checker) -> None:
    """Compare number and hash of the saved parameters with what the run trained.

    The hash of adapters includes their base, which is not in the file, so only their number is compared.
    """
    trained, path = run.model["trainable_parameters"], run.folder / TRAINED_PARAMS
    if TRAINED_PARAMS not in run.files:
        return
    most = trained * _WIDEST_TYPE + _LARGEST_HEADER
    try:
        if (bytes_found := path.stat().st_size) > most:
            what = f"The file has {bytes_found:,} bytes; {trained:,} parameters take {most:,} at most."
            check.report(TRAINED_PARAMS, what)
            return
        saved = None if is_lfs_pointer(path) else _read_safetensors(path.read_bytes())
    except OSError:
        return  # Reported by the rule that hashes the file, as is an LFS pointer.
    if saved is None:
        check.require(is_lfs_pointer(path), TRAINED_PARAMS, "The file is not valid safetensors.")
        return
    count, sha256 = saved
    expected = _final_hash(run) if run.trains_all else None
    what = f"The file holds {count:,} parameters; the run trained {trained:,}."
    check.require(count == trained, TRAINED_PARAMS, what, expected=f"{trained:,}")
    if count == trained and expected and expected != sha256:
        what = f"The file holds the parameters {sha256[:12]}…; the run ended with {expected[:12]}…."
        check.report(TRAINED_PARAMS, what, expected=expected)


def _final_hash(run: ValidRun) -> str | None:
    """Return the hash of the last parameters as the chain states it, or else the evaluation of the last step."""
    if run.chain and run.chain[-1]["params_sha256"]:
        return str(run.chain[-1]["params_sha256"])
    evaluated = get_path(run.eval_summary, "checkpoint")
    return str(evaluated["params_sha256"]) if evaluated and evaluated["step"] == run.training["steps_done"] else None


def _read_safetensors(content: bytes) -> tuple[int, str] | None:
    """Return the number of parameters in a safetensors file and their hash, or None if the file is not valid.

    The hash is computed as in `trainer.model.params`, from name, shape, type and bytes of each array, sorted by name.
    """
    length, digest, count = int.from_bytes(content[:_LENGTH_BYTES], "little"), hashlib.sha256(), 0
    if length > min(_LARGEST_HEADER, len(content)):
        return None
    body = memoryview(content)[_LENGTH_BYTES + length :]
    try:
        header: dict[str, Any] = json.loads(content[_LENGTH_BYTES : _LENGTH_BYTES + length])
        for name in sorted(header.keys() - {"__metadata__"}):
            dtype, width = _DTYPES[header[name]["dtype"]]
            shape = [int(size) for size in header[name]["shape"]]
            begin, end = (int(offset) for offset in header[name]["data_offsets"])
            if not 0 <= begin <= end <= len(body) or end - begin != width * math.prod(shape):
                return None
            digest.update(json.dumps([name, shape, dtype]).encode() + b"\n")
            digest.update(body[begin:end])
            count += math.prod(shape)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return count, digest.hexdigest()
