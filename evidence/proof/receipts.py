"""Receipts of `trainproof replay` and `trainproof challenge`, and how much of a run they cover.

A receipt is bound to a run by the hash of its manifest, which lists every file. This user's own receipts are sealed and
saved outside of the runs; one in a run folder counts if this user made it or a trusted key signed it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from evidence import hashes, layout
from evidence.hashes import sha256_file, sha256_json
from evidence.proof.signatures import problem_error, sign, signature_path
from evidence.writing import write_json
from schemas.formats import quantity
from schemas.validate import read_document

_SEAL_PREFIX = b"trainproof receipt\n"  # so that a seal of another document is not accepted
_MAX_RECEIPTS = 64  # read per run; a hostile folder may contain any number
_MIN_DETECTION_PROBABILITY = 0.95  # that drawn segments must have for a run of which half was invented

REPRODUCED = ("identical", "within tolerance")  # verdicts of a reproduced segment

Steps = tuple[int, int]  # a segment: the step after which it begins, and its last step


def own_receipts_folder() -> Path:
    """Return the folder of this user's own receipts."""
    return layout.user_data_folder() / layout.RECEIPTS


def run_sha256(folder: Path) -> str | None:
    """Return the hash of a run's manifest, which identifies the run, or None if it cannot be read."""
    try:
        return sha256_file(folder / layout.MANIFEST)
    except OSError:
        return None


def save_receipt(receipt: dict[str, Any]) -> Path:
    """Seal a receipt of this user, save it with the others and return its path."""
    folder = own_receipts_folder() / receipt["run_sha256"]
    folder.mkdir(parents=True, exist_ok=True)
    date, time = receipt["made_at"][:23].split("T")
    path: Path = folder / f"{receipt['kind']}-{date.replace('-', '')}-{time.replace(':', '')}.json"
    write_json(path, {**receipt, "seal": hashes.make_seal(_sealed_bytes(receipt))})
    os.utime(own_receipts_folder())  # Lists of runs watch this folder only.
    return path


def receipts_version() -> int:
    """Return when this user last saved a receipt, in ns since 1970, or 0 for never."""
    try:
        return own_receipts_folder().stat().st_mtime_ns
    except OSError:
        return 0


def is_own(receipt: dict[str, Any]) -> bool:
    """Return whether this user made a receipt."""
    return hashes.verify_seal(receipt.get("seal"), _sealed_bytes(receipt))


