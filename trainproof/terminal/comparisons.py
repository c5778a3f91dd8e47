"""A comparison in words: text for the terminal, and plain values for JSON.

What lives here: wording and alignment. What does not: any figure (`evidence.compare.comparison`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from evidence.compare.gate import GateLine, check_baseline, check_requirements, parse_requirements, validate_margin
from evidence.compare.scores import Comparison, Flip, Pair, ScoreDifference, compare_runs
from evidence.compare.smoke import SmokeCheck
from evidence.run import Run, read_run
from evidence.scores.intervals import MeanInterval
from evidence.writing import as_json_text
from schemas.formats import NOTHING, join_lines, visible
from schemas.problems import Problem, ProblemError, problem_of

FLIPS_SHOWN = 10
"""Flips listed in text, of each kind; JSON has all of them."""
SETTING_WIDTH = 40
"""Characters of a value shown in a table; JSON has the whole."""


def existing_runs(folders: Sequence[Path], *, at_least: int) -> list[Run]:
    """Return run folders that the user named, as read.

    Raises:
        ProblemError: Exit code 2: one does not exist, or too few were named.
    """
    found = [_no_folder(folder) for folder in folders if not folder.is_dir()]
    if len(folders) < at_least:
        found.append(_too_few(len(folders)))
    if found:
        raise ProblemError(found, exit_code=2)
    return [read_run(folder) for folder in folders]


def as_dict(comparison: Comparison) -> dict[str, Any]:
    """Return the comparison as JSON values, with the field names of its dataclasses and every item."""
    value = asdict(comparison)
    for shown, pair in zip(value["pairs"], comparison.pairs, strict=True):
        if pair.score:
            shown["score"]["table"]["items"] = pair.score.table.items
    return value


def as_text(comparison: Comparison) -> str:
    """Return the comparison as the terminal shows it: settings first, then figures, then the score."""
    parts = [_settings_text(comparison), _headlines_text(comparison), *(_pair_text(pair) for pair in comparison.pairs)]
    if comparison.smoke:
        parts.append(_smoke_text(comparison.smoke))
    return "\n".join(parts)


def difference_sentence(pair: Pair, score: ScoreDifference) -> str:
    """Return the difference in one sentence, with its interval, its test and its verdict."""
    table = score.table
    adjusted = "" if score.adjusted_p_value == score.p_value else f", {_p(score.adjusted_p_value)} after Holm"
    verdict = "beyond chance at the 5 % level" if score.adjusted_p_value <= 0.05 else "within chance at the 5 % level"
    groups = f" in {score.clusters:,} groups" if score.clusters is not None else ""
    return (
        f"Exact match of {pair.second} minus {pair.first}: {score.difference:+.3f} "
        f"(95 % interval {score.low:+.3f} to {score.high:+.3f}, {table.items:,} items{groups}); "
        f"{score.test} p {_p(score.p_value)}{adjusted}: {verdict}."
    )


def _p(value: float) -> str:
    return "< 0.0001" if value < 0.0001 else f"= {value:.4f}"


def _settings_text(comparison: Comparison) -> str:
    told = comparison.settings_diff()
    besides = f"{len(told.equal):,} are equal"
    if told.unheld:
        besides += f", {len(told.unheld):,} are not stated by every run"
    if not told.differing:
        return (
            f"Settings: none differ; {besides}.\n" if told.unheld else f"Settings: all {len(told.equal):,} are equal.\n"
        )
    rows = [("setting", "source", *comparison.names)]
    rows += [(setting.name, setting.source, *(_value(value) for value in setting.values)) for setting in told.differing]
    return f"Settings that differ ({len(told.differing):,}; {besides})\n{align(rows)}"


def _value(value: object) -> str:
    """Return a value as JSON would write it, shortened; what cannot be seen counts as its escape."""
    text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    return text if len(text) <= SETTING_WIDTH else text[: SETTING_WIDTH - 1] + "…"


def _headlines_text(comparison: Comparison) -> str:
    rows = [
        ("figure", *comparison.names),
        ("grade", *(grade.words for grade in comparison.grades)),
        ("status", *(status or NOTHING for status in comparison.statuses)),
    ]
    rows += [
        (figures[0].name, *(figure.as_text() for figure in figures))
        for figures in zip(*comparison.headlines, strict=True)
    ]
    reasons = zip(comparison.names, comparison.withheld, strict=True)
    withheld = [f"  {name}: {reason}" for name, each in reasons for reason in each]
    return f"Figures\n{align(rows)}{join_lines(withheld) if withheld else ''}"


def _pair_text(pair: Pair) -> str:
    if pair.score is None:
        head = f"Scores of {pair.first} and {pair.second} cannot be compared:"
        return join_lines([head, *(f"  {reason}" for reason in pair.refused)])
    table = pair.score.table
    counts = (
        f"  both right {table.both:,}, only {pair.first} {table.only_first:,}, "
        f"only {pair.second} {table.only_second:,}, neither {table.neither:,}."
    )
    lines = [
        difference_sentence(pair, pair.score),
        *_form_text(pair.score),
        counts,
        *_errors_text(pair, pair.score),
        _detectable_text(pair.score),
        *_tokens_text(pair.score.output_tokens),
        *_flips_text(pair.score.flips),
    ]
    return join_lines(lines)


def _form_text(score: ScoreDifference) -> Iterator[str]:
    if score.gain_of_form is not None:
        yield f"  But {score.gain_of_form}."


def _detectable_text(score: ScoreDifference) -> str:
    if score.detectable_difference is None:
        return "  So few items cannot show any difference."
    return (
        f"  With so many items, a true difference of {score.detectable_difference:.3f} is found four times out of five."
    )


def _errors_text(pair: Pair, score: ScoreDifference) -> Iterator[str]:
    if score.first_errors or score.second_errors:
        yield (
            f"  Without an output, and so wrong: {score.first_errors:,} of {pair.first}, "
            f"{score.second_errors:,} of {pair.second}."
        )


def _tokens_text(tokens: MeanInterval | None) -> Iterator[str]:
    if tokens is not None and tokens.low is not None and tokens.high is not None:
        yield (
            f"  Output tokens per item: {tokens.mean:+.1f} (95 % interval {tokens.low:+.1f} to {tokens.high:+.1f}, "
            f"{tokens.method}, {tokens.n:,} items)."
        )


def _flips_text(flips: Sequence[Flip]) -> Iterator[str]:
    for kind in ("broken", "fixed"):
        of_kind = [flip for flip in flips if flip.kind == kind]
        for flip in of_kind[:FLIPS_SHOWN]:
            answers = f"{flip.first_answer!r} → {flip.second_answer!r}"
            yield f"  {kind} {flip.id}: {_value(flip.prompt)} expected {flip.expected!r}, {answers}"
        if len(of_kind) > FLIPS_SHOWN:
            yield f"  and {len(of_kind) - FLIPS_SHOWN:,} more {kind}; `--json` lists them."


def _smoke_text(check: SmokeCheck) -> str:
    marks = {True: "yes", False: "no", None: "unknown"}
    rows = [(answer.question, marks[answer.same]) for answer in check.answers]
    proved = join_lines(["  It proved:", *(f"    {sentence}" for sentence in check.proved)])
    left = join_lines(["  It did not prove:", *(f"    {sentence}" for sentence in check.not_proved)])
    return join_lines([f"{check.smoke} as rehearsal of {check.full}"]) + align(rows) + proved + left


def align(rows: Sequence[Sequence[str]]) -> str:
    """Return rows as lines with columns two spaces apart, indented by two."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows)
    return join_lines(f"  {line.rstrip()}" for line in lines)


