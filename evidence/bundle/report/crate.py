"""ro-crate-metadata.json: the runs of a bundle in the words of RO-Crate 1.1 and the Process Run Crate 0.5.

It is a description for archives and their search, made of the documents beside it, so that a verifier can write it
again and compare. Hashes stay in MANIFEST.sha256: the vocabulary of 1.1 has no word for them, and a crate proves
nothing. A bundle names neither people nor licence; where the standard needs them, an entity states that they are not
stated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from evidence.bundle.format.documents import FileHash
from evidence.bundle.format.layout import BUNDLE_MANIFEST, CRATE, HASHES, REPORT, RUNS, SCHEMAS
from evidence.bundle.report.page import ReportRun
from evidence.records.facts import Document
from evidence.run import layout
from evidence.run.write import as_json_text
from schemas.catalog import kind_of, schema
from schemas.reading import parse_time

SPECIFICATION = "https://w3id.org/ro/crate/1.1"
PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
PROGRAM_URL = "https://trainproof.example/"
"""Beside the address of the schemas; `.example` is reserved, so no stranger can ever own it."""
NO_DATE = "1980-01-01"
"""Date of a bundle whose runs state none: the date of every entry of the zip."""

FORMATS = {
    ".html": "text/html",
    ".json": "application/json",
    ".jsonl": "application/jsonl",
    ".log": "text/plain",
    ".md": "text/markdown",
    ".safetensors": "application/octet-stream",
    ".sha256": "text/plain",
    ".txt": "text/plain",
    ".yaml": "application/yaml",
    ".yml": "application/yaml",
}
INPUTS = frozenset({layout.CONFIG, layout.PLAN})
"""Files of a run that were there before its first step; the others came of it, but for the notes of its keeper."""
OWN_FILES = {
    BUNDLE_MANIFEST: "The runs with their grades, and every file with size and hash.",
    HASHES: "Every other file with its SHA-256, as `sha256sum -c` reads it.",
    REPORT: "The runs for a reader.",
}

MAKERS = {
    "@id": "#makers",
    "@type": "Organization",
    "name": "Makers of this bundle, who are not named in it",
    "description": "A bundle does not say who made it. A signature can.",
    "url": REPORT,
}
TERMS = {
    "@id": "#terms",
    "@type": "CreativeWork",
    "name": "No licence is stated",
    "description": "The makers of this bundle state no licence. Ask them before using its content for anything but "
    "checking it.",
}
FOLLOWED = (
    {"@id": SPECIFICATION, "@type": "CreativeWork", "name": "RO-Crate", "version": "1.1"},
    {"@id": PROFILE, "@type": "CreativeWork", "name": "Process Run Crate", "version": "0.5"},
)


def crate_text(runs: Sequence[ReportRun], made: Sequence[FileHash], *, partial: bool) -> str:
    """Return ro-crate-metadata.json.

    Args:
        runs: The runs, with their files.
        made: The files outside the runs: schemas and report. The lists and the crate itself are left out, because
            their sizes would depend on it.
        partial: Whether the bundle is labelled as holding runs that are not results.
    """
    ordered = sorted(runs, key=lambda run: run.name)
    schemas = [file for file in made if file.path.startswith(f"{SCHEMAS}/")]
    loose = [file for file in made if not file.path.startswith(f"{SCHEMAS}/")]
    graph = [_descriptor(), _root(ordered, schemas, loose, partial=partial), *FOLLOWED, MAKERS, TERMS]
    for run in ordered:
        graph += _run_entities(run)
    graph += _schema_entities(schemas)
    graph += [_file(file) for file in sorted(loose, key=lambda file: file.path)]
    graph += [_file_entity(name) for name in (BUNDLE_MANIFEST, HASHES)]
    return as_json_text({"@context": f"{SPECIFICATION}/context", "@graph": _once(graph)})


def _descriptor() -> Document:
    return {
        "@id": CRATE,
        "@type": "CreativeWork",
        "about": {"@id": "./"},
        "conformsTo": {"@id": SPECIFICATION},
        "name": "RO-Crate metadata of this bundle",
    }


def _root(
    runs: Sequence[ReportRun], schemas: Sequence[FileHash], loose: Sequence[FileHash], *, partial: bool
) -> Document:
    parts = [_folder_id(run) for run in runs if run.files]
    parts += [f"{SCHEMAS}/"] if schemas else []
    parts += [_path_id(path) for path in sorted([*(file.path for file in loose), BUNDLE_MANIFEST, HASHES])]
    label = " Partial evidence: it holds runs that are unfinished, empty or have errors." if partial else ""
    actions = [_action_id(run) for run in runs if run.facts.manifest]
    return _without_nothing(
        {
            "@id": "./",
            "@type": "Dataset",
            "name": f"Training evidence: {', '.join(run.name for run in runs)}",
            "description": f"Run folders of trainproof with everything needed to check them.{label}",
            "datePublished": _date(runs),
            "license": {"@id": TERMS["@id"]},
            "author": {"@id": MAKERS["@id"]},
            "publisher": {"@id": MAKERS["@id"]},
            "conformsTo": {"@id": PROFILE},
            "hasPart": _links(parts),
            "mentions": _links(actions),
        }
    )


def _date(runs: Sequence[ReportRun]) -> str:
    """Return the day of the last moment that any run states, in the offset in which it states it."""
    stated = [run.facts.manifest for run in runs if run.facts.manifest]
    times = [manifest["finished_at"] or manifest["started_at"] for manifest in stated]
    return max((str(time)[:10] for time in times), default=NO_DATE)


def _run_entities(run: ReportRun) -> Iterator[Document]:
    """Yield the folder of a run, what was done, with which program and data, and its files."""
    if run.files:
        files = sorted(run.files, key=lambda file: file.path)
        yield {
            "@id": _folder_id(run),
            "@type": "Dataset",
            "name": run.name,
            "description": f"Graded {run.grade.name}. {' '.join(run.grade.reasons)}",
            "hasPart": _links([_path_id(file.path) for file in files]),
        }
        yield from (_file(file) for file in files)
    if run.facts.manifest:
        yield _action(run, run.facts.manifest)
        yield _program(run.facts.manifest)
        yield _training_data(run.facts.manifest["dataset"])


def _action(run: ReportRun, manifest: Document) -> Document:
    """Return what was done: a training run, its inputs and what came of it."""
    paths = sorted(file.path for file in run.files)
    inputs = [_path_id(path) for path in paths if _inside(path) in INPUTS]
    results = [_path_id(path) for path in paths if _inside(path) not in INPUTS | {layout.NOTES, layout.STAMPS}]
    succeeded = manifest["status"] == "succeeded"
    return _without_nothing(
        {
            "@id": _action_id(run),
            "@type": "CreateAction",
            "name": f"Training run {run.name}",
            "description": _sentence_about(manifest),
            "instrument": {"@id": _program(manifest)["@id"]},
            "agent": {"@id": MAKERS["@id"]},
            "object": _links([*inputs, _training_data(manifest["dataset"])["@id"]]),
            "result": _links(results),
            "startTime": _moment(manifest["started_at"]),
            "endTime": _moment(manifest["finished_at"]),
            "actionStatus": f"http://schema.org/{'Completed' if succeeded else 'Failed'}ActionStatus",
            "error": None if succeeded else _error(manifest),
        }
    )


def _sentence_about(manifest: Document) -> str:
    """Return what a run did, in one sentence."""
    devices = manifest["devices"]
    model = manifest["model"]["name"] if manifest["model"] else "a model that was not built"
    return f"A {manifest['mode']} run of {model} on {devices['count']} × {devices['kind']}."


def _error(manifest: Document) -> str:
    """Return how a run ended that did not succeed: the standard knows completed and failed alone."""
    message = (manifest["exit"] or {}).get("message")
    return f"{manifest['status']}: {message}" if message else str(manifest["status"])


def _moment(stated: str | None) -> str | None:
    """Return a time in UTC to the millisecond, the only form that the profile's validator takes; None stays None."""
    at = parse_time(stated) if stated else None
    try:
        return at.astimezone(UTC).isoformat(timespec="milliseconds") if at else None
    except OverflowError:  # before the year 1 or after 9999 once in UTC
        return None


