"""What each code means that only folders of other tools can give, read as they are or imported."""

from __future__ import annotations

from schemas.problems.problem import Severity
from schemas.problems.rule import Rule


def _rule(code: str, severity: Severity, title: str, meaning: str, fix: str) -> Rule:
    return Rule(code, title, meaning, fix, severity)


ORIGINAL_CHANGED = _rule(
    "TP231",
    "error",
    "Original changed after the import",
    "An imported run keeps the files it was read from, byte for byte, with their hashes.",
    "Restore the file, or import the folder again.",
)
ORIGINAL_MISSING = _rule(
    "TP232",
    "error",
    "Original missing",
    "Without the file, what import.json says of it cannot be followed.",
    "Restore the file, or import the folder again.",
)
ORIGINAL_UNLISTED = _rule(
    "TP233",
    "error",
    "Original that the import does not list",
    "The list of originals is complete at the import; this file came later.",
    "Remove the file, or import the folder again.",
)
STATED_TWICE = _rule(
    "TP371",
    "error",
    "Sources contradict each other",
    "Two places state different things about the same fact, so at least one of them is not about this run.",
    "Find out which is right and keep only documents of one run together.",
)
FINAL_IS_NOT_LAST = _rule(
    "TP372",
    "error",
    "Final loss that is not the last one",
    "A final loss is the loss of the last logged step; a mean or a best loss is another figure.",
    "State the last loss as the final one, and the mean under its own name.",
)
SCORE_NOT_FOLLOWING = _rule(
    "TP373",
    "error",
    "Score that the predictions do not give",
    "A score is the share of answers that are right.",
    "Keep the predictions that the score was computed from.",
)
ENDS_EARLY = _rule(
    "TP374",
    "error",
    "Finished run whose rows end earlier",
    "A run that did all its steps logs up to the last of them.",
    "Keep the whole log, or state where the run stopped.",
)
IMPORT_NOT_FOLLOWING = _rule(
    "TP375",
    "error",
    "Import that does not follow from its originals",
    "import.json holds what was read from the files under original/; reading them again gives something else.",
    "Import the folder again.",
)
BESIDE_A_MANIFEST = _rule(
    "TP376",
    "error",
    "Import next to a manifest",
    "A run was either carried out by trainproof or imported; a folder cannot be both.",
    "Remove the document that was put there.",
)
MEAN_AT_A_STEP = _rule(
    "TP431",
    "warning",
    "Mean in place of a step's loss",
    "The Hugging Face Trainer's `train_loss` is the mean over the whole run, not the loss of its last step.",
    "Read the last loss from the rows of the log.",
)
SAME_REASONING = _rule(
    "TP432",
    "warning",
    "Constant reasoning",
    "Reasoning that is the same for every item was not written by a model.",
    "Record what the model wrote.",
)
SAME_OUTPUT = _rule(
    "TP433",
    "warning",
    "Constant output",
    "One answer to every question is not a model's work, or not a model that works.",
    "Look at the predictions and at how they were generated.",
)
OTHER_TOOL = _rule(
    "TP517",
    "error",
    "Folder of another tool",
    "trainproof did not write these files, so it cannot vouch for them; it reads what they state.",
    "Keep them with their hashes: `trainproof import FOLDER --name NAME`.",
)
UNFILLED = _rule(
    "TP518",
    "warning",
    "Template or example",
    "An expected output or an empty form shows nothing that happened; no result is read from it.",
    "Replace it by the file that the run wrote.",
)
NOTHING_MEASURED = _rule(
    "TP519",
    "error",
    "Nothing measured",
    "No file holds a loss, a score or an answer that a run gave.",
    "Add the log or the metrics that the run wrote.",
)
TRACEBACK = _rule(
    "TP520",
    "note",
    "Traceback in a log",
    "An error inside a log does not by itself make a run failed; what follows it may be a second attempt.",
    "Nothing to do if the run went on; otherwise state that it failed.",
)
NOT_READ = _rule(
    "TP521",
    "warning",
    "File that could not be read whole",
    "What cannot be read is left out; everything before it was read.",
    "Restore the file as the tool wrote it.",
)
SEVERAL_RUNS = _rule(
    "TP522",
    "warning",
    "Several runs in one folder",
    "Figures of different runs must not be mixed; the newest was read.",
    "Import each run from its own folder.",
)
WEIGHTS_LEFT_OUT = _rule(
    "TP523",
    "note",
    "Weights not copied",
    "Weights stay where they are; their size and hash are in import.json.",
    "Nothing to do.",
)
LEFT_OUT = _rule(
    "TP524",
    "note",
    "Files left out",
    "Hidden and temporary files and folders of packages are no part of a run; names that not every system can hold "
    "cannot be kept.",
    "Nothing to do, unless one of them is evidence: then give it another name.",
)
SHARDS_ABSENT = _rule(
    "TP530",
    "note",
    "Weights that an index names are absent",
    "The model cannot be loaded from this folder: some of the files that hold its weights are not here.",
    "Nothing to do if the weights are kept elsewhere; otherwise add the files.",
)
MOJIBAKE = _rule(
    "TP621",
    "warning",
    "Text decoded with the wrong encoding",
    "UTF-8 was read as another encoding and saved so; signs beyond ASCII are not what was printed.",
    "Save the original output as UTF-8.",
)
OTHER_ENCODING = _rule(
    "TP622",
    "note",
    "Text in another encoding",
    "It was read as what it is; other tools may not.",
    "Save it as UTF-8 without a byte order mark.",
)
