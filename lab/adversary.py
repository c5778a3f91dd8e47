"""What a person finds out who lies with care: lies in one place, with every derived figure, and told everywhere.

Each lie is told in a copy of a real run, and every hash, the chain's too, is made to fit. *Single*: one value. *Deep*:
what follows from it is computed anew. *Wide*: configuration, manifest, log, plan and summary all say the same. Then a
run that nobody trained, written from nothing, and absurd variants of it. Counted is what `check` says alone, and with
`--replay` what repeating the whole run adds.

Last, a run is trained here. Sixty-six lies are told of it: fifty-one of a third liar, and fifteen in which a part was
trained and the rest invented (one of these is honest). They are always repeated, and counted is whether *training
repeated* ever covers a step that is not as it is told.

    python lab/adversary.py               # writes benchmarks/results/adversary.json; ten minutes
    python lab/adversary.py --told-alone  # without the last part, which stays as it is stored
    python lab/adversary.py --replay      # repeats every other lie too that check does not find; minutes each
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "support"))

from adversary_parts.again import AGAIN
from adversary_parts.forged import VARIANTS, forged_run
from adversary_parts.forged_gpu import forged_gpu
from adversary_parts.gpu_variants import GPU_VARIANTS
from adversary_parts.lies import LIES, Values
from adversary_parts.partly import Repeated, honest_run, repeated, told_in_part
from adversary_parts.third import THIRD, false_steps
from leaves import Forger, Forgery

from evidence import layout
from evidence.grade import check_run
from evidence.hashes import Chain
from evidence.run import read_run

REPOSITORY = Path(__file__).parents[1]
RESULT = REPOSITORY / "benchmarks" / "results" / "adversary.json"
RUN = "tests/cases/earlier/demo-smoke"
DIFFERENT = 1
"""Exit code of a replay that found a difference."""


@dataclass(frozen=True, kw_only=True)
class Told:
    """One lie, and what was said of it."""

    family: str
    name: str
    grade: str
    codes: tuple[str, ...]
    replay: bool | None
    """Whether repeating the run found it; None: not tried."""


def told_lies(root: Path, *, with_replay: bool) -> Iterator[Told]:
    """Yield every lie about the real run."""
    forger = Forger(REPOSITORY / RUN, root / Path(RUN).name)
    known = codes_of(forger.folder)[1]
    if with_replay and replay_differs(forger.folder):
        message = f"{RUN} itself cannot be repeated here, so that no lie can be told from it."
        raise SystemExit(message)
    for family, name, tell in (*LIES, *((f"{family}, again", name, tell) for family, name, tell in AGAIN)):
        folder = write(forger, tell)
        grade, codes = codes_of(folder)
        new = tuple(sorted(set(codes) - set(known)))
        replayed = replay_differs(folder) if with_replay and not new else None
        yield Told(family=family, name=name, grade=grade, codes=new, replay=replayed)


def forgeries(root: Path) -> Iterator[Told]:
    """Yield the run that nobody trained, and its absurd variants."""
    for name, changes in VARIANTS.items():
        grade, codes = codes_of(forged_run(root, name, changes))
        yield Told(family="forged", name=name, grade=grade, codes=codes, replay=None)
    for name, change in GPU_VARIANTS.items():
        grade, codes = codes_of(forged_gpu(REPOSITORY / RUN, root / "again", name, change))
        yield Told(family="forged, again", name=name, grade=grade, codes=codes, replay=None)


def third_lies(root: Path) -> Iterator[tuple[Told, list[Repeated]]]:
    """Yield the third liar's lies and what repeating each whole says; one that check finds is repeated too."""
    forger = Forger(honest_run(root), root / "third" / "partly")
    honest, (_, known) = forger.values[layout.METRICS], codes_of(forger.folder)
    for family, name, tell in THIRD:
        folder = write(forger, tell)
        grade, codes = codes_of(folder)
        rows = [json.loads(line) for line in (folder / layout.METRICS).read_text("utf-8").splitlines()]
        false = false_steps(family, rows, honest)
        came = list(repeated(folder, frozenset(row["step"] for row in honest) - false, whole=True))
        found = tuple(sorted(set(codes) - set(known)))
        different = any(each.result == "different" for each in came)
        yield Told(family=family, name=name, grade=grade, codes=found, replay=different), came


def in_part(root: Path) -> Iterator[tuple[Told, list[Repeated]]]:
    """Yield the runs of which a part was trained, and what the judge's numbers and a whole repetition say."""
    for each, folder, came in told_in_part(root):
        grade, codes = codes_of(folder)
        different = any(one.result == "different" for one in came)
        yield Told(family="in part", name=each.name, grade=grade, codes=codes, replay=different), came


