"""REPORT.html: the runs of a bundle for a reader, on screen or paper, without network or script.

The page follows from the run documents alone, so a verifier can write it again and compare. All text from documents
is escaped: a run may come from anyone.
"""

from __future__ import annotations

import html
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from evidence.bundle.format.documents import FileHash
from evidence.bundle.report.chart import interval_bar, line_plot
from evidence.bundle.report.style import STYLE
from evidence.compare.settings import SETTINGS_OF_MANIFEST
from evidence.judge.grade import Grade
from evidence.judge.headlines import Headline, headlines, score_headline
from evidence.judge.record import record_of
from evidence.proof.marks import marks_of, stated_of
from evidence.proof.receipts import receipt_line, receipts_in, run_sha256
from evidence.records.by_name import flatten
from evidence.records.facts import Document, Facts
from evidence.rules.plausibility import caveats_of
from evidence.run.layout import RECEIPTS
from evidence.run.notes import Notes
from evidence.scores.gain import form_of_run, gain_of_run
from evidence.scores.recompute import GROUPINGS
from schemas import formats
from schemas.formats import visible
from schemas.problems import Problem

SCORE_HEAD = (
    '<tr><th>items</th><th class="right">n</th><th class="right">exact match</th><th>95 % interval</th><th></th></tr>'
)


@dataclass(frozen=True, kw_only=True)
class ReportRun:
    """One run as the report shows it."""

    name: str
    """Name of the run."""
    grade: Grade
    """Its grade."""
    findings: tuple[Problem, ...]
    """What `trainproof check` finds; files are named from the run folder."""
    facts: Facts
    """What it states in the right shape."""
    files: tuple[FileHash, ...]
    """Its files in the bundle; paths start at the bundle's root."""
    notes: Notes
    """What a user noted about it."""


def report_html(runs: Sequence[ReportRun], *, partial: bool, compared: Sequence[str] | None = None) -> str:
    """Return the page: how to check it, then one part for each run in the order of names.

    Args:
        runs: The runs.
        partial: Whether the bundle is labelled as partial.
        compared: How the runs compare, a sentence for each pair, of a page without a bundle. None: it is in a bundle.
    """
    ordered = sorted(runs, key=lambda run: run.name)
    names = ", ".join(run.name for run in ordered)
    body = "".join(_run(run) for run in ordered)
    label = (
        '<p class="label"><strong>Partial evidence.</strong> This bundle holds runs that are unfinished, empty or have '
        "errors. They were packed on request and are not results.</p>"
        if partial
        else ""
    )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">\n"
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Training evidence: {text(names)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        f"<h1>Training evidence</h1>\n{label}{_introduction(len(ordered), compared)}{body}</body>\n</html>\n"
    )


def text(value: object) -> str:
    """Return any value as HTML text: escaped, and with what cannot be seen written as an escape."""
    return html.escape(visible(str(value)))


def _introduction(count: int, compared: Sequence[str] | None) -> str:
    runs = "1 run" if count == 1 else f"{count:,} runs"
    if compared is not None:
        pairs = "".join(f"<p><strong>{text(said)}</strong></p>\n" for said in compared)
        return (
            f'<p class="soft">{runs}. This page is written from the documents of '
            f"{'its folder' if count == 1 else 'their folders'} and adds nothing to them; it proves nothing by itself. "
            "<code>trainproof check</code> on the folder, or <code>trainproof verify</code> on a bundle of it, checks "
            f"every hash, document, cross-reference and grade again.</p>\n{pairs}"
        )
    return (
        f'<p class="soft">{runs}. This page is written from the documents of this bundle and adds nothing to them. '
        "<code>trainproof verify</code> on the bundle checks every hash, document, cross-reference and grade again; "
        "<code>sha256sum -c MANIFEST.sha256</code> checks the hashes without it.</p>\n"
    )


def _run(run: ReportRun) -> str:
    record = record_of(run.facts, run.findings)
    parts = [
        f'<section class="run">\n<h2>{text(run.name)} {_badge(run.grade.name)}</h2>\n',
        _summary(run.facts),
        "".join(f"<p>{text(reason)}</p>\n" for reason in run.grade.reasons),
        _receipts(run.facts),
        _notes(run.notes),
        _figures(headlines(record)),
        _caveats(record.facts),
        _loss(run.facts),
        _scores(record.facts),
        _settings(run.facts),
        _problems(run.findings),
        _files(run.files),
        "</section>\n",
    ]
    return "".join(parts)


