"""Runs of which a part was trained and the rest was invented, told as whole, and what replays say of them.

The run is real: forty steps of the smallest model, here, with a chain entry after each step, as a forger would choose.
What is told of it is false from some step on, up to some step, or in between. Each is repeated with three numbers of a
judge, and once whole. Counted is whether *training repeated* ever covers a step that is not as it is told.
"""

from __future__ import annotations

import hashlib
import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from forging import forged, manifest_of, rows_of, write_rows
from safetensors.numpy import load_file, save_file

from evidence.proof.marks import marks_of, stated_of
from evidence.run import layout
from evidence.run.write import write_json
from evidence.scores.reading import Scoring, accepted_of
from evidence.scores.recompute import scores_of
from schemas.problems import ProblemError
from trainer.config.load import load_config
from trainer.loop.kept_states import kept_steps, state_path
from trainer.recorder.progress import Watch
from trainer.replay.recorded import ReplayRequest
from trainer.replay.replay import replay
from trainer.run import RunRequest, run

STEPS = 40
SEEDS = (7, 99, 4711)
BASE = Path(__file__).parents[2] / "trainer" / "configs" / "tiny.yaml"
SETTINGS = (
    f"limits.steps={STEPS}",
    "recording.chain_every_steps=1",
    "data.max_length=96",
    "evaluation.max_new_tokens=4",
)

Tell = Callable[[Path], None]
"""Makes a copy of the run false."""


@dataclass(frozen=True, kw_only=True)
class Partly:
    """A run that was trained in part."""

    name: str
    trained: frozenset[int]
    """Steps that are as they are told."""
    tell: Tell


@dataclass(frozen=True, kw_only=True)
class Repeated:
    """What came of one repetition."""

    how: str
    """The judge's number, `all`, or `a moment`."""
    result: str
    """As the receipt has it, or the codes of a refusal."""
    steps: int
    """Steps that count as repeated."""
    false_steps: int
    """Those among them that are not as they are told."""
    verifies: bool
    """Whether it would be enough for the word `verified`."""


def honest_run(root: Path) -> Path:
    """Train the run, and return its folder as a bundle would have it."""
    folder = root / "partly"
    config = load_config(BASE, settings=list(SETTINGS))
    with Watch(quiet=True) as watch:
        run(RunRequest(config=config, folder=folder, command=["trainproof", "train", "--config", str(BASE)]), watch)
    shutil.rmtree(folder / layout.CHECKPOINTS)
    return folder


def repeated(folder: Path, trained: frozenset[int], *, whole: bool = False) -> Iterator[Repeated]:
    """Yield what repetitions say of a run of which some steps are as they are told.

    Args:
        folder: of the run.
        trained: those steps.
        whole: repeat it whole alone.
    """
    requests = {"all": ReplayRequest(folder=folder, whole=True, seed=0)}
    if not whole:
        requests |= {str(seed): ReplayRequest(folder=folder, seed=seed) for seed in SEEDS}
        requests["a moment"] = ReplayRequest(folder=folder, seed=7, minutes=0.0005)
    for how, request in requests.items():
        try:
            receipt, _ = replay(request, lambda _: None, lambda _: None)
        except ProblemError as error:
            codes = " ".join(sorted({each.code for each in error.problems}))
            yield Repeated(how=how, result=f"refused {codes}", steps=0, false_steps=0, verifies=False)
            continue
        marks = marks_of(receipt, stated_of(folder))
        counted = {step for first, last in marks.parts for step in range(first + 1, last + 1)}
        is_good = receipt["result"] in ("identical", "within tolerance")
        yield Repeated(
            how=how,
            result=receipt["result"],
            steps=len(counted),
            false_steps=len(counted - trained),
            verifies=marks.is_enough and is_good,
        )


def invented(steps: range, *, states: str = "dropped", score: bool = False, rows: str = "lower") -> Tell:
    """Return a lie: what is told of some steps was not computed.

    Args:
        steps: which.
        states: what becomes of their states in the run: `dropped`, `noise` with hashes that fit, or `left`.
        score: whether every answer is told to be right.
        rows: what becomes of their rows: `lower` losses, `null` norms, or `left`.
    """

    def tell(folder: Path) -> None:
        draw = random.Random(len(steps))
        told = rows_of(folder)
        for row in told:
            if row["step"] in steps:
                _other_row(row, rows, draw)
        hashes = {} if states == "left" else {step: f"{draw.getrandbits(256):064x}" for step in steps}
        for step in {*hashes} & {*kept_steps(folder)}:
            if states == "noise":
                hashes[step] = _noise(folder, step, draw)
            else:
                _drop(folder, state_path(folder, step))
        params = {STEPS: f"{draw.getrandbits(256):064x}"} if STEPS in hashes else {}
        if params:
            _drop(folder, folder / layout.TRAINED_PARAMS)
        if params or score:
            _evaluated(folder, params.get(STEPS), all_right=score)
        forged(folder, told, states=hashes, params=params)

    return tell


