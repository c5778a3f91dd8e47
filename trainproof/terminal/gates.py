"""`trainproof compare` as a whole: the comparison, the gate behind it, and the exit code of both."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from evidence.compare.comparison import Comparison, compare_runs
from evidence.compare.gate import GateLine, baseline_lines, margin_of, requirement_lines, requirements_of
from evidence.run.write import as_json_text
from schemas.problems.visible import as_lines
from trainproof.terminal.comparisons import as_dict, as_text, existing_runs


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
    asked = requirements_of(require)
    margin = margin_of(no_worse_than, baseline=baseline is not None)
    runs = existing_runs([*([baseline] if baseline else []), *folders], at_least=1 if asked else 2)
    comparison = compare_runs(runs) if len(runs) > 1 else None
    names = comparison.names if comparison else [run.path.resolve().name for run in runs]
    named = len(folders)
    lines = [*requirement_lines(names[-named:], runs[-named:], asked)]
    if comparison and margin is not None:
        lines += baseline_lines(comparison, margin)
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
    return as_lines(
        f"{'met' if line.met else 'NOT MET':<7}  {line.run}: {line.required}. {line.what}" for line in lines
    )