def write(forger: Forger, tell: Callable[[Values], None]) -> Path:
    """Tell a lie in the copy and make every hash fit."""
    forger.restore()
    original = forger.values
    forger.values = deepcopy(original)
    tell(forger.values)
    chain_again(forger.folder, forger.values)
    forger._reseal(forger.values, Forgery(file="all", what="told"))
    forger.values = original
    return forger.folder


def chain_again(folder: Path, values: Values) -> None:
    """Make the chain anew over the rows as they are told; what it states of states stays, nobody computed others."""
    chain = Chain()
    rows = [json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in values[layout.METRICS]]
    written = 0
    for line in (folder / layout.CHAIN).read_text("utf-8").splitlines():
        entry = json.loads(line)
        for row in rows[written : entry["rows"]]:
            chain.row(row)
        written = max(written, entry["rows"])
        stated = ("step", "data_position", "state_sha256", "params_sha256")
        chain.entry(**{key: entry[key] for key in stated})
    (folder / layout.CHAIN).write_text("".join(json.dumps(entry) + "\n" for entry in chain.entries), "utf-8")
    values[layout.MANIFEST]["chain"] = chain.document()


def codes_of(folder: Path) -> tuple[str, tuple[str, ...]]:
    """Return the grade of a run, and the codes of its errors and warnings."""
    report = check_run(read_run(folder))
    return report.grade.name, tuple(sorted({each.code for each in report.findings if each.severity != "note"}))


def replay_differs(folder: Path) -> bool:
    """Return whether `trainproof replay --all` says that the run is not what it states.

    A replay that was refused, or that failed for another reason, found nothing.
    """
    command = [sys.executable, "-m", "trainproof", "replay", str(folder), "--all", "--json"]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != DIFFERENT:
        return False
    answer = json.loads(done.stdout)
    return bool(answer.get("result") == "different")


def counted(told: list[Told]) -> dict[str, Any]:
    """Return how many of each family were found, and which were not."""
    result = {}
    for family in dict.fromkeys(each.family for each in told):
        ours = [each for each in told if each.family == family]
        found = [each for each in ours if each.codes]
        tried = [each for each in ours if each.replay is not None]
        result[family] = {
            "lies": len(ours),
            "found": len(found),
            "above_consistent": sum(each.grade == "verified" for each in ours),
            "replay_tried": len(tried),
            "replay_found": sum(bool(each.replay) for each in tried),
            "not_found": [each.name for each in ours if not each.codes and not each.replay],
            "found_by": {each.name: list(each.codes) for each in found},
        }
    return result


def repeated_lies(root: Path) -> dict[str, Any]:
    """Return what came of the lies about a run that is trained here, all of which are repeated."""
    return {"third": repetitions(list(third_lies(root))), "in part": repetitions(list(in_part(root / "parts")))}


def repetitions(told: list[tuple[Told, list[Repeated]]]) -> dict[str, Any]:
    """Return what was said of lies that were repeated, each by its name, and how often a false step was counted."""
    return {
        "lies": len(told),
        "check_found": sum(bool(each.codes) for each, _ in told),
        "replay_found": sum(bool(each.replay) for each, _ in told),
        "verified_with_false_steps": sum(one.verifies and one.false_steps > 0 for _, came in told for one in came),
        "false_steps_repeated": sum(one.false_steps for _, came in told for one in came),
        "neither": [each.name for each, _ in told if not each.codes and not each.replay],
        "told": {
            each.name: {
                "family": each.family,
                "codes": list(each.codes),
                "repeated": {one.how: f"{one.result}, {one.steps} steps" for one in came},
            }
            for each, came in told
        },
    }


def main() -> None:
    """Tell, forge, count, print, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replay", action="store_true")
    parser.add_argument("--told-alone", action="store_true", help="keep what is stored of the run that is trained here")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        # Programs that one repetition compiled are there for the next.
        os.environ["JAX_COMPILATION_CACHE_DIR"] = str(root / "compiled")
        os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
        told = [*told_lies(root, with_replay=asked.replay), *forgeries(root)]
        again = json.loads(RESULT.read_text("utf-8"))["repeated"] if asked.told_alone else repeated_lies(root)
    result = {"run": RUN, "families": counted(told), "repeated": again}
    for family, count in result["families"].items():
        sys.stdout.write(f"{family:<8} {count['found']:>3} of {count['lies']:>3} found; not: {count['not_found']}\n")
    for name, count in again.items():
        sys.stdout.write(
            f"{name:<8} {count['check_found']:>3} of {count['lies']:>3} found by check, {count['replay_found']} by "
            f"replay; false steps repeated: {count['false_steps_repeated']}; neither: {count['neither']}\n"
        )
    RESULT.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
