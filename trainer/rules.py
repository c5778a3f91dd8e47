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
    error("TP003", "Nothing to train", "Neither --config nor --resume was given.", "Name a configuration."),
    error("TP005", "Setting stated twice", "An old key name and the present one differ.", "Keep the present name."),
    error("TP010", "No such dataset", "The name is not built in and is no file.", "Check the name or the path."),
    error("TP011", "Empty dataset", "The file has no rows.", "Write one JSON object per line."),
    error("TP012", "Id stands twice", "Two evaluation items share an id.", "Give each item its own id."),
    error("TP013", "No generator", "Only the built-in dataset can generate rows.", "Set data.generated_rows to 0."),
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
    error("TP040", "No such model", "No built-in model, folder or readable config.json has this name.", "Check it."),
    error("TP041", "Unknown family", "The model's architecture is not implemented.", "Choose another model."),
    error(
        "TP042",
        "Unsupported model setting",
        "config.json has a value that is missing, wrong or not implemented. It is refused rather than ignored.",
        "Choose a model without it.",
    ),
    error("TP043", "Weights cannot be read", "Files of the model are absent or damaged.", "Download them again."),
    error(
        "TP044",
        "Weights do not match",
        "Tensors are missing, unexpected or of another shape.",
        "Use the model's own files.",
    ),
    error("TP045", "Hub cannot be reached", "The model is not on this machine and not to be had.", "Name a folder."),
    error(
        "TP046",
        "No tokenizer",
        "The tokenizer is absent, unreadable or larger than the model.",
        "Add the model's own tokenizer files.",
    ),
    error("TP048", "Export folder is taken", "The folder for the export is not empty.", "Choose another --output."),
    error("TP049", "Export stopped", "It was stopped before it was whole.", "Run the command again."),
    error(
        "TP050", "No checkpoint", "The run has none to continue from.", "Use the machine where it ran, or start anew."
    ),
    error("TP051", "No step left", "The run to continue has all the steps of limits.steps.", "Raise limits.steps."),
    error(
        "TP052",
        "Checkpoint of another state",
        "The run to continue has another model, optimizer or element type, so its state is none of the new run.",
        "Continue it with the same ones, or begin anew.",
    ),
    error(
        "TP053",
        "Damaged checkpoint",
        "The newest checkpoint cannot be read, or its state is not the one that was saved.",
        "Move it away and continue from an earlier one, or start anew.",
    ),
    error(
        "TP054",
        "Continued with other rows",
        "Dataset, seed, order, length or batch size differ from those of the run to continue.",
        "Continue it with the same ones, or begin anew.",
    ),
    error("TP060", "No weights to read", "A built-in model has no pretrained weights.", "Leave model.weights out."),
    error("TP061", "Sequence too long", "data.max_length exceeds the model's positions.", "Lower data.max_length."),
    error(
        "TP062",
        "No room for a prompt",
        "evaluation.max_new_tokens leaves none of the model's positions for a prompt.",
        "Lower evaluation.max_new_tokens.",
    ),
    error("TP063", "No prompt with a token", "The tokenizer finds nothing in any prompt.", "Use other prompts."),
    error("TP070", "Evaluated already", "An evaluation is evidence and is not replaced.", "Train another run."),
    error("TP071", "No evaluation set", "Neither the run nor the command names one.", "Give --eval-set."),
    error("TP072", "Evaluation stopped", "It was stopped before every item was answered.", "Run the command again."),
    error("TP073", "Demo unfinished", "A run of the demo did not end well.", "Run the demo again."),
    error(
        "TP074",
        "Another evaluation set",
        "The run's configuration declares one set and the command names another.",
        "Leave --eval-set out, or train another run.",
    ),
    error(
        "TP075",
        "Checkpoint before the last step",
        "The run was killed, failed or lost checkpoints, so that the newest one is not of its last step.",
        "Continue the run, which evaluates at its end.",
    ),
    error(
        "TP080",
        "Open address",
        "The dashboard was asked to listen beyond this machine without a login.",
        "Leave --address out, or configure a login.",
    ),
    error("TP081", "Port is taken", "Another program uses the port.", "Give another --port."),
    error(
        "TP082",
        "Saved views",
        "The file of saved views is not valid or cannot be written, or a view has no proper name.",
        "Correct the file or move it away; it holds nothing but names and addresses of views.",
    ),
    error(
        "TP085",
        "No role",
        "An account that logged in to the dashboard is listed neither as operator nor as viewer.",
        "List it in the [roles] section of .streamlit/secrets.toml.",
    ),
    error(
        "TP086",
        "Too large for the page",
        "An uploaded bundle unpacks to more than the dashboard reads into its memory.",
        "Verify it with `trainproof verify` in a terminal.",
    ),
    error("TP093", "Too few runs", "A comparison needs two runs or more.", "Name another run."),
    error(
        "TP701",
        "Device absent",
        "The device asked for is not there; nothing falls back in silence.",
        "Use --device auto, or install JAX for the device.",
    ),
    error("TP702", "Too few devices", "mesh.devices asks for more than there are.", "Lower mesh.devices."),
    error("TP710", "Does not fit", "The planned memory exceeds what each device has.", "Apply a change that is named."),
    error("TP721", "Stopped at once", "A second signal ended the run without a checkpoint.", "Start it again."),
    error("TP722", "Cannot be recorded", "The disk is full or the folder cannot be written.", "Free space; resume."),
    error(
        "TP723",
        "Out of memory",
        "The device ran out of memory although the plan said it fits.",
        "Apply a change that plan.json lists.",
    ),
    error("TP799", "Error in trainproof", "The program made a mistake.", "Report it with log.jsonl."),
)
