"""What measured runs teach plans: how long steps took and how much memory was used, over what was predicted.

Kept in the user's cache folder, one entry a run, under the kind of device that it was measured on: a TPU or a GPU by
its own name, a CPU by its model and the processors that the run could use. Every entry counts for its own kind only.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from evidence.writing import write_json
from schemas.problems import ProblemError, problem_of
from trainer.planning.estimate.part import ERROR_FRACTION, SHARDED_ERROR_FRACTION
from trainer.planning.program_memory import COMPILED_ERROR, ProgramMemory
from trainer.recorder.cache_folder import folder
from trainer.recorder.environment import environment

FILE = "calibration.json"

NAMED_RUNS = 5
"""Runs that a plan names."""

ENOUGH_FOR_MEMORY = 3
"""Runs from which on the error of a need is what was measured; a step's band is narrowed from the first run on."""

MEMORY_WITHIN = 0.01
"""Another run of the same kind is this near to the ones that were measured."""

UNMEASURED = (COMPILED_ERROR, ERROR_FRACTION, SHARDED_ERROR_FRACTION)
"""Errors that stand for a compiler or a sum in general; what was measured on the device takes their place."""


FORMULA = 3
"""What `step_ratio` is held against: 2 counts a step's bytes in its program, 3 only what is needed of it.
Entries of another one teach nothing."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One run that was measured, held against what is predicted of it."""

    run: str
    """Its id."""
    device: str
    """The kind of device, as `device_of` names it."""
    step_ratio: float
    """Seconds of its steps over the likely ones that are predicted where nothing was measured."""
    memory_ratio: float | None
    """Observed peak of arrays over the planned one. None: not observed."""
    method: str | None
    """How that plan found its need: closed_form or compiler. None: as above."""
    layer_compile_seconds: float | None = None
    """Of its step. None: it was compiled before, or not layer by layer."""
    formula: int = FORMULA

    def document(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)


def device_of(platform: str, kind: str, environment: Mapping[str, Any]) -> str:
    """Return what a kind of device is called: `TPU v5 lite`; of a CPU its model and the processors that are used.

    Args:
        platform: cpu, gpu or tpu.
        kind: as JAX calls the device.
        environment: the manifest's group of that name, or that of this machine.
    """
    if platform != "cpu":
        return kind
    return f"{environment.get('cpu') or kind}, {environment.get('cpu_count') or 'unknown'} processors"


def known() -> tuple[Measured, ...]:
    """Return every run that is kept.

    Raises:
        ProblemError: exit code 2; the file is there and holds something else.
    """
    file = folder() / FILE
    try:
        read = json.loads(file.read_text(encoding="utf-8"))
        measured = [Measured(**({"formula": 1} | entry)) for entry in read]
        return tuple(each for each in measured if each.formula == FORMULA)
    except (FileNotFoundError, NotADirectoryError):
        return ()
    except (OSError, ValueError, TypeError) as error:
        problem = problem_of("TP746", file=str(file), what=f"The calibration cannot be read: {error}.")
        raise ProblemError([problem], exit_code=2) from error


def keep(measured: Iterable[Measured]) -> Path:
    """Keep runs beside those of before; one that is measured again replaces its entry. Returns the file."""
    new = list(measured)
    again = {(each.run, each.device) for each in new}
    kept = [each for each in known() if (each.run, each.device) not in again]
    file = folder() / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    write_json(file, [each.document() for each in (*kept, *new)])
    return file


def forget() -> bool:
    """Remove all that is kept, and return whether there was something."""
    file = folder() / FILE
    there = file.is_file()
    file.unlink(missing_ok=True)
    return there


def measured_on(platform: str, kinds: Sequence[str]) -> tuple[Measured, ...]:
    """Return the kept runs of a kind of device; of a CPU those of this machine.

    Args:
        platform: cpu, gpu or tpu.
        kinds: what JAX may call the device.

    Raises:
        ProblemError: exit code 2; the file is there and holds something else.
    """
    here = environment() if platform == "cpu" else {}
    names = [device_of(platform, kind, here) for kind in kinds]
    return tuple(each for each in known() if each.device in names)


def narrowed_answers(answers: Sequence[ProgramMemory], measured: Sequence[Measured]) -> list[ProgramMemory]:
    """Return answers whose error is what was measured on the device, where enough runs were.

    The error is the largest that was measured, and a little more. A sum near the limit keeps its own: there a compiler
    computes again what it would keep, and nobody has measured that.

    Args:
        answers: of the programs of a run.
        measured: runs on the same kind of device.
    """
    return [with_measured_error(answer, measured) for answer in answers]


def with_measured_error(answer: ProgramMemory, measured: Sequence[Measured]) -> ProgramMemory:
    """Return an answer with the error that was measured of others that were found in the same way."""
    ratios = [each.memory_ratio for each in measured if each.memory_ratio is not None and each.method == answer.way]
    if len(ratios) < ENOUGH_FOR_MEMORY or answer.error_fraction not in UNMEASURED:
        return answer
    most = max(abs(ratio - 1) for ratio in ratios)
    because = f"{answer.because}; {len(ratios)} runs on this kind of device were within {most:.1%}"
    return replace(answer, error_fraction=round(most + MEMORY_WITHIN, 4), because=because)


def said_of(measured: Sequence[Measured]) -> str:
    """Return which runs narrowed a band: `narrowed by 2 runs on TPU v5 lite: first, second`."""
    names = ", ".join(each.run for each in measured[:NAMED_RUNS])
    more = f" and {len(measured) - NAMED_RUNS} more" if len(measured) > NAMED_RUNS else ""
    runs = "run" if len(measured) == 1 else "runs"
    return f"narrowed by {len(measured)} {runs} on {measured[0].device}: {names}{more}"