def _badge(grade: str) -> str:
    return f'<span class="grade {grade.replace(" ", "-")}">{text(grade)}</span>'


def _summary(facts: Facts) -> str:
    """Return one line on what ran, where and when."""
    manifest = facts.manifest
    if manifest is None:
        return '<p class="soft">The run has no valid manifest.</p>\n'
    devices = manifest["devices"]
    words = [
        f"{manifest['mode']} run",
        str(facts.status),
        _model(facts.model),
        f"{devices['count']} × {devices['kind']}",
        f"started {manifest['started_at'][:19].replace('T', ' ')} {_zone(manifest['started_at'])}",
    ]
    return f'<p class="soft">{text(" · ".join(words))}</p>\n'


def _model(model: Document | None) -> str:
    """Return the model with its size, or that a run ended before it had one."""
    if model is None:
        return "ended before the model was built"
    return f"{model['name']} ({model['parameters']:,} parameters, {model['weights']} weights at start)"


def _zone(time: str) -> str:
    """Return the offset of a time as it states it; most are in UTC."""
    return "UTC" if time.endswith(("Z", "+00:00")) else time[-6:]


def _receipts(facts: Facts) -> str:
    """Return what receipts that came with the run state, and how much of it each covers; nothing where none did."""
    sha256, stated = run_sha256(facts.folder), stated_of(facts.folder)
    found = receipts_in(facts.folder / RECEIPTS, sha256) if sha256 else ()
    said = [
        f"{receipt['kind']} of {receipt['made_at'][:10]}: {receipt_line(receipt)} {marks_of(receipt, stated).said}"
        for _, receipt in found
    ]
    if not said:
        return ""
    counts = (
        "Receipts that came with the run. One counts for a reader who trusts the key that signed it: trainproof verify "
        "says so, with how much of score and training it covers. The grade above is by the folder alone."
    )
    lines = "".join(f"<li>{text(line)}</li>" for line in said)
    return f'<h3>Repeated by others</h3>\n<p class="soft">{counts}</p>\n<ul>{lines}</ul>\n'


def _notes(notes: Notes) -> str:
    """Return the user's own words, marked as such, or nothing if it is missing."""
    if not notes.tags and not notes.note:
        return ""
    tags = f"<p>Tags: {text(', '.join(notes.tags))}</p>\n" if notes.tags else ""
    words = f"<p>{'<br>'.join(text(line) for line in notes.note.splitlines())}</p>\n" if notes.note else ""
    said = "Words of whoever kept this run (notes.json). They are not evidence, and no grade depends on them."
    return f'<h3>Notes</h3>\n<p class="soft">{said}</p>\n{tags}{words}'


def _figures(figures: Sequence[Headline]) -> str:
    cells = "".join(f"<div><dt>{text(figure.name)}</dt><dd>{text(figure.as_text())}</dd></div>" for figure in figures)
    return f'<dl class="figures">{cells}</dl>\n'


def _caveats(facts: Facts) -> str:
    """Return what limits the score: a gain of form alone, answers in another form, items that cannot be right."""
    said = filter(None, (gain_of_run(facts.eval_summary), *(said for _, said in caveats_of(facts.eval_summary))))
    sentences = [*(f"{each[0].upper()}{each[1:]}." for each in said), *form_of_run(facts.eval_summary, facts.log)]
    return "".join(f"<p>{text(sentence)}</p>\n" for sentence in sentences)


def _loss(facts: Facts) -> str:
    """Return the loss curve, or a sentence if it is missing."""
    rows = facts.metrics or []
    if not any(row["loss"] is not None for row in rows):
        return '<h3>Loss</h3>\n<p class="soft">No loss was recorded.</p>\n'
    plot = line_plot(
        [(row["step"], row["loss"]) for row in rows],
        x_label="optimizer step",
        y_label="loss (nats per supervised token)",
        title="Training loss over optimizer steps",
        whole_x=True,
    )
    caption = f"Training loss of each logged step, {len(rows):,} rows of metrics.jsonl; not smoothed."
    return f"<h3>Loss</h3>\n<figure>{plot}<figcaption>{caption}</figcaption></figure>\n"


