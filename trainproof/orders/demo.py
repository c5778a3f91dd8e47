"""The demo: a smoke run, a full run, their evaluation, the check, the bundle and its verification, on any CPU.

It is the product's main job with nothing left out; the dashboard is started by the command afterwards. A second call
finds the runs that are there and trains nothing again.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from evidence.bundle.build import build_bundle
from evidence.bundle.verify import verify_bundle
from evidence.index.check import check_paths
from evidence.judge.report_forms import report_text
from evidence.records.ours import read_run
from evidence.run.layout import new_run_id
from schemas.problems.problem import Problem, ProblemError
from schemas.problems.rule import Rule, problem_of
from trainer.config.load import load_config
from trainer.recorder.progress import Watch
from trainer.run import RunRequest, run
from trainproof.terminal.bundles import build_text, verdict_text

DEMO_UNFINISHED = Rule(
    "TP073",
    "Demo unfinished",
    "A run of the demo did not end well.",
    "Run the demo again: it starts a new run beside this one.",
)

CONFIGS = Path(__file__).parents[2] / "trainer" / "configs"
BUNDLES = Path("bundles")


@dataclass(frozen=True, kw_only=True)
class DemoRun:
    """One run of the demo."""

    name: str
    """Name of its folder, unless it is trained again beside an earlier one."""
    what: str
    overlay: Path | None = None


DEMO_RUNS = (
    DemoRun(
        name="first-smoke",
        what="a smoke run: two steps of the smallest model, to prove the pipeline",
        overlay=CONFIGS / "smoke_tiny.yaml",
    ),
    DemoRun(name="first-full", what="a full run: the demo model learns to reason in a few minutes"),
)


def carry_out(root: Path, *, again: bool, watch: Watch) -> int:
    """Carry out the demo in `root` and return its exit code: 0 if everything held.

    Args:
        root: folder of runs.
        again: train again, beside the runs that exist.
        watch: shows what happens.
    """
    folders = [trained(demo_run, root, again=again, watch=watch) for demo_run in DEMO_RUNS]
    report = check_paths(folders)
    watch.say(f"\nCheck: trainproof check {' '.join(map(str, folders))}")
    watch.say(report_text(report).rstrip())
    bundle = BUNDLES / f"{folders[-1].name}.zip"
    watch.say(f"\nBundle: trainproof package {' '.join(map(str, folders))} --output {bundle}")
    built = build_bundle(folders, bundle)
    watch.say(build_text(built).rstrip())
    watch.say(f"\nVerify: trainproof verify {bundle}")
    verdict = verify_bundle(bundle)
    watch.say(verdict_text(verdict).rstrip())
    return 0 if report.ok and verdict.ok else 1


def trained(demo_run: DemoRun, root: Path, *, again: bool, watch: Watch) -> Path:
    """Return the folder of a finished run of the demo, training it if it does not exist.

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
    config = CONFIGS / "demo.yaml"
    flags = {"mode": "smoke"} if demo_run.overlay else {}
    order = RunRequest(
        config=load_config(config, overlay=demo_run.overlay, flags=flags),
        folder=folder,
        command=["trainproof", "demo", *(["--again"] if again else [])],
    )
    code = run(order, watch)
    if code != 0:
        raise ProblemError([not_finished(folder)], exit_code=code)
    return folder


def not_finished(folder: Path) -> Problem:
    """Return the problem of a demo whose run did not end well."""
    return problem_of(
        DEMO_UNFINISHED, file=str(folder), what="The demo's run did not finish; the lines above say why.", why=None
    )
