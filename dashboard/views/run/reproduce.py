"""Tab Reproduce: who reproduced a run, a button to replay it, and the commands to train it again."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import streamlit as st

from dashboard.shared import reading
from dashboard.shared.parts import markup, replay
from dashboard.shared.words import GRADES
from evidence.bundle.secrets import hide_secrets, strip_invisible
from evidence.layout import CONFIG
from evidence.proof.receipts import run_sha256
from evidence.proof.verification import find_proofs
from evidence.run import Run
from launch.queue import is_forced
from schemas import formats
from schemas.reading import get_bool, get_number, get_path, get_str

Document = Mapping[str, Any]

REQUIREMENTS = "requirements.txt"
_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9.+!_-]*")


def draw_reproduce(run: Run) -> None:
    """Draw the replay of a run, and its commands."""
    if run.manifest is None:
        markup.empty("Not reproducible", "run_manifest.json is missing or cannot be read.")
        return
    _draw_replay(run)
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


def _draw_replay(run: Run) -> None:
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
        replay.draw_replay(run.path, sha256, key=f"replay {run.path.name}")


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
