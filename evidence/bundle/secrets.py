"""Find secrets and personal details in files, and mask them in copies and on pages.

Hashes, commits and ids are not secrets: a pattern needs a known prefix, or a known name before the value. A substring
search for the anchor of each pattern finds the few places where the expression is tried, which makes the scan fast.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tomllib
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO

from evidence import layout
from evidence.bundle.contents import RUNS, bundle_problem
from schemas.problems import Problem

SECRET, DETAIL = "TP846", "TP847"

MASK = "REDACTED"  # replaces what is masked in a bundle; no pattern matches it
HIDDEN = "[hidden]"  # replaces what is masked on a page
NEVER_REDACTED = frozenset({layout.METRICS, layout.PREDICTIONS, layout.BASELINE_PREDICTIONS, layout.EVAL_SUMMARY})
"""Files that results and scores are computed from."""
MAX_REDACTED_BYTES = 256 << 20  # larger files are not redacted; their secrets prevent packing
BLOCK_BYTES = 4 << 20
OVERLAP_BYTES = 8 << 10  # no pattern is longer
MAX_PER_FILE = 20  # findings of one code that are listed

HOME = "a home folder"
_PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-{0,5}"
    rb"(?:[A-Za-z0-9+/=\s:,.]|-(?!-)|\\{1,8}[nr])*"
    rb"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?"
)
"""A whole private key, in lines or in a JSON string; without its end, as far as it may reach."""
_LOOSE = re.compile(
    r"(hf_[A-Za-z0-9]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,}|sk-[A-Za-z0-9_-]{20,}|AKIA[0-9A-Z]{16}"
    r"|eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,})"
    r"|((?:api[_-]?key|token|password|secret)[\"']?\s*[=:]\s*[\"']?)([^\s\"',;]{8,})",
    re.IGNORECASE,
)
"""Also hidden on pages, where a false alarm costs nothing."""


@dataclass(frozen=True, kw_only=True)
class SecretPattern:
    """One kind of secret or personal detail, with its problem code.

    In lower case, every match of `expression` starts with `anchor`. `harmless` is searched in each match and the 80
    bytes before.
    """

    code: str
    kind: str
    anchor: bytes
    expression: re.Pattern[bytes]
    harmless: re.Pattern[bytes] | None


def _load_patterns() -> Iterator[SecretPattern]:
    tables = tomllib.loads(files("evidence.bundle").joinpath("secrets.toml").read_text(encoding="utf-8"))
    fragments = tables.pop("fragments") | {"MASK": MASK}
    # The form of an expression in each table, from its prefixes and its last column.
    forms = {
        "prefixed": "%START%(?P<secret>{0}{1})",
        "anywhere": "(?P<secret>{0}{1})",
        "named": "(?i:{0})(?P<secret>{1})",
    }
    for table, rows in tables.items():
        for kind, anchors, rest, *harmless in rows:
            prefixes = f"(?:{'|'.join(map(re.escape, anchors.split()))})"
            expression = forms.get(table, "{1}").format(prefixes, rest)
            while fragment := re.search("%([A-Z_]+)%", expression):
                expression = expression.replace(fragment[0], fragments[fragment[1]])
            for anchor in anchors.lower().encode().split():
                yield SecretPattern(
                    code=DETAIL if table == "details" else SECRET,
                    kind=kind,
                    anchor=anchor,
                    expression=re.compile(expression.encode()),
                    harmless=re.compile(harmless[0].encode()) if harmless else None,
                )


ALL = list(_load_patterns())
SECRETS = [pattern for pattern in ALL if pattern.code == SECRET]
REDACTED = [pattern for pattern in ALL if pattern.code == SECRET or pattern.kind == HOME]  # what `--redact` masks


def find_spans(text: bytes, patterns: Sequence[SecretPattern] = ALL) -> Iterator[tuple[SecretPattern, int, int]]:
    """Yield the secrets and personal details of a UTF-8 text with their start and end; they may overlap."""
    lower = text.lower()
    for pattern in patterns:
        at = lower.find(pattern.anchor)
        while at >= 0:
            match = pattern.expression.match(text, at)
            if match and not (pattern.harmless and pattern.harmless.search(text, max(0, at - 80), match.end())):
                yield pattern, *match.span("secret")
            at = lower.find(pattern.anchor, at + 1)


def mask_spans(text: bytes, patterns: Sequence[SecretPattern], mask: str) -> tuple[bytes, int]:
    """Replace what the patterns find by a mask, and count the places; private keys are replaced whole."""
    pieces: list[bytes] = []
    end = count = 0
    for start, stop in sorted(span[1:] for span in find_spans(text, patterns)):
        if start > end or not pieces:
            pieces += [text[end:start], mask.encode()]
            count += 1
        key = _PRIVATE_KEY.match(text, start)
        end = max(end, key.end() if key else stop)
    return b"".join([*pieces, text[end:]]), count


def find_secrets(file: BinaryIO) -> Iterator[tuple[SecretPattern, int, str]]:
    """Yield what a file holds: pattern, line and excerpt; equal findings on one line are reported once."""
    seen: set[tuple[str, int, str]] = set()
    for block, first_line in _read_blocks(file):
        for pattern, start, stop in find_spans(block):
            line, text = first_line + block.count(b"\n", 0, start), block[start:stop].decode("utf-8", "replace")
            shown = f"{text[: min(4, len(text) // 4)]}… ({len(text)} characters)"
            if (pattern.code, line, shown) not in seen:
                seen.add((pattern.code, line, shown))
                yield pattern, line, shown


def scan_file(path: Path, name: str) -> list[Problem]:
    """Return a problem for each secret and personal detail in a text of any encoding."""
    found: dict[str, list[Problem]] = {SECRET: [], DETAIL: []}
    with path.open("rb") as file:
        for pattern, line, shown in find_secrets(file):
            what = f"Line {line:,} holds {pattern.kind}: {shown}."
            found[pattern.code].append(bundle_problem(pattern.code, name, what, line=line))
    for code, problems in found.items():
        if hidden := len(problems[MAX_PER_FILE:]):
            what = f"{hidden:,} more findings of this kind are not listed."
            problems[MAX_PER_FILE:] = [bundle_problem(code, name, what)]
    return [*found[SECRET], *found[DETAIL]]


def utf16_encoding(head: bytes) -> str | None:
    """Return the UTF-16 encoding that a byte order mark states, or None."""
    return {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}.get(head[:2])


def _read_blocks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield overlapping blocks of a file as UTF-8, each with the line number of its first byte."""
    encoding = utf16_encoding(file.read(2))
    file.seek(0)
    kept, line = b"", 1
    while raw := file.read(BLOCK_BYTES):
        block = kept + (raw.decode(encoding, "replace").encode("utf-8") if encoding else raw)
        yield block, line
        kept = block[-OVERLAP_BYTES:]
        line += block.count(b"\n") - kept.count(b"\n")


