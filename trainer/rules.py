"""What each code of the families TP0xx (usage and configuration) and TP7xx (devices, memory, training) means.

The codes of the command line and of the dashboard's start are here too, so that the table is whole in one place.
"""

from __future__ import annotations

from schemas.problems.rule import Rule


def error(code: str, title: str, meaning: str, fix: str) -> Rule:
    """Return a rule whose findings are errors, as nearly all of these families are."""
    return Rule(code=code, severity="error", title=title, meaning=meaning, fix=fix)


RULES: tuple[Rule, ...] = (
    error("TP011", "Empty dataset", "The file has no rows.", "Write one JSON object per line."),
    error("TP012", "Id stands twice", "Two evaluation items share an id.", "Give each item its own id."),
    error(
        "TP014",
        "Last turn is not the assistant's",
        "The last turn of a conversation is learned, and it is somebody else's.",
        "End the conversation with the assistant's turn.",
    ),
    error("TP020", "No end token", "The tokenizer names none, so a model never learns to stop.", "Name an eos_token."),
    error("TP021", "Answer cut off", "A row longer than the sequence loses its answer.", "Raise data.max_length."),
    error(
        "TP025",
        "Answer that the tokenizer does not know",
        "What the tokenizer makes of a row no longer holds its answer, so the model cannot learn it.",
        "Use the tokenizer that the model was trained with.",
    ),
    error("TP026", "No row is kept whole", "Every row is cut, so no end token is learned.", "Raise data.max_length."),
)
