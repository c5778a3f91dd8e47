"""The story of a first configuration: look → choose → write, or refuse with everything that is wrong."""

from __future__ import annotations

import os
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from evidence.targets import THIS_MACHINE, Target, load_target
from evidence.writing import write_error
from schemas.formats import size
from schemas.problems import Problem, ProblemError, collect_problems, problem_of, rule
from schemas.reading import write_yaml
from trainer.config.load import USAGE
from trainer.config.tree import Config, ModelConfig
from trainer.first_config.choice import Choice, base_config, choose
from trainer.first_config.look import ModelAndData, look_at
from trainer.first_config.reasons import Reason, reasons_of
from trainer.first_config.split import line_of
from trainer.first_config.values import percentiles, run_name
from trainer.runtime import init_runtime, this_machine

TRAINING, ITEMS = "train.jsonl", "eval.jsonl"


@dataclass(frozen=True, kw_only=True)
class Order:
    """A request."""

    model: str
    data: str
    eval_set: str | None
    on: str | None
    """The machine that it is to fit, as of `plan --on`. None: this one."""
    output: Path
    """Of the configuration; rows that are split are written beside it."""
    force: bool
    """Replace files that are there."""


@dataclass(frozen=True, kw_only=True)
class WrittenConfig:
    """A configuration that was written."""

    order: Order
    looked: ModelAndData
    choice: Choice
    reasons: tuple[Reason, ...]
    written: tuple[Path, ...]
    warnings: tuple[Problem, ...]

    def document(self) -> dict[str, Any]:
        """Return it for programs."""
        evaluated, need = self.looked.evaluated, self.choice.need
        return {
            "config": str(self.order.output),
            "written": [str(path) for path in self.written],
            "model": {
                "name": self.order.model,
                "family": self.looked.model.source.spec.family,
                "parameters": self.choice.parameters,
                "trained_parameters": self.choice.trained,
                "positions": self.looked.model.source.spec.max_positions,
            },
            "data": {
                "name": self.order.data,
                "rows": len(self.looked.rows.table),
                "columns": list(self.looked.rows.columns),
                "tokens": percentiles(self.looked.widths),
                "duplicates": self.looked.data.document()["duplicates"],
            },
            "evaluation": {"items": len(evaluated.items) or None, "because": evaluated.because},
            "memory": {"need_bytes": need.peak_bytes, "available_bytes": need.available_bytes, "verdict": need.verdict},
            "settings": [{"key": each.key, "value": each.value, "because": each.because} for each in self.reasons],
            "findings": [
                {"code": each.code, "severity": each.severity, "file": each.file, "what": each.what, "next": each.next}
                for each in self.warnings
            ],
            "next": self.commands(),
        }

    def commands(self) -> list[str]:
        """Return what to run next, in order."""
        config = shlex.quote(str(self.order.output))
        return [
            f"trainproof train --config {config} --check",
            f"trainproof plan --config {config}",
            f"trainproof train --config {config} --smoke_steps 2",
            f"trainproof train --config {config} --output submission_runs/first",
            "trainproof package submission_runs/first --output first.zip",
            "trainproof verify first.zip",
        ]


def make(order: Order) -> WrittenConfig:
    """Look at a model and rows, choose, and write the configuration, with the rows of a split beside it.

    Raises:
        ProblemError: exit code 2, with everything that is wrong; nothing was written.
    """
    problems: list[Problem] = []
    target: Target | None = None
    with collect_problems(problems):
        known = order.on is not None and order.on != THIS_MACHINE
        if known:
            target = load_target(str(order.on))
        else:
            init_runtime(config := Config(model=ModelConfig(name=order.model)))
            target = this_machine(config)
    looked = look_at(order.model, order.data, order.eval_set, problems)
    texts = rows_to_write(order, looked) if looked else {}
    given = [Path(name) for name in (order.data, order.eval_set) if name]
    problems += refused_places([*texts, order.output], given, force=order.force)
    if looked is None or target is None or problems:
        raise ProblemError(problems, exit_code=USAGE)
    training, items = order.output.parent / TRAINING, order.output.parent / ITEMS
    config = base_config(
        order.model,
        str(training) if training in texts else order.data,
        str(items) if items in texts else looked.evaluated.name,
        run_name(order.model, order.data),
    )
    choice = choose(looked, target, config)
    reasons = tuple(reasons_of(choice, looked, target))
    texts[order.output] = [file_text(reasons, model=order.model, data=order.data)]
    write(texts)
    warnings = (*looked.warnings, *(() if choice.fits else (may_not_fit(choice, looked, order),)))
    return WrittenConfig(
        order=order, looked=looked, choice=choice, reasons=reasons, written=tuple(texts), warnings=warnings
    )