def _no_folder(folder: Path) -> Problem:
    return problem_of(
        "TP091",
        file=str(folder),
        what="This is not a folder." if folder.exists() else "This does not exist.",
        next="Give the path of a run folder; `trainproof runs` lists them.",
        why=None,
    )


def _too_few(given: int) -> Problem:
    return problem_of("TP093", file="", what=f"A comparison needs at least 2 runs; {given} was given.", why=None)


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """What a comparison came to."""

    comparison: Comparison | None
    """The runs side by side. None: there is one run, and only requirements were given."""
    lines: tuple[GateLine, ...]
    """The verdict on each requirement; empty without requirements."""

    @property
    def ok(self) -> bool:
        """Whether every requirement is met and no comparison of scores was refused."""
        pairs = self.comparison.pairs if self.comparison else ()
        return all(line.met for line in self.lines) and all(pair.score for pair in pairs)


def outcome_of(
    folders: Sequence[Path],
    *,
    require: Sequence[str] = (),
    baseline: Path | None = None,
    no_worse_than: float | None = None,
) -> GateResult:
    """Return the comparison of runs that the user named, and the verdict on the requirements.

    Args:
        folders: The runs. One is enough if a baseline is given or something is required.
        require: Expressions such as `exact_match>=0.4`, required of every one of them.
        baseline: Run that they are compared with; it comes before them.
        no_worse_than: Margin by which exact match may be worse than the baseline's.

    Raises:
        ProblemError: Exit code 2: a run does not exist, too few were named, or a requirement cannot be parsed.
    """
    asked = parse_requirements(require)
    margin = validate_margin(no_worse_than, baseline=baseline is not None)
    runs = existing_runs([*([baseline] if baseline else []), *folders], at_least=1 if asked else 2)
    comparison = compare_runs(runs) if len(runs) > 1 else None
    names = comparison.names if comparison else [run.path.resolve().name for run in runs]
    named = len(folders)
    lines = [*check_requirements(names[-named:], runs[-named:], asked)]
    if comparison and margin is not None:
        lines += check_baseline(comparison, margin)
    return GateResult(comparison=comparison, lines=tuple(lines))


def format_gate(outcome: GateResult, *, as_json: bool) -> str:
    """Return the outcome as the command prints it."""
    if not as_json:
        shown = as_text(outcome.comparison) if outcome.comparison else ""
        return shown + ("\n" if shown and outcome.lines else "") + gate_text(outcome.lines)
    value = as_dict(outcome.comparison) if outcome.comparison else {}
    gate = {"gate": [asdict(line) for line in outcome.lines]} if outcome.lines else {}
    return as_json_text(value | gate)


def gate_text(lines: Sequence[GateLine]) -> str:
    """Return one line for each run and requirement, such as `met      a: last_loss <= 1.5. last_loss is 1.2.`."""
    return join_lines(
        f"{'met' if line.met else 'NOT MET':<7}  {line.run}: {line.required}. {line.what}" for line in lines
    )
