"""Redaction: copies of run folders in which secrets and home folders are masked; the runs themselves stay as they are.

Files from which results and scores are computed are never masked: a bundle must not hold a number that no one can
compute again.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evidence.bundle.format.documents import FileHash
from evidence.bundle.format.layout import BUNDLE_MANIFEST, RUNS
from evidence.bundle.format.rules import refusal
from evidence.bundle.secrets.scan import encoding_of, spans_to_mask
from evidence.run import layout
from schemas.problems import Problem

MASK = "REDACTED"
"""What stands where something was masked. No pattern takes it for a secret."""
NEVER = frozenset({layout.METRICS, layout.PREDICTIONS, layout.BASELINE_PREDICTIONS, layout.EVAL_SUMMARY})
"""Files that are not masked, because what was measured is computed from them."""
MOST_BYTES = 256 << 20
"""Larger files are not masked; a secret in one of them is refused as ever."""


@dataclass(frozen=True, kw_only=True)
class Redaction:
    """One file of a bundle that is not the one the run wrote."""

    path: str
    """Path inside the bundle."""
    count: int
    """Places that were masked."""
    sha256: str
    """Hash of the file as the run has it."""

    def as_dict(self) -> dict[str, Any]:
        """Return it as bundle_manifest.json states it."""
        return {"path": self.path, "count": self.count, "sha256": self.sha256}


def redacted_copy(folder: Path, names: Sequence[str], copy: Path) -> Iterator[Redaction]:
    """Copy files of a run folder, masked where needed, and yield those that were changed.

    Args:
        folder: The run folder; its name is that of the run.
        names: Paths inside it.
        copy: The folder to make.
    """
    for name in names:
        source, target = folder / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        content = source.read_bytes() if _may_be_masked(source, name) else b""
        masked, count = masked_text(content)
        if not count:
            shutil.copyfile(source, target)
            continue
        target.write_bytes(masked)
        path = f"{RUNS}/{folder.resolve().name}/{name}"
        yield Redaction(path=path, count=count, sha256=hashlib.sha256(content).hexdigest())


def masked_text(content: bytes) -> tuple[bytes, int]:
    """Return a text with every secret and home folder masked, and how many places that were.

    `loading /home/ada/train.jsonl` becomes `loading /home/REDACTED/train.jsonl`, 1 place.
    """
    encoding = encoding_of(content[:2])
    if not encoding and b"\0" in content:
        return content, 0  # no text
    try:
        text = content.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass") if encoding else content
    except UnicodeDecodeError:
        return content, 0  # torn; the scanner finds what it holds, and refuses it
    pieces, end, count = [], 0, 0
    for start, stop in _merge_spans(spans_to_mask(text)):
        pieces += [text[end:start], MASK.encode()]
        end, count = stop, count + 1
    masked = b"".join([*pieces, text[end:]])
    return masked.decode("utf-8", "surrogatepass").encode(encoding, "surrogatepass") if encoding else masked, count


def stated_redactions(manifest: Mapping[str, Any]) -> tuple[Redaction, ...]:
    """Return the redactions that a valid bundle_manifest.json states."""
    return tuple(Redaction(**each) for each in manifest.get("redactions", []))


def redaction_problems(
    stated: Sequence[Redaction], found: Mapping[str, FileHash], masks: Mapping[str, int]
) -> Iterator[Problem]:
    """Yield redactions that cannot be: of no file of a run, of a file that is never masked, twice, or without masks.

    Args:
        stated: What bundle_manifest.json states.
        found: Every file of the archive.
        masks: How often `MASK` stands in each file that is reported to be redacted.
    """
    seen: set[str] = set()
    for each in stated:
        if each.path in seen:
            yield refusal("TP833", BUNDLE_MANIFEST, f"It names `{each.path}` twice among the redacted files.")
        elif not may_be_redacted(each.path) or each.path not in found:
            yield refusal("TP833", BUNDLE_MANIFEST, f"`{each.path}` is not a file that may be redacted.")
        elif masks.get(each.path, 0) < each.count:
            what = f"`{MASK}` occurs {masks.get(each.path, 0):,} times in the file."
            yield refusal("TP833", each.path, what, expected=f"{each.count:,} times at least")
        elif found[each.path].sha256 == each.sha256:
            yield refusal("TP833", each.path, "The file is said to be redacted, and is as the run wrote it.")
        seen.add(each.path)


def may_be_redacted(path: str) -> bool:
    """Return whether a bundle may hold this file masked, by its path inside the bundle."""
    parts = path.split("/", 2)
    return len(parts) == 3 and parts[0] == RUNS and parts[2] not in NEVER and not layout.in_weight_folder(parts[2])


def _may_be_masked(source: Path, name: str) -> bool:
    return name not in NEVER and not layout.in_weight_folder(name) and source.stat().st_size <= MOST_BYTES


def _merge_spans(spans: Iterator[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield spans in order, those that touch as one."""
    start = stop = -1
    for low, high in sorted(spans):
        if low > stop:
            if stop > 0:
                yield start, stop
            start, stop = low, high
        else:
            stop = max(stop, high)
    if stop > 0:
        yield start, stop
