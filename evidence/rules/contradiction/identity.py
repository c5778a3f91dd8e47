"""Which run this is: the run id, stated in several documents, in the log and as the folder's name."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from evidence.records.facts import Facts, finding
from evidence.run import layout
from schemas.problems import Problem, truncate_problems


def run_id_in_documents(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each document that states another run id than the manifest."""
    if facts.manifest is None:
        return
    run_id = facts.manifest["run_id"]
    for name, document in ((layout.FIRST_EXAMPLES, facts.first_examples), (layout.EVAL_SUMMARY, facts.eval_summary)):
        if document is not None and document["run_id"] != run_id:
            yield finding(
                facts.folder,
                "TP301",
                name,
                f"{name} belongs to the run {document['run_id']}; the manifest is that of {run_id}.",
                expected=run_id,
                pointer="/run_id",
            )


def run_id_in_command(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the command line gave the run another folder than its name."""
    if facts.manifest is None or "--output" not in facts.manifest["command"][:-1]:
        return
    command = facts.manifest["command"]
    index = command.index("--output") + 1
    name = PurePath(command[index].replace("\\", "/")).name
    if name not in {facts.manifest["run_id"], "", "..", "."}:
        yield finding(
            facts.folder,
            "TP301",
            layout.MANIFEST,
            f"The command line asked for the folder {name}; the run is {facts.manifest['run_id']}.",
            expected=facts.manifest["run_id"],
            pointer=f"/command/{index}",
        )


def run_id_in_log(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each event that names another run."""
    if facts.manifest is not None and facts.log:
        yield from truncate_problems(_events_of_others(facts, facts.manifest["run_id"]))


def _events_of_others(facts: Facts, run_id: str) -> Iterator[Problem]:
    for line, record in enumerate(facts.log or (), start=1):
        stated = record["fields"].get("run_id", run_id)
        if stated != run_id:
            yield finding(
                facts.folder,
                "TP301",
                layout.LOG,
                f"The event {record['event']} belongs to the run {stated}; the manifest is that of {run_id}.",
                expected=run_id,
                line=line,
            )


def folder_name(facts: Facts) -> Iterator[Problem]:
    """Yield a note where the folder has another name than the run."""
    name = facts.folder.resolve().name
    if facts.manifest is not None and facts.manifest["run_id"] != name:
        yield finding(facts.folder, "TP302", "", f"The folder {name} holds the run {facts.manifest['run_id']}.")


CHECKS = (run_id_in_documents, run_id_in_command, run_id_in_log, folder_name)
