"""Find secrets and personal details in files, and mask them in copies and on pages.

Hashes, commits and ids are not secrets: a pattern needs a known prefix, or a known name before the value. A substring
search for the anchor of each pattern finds the few places where the expression is tried, which makes the scan fast.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from evidence import layout
from evidence.bundle.contents import RUNS, bundle_problem
from schemas.problems import Problem

SECRET, DETAIL = "TP846", "TP847"

MASK = "REDACTED"
"""Replaces what is masked in a bundle. No pattern matches it."""
HIDDEN = "[hidden]"
"""Replaces what is masked on a page."""
NEVER_REDACTED = frozenset({layout.METRICS, layout.PREDICTIONS, layout.BASELINE_PREDICTIONS, layout.EVAL_SUMMARY})
"""Files that results and scores are computed from."""
MAX_REDACTED_BYTES = 256 << 20
"""Larger files are not redacted; their secrets prevent packing."""
BLOCK_BYTES = 4 << 20
OVERLAP_BYTES = 8 << 10
"""How far blocks overlap; no pattern is longer."""
MAX_PER_FILE = 20
"""Findings of one code that are listed for one file."""

PREFIXED = (
    ("a Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[A-Za-z0-9]{10,}"),
    ("a Stripe webhook secret", "whsec_", r"[A-Za-z0-9+/=]{24,}"),
    ("an npm token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    ("a Replicate token", "r8_", r"[A-Za-z0-9]{30,}"),
    ("a Groq key", "gsk_", r"[A-Za-z0-9]{40,}"),
    ("a Modal token", "ak- as-", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{22}(?![A-Za-z0-9-])"),
    ("a RunPod key", "rpa_", r"[A-Za-z0-9]{30,}"),
    ("an xAI key", "xai-", r"[A-Za-z0-9]{40,}"),
    ("a Perplexity key", "pplx-", r"[A-Za-z0-9]{40,}"),
    ("a LangSmith key", "lsv2_", r"(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}"),
    ("a Pinecone key", "pcsk_", r"[A-Za-z0-9_]{40,}"),
    ("a DigitalOcean token", "dop_v1_", r"[a-f0-9]{64}"),
    ("a Databricks token", "dapi", r"[a-f0-9]{32}(?:-\d)?(?![a-f0-9])"),
    ("a SendGrid key", "SG.", r"[\w-]{20,24}\.[\w-]{39,50}"),
    ("a Docker token", "dckr_pat_", r"[\w-]{20,}"),
    ("a Vault token", "hvs.", r"(?=[\w-]*[0-9])[\w-]{24,}"),
    ("a Linear key", "lin_api_", r"[A-Za-z0-9]{32,}"),
    ("a Notion token", "ntn_", r"[A-Za-z0-9]{40,}"),
    ("a Grafana token", "glsa_", r"[A-Za-z0-9]{32}_[a-fA-F0-9]{8}"),
    ("a Shopify token", "shpat_", r"[a-fA-F0-9]{32}"),
    ("a Postman key", "PMAK-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
    ("a Supabase token", "sbp_", r"[a-f0-9]{40}"),
    ("a RubyGems key", "rubygems_", r"[a-f0-9]{48}"),
    ("a Google client secret", "GOCSPX-", r"[\w-]{24,}"),
    ("a Google storage key", "GOOG1E", r"[A-Za-z0-9]{55}(?![A-Za-z0-9])"),
    ("a Mailgun key", "key-", r"[a-f0-9]{32}(?![a-f0-9])"),
    ("a Fireworks key", "fw_", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{22,24}(?![A-Za-z0-9_])"),
    ("a temporary AWS key id", "ASIA", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
    # The AWS manuals print ids that end in EXAMPLE.
    ("an AWS key id", "AKIA", r"(?![A-Z0-9]{9}EXAMPLE(?![A-Za-z0-9]))[A-Z0-9]{16}(?![A-Za-z0-9])"),
    ("a Hugging Face token", "hf_", r"(?!(?P<one>[A-Za-z0-9])(?P=one){29})[A-Za-z0-9]{30,40}(?![A-Za-z0-9_])"),
    ("an OpenAI or Anthropic key", "sk-", r"(?=[A-Za-z_-]*[0-9])[\w-]{20,}"),
    ("a GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"[A-Za-z0-9]{36,}"),
)
"""Kind, prefixes, and the rest of a secret that starts a word."""

ANYWHERE = (
    ("a GitHub token", "github_pat_", r"[A-Za-z0-9_]{22,}"),
    ("a GitLab token", "glpat-", r"[\w-]{20,}"),
    ("a Kaggle token", "KGAT_", r"[A-Za-z0-9]{20,}"),
    ("a Google API key", "AIza", r"[\w-]{35}"),
    ("a Google access token", "ya29.", r"[\w-]{20,}"),
    ("a Slack token", "xox", r"[abeoprs]-[A-Za-z0-9-]{10,}"),
    ("a package index token", "pypi-", r"[\w-]{50,}"),
    ("a JSON web token", "eyJ", r"[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,}"),
)
"""The same for prefixes that are looked for inside words too."""

NAMED = (
    ("an Azure storage account key", "accountkey=", r"[A-Za-z0-9+/]{86}=="),
    ("a signature of an Azure address", "sig=", r"[A-Za-z0-9%]{43,}%3[dD]"),
    ("a Discord webhook", "discord.com/api/webhooks/ discordapp.com/api/webhooks/", r"\d{17,20}/[\w-]{60,}"),
)
"""Kind, the text before a secret in lower case, and the secret."""

_BETWEEN = r"[\"'\]\s:=,\\]{1,12}"  # between a name and its value in code, JSON, YAML and shells
_ASSIGN = r"\\{0,8}[\"']?\]? *[:=] *\\{0,8}[\"']?"
_START = r"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"  # the start of a word; in JSON, the n of an escaped newline is no letter
_NO_MASK = rf"(?!{MASK})"
_NO_PLACEHOLDER = rf"(?!\*|\$|<|\{{|x{{6}}|None|null|true|false|os\.|getpass|{MASK})"
# Between the words of a netrc file that stands in a notebook, where each line is a string, or in a comment.
_GAP = r"(?:\s|\\[nrt]|[\",#]){1,40}"

HOME = "a home folder"
_NETRC = r"machine[ \t]+\S+GAPlogin[ \t]+[^\s\"\\]+GAP(?:account[ \t]+[^\s\"\\]+GAP)?password[ \t]+".replace(
    "GAP", _GAP
)
_NGROK = r"(?i:authtoken)\\{0,8}[\"']?\]?[ :=]+\\{0,8}[\"']?"
_DISCORD = r"(?i:discord)[\w. \"'\](:=,\\-]{1,40}?"
_NAMED_KEY = rf"(?i:api[_-]?key|secret(?:_?access)?(?:_?key)?|_token){_ASSIGN}{_NO_PLACEHOLDER}"
_SAMPLE_LOGIN = r"(?!(?i:user(?:name)?:pass(?:word)?|login:password)@)"
CONTEXTUAL = (
    ("a Kaggle key", '"key', r"\"key\\{0,8}\"\s*:\s*\\{0,8}\"(?P<secret>[0-9a-f]{32})\\{0,8}\""),
    ("a Kaggle key", "kaggle_key", rf"(?i:kaggle_key){_BETWEEN}(?P<secret>[0-9a-f]{{32}})(?![0-9a-f])"),
    ("a Weights & Biases key", "wandb", r"(?i:wandb)(?P<secret>_v1_[A-Za-z0-9_]{20,})"),
    (
        "a Weights & Biases key",
        "wandb",
        r"(?i:wandb)[\w. \"'\](:=,\\-]{1,60}?(?<![0-9a-f])(?<!commit.)(?P<secret>[0-9a-f]{40})(?![0-9a-f])",
    ),
    ("a Telegram bot token", ":aa", r"(?<=[0-9]{8})(?P<secret>:AA[\w-]{33})(?![\w-])"),
    (  # the bot's id in base64, which starts with M, N or O, then a time and a signature
        "a Discord bot token",
        "discord",
        rf"{_DISCORD}(?<![A-Za-z0-9])(?P<secret>[MNO][A-Za-z\d]{{23,25}}\.[\w-]{{6}}\.[\w-]{{27,38}})",
    ),
    ("a Slack webhook", "://", r"://(?P<secret>hooks\.slack\.com/services/[A-Za-z0-9/]{20,})"),
    ("a private key", "-----begin", r"(?P<secret>-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY)"),
    (
        "an ngrok token",
        "authtoken",
        rf"{_NGROK}(?P<secret>[A-Za-z0-9]{{20,30}}_[A-Za-z0-9]{{20,24}})(?![A-Za-z0-9])",
    ),
    ("a password of a netrc file", "machine", rf"{_NETRC}{_NO_PLACEHOLDER}(?P<secret>[^\s\"\\]{{6,}})"),
    (
        "a password in an address",
        "://",
        rf"://{_SAMPLE_LOGIN}[^\s/@:\"'<>]*:{_NO_PLACEHOLDER}(?P<secret>[^\s/@\"'<>]{{3,}})@",
    ),
    ("a password in an address", "://", rf"://{_SAMPLE_LOGIN}(?P<secret>[\w-]{{20,}})@"),
    ("an access token", "bearer", r"(?i:bearer) +(?P<secret>(?=[\w.~+/=-]*[0-9])[\w.~+/=-]{20,})"),
    (
        "a password of a request",
        "authorization",
        rf"(?i:authorization)\\{{0,8}}[\"']?: *\\{{0,8}}[\"']?(?i:basic) +{_NO_MASK}(?P<secret>[\w+/=-]{{8,}})",
    ),
    (  # the AWS manuals print a secret that ends in EXAMPLEKEY
        "a key",
        "api secret _token",
        rf"{_NAMED_KEY}(?P<secret>(?![\w+/]*EXAMPLEKEY)(?=[\w+/=.-]*[0-9])[\w+/=.-]{{16,}})",
    ),
    ("a password", "passw", rf"(?i:password|passwd){_ASSIGN}{_NO_PLACEHOLDER}(?P<secret>[^\s\"',;\\)]{{6,}})"),
)
"""Kind, the lower-case texts with which a match starts, and the whole expression."""

_MAIL = r"(?<=[A-Za-z0-9_%+-])(?P<secret>@(?:[A-Za-z0-9-]{2,63}\.)+[A-Za-z]{2,24})(?![\w/])"
_NO_MAIL = r"(?<!\w)(?:git|no-?reply)@|@(?:[\w-]+\.)*example\.|noreply\.|://\S*@"
_PRIVATE_IP = r"(?<!\.)(?P<secret>(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3})(?![\w.])"
_NO_IP = r"(?i:nvidia|[-_]cu1\d|==|version)"
DETAILS = (
    (HOME, "/home/ /users/", rf"{_START}(?<!\.)/(?:home|Users)/{_NO_MASK}(?P<secret>[\w.-]+)", None),
    (HOME, "users\\", rf"(?:(?<=:\\)|(?<=:\\\\))(?i:users)\\{{1,2}}{_NO_MASK}(?P<secret>[\w.-]+)", None),
    ("an e-mail address", "@", _MAIL, _NO_MAIL),
    ("a private network address", "192.168. 172. 10.", f"{_START}{_PRIVATE_IP}", _NO_IP),
)
"""The same for personal details; the last expression, in or 80 bytes before a match, makes it harmless."""

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

    `harmless` is searched in each match of `expression` and the 80 bytes before.
    """

    code: str
    kind: str
    expression: re.Pattern[bytes]
    harmless: re.Pattern[bytes] | None = None


