"""Reproduce a run: replay it or a bundle, ask its model new questions, and the commands to train it again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared import reading, state
from dashboard.shared.parts import gate, markup
from dashboard.shared.words import GRADES, date_and_time
from evidence.bundle.secrets import hide_secrets, strip_invisible
from evidence.layout import CONFIG
from evidence.proof.receipts import run_sha256
from evidence.proof.verification import explain_receipt, find_proofs
from evidence.run import Run
from launch import tasks
from launch.process import format_command
from launch.queue import is_forced
from launch.tasks import Task, TaskResult, Verb
from schemas import formats
from schemas.formats import duration
from schemas.reading import get_bool, get_number, get_objects, get_path, get_str

TICK_SECONDS = 1.0
_SAMPLE, _WHOLE, _QUESTIONS = "Random sample", "Whole run", "New questions"
_WAYS = {
    _SAMPLE: "Ten answers regenerated and all others scored; first and last segment, and random segments in between.",
    _WHOLE: "All answers, and the whole training from its seed. This takes as long as the run took.",
    _QUESTIONS: "Ten recorded answers, and new questions generated from your seed. No training step is replayed.",
}
_VERDICTS = {"identical": "✓ identical", "within tolerance": "≈ within tolerance", "different": "✕ different"}


def draw_replay(path: Path, sha256: str, *, key: str) -> None:
    """Draw what to replay of a run folder or bundle, the equivalent command, progress, and the receipt.

    `sha256` is the hash of the run's manifest or of the bundle, `key` the prefix of the keys of the widgets.
    """
    way = st.segmented_control("What to replay", list(_WAYS), default=_SAMPLE, required=True, key=f"{key} way")
    markup.note(_WAYS[way])
    verb, options = _choose_options(way, key)
    st.code(strip_invisible(format_command([verb, str(path), *options])), language=None, wrap_lines=True)
    task = tasks.replay_task(state.root(), path, sha256, verb, options)
    is_running = task.result().state == "running"
    st.fragment(run_every=TICK_SECONDS if is_running else None)(_draw_task)(task, was_running=is_running)


def _choose_options(way: str, key: str) -> tuple[Verb, list[str]]:
    """Draw the settings of a replay, and return its command and options."""
    if way == _WHOLE:
        return "replay", ["--all"]
    with st.container(horizontal=True):
        if way == _SAMPLE:
            minutes = st.number_input("Minutes at most", 1, 360, 5, key=f"{key} minutes", width=160)
            return "replay", ["--minutes", str(minutes)]
        number = st.number_input("Questions", 1, 500, 20, key=f"{key} questions", width=140)
        seed = st.number_input("Your seed", 0, 2**31 - 1, 1, key=f"{key} seed", width=180)
        return "challenge", ["--generate", str(number), "--seed", str(seed)]


def _draw_task(task: Task, *, was_running: bool) -> None:
    result = task.result()
    if was_running and result.state != "running":
        reading.look_again()  # the receipt may change the grade
        st.rerun()
    if result.state == "running":
        _draw_progress(task, result)
        return
    if result.answer is not None:
        _draw_receipt(result.answer)
    elif result.state == "failed":
        code = "" if result.exit_code is None else f" with exit code {result.exit_code}"
        markup.note(f"The replay failed{code}.")
        lines = [line for line in result.output.splitlines() if not line.startswith("{")]
        st.code("\n".join(lines), language=None, wrap_lines=True)
    if not gate.may_operate():
        markup.note("You are logged in as a viewer. Only operators can start a replay.")
    label, look = "Replay" if result.state == "none" else "Replay again", {"icon": ":material/replay:"}
    gate.act(label, task.start, "The replay could not be started", type="primary", **look)


def _draw_progress(task: Task, result: TaskResult) -> None:
    text, fraction = "Starting", 0.0
    for event in tasks.parse_events(result.output):
        done, total = event.get("step", event.get("done")), event.get("of")
        if event.get("event") in {"step", "items"} and done and total:
            text, fraction = f"{'Step' if event['event'] == 'step' else 'Answer'} {done} of {total}", done / total
    st.progress(min(1.0, fraction), text=f"{text}, {duration(round(result.seconds or 0))}")
    failed = "The replay could not be cancelled"
    gate.act("Cancel", task.cancel, failed, icon=":material/close:", key="cancel replay")


def _draw_receipt(receipt: Mapping[str, Any]) -> None:
    """Draw the result of a replay, its segments, its meaning, and the answers that differ."""
    verdict, made_at = get_str(receipt, "result") or "", get_str(receipt, "made_at")
    summary = f"{_VERDICTS.get(verdict, verdict)}: {get_str(receipt, 'said') or ''}"
    markup.note(f"{summary} {date_and_time(made_at, reading.browser_timezone())}")
    segments = []
    for segment in get_objects(receipt, "covered", "segments"):
        # A segment begins after its first step; without steps, it is a saved state.
        first, last = (get_number(segment, f"{end}_step") or 0 for end in ("first", "last"))
        steps = f"{first + 1:,.0f} to {last:,.0f}" if first + 1 < last else f"{last:,.0f}"
        segments.append(
            {
                "Steps": f"state after step {last:,.0f}" if first == last else steps,
                "Result": _VERDICTS.get(get_str(segment, "verdict") or "", "not replayed"),
                "First difference": get_str(segment, "difference") or "",
            }
        )
    if segments:
        st.dataframe(segments, hide_index=True)
    if "marks" in receipt:
        markup.bullets("What this shows", explain_receipt(receipt))
    names = {"Question": "prompt", "Expected": "expected", "Answer": "output_text"}
    failures = get_objects(receipt, "score", "failures")
    if rows := [{title: str(row.get(key) or "") for title, key in names.items()} for row in failures]:
        st.dataframe(rows, hide_index=True)


Document = Mapping[str, Any]

REQUIREMENTS = "requirements.txt"
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")


def draw_reproduce(run: Run) -> None:
    """Draw the replay of a run, and its commands."""
    if run.manifest is None:
        markup.empty("Not reproducible", "run_manifest.json is missing or cannot be read.")
        return
    sha256, grade = run_sha256(run.path), reading.check(run.path).grade
    sign = markup.sign(GRADES, grade.name, grade.coverage)
    st.html(f'<p class="tp-sub">{sign} {markup.safe(GRADES[grade.name].meaning)}</p>')
    if sha256 is None or CONFIG not in run.files:
        markup.note("To replay a run, its config.yaml is needed.")
    elif run.status == "running":
        markup.note("You can replay the run when it has ended.")
    else:
        if proofs := find_proofs(run.path, sha256):
            coverages = [f" {proof.coverage.description}" if proof.coverage else "" for proof in proofs]
            markup.bullets("Receipts", [f"{proof}{text}" for proof, text in zip(proofs, coverages, strict=True)])
        draw_replay(run.path, sha256, key=f"replay {run.path.name}")
    st.header("Retrain", anchor=False)
    name, requirements = run.path.name, pip_requirements(run.manifest)
    if problems := list(gaps(run.manifest, run.config)):
        markup.bullets("Missing for an exact reproduction", problems)
    else:
        markup.note("Commit, packages, settings and data are recorded, so an exact reproduction is possible.")
    st.code("\n".join(commands(run.manifest, run.plan, name)), language=None, wrap_lines=True)
    with st.container(horizontal=True):
        if requirements:
            markup.download(REQUIREMENTS, requirements, REQUIREMENTS)
        if CONFIG in run.files:
            markup.download(CONFIG, (run.path / CONFIG).read_bytes, CONFIG)
    if original := original_command(run.manifest):
        st.caption("Original command")
        st.code(original, language=None, wrap_lines=True)


def commands(manifest: Document, plan: Document | None, name: str) -> list[str]:
    """Return the commands that train a run again and compare both. Run them in a checkout with the run folder."""
    commit, parent = get_str(manifest, "code", "commit"), get_str(manifest, "parent", "run_id")
    source = ["--resume", parent] if parent else ["--config", CONFIG]
    force = ["--force"] if is_forced(plan, manifest) else []
    return [
        *([f"git checkout {commit}"] if commit and re.fullmatch("[0-9a-f]{7,64}", commit) else []),
        *([f"pip install -r {REQUIREMENTS}"] if pip_requirements(manifest) else []),
        _shell_line(["trainproof", "train", *source, "--output", f"{name}-again", *force]),
        _shell_line(["trainproof", "compare", name, f"{name}-again"]),
    ]


def original_command(manifest: Document) -> str:
    """Return the command that started the run, with secrets masked, or "" if it is not recorded."""
    command = get_path(manifest, "command")
    return hide_secrets(_shell_line(command)) if isinstance(command, list) else ""


def _shell_line(words: Sequence[object]) -> str:
    """Quote a command for a shell, without characters that change the order in which it is displayed."""
    return shlex.join(strip_invisible(str(word)).replace("\n", " ") for word in words)


def pip_requirements(manifest: Document) -> str:
    """Return the recorded packages for pip. Invalid names and versions are omitted: pip might interpret them."""
    packages = get_path(manifest, "environment", "packages")
    return "".join(
        f"{package}=={version}\n"
        for package, version in sorted(packages.items() if isinstance(packages, Mapping) else ())
        if isinstance(version, str) and _PACKAGE.fullmatch(str(package)) and _VERSION.fullmatch(version)
    )


def gaps(manifest: Document, config: Document | None) -> Iterator[str]:
    """Yield what prevents an exact reproduction, worst first."""
    if get_bool(manifest, "code", "dirty") is True:
        digest = get_str(manifest, "code", "diff_sha256") or "not recorded"
        yield f"The code had uncommitted changes. Only their hash is recorded: {digest}. Commit before you train."
    if get_str(manifest, "code", "commit") is None:
        yield "No commit is recorded, so the code is unknown. Train in a git checkout."
    if config is None:
        yield f"{CONFIG} is missing or cannot be read, so some settings are unknown."
    if not pip_requirements(manifest):
        yield "No package versions are recorded. Other versions may give other numbers."
    if get_str(manifest, "dataset", "sha256") is None:
        yield "No hash of the training data is recorded, so you cannot check that your data is the same."
    if get_str(manifest, "model", "weights") == "pretrained" and get_str(manifest, "model", "revision") is None:
        yield "No revision of the model is recorded, so its name may now refer to other weights."
    if (parent := get_str(manifest, "parent", "run_id")) is not None:
        step = formats.count(get_number(manifest, "parent", "step"))
        yield f"The run continues {parent} from step {step}. Reproduce that run first: its checkpoint is needed."
    if get_str(manifest, "devices", "platform") in {"gpu", "tpu"}:
        yield "Other devices sum in a different order, so the last digits will differ."
