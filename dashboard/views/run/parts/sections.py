"""The sections of the run page below its headline, one function each."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from dashboard.shared.charts import foreign_run, machine_figure
from dashboard.shared.config import settings
from dashboard.shared.parts import markup, plan_answer, plotted, token_rows
from dashboard.shared.parts.problems import show as show_problems
from dashboard.shared.session import reading
from dashboard.shared.tables import forecast
from dashboard.shared.words.grades import GRADES
from evidence import layout
from evidence.effective import observed_memory
from evidence.imports.run import ImportedRun
from evidence.layout import MANIFEST, METRICS, PLAN, ROLLOUTS, SYSTEM
from evidence.run import Run
from schemas import formats
from schemas.formats import count, quantity
from schemas.reading import get_bool, get_number, get_objects, get_str

_MOST_FACTS = 500


def plan(run: Run) -> None:
    """Draw what was planned beside what was observed, and what the memory is for."""
    rows = forecast.forecasts(run.plan, run.manifest)
    if not rows:
        _no_plan(run)
        return
    markup.table(
        ["What", "Planned", "Observed", "Remark"], [(row.what, row.planned, row.observed, row.remark) for row in rows]
    )
    st.header("What the planned memory is for", anchor=False)
    if run.plan is not None:
        seen = observed_memory(run.plan, run.manifest)
        of_arrays = None if seen is None or seen.of == "the process" else seen.observed_bytes
        plan_answer.memory_picture(run.plan, key="run_memory", observed=of_arrays)
    markup.table(["Part", "Size on each device", "Because"], forecast.parts(run.plan), numbers=[1])


def _no_plan(run: Run) -> None:
    if PLAN in run.files:
        markup.empty("No plan", "plan.json is there and cannot be read. The tab Problems says why.")
    else:
        markup.empty("No plan", "This run has no plan.json; training writes one before the first step.")


def configuration(run: Run) -> None:
    """Draw every setting as declared, as it took effect, and as it would be by default."""
    rows = settings.settings(run)
    only = st.toggle("Only settings that are not at their default", key="changed", bind="query-params")
    shown = [row for row in rows if not only or row.is_changed or row.differs]
    differing = [index for index, row in enumerate(shown) if row.differs]
    if differing:
        markup.note(f"Marked ≠: {quantity(len(differing), 'setting')} took effect with another value than declared.")
    has_remarks = any(row.remark for row in shown)
    markup.table(
        ["Setting", "Differs", "Declared", "Effective", "Default", *(["Remark"] if has_remarks else [])],
        [
            (
                row.key,
                "≠" if row.differs else "",
                row.declared or formats.NOTHING,
                row.effective or formats.NOTHING,
                row.default or formats.NOTHING,
                *([row.remark] if has_remarks else []),
            )
            for row in shown
        ],
        marked=differing,
    )
    markup.note("Effective values were read back from the program that ran; a dash: cannot be read back.")


def sources(view: ImportedRun) -> None:
    """Draw the facts, the scores and the files of a run that trainproof did not carry out."""
    tools = ", ".join(view.tools) or "no tool that is known here"
    markup.note(f"Written by {tools}. ≈ inferred, not stated.")
    facts = foreign_run.fact_rows(view)
    if facts:
        markup.table(
            ["Fact", "Value", "How", "Source", "Note"],
            facts[:_MOST_FACTS],
            quiet=[index for index, row in enumerate(facts[:_MOST_FACTS]) if row[2] != "stated"],
        )
    if len(facts) > _MOST_FACTS:
        st.caption(f"Not shown: {len(facts) - _MOST_FACTS:,} more. `trainproof show --json` prints them all.")
    scores = foreign_run.score_rows(view)
    if scores:
        st.header("Scores, as stated", anchor=False)
        markup.table(["Score", "Value", "Checkpoint", "How", "Source", "Note"], scores, numbers=[1])
    st.header("Files", anchor=False)
    markup.table(["File", "Written by", "What it gave"], foreign_run.file_rows(view))


def examples(run: Run) -> None:
    """Draw the first training examples, and the counts over all of them."""
    found = run.raw(layout.FIRST_EXAMPLES)
    if not found:
        markup.empty("No examples", "This run has no first_examples.json that can be read.")
        return
    end_token = get_bool(found, "counts", "end_token_supervised")
    ends = "?" if end_token is None else "yes" if end_token else "no: the model never learns to stop"
    if ROLLOUTS in run.files:
        ends = "no: its own completions are learned from, see Roll-outs"
    markup.table(
        ["Rows", "Tokens only read", "Tokens supervised", "Rows cut", "Rows without answer", "End token supervised"],
        [
            (
                *(
                    count(get_number(found, "counts", name))
                    for name in ("rows", "prompt_tokens", "supervised_tokens", "truncated_rows", "rows_without_answer")
                ),
                ends,
            )
        ],
    )
    token_rows.show(get_objects(found, "examples"))


def files(run: Run) -> None:
    """Draw every file of the run with its stated hash, and let the reader have it."""
    stated = {get_str(item, "path"): item for item in get_objects(run.manifest, "artifacts")}
    rows = []
    for name in run.files:
        artifact = stated.get(name)
        rows.append(
            (
                name,
                formats.size(_size(run.path / name)),
                (get_str(artifact, "role") if artifact else None) or formats.NOTHING,
                (get_str(artifact, "sha256") if artifact else None)
                or ("the manifest itself" if name == MANIFEST else "not stated"),
            )
        )
    markup.table(["File", "Size", "Role", "SHA-256 stated in the manifest"], rows, numbers=[1])
    gone = [name for name in stated if name not in run.files]
    if gone:
        markup.note(f"Stated but missing: {', '.join(str(name) for name in gone)}")
    if run.files:
        _download(run)


def _download(run: Run) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("File", run.files, key="file", width=320)
        markup.download("Download", (run.path / name).read_bytes, Path(name).name)


def metrics_download(folder: Path) -> None:
    """Draw the button that gives the metrics as they are in the file."""
    markup.download(
        "JSONL, the file itself", (folder / METRICS).read_bytes, f"{folder.name}-{METRICS}", icon=None, width="stretch"
    )


def machine(run: Run) -> None:
    """Draw the figures of the machine's sensors while the run worked; nothing without such rows."""
    rows = run.rows(SYSTEM).values
    if not rows:
        return
    st.header("Machine at work", anchor=False)
    told = machine_figure.describe(rows)
    picture = machine_figure.draw(rows, plotted.colours())
    plotted.show(picture, key="machine", alt=f"Memory, load and waiting for data over the run. {told}")
    markup.note(told)


def problems(folder: Path) -> None:
    """Draw the grade with its reasons, and everything that was found."""
    found = reading.check(folder)
    grade = found.grade
    meaning = GRADES[grade.name].meaning
    st.html(f'<p class="tp-sub">{markup.sign(GRADES, grade.name, grade.coverage)} {markup.safe(meaning)}</p>')
    if found.findings:
        show_problems(found.findings)
    else:
        markup.bullets("Why this grade", grade.reasons)


def _size(path: Path) -> float | None:
    try:
        return path.lstat().st_size
    except OSError:
        return None
