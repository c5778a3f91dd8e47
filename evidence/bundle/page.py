"""REPORT.html: runs as one page, on screen or paper, without scripts or network.

All text from documents is escaped, since a run may come from anyone.
"""

from __future__ import annotations

import html
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from evidence.bundle.contents import RUNS, StoredFile, bundle_problem, files_of_run, folder_problems
from evidence.bundle.reading import is_unpacked_bundle
from evidence.bundle.secrets import redact_text
from evidence.bundle.verify import CheckedRun, check_runs, refuse_invalid, verified_bundle
from evidence.compare.scores import ALPHA, Pair, compare_runs
from evidence.compare.settings import SETTINGS_OF_MANIFEST
from evidence.effective import flatten
from evidence.hashes import sha256_file
from evidence.layout import MANIFEST, RECEIPTS
from evidence.notes import Notes
from evidence.proof.receipts import load_extent, measure_coverage, read_receipts
from evidence.report import build_record, headlines, score_headline, thin
from evidence.rules.plausibility import score_caveats
from evidence.run import Run
from evidence.scores.recompute import GROUPINGS, describe_format_losses, describe_run_gain
from evidence.writing import write_bytes
from schemas import formats
from schemas.formats import quantity, visible
from schemas.problems import Problem, ProblemError
from schemas.reading import get_str
from schemas.render import next_step

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #59636e; --rule: #d5dae0; --paper: #fff; --line: #1f5fbf;
  --fair: #8a5a00; --poor: #b3261e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaee; --soft: #9ba5b0; --rule: #39414a; --paper: #14171b;
  --line: #7fb0ff; --fair: #e0b050; --poor: #ff8a80; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --rule: #bbb; --paper: #fff; --line: #1f5fbf; }
  section { break-before: page; } figure, tr, dl > div { break-inside: avoid; } }
