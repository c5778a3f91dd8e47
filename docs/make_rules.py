"""Writes docs/rules.md from schemas/rules.toml: `python docs/make_rules.py`. A test holds it current."""

from __future__ import annotations

from pathlib import Path

from schemas.problems import Rule, all_rules

PAGE = Path(__file__).parent / "rules.md"

FAMILIES = {
    "0": "Usage and configuration",
    "1": "Shape: a document or row is not what its schema says",
    "2": "Integrity: a file is not the one that was recorded",
    "3": "Contradiction: two places state different things about the same fact",
    "4": "Plausibility: a value that can hardly be true",
    "5": "Completeness: something is missing",
    "6": "Hygiene: something is left over",
    "7": "Devices, memory, training",
    "8": "Bundles",
    "9": "Learning from rewards",
}


def page() -> str:
    """Return the text of docs/rules.md."""
    lines = [
        "# Rules",
        "",
        "Every problem that trainproof reports has a code. An *error* makes a check fail; a *warning* or a *note*",
        "does not.",
        "This page is generated from `schemas/rules.toml` by `docs/make_rules.py`.",
    ]
    for family, title in FAMILIES.items():
        lines += [
            "",
            f"## TP{family}xx: {title}",
            "",
            "| code | severity | title | meaning | what to do |",
            "|---|---|---|---|---|",
        ]
        lines += [row(rule) for rule in all_rules().values() if rule.code[2] == family]
    return "\n".join(lines) + "\n"


def row(rule: Rule) -> str:
    """Return one rule as a line of the table."""
    cells = (rule.code, rule.severity, rule.title, rule.why, rule.fix)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