def on_a_card(tell: Tell) -> Tell:
    """Return a lie with another: an RTX 4090 did it."""

    def both(folder: Path) -> None:
        kind = "NVIDIA GeForce RTX 4090"
        tell(folder)
        document = manifest_of(folder)
        document["devices"] |= {"platform": "gpu", "kind": kind, "list": [{"id": 0, "kind": kind}]}
        write_json(folder / layout.MANIFEST, document)
        forged(folder)

    return both


def _other_row(row: dict[str, Any], rows: str, draw: random.Random) -> None:
    if rows == "lower":
        row["loss"] = float(np.float32(row["loss"] * 0.6))
        row["grad_norm"] = float(np.float32(row["grad_norm"] * draw.uniform(0.7, 1.2)))
    elif rows == "null":
        row["grad_norm"] = None


def _noise(folder: Path, step: int, draw: random.Random) -> str:
    """Put noise in place of a state, and return a hash for it."""
    path, dice = state_path(folder, step), np.random.default_rng(step)
    arrays = load_file(path)
    save_file({name: dice.standard_normal(each.shape).astype(each.dtype) for name, each in arrays.items()}, path)
    return hashlib.sha256(path.read_bytes() + draw.randbytes(1)).hexdigest()


def _drop(folder: Path, path: Path) -> None:
    """Delete a file of the run, and what the manifest says of it."""
    path.unlink(missing_ok=True)
    document = manifest_of(folder)
    name = path.relative_to(folder).as_posix()
    document["artifacts"] = [each for each in document["artifacts"] if each["path"] != name]
    write_json(folder / layout.MANIFEST, document)


def _evaluated(folder: Path, params: str | None, *, all_right: bool) -> None:
    """Tell that other parameters were evaluated, or that every answer was right."""
    path = folder / layout.EVAL_SUMMARY
    summary: dict[str, Any] = json.loads(path.read_text("utf-8"))
    if params is not None:
        summary["checkpoint"]["params_sha256"] = params
    if all_right:
        found = rows_of(folder, layout.PREDICTIONS)
        for row in found:
            row["output_text"] = f"<answer>{row['expected']}</answer>"
            verdict = Scoring().verdict(row["output_text"], row["finish_reason"], accepted_of(row))
            row |= {key: value for key, value in verdict.items() if key in row}
        write_rows(folder, layout.PREDICTIONS, found)
        summary |= scores_of(found)
        content = (folder / layout.PREDICTIONS).read_bytes()
        summary["predictions"]["sha256"] = hashlib.sha256(content).hexdigest()
    write_json(path, summary)


def _all_but(*steps: int) -> frozenset[int]:
    return frozenset(range(1, STEPS + 1)) - set(steps)


PARTLY: tuple[Partly, ...] = (
    Partly(
        name="4 of 40 steps and every answer right",
        trained=frozenset(range(1, 5)),
        tell=invented(range(5, 41), score=True),
    ),
    Partly(name="no step", trained=frozenset(), tell=invented(range(1, 41))),
    Partly(name="one step", trained=frozenset({1}), tell=invented(range(2, 41))),
    Partly(name="the first half, then no states", trained=frozenset(range(1, 21)), tell=invented(range(21, 41))),
    Partly(
        name="the first half, then states of noise",
        trained=frozenset(range(1, 21)),
        tell=invented(range(21, 41), states="noise"),
    ),
    Partly(
        name="the first half, then lower losses between honest states",
        trained=frozenset(range(1, 21)),
        tell=invented(range(21, 41), states="left"),
    ),
    Partly(
        name="no gradient norms in the second half",
        trained=frozenset(range(1, 21)),
        tell=invented(range(21, 41), states="left", rows="null"),
    ),
    Partly(
        name="states of the second half alone",
        trained=frozenset(range(1, 21)),
        tell=invented(range(21, 41), rows="left"),
    ),
    Partly(name="all but the last part", trained=frozenset(range(1, 39)), tell=invented(range(39, 41))),
    Partly(name="all but a part in the middle", trained=_all_but(21, 22), tell=invented(range(21, 23))),
    Partly(name="the second half alone", trained=frozenset(range(21, 41)), tell=invented(range(1, 21))),
    Partly(
        name="the second half alone, states of noise before",
        trained=frozenset(range(21, 41)),
        tell=invented(range(1, 21), states="noise"),
    ),
    Partly(
        name="half, on a card that was never there",
        trained=frozenset(),
        tell=on_a_card(invented(range(21, 41))),
    ),
    Partly(
        name="all of it, and every answer told right",
        trained=_all_but(),
        tell=invented(range(0), states="left", score=True),
    ),
    Partly(name="all of it, as it was", trained=_all_but(), tell=lambda folder: None),
)
"""The last is honest: all that is told of it was trained."""


def told_in_part(root: Path) -> Iterator[tuple[Partly, Path, list[Repeated]]]:
    """Yield each of them with its folder and what repetitions say."""
    original = honest_run(root)
    for each in PARTLY:
        folder = root / "told" / original.name
        shutil.rmtree(folder.parent, ignore_errors=True)
        shutil.copytree(original, folder)
        each.tell(folder)
        yield each, folder, list(repeated(folder, each.trained))
