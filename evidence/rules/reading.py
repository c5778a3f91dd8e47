"""TP206 and TP209: what keeps a folder from being read at all. `evidence.read` finds these; the table names them."""

from __future__ import annotations

from schemas.rules import Rule

NOT_A_FILE = Rule(
    code="TP206",
    severity="error",
    title="Not a regular file",
    meaning="Evidence is read from regular files inside the folder only, so that it cannot point elsewhere.",
    fix="Put the file itself in its place.",
)
UNREADABLE_FOLDER = Rule(
    code="TP209",
    severity="error",
    title="Folder cannot be read",
    meaning="What cannot be read cannot be checked.",
    fix="Check that the folder exists and that you may read it.",
)

RULES = (NOT_A_FILE, UNREADABLE_FOLDER)
