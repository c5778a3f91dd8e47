"""Tokens that their issuers mark by a prefix: one line each, with the prefix and what follows it.

Prefixes are those that the issuers document. Rule sets of secret scanners request context that a line of a log does not
have, so the shapes are stated here.
"""

from __future__ import annotations

import re

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