def _scores(facts: Facts) -> str:
    """Return exact match of all items, of the untrained model, and by group, each with its interval."""
    summary = facts.eval_summary
    if summary is None:
        return '<h3>Score</h3>\n<p class="soft">The run was not evaluated.</p>\n'
    rows = [_score_row("all items", summary["metrics"]["exact_match"])]
    if summary["baseline"]:
        rows.append(_score_row("all items, before training", summary["baseline"]["metrics"]["exact_match"]))
    for grouping in GROUPINGS:
        members = summary["groups"][grouping]
        rows += [_score_row(f"{grouping}: {name}", members[name]["exact_match"]) for name in sorted(members)]
    items, name = summary["eval_set"]["items"], summary["eval_set"]["name"]
    caption = (
        f"Exact match on {name} ({items:,} items, evaluation {summary['status']}), recomputed from predictions.jsonl "
        "when this bundle is verified. Intervals: Wilson, 95 %."
    )
    return f'<h3>Score</h3>\n<table>{SCORE_HEAD}{"".join(rows)}</table>\n<p class="soft">{text(caption)}</p>\n'


def _score_row(name: str, metric: Document) -> str:
    figure = score_headline(name, metric)
    cells = f'<td>{text(name)}</td><td class="right">{figure.of or 0:,}</td>'
    if figure.value is None or figure.low is None or figure.high is None:
        return f'<tr>{cells}<td class="right">–</td><td>–</td><td></td></tr>'
    interval = f"{figure.low:.3f}–{figure.high:.3f}"
    bar = interval_bar(figure.value, figure.low, figure.high, title=f"{figure.value:.3f}, {interval}")
    return f'<tr>{cells}<td class="right">{figure.value:.3f}</td><td>{interval}</td><td>{bar}</td></tr>'


def _settings(facts: Facts) -> str:
    """Return the effective settings, a table for each group of the manifest."""
    if facts.manifest is None:
        return ""
    stated = {group: facts.manifest[group] for group in SETTINGS_OF_MANIFEST if group != "mode"}
    groups = "".join(_group(group, values) for group, values in stated.items() if values is not None)
    command = " ".join(facts.manifest["command"])
    return (
        "<h3>Effective settings, code, data and devices</h3>\n"
        f'<p><code>{text(command)}</code></p>\n<div class="groups">{groups}</div>\n'
    )


def _group(name: str, values: Document) -> str:
    rows = "".join(
        f'<tr><th>{text(key)}</th><td class="value">{text(_setting(value))}</td></tr>'
        for key, value in flatten(values).items()
    )
    return f"<section><h4>{text(name)}</h4><table>{rows}</table></section>"


def _setting(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return json.dumps(value, ensure_ascii=False)


def _problems(findings: Sequence[Problem]) -> str:
    if not findings:
        return '<h3>Problems</h3>\n<p class="soft">None.</p>\n'
    return f'<h3>Problems</h3>\n<ul class="problems">{"".join(map(_problem, findings))}</ul>\n'


def _problem(problem: Problem) -> str:
    line = f", line {problem.line:,}" if problem.line is not None else ""
    place = f"{problem.file}{f' at {problem.key_path}' if problem.pointer else ''}{line}"
    return (
        f'<li><span class="{problem.severity}">{text(problem.code)} {text(problem.severity)}</span> '
        f"<code>{text(place)}</code><br>{text(problem.what)} {text(problem.next)}</li>"
    )


def _files(files: Sequence[FileHash]) -> str:
    rows = "".join(_file_rows(files))
    return f'<h3>Files</h3>\n<table><tr><th>path</th><th class="right">size</th><th>SHA-256</th></tr>{rows}</table>\n'


def _file_rows(files: Sequence[FileHash]) -> Iterator[str]:
    for file in sorted(files, key=lambda file: file.path):
        size = formats.size(file.size_bytes)
        yield (f'<tr><td>{text(file.path)}</td><td class="right">{size}</td><td class="hash">{file.sha256}</td></tr>')