def strip_invisible(text: str) -> str:
    """Remove characters that hide or reorder the text around them (control, format and surrogate characters)."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(char for char in text if char in "\n\t" or unicodedata.category(char) not in {"Cc", "Cf", "Cs"})


def hide_secrets(text: str) -> str:
    """Replace what looks like a key or password for display: `token=abcdefgh` becomes `token=[hidden]`."""
    masked, _ = mask_spans(text.encode("utf-8", "surrogatepass"), SECRETS, HIDDEN)
    return _LOOSE.sub(lambda match: f"{match[2] or ''}{HIDDEN}", masked.decode("utf-8", "surrogatepass"))


@dataclass(frozen=True, kw_only=True)
class Redaction:
    """A masked file of a bundle: its path there, the number of masked places, and the hash of the original file."""

    path: str
    count: int
    sha256: str


def redact_text(content: bytes) -> tuple[bytes, int]:
    """Mask every secret and home folder in a text, and count the places.

    Example:
        `loading /home/ada/train.jsonl` becomes `loading /home/REDACTED/train.jsonl`, 1 place.
    """
    encoding = utf16_encoding(content)
    if not encoding:
        return (content, 0) if b"\0" in content else mask_spans(content, REDACTED, MASK)
    try:
        text = content.decode(encoding, "surrogatepass").encode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return content, 0  # torn; the scan finds what it holds
    masked, count = mask_spans(text, REDACTED, MASK)
    return masked.decode("utf-8", "surrogatepass").encode(encoding, "surrogatepass"), count


def redacted_copy(folder: Path, names: Sequence[str], copy: Path) -> Iterator[Redaction]:
    """Copy files of a run folder to a new folder, masked where needed, and yield the masked ones."""
    copy.mkdir()
    for name in names:
        source, target = folder / name, copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        content, count = b"", 0
        if is_redactable(name) and source.stat().st_size <= MAX_REDACTED_BYTES:
            content = source.read_bytes()
            masked, count = redact_text(content)
        if not count:
            shutil.copyfile(source, target)
            continue
        target.write_bytes(masked)
        path = f"{RUNS}/{folder.resolve().name}/{name}"
        yield Redaction(path=path, count=count, sha256=hashlib.sha256(content).hexdigest())


def is_redactable(name: str) -> bool:
    """Return whether a file, by its path inside the run folder, may be masked in a bundle."""
    return name not in NEVER_REDACTED and not layout.is_weight_file(name)