Patterns = dict[bytes, list[SecretPattern]]
"""Patterns by the lower-case text with which every match starts."""


def _any(names: str) -> str:
    return f"(?:{'|'.join(map(re.escape, names.split()))})"


def _patterns_by_anchor() -> Patterns:
    rows: list[tuple[str, str, str, str, str | None]] = [
        *((SECRET, kind, names, f"{_START}(?P<secret>{_any(names)}{rest})", None) for kind, names, rest in PREFIXED),
        *((SECRET, kind, names, f"(?P<secret>{_any(names)}{rest})", None) for kind, names, rest in ANYWHERE),
        *((SECRET, kind, names, f"(?i:{_any(names)})(?P<secret>{rest})", None) for kind, names, rest in NAMED),
        *((SECRET, *row, None) for row in CONTEXTUAL),
        *((DETAIL, *row) for row in DETAILS),
    ]
    patterns: Patterns = {}
    for code, kind, anchors, expression, harmless in rows:
        unless = re.compile(harmless.encode()) if harmless else None
        pattern = SecretPattern(code=code, kind=kind, expression=re.compile(expression.encode()), harmless=unless)
        for anchor in anchors.lower().encode().split():
            patterns.setdefault(anchor, []).append(pattern)
    return patterns


def _select(is_wanted: Callable[[SecretPattern], bool]) -> Patterns:
    wanted = {anchor: [each for each in patterns if is_wanted(each)] for anchor, patterns in ALL.items()}
    return {anchor: patterns for anchor, patterns in wanted.items() if patterns}