def rows_to_write(order: Order, looked: ModelAndData) -> dict[Path, Iterable[str]]:
    """Return the lines of each file of rows that is to be written: of a split both, of other items one."""
    evaluated, folder = looked.evaluated, order.output.parent
    texts: dict[Path, Iterable[str]] = {}
    if evaluated.split:
        texts[folder / TRAINING] = evaluated.split.training_lines()
    if evaluated.is_written:
        texts[folder / ITEMS] = map(line_of, evaluated.items)
    return texts


def may_not_fit(choice: Choice, looked: ModelAndData, order: Order) -> Problem:
    """Return the warning that the smallest suggestion may not fit, with the length of the rows that make it large."""
    lengths = percentiles(looked.widths)
    what = (
        f"One sequence of {choice.config.data.max_length:,} tokens at a time needs about "
        f"{size(choice.need.peak_bytes)} of {size(choice.need.available_bytes)}. The longest row has "
        f"{lengths['longest']:,} tokens; 99 % of the rows have at most {lengths['p99']:,}."
    )
    return problem_of("TP037", file=str(order.output), what=what)


COLUMNS = 100
"""Of a comment."""


def file_text(reasons: Iterable[Reason], *, model: str, data: str) -> str:
    """Return the configuration as YAML: each key behind the comment that states why it has its value.

    What is not stated has its default.
    """
    title = (
        f"A first configuration for the model {model} and the rows {data}, made by `trainproof init`. It has "
        "not been tried. Keys that are left out have their default: docs/reference/configuration.md explains every key."
    )
    lines = [*as_comment(title, ""), ""]
    for group, members in groupby(reasons, key=lambda reason: reason.key.partition(".")[0]):
        of_group = list(members)
        if of_group[0].key == group:
            lines += [line for reason in of_group for line in of_one(reason, group, "")]
            continue
        lines += ["", f"{group}:"]
        for reason in of_group:
            lines += of_one(reason, reason.key.partition(".")[2], "  ")
    return "\n".join(lines) + "\n"


def of_one(reason: Reason, key: str, indent: str) -> Iterator[str]:
    """Yield the lines of one key."""
    yield from as_comment(reason.because, indent)
    yield indent + write_yaml({key: reason.value}).rstrip("\n")


def as_comment(text: str, indent: str) -> list[str]:
    """Return a text as lines of comment; a line end inside it, as of a file's name, becomes a blank."""
    return textwrap.wrap(text, COLUMNS, initial_indent=f"{indent}# ", subsequent_indent=f"{indent}# ")


def refused_places(places: Sequence[Path], given: Sequence[Path], *, force: bool) -> list[Problem]:
    """Return a problem for each file that may not be written, because it is there or is what was given.

    Args:
        places: to be written.
        given: what the command reads; it is never replaced.
        force: whether other files that are there are replaced.
    """
    problems = []
    for place in places:
        elsewhere = "Name a place in another folder with --output."
        if any(place.resolve() == each.resolve() for each in given):
            what, fix = f"{place} is the file that you named; it stays as it is.", elsewhere
        elif place.is_dir():
            what, fix = f"{place} is a folder.", "Name a file with --output."
        elif place.exists() and not force:
            what, fix = f"{place} is there already.", rule("TP035").fix
        else:
            continue
        why = None if place.is_dir() else rule("TP035").why
        problems.append(problem_of("TP035", file=str(place), what=what, why=why, next=fix))
    return problems


def write(texts: Mapping[Path, Iterable[str]]) -> None:
    """Write files, each whole or not at all.

    Raises:
        ProblemError: exit code 2; the system does not let one be written.
    """
    for path, lines in texts.items():
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with temporary.open("w", encoding="utf-8", newline="\n") as file:
                file.writelines(lines)
            temporary.replace(path)
        except OSError as error:
            temporary.unlink(missing_ok=True)
            raise write_error(error, path, what=f"The file {path.name}") from error
