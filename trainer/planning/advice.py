"""What to change so that a run fits: sets of settings, each planned again for the target."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from schemas.problems import ProblemError
from trainer.config.load import setting_value
from trainer.config.seed_names import set_at
from trainer.config.tree import Config, config_of, document_of
from trainer.planning.changes import Change
from trainer.planning.estimator import Estimator
from trainer.planning.program_memory import WORST_FIRST, ProgramMemory, Verdict, worst
from trainer.planning.subject import Subject

MOST_SETS = 4
"""Sets that a compiler is asked about; each takes some seconds."""

LEAST_FREED = 0.01
"""Share of the need that a change frees at least to be named: sums are not exact to less."""

FREE = ("memory.donate",)
"""Settings that cost nothing: whoever changes anything had better have them too."""


MICROBATCH = "batch.microbatch_size"


@dataclass(frozen=True, kw_only=True)
class Advised:
    """One set of settings and what is known of the run with it."""

    changes: tuple[Change, ...]
    programs: tuple[ProgramMemory, ...]

    @property
    def verdict(self) -> Verdict:
        """Of the run with these settings."""
        return worst(program.verdict for program in self.programs)

    def document(self, need_bytes: int) -> dict[str, Any]:
        """Return the set as plan.json has it."""
        decides = deciding(self.programs)
        return {
            "set": [setting for change in self.changes for setting in change.settings],
            "verdict": self.verdict,
            "method": decides.way,
            "need_bytes": decides.peak_bytes,
            "frees_bytes": need_bytes - decides.peak_bytes,
            "costs": "; ".join(dict.fromkeys(change.costs for change in self.changes)),
        }


def deciding(programs: Sequence[ProgramMemory]) -> ProgramMemory:
    """Return the program that decides: the worst verdict, and of these the largest need."""
    return min(programs, key=lambda program: (WORST_FIRST.index(program.verdict), -program.peak_bytes))


def advice(
    subject: Subject,
    asking: Estimator,
    *,
    need_bytes: int,
    say: Callable[[str], None],
    changes: Callable[[Config], list[Change]],
) -> list[Advised]:
    """Return sets of settings with which the run fits, the cheapest first, then what helps without being enough.

    Args:
        subject: the run that does not fit, or may not.
        asking: whom to ask; sets are chosen by sums and verified by its compiler.
        need_bytes: what the run needs; a set that frees next to nothing of it is no advice.
        say: takes lines about progress.
        changes: those of a configuration that the target can compute.
    """
    quick, asking = asking.quick(), asking.brief()
    alone = changes(subject.task.config)
    summed = [(change, tuple(_programs(subject, change.config, quick))) for change in alone]
    most = (1 - LEAST_FREED) * deciding(_programs(subject, subject.task.config, quick)).peak_bytes
    enough: list[tuple[Change, ...]] = [
        (change,)
        for change, programs in summed
        if worst(each.verdict for each in programs) in ("fits", "tight") and deciding(programs).peak_bytes <= most
    ]
    sets: list[tuple[Change, ...]] = _one_of_each_kind(enough)
    together = gathered(subject, quick, changes=changes)
    if together and not any(set(_settings(together)) == set(_settings(each)) for each in sets):
        sets = [together, *sets] if not sets else [*sets, together]
    found = []
    for number, each in enumerate(sets[:MOST_SETS], 1):
        say(f"verifying {number} of {min(len(sets), MOST_SETS)} changes: {', '.join(_settings(each))}")
        found.append(verified(subject, each, asking.open_ended()))
    # Sums may say too little: where the compiler refuses a microbatch, a smaller one is tried, then the smallest.
    smaller = [each for each in enough if _kind(each[0]) == MICROBATCH and each not in sets]
    for each in smaller[:1] + smaller[1:][-1:]:
        if any(advised.verdict in ("fits", "tight") for advised in found):
            break
        say(f"verifying a smaller one: {', '.join(_settings(each))}")
        found.append(verified(subject, each, asking.open_ended()))
    for number, advised in enumerate(found):
        if any(other.verdict == "fits" for other in found):
            break
        if advised.verdict == "tight":
            say(f"settling {', '.join(_settings(advised.changes))}")
            found[number] = verified(subject, advised.changes, asking)
    found = [each for each in found if deciding(each.programs).peak_bytes <= (1 - LEAST_FREED) * need_bytes]
    return sorted(found, key=lambda advised: WORST_FIRST[::-1].index(advised.verdict))


def verified(subject: Subject, changes: tuple[Change, ...], asking: Estimator) -> Advised:
    """Return what is known of the run with these changes, the last of which has the whole configuration."""
    return Advised(changes=changes, programs=tuple(_programs(subject, changes[-1].config, asking)))


def gathered(subject: Subject, quick: Estimator, *, changes: Callable[[Config], list[Change]]) -> tuple[Change, ...]:
    """Return changes that suffice together by the sums, gathered from the cheapest on; empty where none do.

    A change that saves nothing beside the earlier ones is left out.
    """
    config, need = subject.task.config, deciding(_programs(subject, subject.task.config, quick)).peak_bytes
    taken: list[Change] = []
    kinds: set[str] = set()
    while True:
        left = [change for change in changes(config) if _kind(change) not in kinds]
        if not left:
            return ()
        change = left[0]
        kinds.add(_kind(change))
        programs = _programs(subject, change.config, quick)
        if deciding(programs).peak_bytes >= need:
            continue
        config, need = change.config, deciding(programs).peak_bytes
        taken.append(change)
        if worst(program.verdict for program in programs) == "fits":
            return pruned(subject, tuple(taken), quick)


def pruned(subject: Subject, changes: tuple[Change, ...], quick: Estimator) -> tuple[Change, ...]:
    """Return what is needed of changes that suffice together: each that costs something is left out where it may be.

    What takes back another change that was left out is no setting: the run has that value.
    """
    needed = list(changes)
    for change in changes[:-1]:
        if _kind(change) in FREE:
            continue
        others = [each for each in needed if each is not change]
        if _fits(subject, applied(subject.task.config, _settings(tuple(others))), quick):
            needed = others
    config = subject.task.config
    needed = [
        replace(each, settings=tuple(one for one in each.settings if applied(config, [one]) != config))
        for each in needed
    ]
    return tuple(
        replace(change, config=applied(config, _settings(tuple(needed[: number + 1]))))
        for number, change in enumerate(needed)
    )


def _fits(subject: Subject, config: Config, quick: Estimator) -> bool:
    """Return whether a changed run fits by the sums; what cannot be built, as full training in float16, does not."""
    try:
        programs = _programs(subject, config, quick)
    except ProblemError:
        return False
    return worst(program.verdict for program in programs) == "fits"


def applied(config: Config, settings: list[str]) -> Config:
    """Return a configuration under settings, as `--set` takes them."""
    document = document_of(config)
    for setting in settings:
        key, _, value = setting.partition("=")
        set_at(document, key, setting_value(value))
    return config_of(document)


def _programs(subject: Subject, config: Config, asking: Estimator) -> list[ProgramMemory]:
    """Return what the programs of a changed run need."""
    changed = subject.changed(config)
    return asking.programs(changed.task, changed.asked)


def _one_of_each_kind(sets: list[tuple[Change, ...]]) -> list[tuple[Change, ...]]:
    """Return the first set of each kind: of microbatches that are small enough, the largest."""
    first: dict[str, tuple[Change, ...]] = {}
    for changes in sets:
        first.setdefault(_kind(changes[0]), changes)
    return list(first.values())


def _kind(change: Change) -> str:
    return change.settings[0].partition("=")[0]


def _settings(changes: tuple[Change, ...]) -> list[str]:
    return [setting for change in changes for setting in change.settings]