def _program(manifest: Document) -> Document:
    code = manifest["code"]
    commit = f"commit {code['commit']}" if code["commit"] else "commit unknown"
    return {
        "@id": f"{PROGRAM_URL}{quote(code['version'], safe='')}/{code['commit'] or 'unknown'}",
        "@type": "SoftwareApplication",
        "name": "trainproof",
        "description": f"The code that ran: {commit}.",
        "softwareVersion": code["version"],
        "url": PROGRAM_URL,
    }


def _training_data(dataset: Document) -> Document:
    return {
        "@id": f"#dataset-{dataset['sha256'][:16]}",
        "@type": "CreativeWork",
        "name": dataset["name"],
        "description": f"Training data: {dataset['rows']:,} rows, SHA-256 {dataset['sha256']}; not in this bundle.",
    }


def _schema_entities(schemas: Sequence[FileHash]) -> Iterator[Document]:
    if schemas:
        ordered = sorted(schemas, key=lambda file: file.path)
        yield {
            "@id": f"{SCHEMAS}/",
            "@type": "Dataset",
            "name": "Schemas",
            "description": "The JSON Schemas that the documents follow.",
            "hasPart": _links([_path_id(file.path) for file in ordered]),
        }
        yield from (_file(file) for file in ordered)


def _file(file: FileHash) -> Document:
    return _file_entity(file.path) | {"contentSize": str(file.size_bytes)}


def _file_entity(path: str) -> Document:
    """Return a file without its size."""
    entity = {"@id": _path_id(path), "@type": "File", "name": PurePosixPath(path).name, "encodingFormat": _format(path)}
    description = OWN_FILES.get(path) or _description(path)
    return entity | ({"description": description} if description else {})


def _description(path: str) -> str | None:
    kind = kind_of(PurePosixPath(path).name) if path.startswith(f"{RUNS}/") else None
    return schema(kind)["description"] if kind else None


def _format(path: str) -> str:
    return FORMATS.get(PurePosixPath(path).suffix.lower(), "application/octet-stream")


def _inside(path: str) -> str:
    """Return the path of a file inside its run folder."""
    return path.split("/", 2)[2]


def _folder_id(run: ReportRun) -> str:
    return _path_id(f"{RUNS}/{run.name}/")


def _action_id(run: ReportRun) -> str:
    return f"#run-{quote(run.name)}"


def _path_id(path: str) -> str:
    """Return a path as the reference by which a crate names it."""
    return quote(path)


def _links(ids: Sequence[str]) -> Any:
    """Return references as the compact form wants them: nothing, the one, or a list."""
    links = [{"@id": each} for each in ids]
    return links[0] if len(links) == 1 else links or None


def _without_nothing(entity: Document) -> Document:
    return {key: value for key, value in entity.items() if value is not None}


def _once(graph: Sequence[Document]) -> list[Document]:
    """Return the entities with each id once: runs of one program and dataset share theirs."""
    return list({entity["@id"]: entity for entity in graph}.values())