body { margin: 0 auto; padding: 2rem 1.5rem; max-width: 60rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
h2 { margin-top: 3rem; } .soft, dt, figcaption, th { color: var(--soft); }
.consistent, .measured { color: var(--line); } .partial, .template, .warning { color: var(--fair); }
.contradictory, .not-a-run, .error { color: var(--poor); }
dl { display: grid; grid-template-columns: repeat(auto-fill, minmax(13rem, 1fr)); gap: .8rem; }
dd, figure { margin: 0; } svg { width: 100%; max-width: 44rem; } svg text { fill: var(--soft); font-size: 12px; }
.grid { stroke: var(--rule); } .line { stroke: var(--line); fill: none; stroke-width: 1.6; } .dot { fill: var(--line); }
table { border-collapse: collapse; width: 100%; font-size: .88rem; }
th, td { text-align: left; padding: .28rem .6rem .28rem 0; border-bottom: 1px solid var(--rule); vertical-align: top; }
"""


def report_html(runs: Sequence[CheckedRun], *, partial: bool = False, compared: Sequence[str] = ()) -> str:
    """Write the page: how to check it, sentences on how the runs compare, then one section for each run."""
    names, count = ", ".join(run.name for run in runs), quantity(len(runs), "run")
    introduction = (
        f'<p class="soft">{count}. This page shows the run files and proves nothing by itself. Run '
        "<code>trainproof check</code> on a run folder or <code>trainproof verify</code> on a bundle to check the "
        "runs, and <code>trainproof compare --html</code> to write this page again.</p>\n"
    ) + "".join(f"<p><strong>{_text(sentence)}</strong></p>\n" for sentence in compared)
    label = (
        '<p class="warning"><strong>Partial evidence.</strong> This bundle holds runs that are unfinished, empty or '
        "have errors. They were packed on request and are not results.</p>\n"
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Training evidence: {_text(names)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Training evidence</h1>\n{label if partial else ''}{introduction}"
        f"{''.join(map(_run, sorted(runs, key=lambda run: run.name)))}</body>\n</html>\n"
    )


def shared_report(paths: Sequence[Path]) -> bytes:
    """Write the page for run folders and bundles, with their comparison; secrets and home folders are masked.

    Raises an `OSError` for a bundle that cannot be read, and a `ProblemError` for an invalid one (exit code 1).
    """
    with ExitStack() as stack:
        bundles = [path for path in paths if not path.is_dir() or is_unpacked_bundle(path)]
        runs = check_runs([path for path in paths if path not in bundles])
        runs = [
            replace(run, files=tuple(_hash(run.folder / name, f"{RUNS}/{run.name}/{name}") for name in packed))
            for run, packed in ((run, files_of_run(run.folder).packed) for run in runs)
        ]
        for path in bundles:
            verdict = stack.enter_context(verified_bundle(path))
            refuse_invalid(verdict)
            runs += verdict.runs
        # A smoke run's score means nothing for a full run.
        modes = {each.name: get_str(each.run.manifest, "mode") for each in runs}
        pairs = compare_runs([each.run for each in runs]).pairs if len(runs) > 1 else ()
        compared = [describe_pair(pair) for pair in pairs if modes.get(pair.first) == modes.get(pair.second)]
        return redact_text(report_html(runs, compared=compared).encode("utf-8"))[0]


def write_report(paths: Sequence[Path], output: Path) -> None:
    """Write the page to a file; an existing HTML file is replaced.

    Raises:
        ProblemError: A path does not exist, or the output cannot be written there (exit code 2); or a bundle does not
            verify (exit code 1).
    """
    problems = folder_problems([path for path in paths if not path.is_file()])
    problems += output_problems(paths, output, "an HTML file", lambda path: path.suffix in {".html", ".htm"})
    if problems:
        raise ProblemError(problems, exit_code=2)
    try:
        page = shared_report(paths)
        output.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(output, page)
    except OSError as error:
        what = f"The report cannot be written: {error.strerror or error}."
        raise ProblemError([bundle_problem("TP848", str(error.filename or output), what)], exit_code=2) from error


def output_problems(
    runs: Sequence[Path], output: Path, kind: str, is_replaceable: Callable[[Path], bool]
) -> Iterator[Problem]:
    """Yield why `output` cannot be written: it is inside a run folder, or a file of another `kind` exists there."""
    if output.is_dir():
        yield bundle_problem("TP848", str(output), "This is a folder.")
    elif output.exists() and not is_replaceable(output):
        yield bundle_problem("TP848", str(output), f"A file exists there that is not {kind}.")
    parents = output.resolve().parents
    inside = next((run for run in runs if run.resolve() in parents), None)
    if inside := inside or next((folder for folder in parents[:3] if (folder / MANIFEST).exists()), None):
        yield bundle_problem("TP848", str(output), f"The output is inside the run folder {inside}.")


def describe_pair(pair: Pair) -> str:
    """Describe how the scores of two runs compare, in a sentence or two."""
    score, names = pair.score, f"{pair.first} and {pair.second}"
    if score is None:
        return f"{names}: {' '.join(pair.refused) or 'their scores cannot be compared.'}"
    verdict, limit = f"{names}: no significant difference", ""
    if score.adjusted_p_value < ALPHA:
        verdict = f"{pair.second} is {'better' if score.difference > 0 else 'worse'} than {pair.first}"
    if score.detectable_difference is not None:
        least = 100 * score.detectable_difference
        limit = f" With this many items, differences below {least:.1f} points cannot be detected reliably."
    return (
        f"{verdict}: exact match differs by {formats.points(score.difference)} "
        f"({formats.points(score.low)} to {formats.points(score.high)}), p = {score.adjusted_p_value:.2g}.{limit}"
    )


def _hash(path: Path, name: str) -> StoredFile:
    return StoredFile(name=name, size_bytes=path.stat().st_size, sha256=sha256_file(path))


def _text(value: object) -> str:
    """Escape a value for HTML, with invisible characters written as escapes."""
    return html.escape(visible(str(value)))


def _paragraphs(sentences: Iterable[str]) -> str:
    return "".join(f"<p>{_text(sentence)}</p>\n" for sentence in sentences)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table of cells that are HTML already."""
    lines = (f"<tr><td>{'</td><td>'.join(row)}</td></tr>" for row in rows)
    return f"<table><tr><th>{'</th><th>'.join(head)}</th></tr>{''.join(lines)}</table>\n"


def _run(run: CheckedRun) -> str:
    record, name = build_record(run.run, run.findings), run.folder_grade.name
    figures = "".join(
        f"<div><dt>{_text(each.name)}</dt><dd>{_text(each.as_text())}</dd></div>" for each in headlines(record)
    )
    files = sorted(run.files, key=lambda file: file.name)
    rows = ((_text(file.name), formats.size(file.size_bytes), f"<code>{file.sha256}</code>") for file in files)
    grade = f'<span class="{name.replace(" ", "-")}">{name}</span>, judged by its files'
    return (
        f"<section>\n<h2>{_text(run.name)}: {grade}</h2>\n"
        f'<p class="soft">{_text(_summary(run.run))}</p>\n{_paragraphs(run.folder_grade.reasons)}'
        f"{_receipts(run)}{_notes(run.run.notes)}<dl>{figures}</dl>\n{_paragraphs(_caveats(record.facts))}"
        f"{_loss(run.run)}{_scores(record.facts)}{_settings(run.run.manifest)}{_problems(run.findings)}"
        f"<h3>Files</h3>\n{_table(['path', 'size', 'SHA-256'], rows)}</section>\n"
    )


def _summary(facts: Run) -> str:
    """Describe in one line what ran, where and when."""
    manifest, model = facts.manifest, facts.model
    if manifest is None:
        return "The run manifest is missing or invalid."
    devices, started, what = manifest["devices"], manifest["started_at"], "ended before the model was built"
    if model:
        what = f"{model['name']} ({model['parameters']:,} parameters, {model['weights']} weights at start)"
    zone = "UTC" if started.endswith(("Z", "+00:00")) else started[-6:]
    machine = f"{devices['count']} × {devices['kind']}"
    start = f"started {started[:19].replace('T', ' ')} {zone}"
    return " · ".join([f"{manifest['mode']} run", str(facts.status), what, machine, start])


def _receipts(run: CheckedRun) -> str:
    """List the receipts in a run folder, with how much of the run each covers."""
    extent = load_extent(run.folder)
    lines = [
        f"{each['kind']} of {each['made_at'][:10]}: {each['said']} {measure_coverage(each, extent).description}"
        for _, each in read_receipts(run.folder / RECEIPTS, run.manifest_sha256 or "")
    ]
    introduction = (
        '<h3>Reproduced by others</h3>\n<p class="soft">Receipts from the run folder. They count only for readers who '
        "trust the key that signed them; <code>trainproof verify</code> shows that. The grade above does not include "
        "them.</p>\n"
    )
    return f"{introduction}<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>\n" if lines else ""


def _notes(notes: Notes) -> str:
    if not notes.tags and not notes.note:
        return ""
    lines = [f"Tags: {', '.join(notes.tags)}"] if notes.tags else []
    text = "<br>".join(map(_text, [*lines, *notes.note.splitlines()]))
    return (
        '<h3>Notes</h3>\n<p class="soft">From notes.json, written by the owner of the run. They are not evidence and '
        f"do not affect the grade.</p>\n<p>{text}</p>\n"
    )


def _caveats(facts: Run) -> Iterator[str]:
    """Yield how far the score can be trusted."""
    caveats = (describe_run_gain(facts.eval_summary), *(caveat for _, caveat in score_caveats(facts.eval_summary)))
    yield from (f"{caveat[0].upper()}{caveat[1:]}." for caveat in caveats if caveat)
    yield from describe_format_losses(facts.eval_summary, facts.log)


def _loss(facts: Run) -> str:
    points = [(row["step"], row["loss"]) for row in facts.metrics or []]
    if not any(loss is not None for _, loss in points):
        return '<h3>Loss</h3>\n<p class="soft">No loss was recorded.</p>\n'
    caption = f"Training loss in nats per supervised token, {quantity(len(points), 'logged step')}."
    return f"<h3>Loss</h3>\n<figure>{line_plot(points, caption)}<figcaption>{caption}</figcaption></figure>\n"


def _scores(facts: Run) -> str:
    """Show exact match of all items, before training, and by group, each with its interval."""
    summary = facts.eval_summary
    if summary is None:
        return '<h3>Score</h3>\n<p class="soft">The run was not evaluated.</p>\n'
    rows = [("all items", summary["metrics"]["exact_match"])]
    if summary["baseline"]:
        rows.append(("all items, before training", summary["baseline"]["metrics"]["exact_match"]))
    for grouping in GROUPINGS:
        members = summary["groups"][grouping]
        rows += [(f"{grouping}: {name}", members[name]["exact_match"]) for name in sorted(members)]
    items, dataset = summary["eval_set"]["items"], summary["eval_set"]["name"]
    caption = f"Exact match on {dataset} ({quantity(items, 'item')}, evaluation {summary['status']})."
    cells = ((_text(name), _text(score_headline(name, metric).as_text())) for name, metric in rows)
    table = _table(["items", "exact match (95% Wilson interval)"], cells)
    return f'<h3>Score</h3>\n{table}<p class="soft">{_text(caption)}</p>\n'


def _settings(manifest: dict[str, Any] | None) -> str:
    if manifest is None:
        return ""
    groups = {name: manifest[name] for name in SETTINGS_OF_MANIFEST if name != "mode" and manifest[name]}
    rows = ((_text(key), _setting(value)) for key, value in flatten(groups).items())
    command = _text(" ".join(manifest["command"]))
    return (
        f"<h3>Effective settings, code, data and devices</h3>\n<p><code>{command}</code></p>\n"
        f"{_table(['setting', 'value'], rows)}"
    )


def _setting(value: Any) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return _text(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _problems(findings: Sequence[Problem]) -> str:
    items = ""
    for each in findings:
        pointer, line = f" at {each.key_path}" if each.pointer else "", f", line {each.line:,}" if each.line else ""
        severity = f'<span class="{each.severity}">{each.code} {each.severity}</span>'
        place = f"<code>{_text(f'{each.file}{pointer}{line}')}</code>"
        items += f"<li>{severity} {place}<br>{_text(each.what)} {_text(next_step(each.next, each.action))}</li>"
    return f"<h3>Problems</h3>\n{f'<ul>{items}</ul>' if items else '<p>None.</p>'}\n"


MAX_POINTS = 1200  # largest number of points drawn


def line_plot(points: Sequence[tuple[float, float | None]], title: str) -> str:
    """Draw values over steps as SVG, with the ends of both axes labelled; None leaves a gap.

    At least one value must be a number.
    """
    values = [y for _, y in points if y is not None]
    first, last, low, high = points[0][0], points[-1][0], min(values), max(values)
    labels = (
        (56, 20, "end", f"{high:.3g}"),
        (56, 264, "end", f"{low:.3g}"),
        (64, 284, "start", f"step {first:,}"),
        (664, 284, "end", f"{last:,}"),
    )
    parts = [f'<text x="{x}" y="{y}" text-anchor="{anchor}">{text}</text>' for x, y, anchor, text in labels]
    kept = thin(np.array([y for _, y in points], dtype=np.float64), MAX_POINTS)
    for is_gap, piece in groupby((points[index] for index in kept), key=lambda point: point[1] is None):
        drawn = [
            (64 + 600 * (x - first) / (last - first or 1), 260 - 244 * (y - low) / (high - low or 1))
            for x, y in piece
            if y is not None
        ]
        if len(drawn) == 1:
            parts.append(f'<circle class="dot" cx="{drawn[0][0]:.1f}" cy="{drawn[0][1]:.1f}" r="2.5"/>')
        elif not is_gap:
            parts.append(f'<polyline class="line" points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in drawn)}"/>')
    grid = '<path class="grid" d="M64 16H664M64 260H664"/>'
    return f'<svg viewBox="0 0 680 300" role="img"><title>{_text(title)}</title>{grid}{"".join(parts)}</svg>'