ALL = _patterns_by_anchor()
SECRETS = _select(lambda pattern: pattern.code == SECRET)
REDACTED = _select(lambda pattern: pattern.code == SECRET or pattern.kind == HOME)
"""What `--redact` masks."""


def find_spans(text: bytes, patterns: Patterns = ALL) -> Iterator[tuple[SecretPattern, int, int]]:
    """Yield the secrets and personal details of a UTF-8 text with their start and end; they may overlap."""
    lower = text.lower()
    for anchor, candidates in patterns.items():
        at = lower.find(anchor)
        while at >= 0:
            for pattern in candidates:
                match = pattern.expression.match(text, at)
                if match and not (pattern.harmless and pattern.harmless.search(text, max(0, at - 80), match.end())):
                    yield pattern, *match.span("secret")
            at = lower.find(anchor, at + 1)


def mask_spans(text: bytes, patterns: Patterns, mask: str) -> tuple[bytes, int]:
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
            line, shown = first_line + block.count(b"\n", 0, start), excerpt(block[start:stop])
            if (pattern.code, line, shown) not in seen:
                seen.add((pattern.code, line, shown))
                yield pattern, line, shown


def scan_file(path: Path, name: str) -> list[Problem]:
    """Return a problem for each secret and personal detail in a text of any encoding.

    Raises:
        OSError: The file cannot be read.
    """
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


def excerpt(secret: bytes) -> str:
    """Return the first characters of a secret and its length: `hf_a… (37 characters)`."""
    text = secret.decode("utf-8", "replace")
    return f"{text[: min(4, len(text) // 4)]}… ({len(text)} characters)"


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
