"""What the log says of a run against what its documents say: the same fact, written down when it happened."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from evidence.records.facts import Document, Facts
from evidence.records.values import found, same, value_at
from evidence.run import layout
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, first_few
from schemas.problems.words import shown

OTHER_IN_LOG = Rule(
    "TP360",
    "Log states something else",
    "The event was logged when it happened; the document states the same fact differently.",
    "Restore log.jsonl and the document as the run wrote them.",
)


@dataclass(frozen=True, kw_only=True)
class Logged:
    """A field of an event that a document states too."""

    event: str
    field: str
    document: str
    pointer: str


LOGGED = (
    Logged(event="devices_chosen", field="platform", document=layout.MANIFEST, pointer="/devices/platform"),
    Logged(event="devices_chosen", field="count", document=layout.MANIFEST, pointer="/devices/count"),
    Logged(event="planned", field="need_bytes", document=layout.PLAN, pointer="/need_bytes"),
    Logged(event="compiled", field="compile_seconds", document=layout.MANIFEST, pointer="/result/compile_seconds"),
    Logged(event="compiled", field="family", document=layout.MANIFEST, pointer="/model/family"),
    Logged(event="compiled", field="weights_sha256", document=layout.MANIFEST, pointer="/model/weights_sha256"),
    Logged(event="compiled", field="state_bytes", document=layout.MANIFEST, pointer="/training/donation/state_bytes"),
    Logged(
        event="compiled", field="aliased_bytes", document=layout.MANIFEST, pointer="/training/donation/aliased_bytes"
    ),
    Logged(event="trained", field="train_seconds", document=layout.MANIFEST, pointer="/result/train_seconds"),
    Logged(event="trained", field="peak_memory_bytes", document=layout.MANIFEST, pointer="/result/peak_memory_bytes"),
    Logged(event="evaluated", field="eval_set_sha256", document=layout.EVAL_SUMMARY, pointer="/eval_set/sha256"),
    Logged(event="evaluated", field="params_sha256", document=layout.EVAL_SUMMARY, pointer="/checkpoint/params_sha256"),
)


def log_states_the_same(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each event that states a fact otherwise than the document does."""
    yield from first_few(_differences(facts, facts.log or []))


def log_ends_with_the_run(facts: Facts) -> Iterator[Problem]:
    """Yield problems for checkpoints after the last step, and scores in the log that the summary does not state."""
    if facts.training is None or not facts.is_sealed:
        return
    done = facts.training["steps_done"]
    for line, record in enumerate(facts.log or [], start=1):
        step = record["fields"].get("step")
        if record["event"] == "checkpoint_saved" and isinstance(step, int) and step > done:
            what = f"A checkpoint was saved at step {step}; the manifest states {done} steps done."
            yield found(facts.folder, OTHER_IN_LOG, layout.LOG, what, expected=f"at most {done}", line=line)
            return
    yield from _other_scores(facts)


def _differences(facts: Facts, log: Sequence[Document]) -> Iterator[Problem]:
    documents = {layout.MANIFEST: facts.manifest, layout.PLAN: facts.plan, layout.EVAL_SUMMARY: facts.eval_summary}
    for line, record in enumerate(log, start=1):
        for logged in LOGGED:
            if record["event"] != logged.event or logged.field not in record["fields"]:
                continue
            document = documents[logged.document]
            stated = None if document is None else value_at(document, logged.pointer)
            here = record["fields"][logged.field]
            # What the document leaves open, another rule asks for.
            if stated is not None and not same(here, stated):
                what = (
                    f"The event {logged.event} states {logged.field} {shown(here)}; "
                    f"{logged.document} states {shown(stated)} at {logged.pointer}."
                )
                yield found(facts.folder, OTHER_IN_LOG, layout.LOG, what, expected=shown(stated), line=line)


def _other_scores(facts: Facts) -> Iterator[Problem]:
    """Yield a problem where the last evaluation in the log has another score than the summary."""
    evaluations = [
        (line, record["fields"]["metrics"])
        for line, record in enumerate(facts.log or [], start=1)
        if record["event"] == "evaluated" and "metrics" in record["fields"]
    ]
    if facts.eval_summary is None or not evaluations:
        return
    line, metrics = evaluations[-1]
    if metrics != facts.eval_summary["metrics"]:
        what = "The event evaluated states other metrics than eval_summary.json."
        yield found(facts.folder, OTHER_IN_LOG, layout.LOG, what, line=line)


CHECKS = (log_states_the_same, log_ends_with_the_run)
