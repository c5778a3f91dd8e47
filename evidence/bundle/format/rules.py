"""What each code of family TP8xx means: the bundle, from folder to zip and back."""

from __future__ import annotations

from evidence.bundle.format import codes
from schemas.problems.problem import Problem, Severity
from schemas.problems.rule import Rule, problem_of
from schemas.problems.visible import visible

_REBUILD = "Ask for the bundle again, or build it with `trainproof package` from the run folders."


def _rule(code: str, title: str, meaning: str, fix: str, severity: Severity = "error") -> Rule:
    return Rule(code=code, severity=severity, title=title, meaning=meaning, fix=fix)


RULES = (
    _rule(
        codes.UNREADABLE,
        "Not a readable zip",
        "The archive's own structure cannot be read, so nothing inside can be trusted.",
        "Download or copy the file again; compare its size with the original.",
    ),
    _rule(
        codes.ESCAPING_NAME,
        "Name leads out of the folder",
        "Unpacking would write outside the chosen folder: `..`, an absolute path or a drive letter.",
        _REBUILD,
    ),
    _rule(
        codes.UNPORTABLE_NAME,
        "Name that some systems cannot hold",
        "Control characters, backslashes, reserved Windows names, trailing dots or spaces mean other files "
        "on other systems.",
        _REBUILD,
    ),
    _rule(
        codes.SPECIAL_FILE,
        "Link or device in the archive",
        "An entry stands for a symbolic link, a device or another thing that is not a file.",
        _REBUILD,
    ),
    _rule(codes.DUPLICATE_NAME, "Name used twice", "Which of the two a tool shows is left to chance.", _REBUILD),
    _rule(
        codes.COLLIDING_NAMES,
        "Names that become one",
        "Two names differ only in case or in Unicode form and are one file on Windows or macOS.",
        _REBUILD,
    ),
    _rule(codes.FILE_AND_FOLDER, "File and folder of one name", "Only one of the two can exist on disk.", _REBUILD),
    _rule(codes.ENCRYPTED, "Encrypted entry", "What cannot be read cannot be verified.", _REBUILD),
    _rule(
        codes.OVERLAP,
        "Overlapping entries",
        "Two entries share bytes: the sign of an archive that was made to expand without end.",
        _REBUILD,
    ),
    _rule(
        codes.TWO_HEADERS,
        "Entry described in two ways",
        "The list of entries and the entry itself state different names, sizes or checksums.",
        _REBUILD,
    ),
    _rule(
        codes.FALSE_SIZE,
        "Content is not what the entry declares",
        "The unpacked content has another size or checksum than declared: the entry was damaged or forged.",
        _REBUILD,
    ),
    _rule(
        codes.BOMB,
        "Expands too far",
        "The archive declares far more content than it holds packed, or more than a bundle may have.",
        _REBUILD,
    ),
    _rule(codes.TOO_MANY_ENTRIES, "Too many entries", "The archive has more entries than a bundle may have.", _REBUILD),
    _rule(
        codes.STRAY_BYTES,
        "Bytes outside the entries",
        "Comments, or bytes before, between or after the entries: a place to hide a second archive.",
        _REBUILD,
    ),
    _rule(
        codes.UNKNOWN_COMPRESSION,
        "Unknown compression",
        "An entry is neither stored nor deflated.",
        "Pack it again with stored or deflated entries; the content digest stays the same.",
    ),
    _rule(
        codes.REPACKED,
        "Packed again",
        "The archive is not as it was built: other order, compression, dates or modes. The files are not affected.",
        "Nothing, unless the bytes of the zip itself were to be compared.",
        severity="note",
    ),
    _rule(
        codes.NO_BUNDLE,
        "Not a bundle",
        "bundle_manifest.json or MANIFEST.sha256 is missing or cannot be read.",
        _REBUILD,
    ),
    _rule(
        codes.MISSING_FILE,
        "Listed file is missing",
        "The lists name a file that the archive does not hold: it was removed or renamed.",
        _REBUILD,
    ),
    _rule(
        codes.UNLISTED_FILE,
        "File that no list names",
        "The archive holds a file that was not there when the bundle was built.",
        _REBUILD,
    ),
    _rule(
        codes.CHANGED_FILE,
        "File was changed",
        "The content of a file has another SHA-256 than the list states.",
        _REBUILD,
    ),
    _rule(
        codes.LISTS_DISAGREE,
        "The two lists disagree",
        "MANIFEST.sha256 and bundle_manifest.json state different files, hashes or sizes.",
        _REBUILD,
    ),
    _rule(
        codes.OTHER_GRADE,
        "Stated grade is not the grade",
        "Grading the run inside gives another grade than the bundle states.",
        "Build the bundle again with the present version of trainproof.",
    ),
    _rule(
        codes.UNLABELLED,
        "Unfit run without a label",
        "The bundle holds a run that may only be packed with the label `partial`, and does not carry it.",
        "Build the bundle again; use `--allow-partial` if the run belongs in it.",
    ),
    _rule(
        codes.OTHER_REPORT,
        "Report is not made from these runs",
        "REPORT.html is not what this version of trainproof writes for the runs inside.",
        "Read the run folders, not the report; ask for the bundle again.",
    ),
    _rule(
        codes.OTHER_SCHEMA,
        "Schema is not ours",
        "A schema inside the bundle differs from the published one of that version.",
        _REBUILD,
    ),
    _rule(
        codes.RUN_NOT_LISTED,
        "Runs and list of runs disagree",
        "The runs in the archive are not those that bundle_manifest.json names.",
        _REBUILD,
    ),
    _rule(
        codes.OTHER_VERSION,
        "Built by another version or build",
        "Of the report, the crate and the schemas, only the hashes are checked. The runs are checked as ever.",
        "Read the run folders rather than the report, or verify with the version and commit that built the bundle.",
        severity="warning",
    ),
    _rule(
        codes.OTHER_CRATE,
        "RO-Crate is not made from these runs",
        "ro-crate-metadata.json is not what this version of trainproof writes for the files inside.",
        "Read the run folders, not the crate; ask for the bundle again.",
    ),
    _rule(
        codes.REDACTED,
        "File was redacted for the bundle",
        "Secrets or home folders in it were masked, so the hash in the run manifest is that of another file.",
        "Nothing, if the masked places do not matter; otherwise ask for the original and compare its hash.",
        severity="warning",
    ),
    _rule(
        codes.OTHER_REDACTION,
        "Redaction that cannot be",
        "bundle_manifest.json names a redacted file that is none: results are computed from it, or nothing is masked.",
        _REBUILD,
    ),
    _rule(
        codes.BAD_SIGNATURE,
        "Signature does not hold",
        "The file is no signature, or it was not made with this key for what it carries.",
        "Ask for the signature and the public key of whoever made the bundle, and get the key on another way.",
    ),
    _rule(
        codes.OTHER_CONTENT_SIGNED,
        "Signature of something else",
        "The key signed another content than this bundle has, so its holder did not stand by this one.",
        "Ask for the bundle that was signed, or for a signature of this one.",
    ),
    _rule(
        codes.NO_SUCH_FOLDER,
        "No such run folder",
        "The path given does not exist or is not a folder.",
        "Give the path of a run folder; `trainproof runs` lists them.",
    ),
    _rule(
        codes.GRADE_REFUSED,
        "Grade is too low to pack",
        "Only verified and measured runs are packed without a label.",
        "Finish or repair the run, or pack it labelled with `--allow-partial`.",
    ),
    _rule(
        codes.INVALID_RUN,
        "Run has errors",
        "A document of the run breaks a rule with severity error.",
        "Run `trainproof check` on the folder and repair what it names, or pack it with `--allow-partial`.",
    ),
    _rule(
        codes.STILL_RUNNING,
        "Run is still going on",
        "A process is writing to the folder, so a bundle would hold half-written files.",
        "Wait for the run to end, or stop it.",
    ),
    _rule(
        codes.LINK_IN_RUN,
        "Link or special file in the run",
        "A symbolic link may lead anywhere on this machine; a bundle holds plain files only.",
        "Replace the link by a copy of the file, or remove it.",
    ),
    _rule(
        codes.NAME_IN_RUN,
        "File name that cannot be packed",
        "Another system could not unpack this name, or would take it for another.",
        "Rename the file.",
    ),
    _rule(
        codes.SECRET,
        "Secret in the run",
        "A file holds what looks like a password, token or private key.",
        "Revoke the secret, then remove it from the file, or pack with `--redact`.",
    ),
    _rule(
        codes.PERSONAL_DETAIL,
        "Personal detail in the run",
        "A file names a home folder, an e-mail address or a private network address. It is packed as it is.",
        "Remove it if the bundle is to be anonymous.",
        severity="warning",
    ),
    _rule(
        codes.BAD_OUTPUT,
        "Bundle cannot be written there",
        "The output cannot be written, or lies inside a run folder and would become part of it.",
        "Give another path with `--output`.",
    ),
    _rule(
        codes.SAME_NAME_TWICE,
        "Two runs of one name",
        "Runs are packed under the name of their folder, so two of one name cannot be told apart.",
        "Pack them into two bundles.",
    ),
    _rule(
        codes.CHANGED_WHILE_PACKED,
        "File changed while it was packed",
        "A file had other content when it was packed than when it was checked.",
        "Wait until nothing writes to the folder, then pack again.",
    ),
    _rule(
        codes.EMPTY_SELECTION, "Nothing to pack", "A bundle holds at least one run.", "Name at least one run folder."
    ),
    _rule(
        codes.CONTRADICTORY_RUN,
        "Run contradicts itself",
        "A contradictory run is never packed: no label could say which of its statements is true.",
        "Run `trainproof check` on the folder; restore the files as the run wrote them, or run it again.",
    ),
    _rule(
        codes.NOT_A_RUN,
        "Not a run",
        "The folder holds none of the files that a run writes.",
        "Name the run folders themselves; `trainproof runs` lists them.",
    ),
    _rule(
        codes.UNREADABLE_FILE,
        "File cannot be read",
        "What cannot be read can be neither checked nor packed.",
        "Give yourself the right to read it, or move it out of the run folder.",
    ),
    _rule(
        codes.BAD_KEY,
        "Key cannot be used",
        "Signatures are made with Ed25519 keys in PEM files, private ones without a password.",
        "Make a pair with `trainproof sign --new-key FILE`; verify with the FILE.pub of it.",
    ),
)

_BY_CODE = {rule.code: rule for rule in RULES}


def refusal(
    code: str, file: str, what: str, *, expected: str | None = None, line: int | None = None, next: str | None = None
) -> Problem:
    """Return the problem of a code about a file; why and what to do come from its rule unless `next` says more."""
    return problem_of(_BY_CODE[code], file=visible(file), what=what, expected=expected, line=line, next=next)
