"""What each code of the families TP0xx (usage and configuration) and TP7xx (devices, memory, training) means.

The codes of the command line and of the dashboard's start are here too, so that the table is whole in one place.
"""

from __future__ import annotations

from schemas.problems.rule import Rule


def error(code: str, title: str, meaning: str, fix: str) -> Rule:
    """Return a rule whose findings are errors, as nearly all of these families are."""
    return Rule(code=code, severity="error", title=title, meaning=meaning, fix=fix)


RULES: tuple[Rule, ...] = (
    error("TP001", "No configuration file", "The YAML file named cannot be read.", "Check the path."),
    error("TP002", "Setting without key", "A --set is not of the form key=value.", "Write key=value without spaces."),
    error("TP005", "Setting stated twice", "An old key name and the present one differ.", "Keep the present name."),
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
        "TP022",
        "Chat template refuses",
        "The model's chat template is broken, or does not write such a conversation; its own words are shown.",
        "Write the rows as the template wants them.",
    ),
    error(
        "TP023",
        "End token inside a completion",
        "The text of the end token stands in what the model is to learn, so it would learn to stop there.",
        "Take it out; every completion is followed by the end token anyway.",
    ),
    Rule(
        code="TP024",
        severity="warning",
        title="Special tokens in a text",
        meaning="The text of a special token in a row or a prompt is given to the model as the token itself.",
        fix="Nothing, if that is meant; else write it in another way.",
    ),
    error(
        "TP025",
        "Answer that the tokenizer does not know",
        "What the tokenizer makes of a row no longer holds its answer, so the model cannot learn it.",
        "Use the tokenizer that the model was trained with.",
    ),
    error("TP026", "No row is kept whole", "Every row is cut, so no end token is learned.", "Raise data.max_length."),
    error("TP030", "Folder cannot be written", "The run folder cannot be made or written.", "Choose another --output."),
    error("TP031", "Folder is taken", "The run folder holds a run or other files.", "Choose another --output."),
    error("TP032", "Name that no run can have", "The run folder's name is its id.", "Give it another name."),
)
