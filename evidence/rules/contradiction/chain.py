"""TP324 to TP327: the chain holds together, and goes with the rows, the manifest and what the evaluation was put to.

What an entry states of a state, only a repetition can confirm; that no entry was changed by itself, the links show.

TP328: the kept parameters are those that the run states it trained. The file is small and holds what the answers were
given by, so its hash can be compared with the one that the chain and the evaluation state. Of adapters the stated hash
is over their base too, which is not in the file: there, only their number is held.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator
from typing import Any

from evidence.records.facts import Facts, finding
from evidence.run import layout
from evidence.run.hashes import link_of
from evidence.run.unreadable import is_lfs_pointer
from schemas.problems import Problem, truncate_problems

RESTORE = "Restore chain.jsonl as the run wrote it, for example from git; if it is lost, run again."


def chain_holds(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each entry that does not hold the hash of the one before it, or goes back."""
    yield from truncate_problems(_broken_links(facts, facts.chain or []))


def chain_ends_as_stated(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the manifest states another end of the chain than it has."""
    stated = None if facts.manifest is None else facts.manifest.get("chain")
    entries = facts.chain
    if facts.manifest is None or not facts.is_sealed or entries is None:
        return
    if stated is None:
        if entries:
            what = f"chain.jsonl has {len(entries)} entries; the manifest does not state where it ends."
            yield finding(facts.folder, "TP326", layout.MANIFEST, what, pointer="/chain")
        return
    if stated["entries"] != len(entries):
        what = f"chain.jsonl has {len(entries)} entries; the manifest states {stated['entries']}."
        yield finding(facts.folder, "TP326", layout.MANIFEST, what, pointer="/chain/entries")
    elif entries and stated["head"] != link_of(entries[-1]):
        what = f"The last entry has the hash {link_of(entries[-1])}; the manifest states {stated['head']}."
        yield finding(facts.folder, "TP326", layout.MANIFEST, what, pointer="/chain/head")


def chain_goes_with_rows(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each entry whose rows are not those of metrics.jsonl, or that took other data."""
    if not facts.chain or facts.metrics is None:
        return
    yield from truncate_problems(_of_other_rows(facts, facts.chain))
    last = facts.chain[-1]
    done = (facts.training or {}).get("steps_done")
    if facts.succeeded and (last["step"] != done or last["rows"] != len(facts.metrics)):
        what = (
            f"The chain ends at step {last['step']} after {last['rows']} rows; the run did {done} steps and has "
            f"{len(facts.metrics)} rows."
        )
        yield finding(facts.folder, "TP325", layout.CHAIN, what, line=len(facts.chain))


def chain_goes_with_parameters(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where start or end of the chain has other parameters than manifest or evaluation state."""
    if not facts.chain:
        return
    if facts.model is not None:
        yield from _other_params(facts, 0, "manifest", facts.model["weights_sha256"])
    evaluated = None if facts.eval_summary is None else facts.eval_summary["checkpoint"]
    if evaluated is not None and evaluated["step"] == facts.chain[-1]["step"]:
        yield from _other_params(facts, len(facts.chain) - 1, "evaluation", evaluated["params_sha256"])


def chain_moves_on(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for a state that is reported to be that of two steps: it holds the number of its step."""
    first: dict[str, int] = {}
    for line, entry in enumerate(facts.chain or [], start=1):
        step = first.setdefault(entry["state_sha256"], entry["step"])
        if step != entry["step"]:
            what = f"The state after step {entry['step']} is said to be that after step {step}, bit for bit."
            yield finding(facts.folder, "TP324", layout.CHAIN, what, line=line, pointer="/state_sha256")
            return


def _broken_links(facts: Facts, entries: Any) -> Iterator[Problem]:
    parent = {} if facts.manifest is None else facts.manifest["parent"] or {}
    before: str | None = parent.get("link")
    step = parent.get("step", 0)
    for line, entry in enumerate(entries, start=1):
        if entry["previous"] != before and (line > 1 or facts.manifest is not None):
            holds = "none" if entry["previous"] is None else entry["previous"]
            what = f"The entry at step {entry['step']} holds {holds} as the hash of the one before, which is {before}."
            yield finding(facts.folder, "TP324", layout.CHAIN, what, line=line, pointer="/previous")
        if entry["step"] < step:
            what = f"Step {entry['step']} comes after step {step}."
            yield finding(facts.folder, "TP324", layout.CHAIN, what, line=line, pointer="/step")
        before, step = link_of(entry), entry["step"]


def _of_other_rows(facts: Facts, entries: Any) -> Iterator[Problem]:
    steps = facts.columns["step"]
    lines = _lines(facts)
    digest, hashed = hashlib.sha256(), 0
    for line, entry in enumerate(entries, start=1):
        for text in lines[hashed : entry["rows"]]:
            digest.update(text)
        hashed = max(hashed, min(entry["rows"], len(lines)))
        before, after = int((steps <= entry["step"]).sum()), len(steps)
        # A run that is told to stop writes its last row after an entry of the same step, and then one more entry.
        fewest = before if line == len(entries) else int((steps < entry["step"]).sum())
        if not fewest <= entry["rows"] <= before:
            what = (
                f"At step {entry['step']} the chain counts {entry['rows']} rows; metrics.jsonl has {before} of {after}."
            )
            yield finding(facts.folder, "TP325", layout.CHAIN, what, line=line, pointer="/rows")
        elif entry["rows_sha256"] != digest.hexdigest():
            what = (
                f"The first {entry['rows']} rows of metrics.jsonl are not those of the chain at step {entry['step']}."
            )
            yield finding(facts.folder, "TP325", layout.CHAIN, what, line=line, pointer="/rows_sha256")
        size = None if facts.training is None else facts.training["batch_size"]
        if size is not None and entry["data_position"] != entry["step"] * size:
            what = f"{entry['step']} steps of {size} sequences are not {entry['data_position']} sequences."
            yield finding(facts.folder, "TP325", layout.CHAIN, what, line=line, pointer="/data_position")


def _lines(facts: Facts) -> list[bytes]:
    """Return the whole lines of metrics.jsonl; converted line ends have a finding of their own."""
    if layout.METRICS not in facts.files:
        return []
    content = (facts.folder / layout.METRICS).read_bytes().replace(b"\r\n", b"\n")
    return [line for line in content.splitlines(keepends=True) if line.endswith(b"\n")]


def _other_params(facts: Facts, index: int, where: str, sha256: str) -> Iterator[Problem]:
    entry = (facts.chain or [])[index]
    if entry["params_sha256"] != sha256:
        has = "none" if entry["params_sha256"] is None else f"{entry['params_sha256'][:12]}…"
        what = f"At step {entry['step']} the chain states the parameters {has}; the {where} states {sha256[:12]}…."
        place = {"line": index + 1, "pointer": "/params_sha256"}
        yield finding(facts.folder, "TP327", layout.CHAIN, what, **place)


_TYPES = {"F32": ("float32", 4), "BF16": ("bfloat16", 2), "F16": ("float16", 2), "F64": ("float64", 8)}
"""Element types of safetensors: the name that a hash is over, and bytes."""
_WIDEST = 8
"""Bytes of the widest element type."""
_LENGTH_BYTES = 8
_LARGEST_HEAD = 1 << 24

Arrays = list[tuple[str, list[int], str, bytes]]
"""Name, shape, element type and bytes of each array, in the order of names."""


def kept_parameters_are_the_trained_ones(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the kept parameters are of another number, or have another hash, than is stated."""
    if facts.training is None or facts.model is None or layout.TRAINED_PARAMS not in facts.files:
        return
    path = facts.folder / layout.TRAINED_PARAMS
    most = facts.model["trainable_parameters"] * _WIDEST + _LARGEST_HEAD
    try:
        if (there := path.stat().st_size) > most:
            what = f"The file has {there:,} bytes; what the run trained takes {most:,} at most."
            yield _problem(facts, what, None)
            return
        if is_lfs_pointer(path):
            return  # That the file is elsewhere is reported where its hash is taken.
        content = path.read_bytes()
    except OSError:
        return  # That it cannot be read is reported where its hash is taken.
    arrays = _arrays(content)
    if arrays is None:
        yield _problem(facts, "The file is not in the form of safetensors, or is damaged.", None)
        return
    count = sum(math.prod(shape) for _, shape, _, _ in arrays)
    if count != facts.model["trainable_parameters"]:
        what = f"The file holds {count:,} parameters; the run trained {facts.model['trainable_parameters']:,}."
        yield _problem(facts, what, f"{facts.model['trainable_parameters']:,}")
    elif facts.trains_all and (stated := _stated_hash(facts)) and stated != (own := _sha256(arrays)):
        yield _problem(facts, f"The file holds parameters {own[:12]}…; the run ended with {stated[:12]}….", stated)


def _stated_hash(facts: Facts) -> str | None:
    """Return the hash of the last parameters, as the chain states it, else the evaluation of the last step."""
    ended = facts.chain[-1]["params_sha256"] if facts.chain else None
    if ended is not None:
        return str(ended)
    evaluated = None if facts.eval_summary is None else facts.eval_summary["checkpoint"]
    done = (facts.training or {}).get("steps_done")
    return str(evaluated["params_sha256"]) if evaluated is not None and evaluated["step"] == done else None


def _arrays(content: bytes) -> Arrays | None:
    """Return the arrays of a safetensors file: the length of its head, the head in JSON, then the elements."""
    length = int.from_bytes(content[:_LENGTH_BYTES], "little")
    body = _LENGTH_BYTES + length
    if length > min(_LARGEST_HEAD, len(content)):
        return None
    try:
        head = json.loads(content[_LENGTH_BYTES:body])
        arrays = [_array(name, head[name], content, body) for name in sorted(head) if name != "__metadata__"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return None if None in arrays else [each for each in arrays if each is not None]


def _array(name: str, described: Any, content: bytes, body: int) -> tuple[str, list[int], str, bytes] | None:
    kind, width = _TYPES[described["dtype"]]
    shape = [int(size) for size in described["shape"]]
    begin, end = (int(place) for place in described["data_offsets"])
    is_whole = 0 <= begin <= end <= len(content) - body and end - begin == width * math.prod(shape)
    return (name, shape, kind, content[body + begin : body + end]) if is_whole else None


def _sha256(arrays: Arrays) -> str:
    """Return the hash of parameters as `trainer.model.params` takes it: name, shape and type, then the bytes."""
    digest = hashlib.sha256()
    for name, shape, kind, elements in arrays:
        digest.update(json.dumps([name, shape, kind]).encode() + b"\n")
        digest.update(elements)
    return digest.hexdigest()


def _problem(facts: Facts, what: str, expected: str | None) -> Problem:
    return finding(facts.folder, "TP328", layout.TRAINED_PARAMS, what, expected=expected)


CHECKS = (
    chain_holds,
    chain_moves_on,
    chain_ends_as_stated,
    chain_goes_with_rows,
    chain_goes_with_parameters,
    kept_parameters_are_the_trained_ones,
)