def read_receipts(place: Path, sha256: str) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield file and document of the valid receipts in a folder that are for the run with this manifest hash."""
    try:
        paths = sorted(path for path in place.iterdir() if path.suffix == ".json" and path.is_file())
    except OSError:
        return
    for path in paths[-_MAX_RECEIPTS:]:
        receipt = _read_valid(path, "receipt")
        if receipt is not None and receipt["run_sha256"] == sha256:
            yield path, receipt


def sign_receipt(path: Path, key: Path) -> str:
    """Sign a receipt file (into a `.sig` file next to it) and return the fingerprint of the key; see `sign`."""
    if _read_valid(path, "receipt") is None:
        raise problem_error(path, "TP871", what="This is neither a bundle nor a receipt.")
    return sign(path.read_bytes(), key, signature_path(path))


def is_negative(receipt: dict[str, Any]) -> bool:
    """Return whether a receipt states that anything differs, in its result or in any part."""
    covered = receipt["covered"]
    verdicts = [covered.get("start", {}).get("verdict"), *(each["verdict"] for each in covered["segments"])]
    return receipt["result"] == "different" or "different" in verdicts or covered["items"]["different"] > 0


def _sealed_bytes(receipt: dict[str, Any]) -> bytes:
    return _SEAL_PREFIX + sha256_json({key: value for key, value in receipt.items() if key != "seal"}).encode()


@dataclass(frozen=True, kw_only=True)
class RunExtent:
    """Steps of a run, and number of answers of its model after (`trained`) and before training (`untrained`).

    `evaluated_step` is None without an evaluation.
    """

    first_step: int = 0
    last_step: int = 0
    evaluated_step: int | None = None
    trained: int = 0
    untrained: int = 0

    @property
    def steps(self) -> int:
        """Number of steps."""
        return self.last_step - self.first_step


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """How much of a run was reproduced, by one receipt or by several.

    `verified` needs every answer of the trained model, since the first steps do not show where training ended, and the
    end of the training with every step or with segments that a judge's random number drew from the whole run, since
    weights that reproduce the answers may have been bought.

    `trained` and `untrained` count reproduced answers, `segments` are disjoint and in order, and
    `detection_probability` is that of drawn segments for a run of which half of the training was invented, or 0.
    """

    of: RunExtent
    trained: int = 0
    untrained: int = 0
    segments: tuple[Steps, ...] = ()
    detection_probability: float = 0.0

    @property
    def steps(self) -> int:
        """Number of repeated steps."""
        return sum(last - first for first, last in self.segments)

    @property
    def is_score_reproduced(self) -> bool:
        """Whether every answer of the trained model was reproduced."""
        return 0 < self.of.trained <= self.trained

    @property
    def is_last_step_repeated(self) -> bool:
        """Whether the last step was repeated."""
        return any(first < self.of.last_step <= last for first, last in self.segments)

    @property
    def is_end_reached(self) -> bool:
        """Whether the last step was repeated and is the one that was evaluated."""
        return self.of.evaluated_step == self.of.last_step and self.is_last_step_repeated

    @property
    def is_training_reproduced(self) -> bool:
        """Whether enough of the training was repeated for `verified`."""
        is_drawn = self.detection_probability >= _MIN_DETECTION_PROBABILITY
        return self.is_end_reached and (self.steps >= self.of.steps or is_drawn)

    @property
    def summary(self) -> str:
        """Coverage in a few words: `reproduced: 100 of 100 answers, 4 of 2,800 steps`."""
        return f"reproduced: {self._answers_text}, {self._steps_text}"

    @property
    def description(self) -> str:
        """Coverage in two sentences, with the answers of both models."""

        def degree(count: int, total: int) -> str:
            return "not reproduced" if count == 0 else "reproduced" if count >= total else "partly reproduced"

        score = f"{degree(self.trained, self.of.trained)}: {self._answers_text} of the trained model"
        if self.of.untrained:
            score += f", {self.untrained:,} of {self.of.untrained:,} of the untrained one"
        training = f"{degree(self.steps, self.of.steps)}: {self._steps_text}"
        if self.steps:
            is_end = self.is_last_step_repeated and self.of.evaluated_step in (None, self.of.last_step)
            training += ", including its end" if is_end else ", without its end"
        return f"Score {score}. Training {training}."

    def to_document(self) -> dict[str, Any]:
        """Return the `marks` object of a receipt."""
        score = {"trained": self.trained, "trained_of": self.of.trained}
        score |= {"untrained": self.untrained, "untrained_of": self.of.untrained}
        training = {"steps": self.steps, "steps_of": self.of.steps, "end_reached": self.is_end_reached}
        return {
            "score": {"repeated": self.is_score_reproduced, **score},
            "training": {
                "repeated": self.is_training_reproduced,
                **training,
                "caught_half": self.detection_probability,
            },
            "said": self.description,
            "lacking": self.missing(),
        }

    def missing(self) -> list[str]:
        """Return what is missing for `verified`, as sentences."""
        if self.of.evaluated_step is None:
            return ["The run was not evaluated, so there is no score to reproduce."]
        score = (
            "Not every answer of the trained model was given again. `trainproof challenge` and `trainproof replay` do "
            "this if the run's parameters were kept."
        )
        training = "The end of the training, whose parameters were evaluated, was not reached."
        if self.is_end_reached:
            training = (
                f"Only {self._steps_text} were repeated, and they were not drawn at random from the whole run. "
                "`trainproof replay --ask` names the states to ask for; `--all` repeats every step."
            )
        parts = ((score, self.is_score_reproduced), (training, self.is_training_reproduced))
        return [text for text, is_reproduced in parts if not is_reproduced]

    @property
    def _answers_text(self) -> str:
        return f"{self.trained:,} of {quantity(self.of.trained, 'answer')}"

    @property
    def _steps_text(self) -> str:
        return f"{self.steps:,} of {quantity(self.of.steps, 'step')}"


def load_extent(folder: Path) -> RunExtent:
    """Load the extent of a run, with zeros for documents that are missing or not valid."""
    manifest = _read_valid(folder / layout.MANIFEST, "run_manifest") or {}
    summary = _read_valid(folder / layout.EVAL_SUMMARY, "eval_summary") or {}
    parent, training, baseline = manifest.get("parent"), manifest.get("training"), summary.get("baseline")
    return RunExtent(
        first_step=parent["step"] if parent else 0,
        last_step=training["steps_done"] if training else 0,
        evaluated_step=summary["checkpoint"]["step"] if summary else None,
        trained=summary["predictions"]["rows"] if summary else 0,
        untrained=baseline["predictions"]["rows"] if baseline else 0,
    )


def _read_valid(path: Path, kind: str) -> dict[str, Any] | None:
    document = read_document(path, kind)
    return None if document.problems else document.value


def measure_coverage(receipt: dict[str, Any], of: RunExtent) -> Coverage:
    """Measure how much of a run a receipt covers; one up to version 1.1 states no detection probability.

    Nor does it state `given_again`; a challenge drew all of its answers from the trained model.
    """
    covered = receipt["covered"]
    items = covered["items"]
    trained = items["drawn"] if receipt["kind"] == "challenge" else items.get("trained", 0)
    answers = items.get("given_again", {"trained": trained, "untrained": items["drawn"] - trained})
    reproduced = (each for each in covered["segments"] if each["verdict"] in REPRODUCED)
    return Coverage(
        of=of,
        trained=min(answers["trained"], of.trained),
        untrained=min(answers["untrained"], of.untrained),
        segments=merge_segments(((each["first_step"], each["last_step"]) for each in reproduced), of),
        detection_probability=covered.get("draw", {}).get("caught_half", 0.0),
    )


def merge_coverage(coverages: Sequence[Coverage]) -> Coverage | None:
    """Merge the coverage of several receipts of one run: the most answers of any, the steps of all; None if empty."""
    if not coverages:
        return None
    numbers = ("trained", "untrained", "detection_probability")
    most = {name: max(getattr(each, name) for each in coverages) for name in numbers}
    segments = chain.from_iterable(each.segments for each in coverages)
    return replace(coverages[0], segments=merge_segments(segments, coverages[0].of), **most)


def merge_segments(segments: Iterable[Steps], of: RunExtent) -> tuple[Steps, ...]:
    """Merge overlapping segments and clip them to the run: (0, 4), (2, 6) and (8, 9) give (0, 6) and (8, 9)."""
    found: list[Steps] = []
    for first, last in sorted((max(first, of.first_step), min(last, of.last_step)) for first, last in segments):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(last, found[-1][1]))
        elif first < last:
            found.append((first, last))
    return tuple(found)
