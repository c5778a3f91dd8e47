"""What secrets and personal details look like: one `SecretPattern` each, with the text that gives it away.

Shapes are those that the issuers document or that their tools accept; where a value has no shape of its own (32 or 40
hexadecimal digits), the name beside it must be known.

Prefixes are those that the issuers document. Rule sets of secret scanners request context that a line of a log does not
have, so the shapes are stated here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

PREFIXED: tuple[tuple[str, str, str], ...] = (
    ("a Stripe key", "sk_live_", r"[A-Za-z0-9]{10,}"),
    ("a Stripe key", "rk_live_", r"[A-Za-z0-9]{10,}"),
    ("a Stripe key", "sk_test_", r"[A-Za-z0-9]{10,}"),
    ("a Stripe key", "rk_test_", r"[A-Za-z0-9]{10,}"),
    ("a secret of a Stripe webhook", "whsec_", r"[A-Za-z0-9+/=]{24,}"),
    ("an npm token", "npm_", r"[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    ("a Replicate token", "r8_", r"[A-Za-z0-9]{30,}"),
    ("a Groq key", "gsk_", r"[A-Za-z0-9]{40,}"),
    ("a Modal token", "ak-", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{22}(?![A-Za-z0-9-])"),
    ("a Modal token", "as-", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{22}(?![A-Za-z0-9-])"),
    ("a RunPod key", "rpa_", r"[A-Za-z0-9]{30,}"),
    ("an xAI key", "xai-", r"[A-Za-z0-9]{40,}"),
    ("a Perplexity key", "pplx-", r"[A-Za-z0-9]{40,}"),
    ("a LangSmith key", "lsv2_", r"(?:pt|sk)_[a-f0-9]{32}_[a-f0-9]{10}"),
    ("a Pinecone key", "pcsk_", r"[A-Za-z0-9_]{40,}"),
    ("a DigitalOcean token", "dop_v1_", r"[a-f0-9]{64}"),
    ("a Databricks token", "dapi", r"[a-f0-9]{32}(?:-\d)?(?![a-f0-9])"),
    ("a SendGrid key", "sg.", r"[\w-]{20,24}\.[\w-]{39,50}"),
    ("a Docker token", "dckr_pat_", r"[\w-]{20,}"),
    ("a Vault token", "hvs.", r"(?=[\w-]*[0-9])[\w-]{24,}"),
    ("a Linear key", "lin_api_", r"[A-Za-z0-9]{32,}"),
    ("a Notion token", "ntn_", r"[A-Za-z0-9]{40,}"),
    ("a Grafana token", "glsa_", r"[A-Za-z0-9]{32}_[a-fA-F0-9]{8}"),
    ("a Shopify token", "shpat_", r"[a-fA-F0-9]{32}"),
    ("a Postman key", "pmak-", r"[a-f0-9]{24}-[a-f0-9]{34}"),
    ("a Supabase token", "sbp_", r"[a-f0-9]{40}"),
    ("a RubyGems key", "rubygems_", r"[a-f0-9]{48}"),
    ("a Google client secret", "gocspx-", r"[\w-]{24,}"),
    ("a Google storage key", "goog1e", r"[A-Za-z0-9]{55}(?![A-Za-z0-9])"),
    ("a Mailgun key", "key-", r"[a-f0-9]{32}(?![a-f0-9])"),
    ("a Fireworks key", "fw_", r"(?=[A-Za-z]*[0-9])[A-Za-z0-9]{22,24}(?![A-Za-z0-9_])"),
    ("a temporary AWS key id", "asia", r"[A-Z0-9]{16}(?![A-Za-z0-9])"),
)
"""What it is, the prefix in small letters, and the rest."""

SHAPED: tuple[tuple[str, str, str], ...] = (
    ("a key of an Azure storage account", "accountkey=", r"[A-Za-z0-9+/]{86}=="),
    ("a signature of an Azure address", "sig=", r"[A-Za-z0-9%]{43,}%3[dD]"),
    ("a Discord webhook", "discord.com/api/webhooks/", r"\d{17,20}/[\w-]{60,}"),
    ("a Discord webhook", "discordapp.com/api/webhooks/", r"\d{17,20}/[\w-]{60,}"),
)
"""The same for what begins with a name or a place: the whole match is hidden."""


def prefix_pattern(prefix: str) -> str:
    """Return the expression of a prefix: of small letters as they are, where the issuer uses others, those."""
    return {"sg.": r"SG\.", "pmak-": "PMAK-", "asia": "ASIA", "gocspx-": "GOCSPX-", "goog1e": "GOOG1E"}.get(
        prefix, re.escape(prefix)
    )


@dataclass(frozen=True, kw_only=True)
class SecretPattern:
    """One kind of secret or personal detail."""

    kind: str
    """What it is, as a noun phrase."""
    anchors: tuple[bytes, ...]
    """Lower-case texts with one of which every match starts; they are searched first."""
    expression: re.Pattern[bytes]
    """The exact shape, tried where an anchor stands, with the secret itself as group `secret` or `alone`."""
    code: str
    """Code of the rule."""
    harmless: re.Pattern[bytes] | None = None
    """What makes a match harmless if it stands in the match or in the 80 bytes before it."""

    def match(self, block: bytes, at: int) -> re.Match[bytes] | None:
        """Return the match at an anchor, or None if nothing matches or its surroundings show that it is harmless."""
        match = self.expression.match(block, at)
        if match and self.harmless and self.harmless.search(block, max(0, at - 80), match.end()):
            return None
        return match


_BETWEEN = rb"[\"'\]\s:=,\\]{1,12}"  # what stands between a name and its value in code, JSON, YAML and shells
# Not in the middle of a word; in JSON, the n of an escaped newline is no letter.
_START = rb"(?:(?<![A-Za-z0-9])|(?<=\\[nrt]))"
_DIGIT_AHEAD = rb"(?=[A-Za-z_-]*[0-9])"  # words joined by hyphens have none
_NO_MASK = rb"(?!REDACTED)"  # what `evidence.bundle.secrets.redact` leaves behind
_NO_PLACEHOLDER = rb"(?!\*|\$|<|\{|x{6}|None|null|true|false|os\.|getpass|REDACTED)"

# Between two words of a file that stands in another one: in a notebook each line is a string, in YAML a comment.
_GAP = rb"(?:\s|\\[nrt]|[\",#]){1,40}"

HOME = "a home folder"
PRIVATE_KEY = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-{0,5}"
    rb"(?:[A-Za-z0-9+/=\s:,.]|-(?!-)|\\{1,8}[nr])*"
    rb"(?:-----END (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----)?"
)
"""The whole of a private key, in a file of lines or in a JSON string; without an end, as far as it may reach."""


def _secret(kind: str, anchors: tuple[bytes, ...], expression: bytes) -> SecretPattern:
    return SecretPattern(kind=kind, anchors=anchors, expression=re.compile(expression), code="TP846")


def _detail(kind: str, anchors: tuple[bytes, ...], expression: bytes, harmless: bytes | None = None) -> SecretPattern:
    return SecretPattern(
        kind=kind,
        anchors=anchors,
        expression=re.compile(expression),
        code="TP847",
        harmless=re.compile(harmless) if harmless else None,
    )


PATTERNS = (
    _secret(
        "a Hugging Face token",
        (b"hf_",),
        _START + rb"(?P<secret>hf_(?!(?P<one>[A-Za-z0-9])(?P=one){29})[A-Za-z0-9]{30,40})(?![A-Za-z0-9_])",
    ),
    _secret("a Kaggle token", (b"kgat_",), rb"(?P<secret>KGAT_[A-Za-z0-9]{20,})"),
    _secret("a Kaggle key", (b'"key',), rb"\"key\\{0,8}\"\s*:\s*\\{0,8}\"(?P<secret>[0-9a-f]{32})\\{0,8}\""),
    _secret(
        "a Kaggle key", (b"kaggle_key",), rb"(?i:kaggle_key)" + _BETWEEN + rb"(?P<secret>[0-9a-f]{32})(?![0-9a-f])"
    ),
    _secret(
        "a Weights & Biases key",
        (b"wandb",),
        rb"(?i:wandb)(?:[\w. \"'\](:=,\\-]{1,60}?(?<![0-9a-f])(?<!commit.)(?P<secret>[0-9a-f]{40})(?![0-9a-f])"
        rb"|(?P<alone>_v1_[A-Za-z0-9_]{20,}))",
    ),
    _secret("an OpenAI or Anthropic key", (b"sk-",), _START + rb"(?P<secret>sk-" + _DIGIT_AHEAD + rb"[\w-]{20,})"),
    _secret(
        "a GitHub token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_"),
        _START + rb"(?P<secret>gh[pousr]_[A-Za-z0-9]{36,})",
    ),
    _secret("a GitHub token", (b"github_pat_",), rb"(?P<secret>github_pat_[A-Za-z0-9_]{22,})"),
    _secret("a GitLab token", (b"glpat-",), rb"(?P<secret>glpat-[\w-]{20,})"),
    _secret(
        "an AWS key id",
        (b"akia",),
        # Its issuer prints ids that end in EXAMPLE in every manual.
        _START + rb"(?P<secret>AKIA(?![A-Z0-9]{9}EXAMPLE(?![A-Za-z0-9]))[A-Z0-9]{16})(?![A-Za-z0-9])",
    ),
    *(
        _secret(kind, (prefix.encode(),), _START + f"(?P<secret>{prefix_pattern(prefix)}{rest})".encode())
        for kind, prefix, rest in PREFIXED
    ),
    *(
        _secret(kind, (name.encode(),), f"(?i:{re.escape(name)})(?P<secret>{rest})".encode())
        for kind, name, rest in SHAPED
    ),
    _secret("a Telegram bot token", (b":aa",), rb"(?<=[0-9]{8})(?P<secret>:AA[\w-]{33})(?![\w-])"),
    _secret(
        "a Discord bot token",
        (b"discord",),
        # The bot's id in base 64, which begins with M, N or O, then a time and a signature.
        rb"(?i:discord)[\w. \"'\](:=,\\-]{1,40}?"
        rb"(?<![A-Za-z0-9])(?P<secret>[MNO][A-Za-z\d]{23,25}\.[\w-]{6}\.[\w-]{27,38})",
    ),
    _secret("a Google API key", (b"aiza",), rb"(?P<secret>AIza[\w-]{35})"),
    _secret("a Google access token", (b"ya29.",), rb"(?P<secret>ya29\.[\w-]{20,})"),
    _secret("a Slack token", (b"xox",), rb"(?P<secret>xox[abeoprs]-[A-Za-z0-9-]{10,})"),
    _secret("a Slack webhook", (b"://",), rb"://(?P<secret>hooks\.slack\.com/services/[A-Za-z0-9/]{20,})"),
    _secret("a private key", (b"-----begin",), rb"(?P<secret>-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY)"),
    _secret(
        "an ngrok token",
        (b"authtoken",),
        rb"(?i:authtoken)\\{0,8}[\"']?\]?[ :=]+\\{0,8}[\"']?"
        rb"(?P<secret>[A-Za-z0-9]{20,30}_[A-Za-z0-9]{20,24})(?![A-Za-z0-9])",
    ),
    _secret("a package index token", (b"pypi-",), rb"(?P<secret>pypi-[\w-]{50,})"),
    _secret(
        "a password of a netrc file",
        (b"machine ",),
        rb"machine[ \t]+\S+"
        + _GAP
        + rb"login[ \t]+[^\s\"\\]+"
        + _GAP
        + rb"(?:account[ \t]+[^\s\"\\]+"
        + _GAP
        + rb")?password[ \t]+"
        + _NO_PLACEHOLDER
        + rb"(?P<secret>[^\s\"\\]{6,})",
    ),
    _secret(
        "a password in an address",
        (b"://",),
        rb"://(?!(?i:user(?:name)?:pass(?:word)?|login:password)@)(?:[^\s/@:\"'<>]*:"
        + _NO_PLACEHOLDER
        + rb"(?P<secret>[^\s/@\"'<>]{3,})|(?P<alone>[\w-]{20,}))@",
    ),
    _secret("an access token", (b"bearer ",), rb"(?i:bearer) +(?P<secret>(?=[\w.~+/=-]*[0-9])[\w.~+/=-]{20,})"),
    _secret(
        "a password of a request",
        (b"authorization",),
        rb"(?i:authorization)\\{0,8}[\"']?: *\\{0,8}[\"']?(?i:basic) +" + _NO_MASK + rb"(?P<secret>[\w+/=-]{8,})",
    ),
    _secret("a JSON web token", (b"eyj",), rb"(?P<secret>eyJ[\w-]{8,}\.eyJ[\w-]{8,}\.[\w-]{8,})"),
    _secret(
        "a key",
        (b"api", b"secret", b"_token"),
        rb"(?i:api[_-]?key|secret(?:_?access)?(?:_?key)?|_token)\\{0,8}[\"']?\]? *[:=] *\\{0,8}[\"']?"
        + _NO_PLACEHOLDER
        # The manuals of AWS print a secret that ends in EXAMPLEKEY.
        + rb"(?P<secret>(?![\w+/]*EXAMPLEKEY)(?=[\w+/=.-]*[0-9])[\w+/=.-]{16,})",
    ),
    _secret(
        "a password",
        (b"passw",),
        rb"(?i:password|passwd)\\{0,8}[\"']?\]? *[:=] *\\{0,8}[\"']?"
        + _NO_PLACEHOLDER
        + rb"(?P<secret>[^\s\"',;\\)]{6,})",
    ),
    _detail(HOME, (b"/home/",), _START + rb"(?<!\.)/home/" + _NO_MASK + rb"(?P<secret>[\w.-]+)"),
    _detail(HOME, (b"/users/",), _START + rb"(?<!\.)/Users/" + _NO_MASK + rb"(?P<secret>[\w.-]+)"),
    _detail(HOME, (b"users\\",), rb"(?:(?<=:\\)|(?<=:\\\\))(?i:users)\\{1,2}" + _NO_MASK + rb"(?P<secret>[\w.-]+)"),
    _detail(
        "an e-mail address",
        (b"@",),
        rb"(?<=[A-Za-z0-9_%+-])(?P<secret>@(?:[A-Za-z0-9-]{2,63}\.)+[A-Za-z]{2,24})(?![\w/])",
        harmless=rb"(?<!\w)(?:git|no-?reply)@|@(?:[\w-]+\.)*example\.|noreply\.|://\S*@",
    ),
    _detail(
        "a private network address",
        (b"192.168.", b"172.", b"10."),
        _START + rb"(?<!\.)(?P<secret>(?:10\.\d{1,3}|192\.168|172\.(?:1[6-9]|2\d|3[01]))\.\d{1,3}\.\d{1,3})(?![\w.])",
        harmless=rb"(?i:nvidia|[-_]cu1\d|==|version)",
    ),
)

BY_ANCHOR = {
    anchor: tuple(pattern for pattern in PATTERNS if anchor in pattern.anchors)
    for anchor in sorted({anchor for pattern in PATTERNS for anchor in pattern.anchors})
}
"""The patterns that start with each anchor, so that every anchor is searched once."""
