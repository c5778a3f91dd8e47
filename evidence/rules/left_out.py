"""TP525: what the recorder of a run's own version always writes, and this run leaves out.

Rules compare a fact wherever it is stated; without it they say nothing. So that leaving a fact out is no way around
them, a run that follows the present version of the schemas is held to everything that its recorder writes.
"""

from __future__ import annotations

from collections.abc import Iterator

from evidence.records.facts import Document, Facts
from evidence.records.values import found
from evidence.run import layout
from schemas.catalog import VERSION
from schemas.problems.problem import Problem
from schemas.problems.rule import Rule, first_few
from schemas.problems.words import listed

LEFT_OUT = Rule(
    "TP525",
    "Fact left out that the recorder writes",
    "The recorder of this version always writes it, and rules hold other statements against it.",
    "Restore the file as the run wrote it; if it is lost, run again.",
)

OF_CODE = ("committed_at", "source")
OF_EVENTS = {
    "run_started": ("run_id",),
    "devices_chosen": ("platform", "count"),
    "planned": ("need_bytes",),
    "compiled": ("compile_seconds", "lengths", "family", "weights_sha256", "state_bytes", "aliased_bytes"),
    "checkpoint_saved": ("step", "seconds"),
    "trained": ("train_seconds", "peak_memory_bytes"),
    "evaluated": ("metrics", "eval_set_sha256", "params_sha256"),
    "run_sealed": ("manifest_sha256",),
}
"""Fields of the events of every run."""
OF_ROWS = ("padding_fraction",)


def nothing_is_left_out(facts: Facts) -> Iterator[Problem]:
    """Yield a problem for each document, event and row of a present run that lacks what its recorder writes."""
    if facts.manifest is None or not facts.succeeded or facts.manifest["schema_version"] != VERSION:
        return
    if absent := _absent(facts.manifest["code"], OF_CODE):
        what = f"{layout.MANIFEST} does not state {listed(absent, last='and')} of the code."
        yield found(facts.folder, LEFT_OUT, layout.MANIFEST, what, pointer="/code")
    if "effective" not in facts.manifest:
        what = f"{layout.MANIFEST} does not state what came of each setting (effective)."
        yield found(facts.folder, LEFT_OUT, layout.MANIFEST, what)
    yield from first_few(_of_events(facts))
    yield from first_few(_of_rows(facts))


def _of_events(facts: Facts) -> Iterator[Problem]:
    for line, record in enumerate(facts.log or [], start=1):
        if absent := _absent(record["fields"], OF_EVENTS.get(record["event"], ())):
            what = f"The event {record['event']} does not state {listed(absent, last='and')}."
            yield found(facts.folder, LEFT_OUT, layout.LOG, what, line=line, pointer="/fields")


def _of_rows(facts: Facts) -> Iterator[Problem]:
    for line, row in enumerate(facts.metrics or [], start=1):
        if absent := _absent(row, OF_ROWS):
            what = f"The row of step {row['step']} does not state {listed(absent, last='and')}."
            yield found(facts.folder, LEFT_OUT, layout.METRICS, what, line=line)


def _absent(holder: Document, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name not in holder]


CHECKS = (nothing_is_left_out,)
