"""What each code of family TP1xx (shape) means and how to fix it; the other packages have a table of the same form.

The list of rules in the documentation is generated from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass

from schemas.problems.problem import Severity


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One code: its usual severity, a title, what it means and how to fix it."""

    code: str
    severity: Severity
    title: str
    meaning: str
    fix: str


def _error(code: str, title: str, meaning: str, fix: str) -> Rule:
    return Rule(code=code, severity="error", title=title, meaning=meaning, fix=fix)


def _warning(code: str, title: str, meaning: str, fix: str) -> Rule:
    return Rule(code=code, severity="warning", title=title, meaning=meaning, fix=fix)


RULES: tuple[Rule, ...] = (
    _error(
        "TP101",
        "File cannot be read",
        "The file is not there, is a folder, or may not be read by this user.",
        "Check the path and the permissions.",
    ),
    _error("TP102", "Empty file", "The file holds nothing, or white space only.", "Restore it, or write it again."),
    _error(
        "TP103",
        "Byte order mark",
        "The file begins with the bytes EF BB BF, which JSON forbids.",
        "Save it as UTF-8 without a byte order mark.",
    ),
    _error(
        "TP104",
        "UTF-16 or UTF-32",
        "The file is text in another encoding than UTF-8, as PowerShell's `>` writes it.",
        "Save it as UTF-8.",
    ),
    _error(
        "TP105",
        "Invalid UTF-8",
        "Some bytes are no UTF-8 text: another encoding, a damaged file, or no text at all.",
        "Save it as UTF-8, or restore it from a copy.",
    ),
    _error(
        "TP106",
        "NUL bytes",
        "The text holds bytes of value 0, as a machine leaves them that stops while it writes.",
        "Restore the file from a copy, or write it again.",
    ),
    _error("TP107", "Not JSON", "The text breaks the grammar of JSON (RFC 8259).", "Correct it at the line named."),
    _error(
        "TP108",
        "Not YAML, or too much of it",
        "The text breaks the grammar of YAML, is too large, or uses anchors, aliases, tags or keys that are not text.",
        "Correct it at the line named; write each value out plainly.",
    ),
    _error(
        "TP109",
        "Key stands twice",
        "An object has two members of one name, and readers differ in which they take.",
        "Delete the one that is not meant.",
    ),
    _error(
        "TP110",
        "Number that is not finite",
        "NaN, an infinity, or a number beyond the range of a 64-bit float (about 1.8e308).",
        "Write null where the field allows it.",
    ),
    _error(
        "TP111",
        "Nested too deeply",
        "Objects and lists stand too many levels inside each other.",
        "Flatten the document.",
    ),
    _error(
        "TP112",
        "Half a character",
        "A surrogate (U+D800 to U+DFFF) stands without its other half, so the text cannot be written as UTF-8.",
        "Write the character itself, or both halves.",
    ),
    _error(
        "TP113",
        "Not an object",
        "The document is a list, a text, a number, a truth value or null.",
        "Put the values under their keys.",
    ),
    _error(
        "TP114",
        "No schema version",
        "The document does not say which version of the schema it follows, so nothing else can be checked.",
        "Restore the document as trainproof wrote it.",
    ),
    _error(
        "TP115",
        "Other schema version",
        "The document follows a version of the schema that this release does not read.",
        "Upgrade trainproof to a release that reads it.",
    ),
    _error("TP120", "Wrong type", "A value is of another type than its field: text for a number, say.", "Correct it."),
    _error("TP121", "Value not allowed", "A value is none of the few that its field allows.", "Write one of them."),
    _error(
        "TP122", "Missing key", "An object lacks a key that it must have.", "Add it, with null if there is no value."
    ),
    _error(
        "TP123",
        "Unknown key",
        "An object has a key that means nothing there, often a misspelt one.",
        "Correct its spelling, or delete it.",
    ),
    _error("TP124", "Wrong form", "A text does not have the form of its field: a time, a hash, a path.", "Correct it."),
    _error(
        "TP125",
        "Out of range",
        "A number is below the least or above the largest that its field allows.",
        "Correct it.",
    ),
    _error(
        "TP126",
        "Too short",
        "A text or list has fewer characters or items than its field needs.",
        "Add what is missing.",
    ),
    _error(
        "TP127",
        "Not a JSON value",
        "A program handed over something that JSON cannot hold: NaN, bytes, an array.",
        "Convert it to a number, text, list, object, truth value or null first.",
    ),
    _warning(
        "TP130",
        "Torn last line",
        "The last line of a file of rows is incomplete, which is normal after a kill; it is left out.",
        "Nothing, if the run was stopped; resuming it removes the line.",
    ),
    _warning("TP131", "Blank line", "A line of a file of rows is blank; it is skipped.", "Delete it."),
    _error(
        "TP132",
        "More lines with problems",
        "A file of rows has so many lines with problems that only the first are explained.",
        "Correct those first, then check again.",
    ),
    _error(
        "TP133",
        "Too large to be read",
        "A document, a row or a file of rows is larger than any run writes; to read it could take all of a machine's "
        "memory.",
        "Check that this is the file that is meant, and restore it as the run wrote it.",
    ),
    _error(
        "TP134",
        "More of a document with problems",
        "A large document is wrong; its first wrong values are explained, and what follows them was not looked at.",
        "Correct those first, then check again.",
    ),
)
"""Every code of this package, in the order of the codes."""
