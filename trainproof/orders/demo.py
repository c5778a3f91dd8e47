"""The demo on any CPU: a smoke run, a full run, LoRA adapters beside its export; check, bundle, verification, replay.

It is the product's main job with nothing left out; the dashboard is started by the command afterwards. A second call
finds the runs that are there and trains nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from evidence.index.index import check_paths
from evidence.layout import EXPORT, new_run_id
from evidence.report import report_text, score_headlines
from evidence.run import read_run
from schemas.problems import Problem, ProblemError, problem_of
from trainer.config.load import load_config
from trainer.export_run import export_run
from trainer.loop.state import REFUSED
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run
from trainproof.orders.replay import ReplayFlags, run_replay
from trainproof.orders.train import TrainFlags
from trainproof.terminal.bundles import build_text, verdict_text

ALL_OF_IT = ReplayFlags(whole=True, segments=0, items=0, minutes=None, seed=None)

CONFIGS = Path(__file__).parents[2] / "trainer" / "configs"
BUNDLES = Path("bundles")


@dataclass(frozen=True, kw_only=True)
class DemoRun:
    """One run of the demo."""

    name: str
    """Name of its folder, unless it is trained again beside an earlier one."""
    what: str
    config: Path = CONFIGS / "demo.yaml"
    smoke_steps: int | None = None
    """None: it is a full run."""


SMOKE = DemoRun(
    name="first-smoke", what="a smoke run: two steps of the demo model, to prove the pipeline", smoke_steps=2
)
FULL = DemoRun(name="first-full", what="a full run: the demo model learns to reason in a few minutes")
LORA = DemoRun(
    name="first-lora",
    what="a LoRA run: adapters beside that model learn stories of two calculations, of which it has seen none",
    config=CONFIGS / "demo_lora.yaml",
)


def carry_out(root: Path, *, again: bool, watch: Watch) -> int:
    """Carry out the demo in `root` and return its exit code: 0 if everything held.

    Args:
        root: folder of runs.
        again: train again, beside the runs that exist.
        watch: shows what happens.
    """
    smoke = train_if_missing(SMOKE, root, again=again, watch=watch)
    full = train_if_missing(FULL, root, again=again, watch=watch)
    folders = [smoke, full, train_if_missing(LORA, root, again=again, watch=watch, base=full)]
    report = check_paths(folders)
    watch.say(f"\nCheck: trainproof check {' '.join(map(str, folders))}")
    watch.say(report_text(report).rstrip())
    bundle = BUNDLES / f"{full.name}.zip"
    watch.say(f"\nBundle: trainproof package {' '.join(map(str, folders))} --output {bundle}")
    built = build_bundle(folders, bundle)
    watch.say(build_text(built).rstrip())
    watch.say(f"\nVerify: trainproof verify {bundle}")
    verdict = verify_bundle(bundle)
    watch.say(verdict_text(verdict).rstrip())
    code = repeat_training(smoke, watch)
    watch.say(f"\nScores: trainproof compare {' '.join(map(str, folders[1:]))}")
    for folder in folders[1:]:
        watch.say(score_text(folder))
    return 0 if report.ok and verdict.ok and code == 0 else 1


def repeat_training(folder: Path, watch: Watch) -> int:
    """Train a run once more from its seed, report whether it is the same, and return the exit code of `replay`.

    A run of other versions, which an earlier demo left, cannot be repeated here: that is reported and is not a failure.
    """
    watch.say(f"\nReplay: trainproof replay {folder} --all")
    try:
        receipt, code = run_replay(folder, ALL_OF_IT, output=None, quiet=True, lines=False)
    except ProblemError as error:
        if error.exit_code != REFUSED:
            raise
        watch.say(f"  not repeated: {error.problems[0].what}")
        return 0
    watch.say(f"  {folder.name}: {receipt['said']} {receipt['marks']['said']}")
    return code


def train_if_missing(demo_run: DemoRun, root: Path, *, again: bool, watch: Watch, base: Path | None = None) -> Path:
    """Return the folder of a finished run of the demo, training it if it does not exist.

    Args:
        demo_run: which.
        root: folder of runs.
        again: train again, beside the runs that exist.
        watch: shows what happens.
        base: folder of the run whose model is adapted. None: the one that the configuration names.

    Raises:
        ProblemError: the run failed or was interrupted; its exit code.
    """
    folder = root / demo_run.name
    if read_run(folder).status == "succeeded" and not again:
        watch.say(f"{folder} exists already; --again trains it again")
        return folder
    if folder.exists():
        folder = root / new_run_id(demo_run.name, datetime.now(UTC))
    watch.say(f"\n{demo_run.what[0].upper()}{demo_run.what[1:]}")
    flags = TrainFlags(smoke_steps=demo_run.smoke_steps).overrides() | {
        "model.name": None if base is None else str(export_if_missing(base, watch))
    }
    order = RunRequest(
        config=load_config(demo_run.config, flags=flags),
        folder=folder,
        command=["trainproof", "demo", *(["--again"] if again else [])],
    )
    code = run(order, watch)
    if code != 0:
        raise ProblemError([not_finished(folder)], exit_code=code)
    return folder


def export_if_missing(folder: Path, watch: Watch) -> Path:
    """Return the export of a run, written if it is not there."""
    target = folder / EXPORT
    return target if target.exists() else export_run(folder, target, watch)


def score_text(folder: Path) -> str:
    """Return a run's score before and after training, each with its 95 % interval, and the questions it is of."""
    facts = read_run(folder)
    after, _, before = (line.as_text() for line in score_headlines(facts))
    asked = (facts.eval_summary or {})["eval_set"]["name"]
    return f"  {folder.name} on {asked}: before training {before}; after it {after}"


def not_finished(folder: Path) -> Problem:
    """Return the problem of a demo whose run did not end well."""
    return problem_of(
        "TP073", file=str(folder), what="The demo's run did not finish; the lines above say why.", why=None
    )
