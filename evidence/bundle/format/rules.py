"""The rules of family TP8xx: the bundle, from folder to zip and back. The checks are in the files that use them."""

from __future__ import annotations

from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, problem_of
from schemas.problems.visible import visible

_REBUILD = "Ask for the bundle again, or build it with `trainproof package` from the run folders."

UNREADABLE = Rule(
    "TP801",
    "Not a readable zip",
    "The archive's own structure cannot be read, so nothing inside can be trusted.",
    "Download or copy the file again; compare its size with the original.",
)
ESCAPING_NAME = Rule(
    "TP802",
    "Name leads out of the folder",
    "Unpacking would write outside the chosen folder: `..`, an absolute path or a drive letter.",
    _REBUILD,
)
UNPORTABLE_NAME = Rule(
    "TP803",
    "Name that some systems cannot hold",
    "Control characters, backslashes, reserved Windows names, trailing dots or spaces mean other files "
    "on other systems.",
    _REBUILD,
)
SPECIAL_FILE = Rule(
    "TP804",
    "Link or device in the archive",
    "An entry is a symbolic link, a device or something else that is not a file.",
    _REBUILD,
)
DUPLICATE_NAME = Rule("TP805", "Name used twice", "Which of the two a tool shows is left to chance.", _REBUILD)
COLLIDING_NAMES = Rule(
    "TP806",
    "Names that become one",
    "Two names differ only in case or in Unicode form and are one file on Windows or macOS.",
    _REBUILD,
)
FILE_AND_FOLDER = Rule("TP807", "File and folder of one name", "Only one of the two can exist on disk.", _REBUILD)
ENCRYPTED = Rule("TP808", "Encrypted entry", "What cannot be read cannot be verified.", _REBUILD)
OVERLAP = Rule(
    "TP809",
    "Overlapping entries",
    "Two entries share bytes: the sign of an archive that was made to expand without end.",
    _REBUILD,
)
TWO_HEADERS = Rule(
    "TP810",
    "Entry described in two ways",
    "The list of entries and the entry itself state different names, sizes or checksums.",
    _REBUILD,
)
FALSE_SIZE = Rule(
    "TP811",
    "Content is not what the entry declares",
    "The unpacked content has another size or checksum than declared: the entry was damaged or forged.",
    _REBUILD,
)
BOMB = Rule(
    "TP812",
    "Expands too far",
    "The archive declares far more content than it holds packed, or more than a bundle may have.",
    _REBUILD,
)
TOO_MANY_ENTRIES = Rule("TP813", "Too many entries", "The archive has more entries than a bundle may have.", _REBUILD)
STRAY_BYTES = Rule(
    "TP814",
    "Bytes outside the entries",
    "Comments, or bytes before, between or after the entries: a place to hide a second archive.",
    "Ask for the bundle again, or unpack it and verify the folder: `trainproof verify FOLDER`.",
)
UNKNOWN_COMPRESSION = Rule(
    "TP815",
    "Unknown compression",
    "An entry is neither stored nor deflated.",
    "Unpack it and verify the folder: `trainproof verify FOLDER`.",
)
REPACKED = Rule(
    "TP816",
    "Packed again",
    "It is not packed as it was built, or it is unpacked: other order, compression, dates or folder. "
    "The files of the bundle are not affected.",
    "Nothing, unless the bytes of the zip itself were to be compared.",
    severity="note",
)
NO_BUNDLE = Rule(
    "TP820", "Not a bundle", "bundle_manifest.json or MANIFEST.sha256 is missing or cannot be read.", _REBUILD
)
MISSING_FILE = Rule(
    "TP821",
    "Listed file is missing",
    "The lists name a file that the archive does not hold: it was removed or renamed.",
    _REBUILD,
)
UNLISTED_FILE = Rule(
    "TP822",
    "File that no list names",
    "The archive holds a file that was not there when the bundle was built.",
    _REBUILD,
)
CHANGED_FILE = Rule(
    "TP823", "File was changed", "The content of a file has another SHA-256 than the list states.", _REBUILD
)
LISTS_DISAGREE = Rule(
    "TP824",
    "The two lists disagree",
    "MANIFEST.sha256 and bundle_manifest.json state different files, hashes or sizes.",
    _REBUILD,
)
OTHER_GRADE = Rule(
    "TP825",
    "Stated grade is not the grade",
    "Grading the run inside gives another grade than the bundle states.",
    "Rely on the grade that was found, and ask for a bundle of the run as it was written.",
)
UNLABELLED = Rule(
    "TP826",
    "Unfit run without a label",
    "The bundle holds a run that may only be packed with the label `partial`, and does not carry it.",
    "Build the bundle again; use `--allow-partial` if the run belongs in it.",
)
OTHER_REPORT = Rule(
    "TP827",
    "Report is not made from these runs",
    "REPORT.html is not what this version of trainproof writes for the runs inside.",
    "Read the run folders, not the report; ask for the bundle again.",
)
OTHER_SCHEMA = Rule(
    "TP828",
    "Schema is not ours",
    "A schema inside the bundle differs from the published one of that version.",
    _REBUILD,
)
RUN_NOT_LISTED = Rule(
    "TP829",
    "Runs and list of runs disagree",
    "The runs in the archive are not those that bundle_manifest.json names.",
    _REBUILD,
)
OTHER_VERSION = Rule(
    "TP830",
    "Built by another version or build",
    "Of the report, the crate and the schemas, only the hashes are checked. The runs are checked as ever.",
    "Read the run folders rather than the report, or verify with the version and commit that built the bundle.",
    severity="warning",
)
OTHER_CRATE = Rule(
    "TP831",
    "RO-Crate is not made from these runs",
    "ro-crate-metadata.json is not what this version of trainproof writes for the files inside.",
    "Read the run folders, not the crate; ask for the bundle again.",
)
REDACTED = Rule(
    "TP832",
    "File was redacted for the bundle",
    "Secrets or home folders in it were masked, so the hash in the run manifest is that of another file.",
    "Nothing, if the masked places do not matter; otherwise ask for the original and compare its hash.",
    severity="warning",
)
OTHER_REDACTION = Rule(
    "TP833",
    "Redaction that is not possible",
    "A file is named as redacted that is not: results are computed from it, or nothing in it is masked.",
    _REBUILD,
)
NO_SUCH_FOLDER = Rule(
    "TP840",
    "No such run folder",
    "The path given does not exist or is not a folder.",
    "Give the path of a run folder; `trainproof runs` lists them.",
)
GRADE_REFUSED = Rule(
    "TP841",
    "Grade is too low to pack",
    "Only consistent and measured runs are packed without a label.",
    "Finish or repair the run, or pack it labelled with `--allow-partial`.",
)
INVALID_RUN = Rule(
    "TP842",
    "Run has errors",
    "A document of the run breaks a rule with severity error.",
    "Run `trainproof check` on the folder and repair what it names, or pack it with `--allow-partial`.",
)
STILL_RUNNING = Rule(
    "TP843",
    "Run is still going on",
    "A process is writing to the folder, so a bundle would hold half-written files.",
    "Wait for the run to end, or stop it.",
)
LINK_IN_RUN = Rule(
    "TP844",
    "Link or special file in the run",
    "A symbolic link may lead anywhere on this machine; a bundle holds plain files only.",
    "Replace the link by a copy of the file, or remove it.",
)
NAME_IN_RUN = Rule(
    "TP845",
    "File name that cannot be packed",
    "Another system could not unpack this name, or would take it for another.",
    "Rename the file.",
)
SECRET = Rule(
    "TP846",
    "Secret in the run",
    "A file holds what looks like a password, token or private key.",
    "Revoke the secret, then remove it from the file, or pack with `--redact`.",
)
PERSONAL_DETAIL = Rule(
    "TP847",
    "Personal detail in the run",
    "A file names a home folder, an e-mail address or a private network address. It is packed as it is.",
    "Remove it if the bundle is to be anonymous.",
    severity="warning",
)
SAME_NAME_TWICE = Rule(
    "TP849",
    "Two runs of one name",
    "Runs are packed under the name of their folder, so two with one name cannot be distinguished.",
    "Pack them into two bundles.",
)
CHANGED_WHILE_PACKED = Rule(
    "TP850",
    "File changed while it was packed",
    "A file had other content when it was packed than when it was checked.",
    "Wait until nothing writes to the folder, then pack again.",
)
EMPTY_SELECTION = Rule("TP851", "Nothing to pack", "A bundle holds at least one run.", "Name at least one run folder.")
CONTRADICTORY_RUN = Rule(
    "TP852",
    "Run contradicts itself",
    "A contradictory run is never packed: no label could say which of its statements is true.",
    "Run `trainproof check` on the folder; restore the files as the run wrote them, or run it again.",
)
NOT_A_RUN = Rule(
    "TP853",
    "Not a run",
    "The folder holds none of the files that a run writes.",
    "Name the run folders themselves; `trainproof runs` lists them.",
)
UNREADABLE_FILE = Rule(
    "TP854",
    "File cannot be read",
    "What cannot be read can be neither checked nor packed.",
    "Give yourself the right to read it, or move it out of the run folder.",
)


def refusal(
    rule: Rule, file: str, what: str, *, expected: str | None = None, line: int | None = None, next: str | None = None
) -> Problem:
    """Return the problem of a rule about a file whose name may be hostile.

    `next` may state more than the rule's fix.
    """
    return problem_of(rule, file=visible(file), what=what, expected=expected, line=line, next=next)
