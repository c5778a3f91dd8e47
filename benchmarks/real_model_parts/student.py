"""A student with a real model, and a judge with their bundle: every command is timed and has to end as expected."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

COMMAND = Path(sys.executable).parent / "trainproof"
BUNDLE = "first.zip"
RUN = "submission_runs/first"
OTHER = "other.gguf"
SETTINGS = {
    # Rows are short: packed, a step has half of the padding.
    "data.packing": True,
    "data.max_length": 128,
    "batch.microbatch_size": 4,
    # One pass over the rows, so that all of it takes minutes.
    "limits.steps": 72,
    "optimizer.learning_rate": 5e-4,
    "optimizer.warmup_steps": 4,
    "checkpoint.save_every_steps": 12,
}
"""What is changed of the configuration that `trainproof init` writes: it would pass over the rows three times."""


@dataclass(kw_only=True)
class Terminal:
    """Types commands and writes down what each took."""

    home: Path
    """Where commands keep what they keep for a user."""
    phases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def typed(self, phase: str, folder: Path, *arguments: str, exit_code: int = 0) -> str:
        """Run a command in a folder and return what it printed.

        Raises:
            SystemExit: it ended otherwise.
        """
        variables = {f"XDG_{kind}_HOME": str(self.home / kind.lower()) for kind in ("DATA", "STATE", "CACHE", "CONFIG")}
        log = self.home / f"{len(self.phases)}.log"
        begun = time.perf_counter()
        with log.open("w") as stream:
            process = subprocess.Popen(
                [str(COMMAND), *arguments],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=stream,
                text=True,
                env={**os.environ, "JAX_PLATFORMS": "cpu", **variables},
            )
            assert process.stdout is not None
            printed = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.phases[phase] = {
            "command": " ".join(["trainproof", *arguments]),
            "exit_code": process.returncode,
            "cpu_seconds": round(used.ru_utime + used.ru_stime, 1),
            "wall_seconds": round(time.perf_counter() - begun, 1),
            "peak_rss_mib": round(used.ru_maxrss / 1024),
        }
        print(phase, json.dumps(self.phases[phase]), flush=True)
        refused = log.read_text()
        if process.returncode != exit_code:
            message = f"{self.phases[phase]}\n{printed}\n{refused}"
            raise SystemExit(message)
        return printed + refused


def train(terminal: Terminal, folder: Path, model: str) -> None:
    """From a model and rows to a bundle."""
    terminal.typed("init", folder, "init", model, "rows.jsonl")
    changed = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    terminal.typed("train --check", folder, "train", "--config", "config.yaml", *changed, "--check", "--json")
    terminal.typed("plan --quick", folder, "plan", "--config", "config.yaml", *changed, "--quick")
    terminal.typed("train", folder, "train", "--config", "config.yaml", *changed, "--output", RUN)
    terminal.typed("check", folder, "check", RUN)
    terminal.typed("package", folder, "package", RUN, "--output", BUNDLE)


def judge(terminal: Terminal, maker: Path, folder: Path, model: str) -> dict[str, Any]:
    """In another folder, with the bundle, the base as a GGUF file, the rows and questions of one's own."""
    folder.mkdir()
    for name in (BUNDLE, model, "train.jsonl", "new.jsonl"):
        shutil.copy(maker / name, folder / name)
    changed = bytearray((folder / model).read_bytes())
    changed[-1] ^= 1
    (folder / OTHER).write_bytes(changed)
    verified = terminal.typed("verify", folder, "verify", BUNDLE, "--json")
    asked = ("--seed", "4711", "--json")
    rows = ("--dataset", "train.jsonl", "--segments", "0", "--items", "2")
    replayed = terminal.typed("replay", folder, "replay", BUNDLE, *rows, "--model", model, *asked)
    questions = ("--items", "new.jsonl", "--again", "3")
    challenged = terminal.typed("challenge", folder, "challenge", BUNDLE, *questions, "--model", model, *asked)
    refused = {
        verb: terminal.typed(f"{verb}, other base", folder, verb, BUNDLE, *given, "--model", OTHER, exit_code=3)
        for verb, given in (("replay", rows), ("challenge", questions))
    }
    verdict, replay, challenge = json.loads(verified), json.loads(replayed), json.loads(challenged)
    return {
        "verify": {"ok": verdict["ok"], "grade": verdict["runs"][0]["grade"]},
        "replay": {"result": replay["result"], "said": replay["said"], "marks": replay["marks"]["said"]},
        "challenge": {
            "result": challenge["result"],
            "said": challenge["said"],
            "can_be_true": challenge["score"]["can_be_true"],
            "found": challenge["score"]["found"],
        },
        "another_base": {verb: {"exit_code": 3, "said": refusal_in(said)} for verb, said in refused.items()},
    }


def refusal_in(printed: str) -> str:
    """Return the first error that was printed, without the folder that it is about."""
    line = next(line for line in printed.splitlines() if line.startswith("error "))
    return f"{line[: len('error TP000')]} {line.partition(': ')[2].partition(' at ')[2]}"
