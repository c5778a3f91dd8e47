"""The package page: choose runs, see what stands in the way, build the zip, have it; and verify any bundle."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from pathlib import Path

import streamlit as st
from streamlit.runtime.uploaded_file_manager import UploadedFile

from dashboard.shared.charts import contents_figure
from dashboard.shared.parts import freshness, gate, launching, markup, plan_answer, plotted, problems, replay, share
from dashboard.shared.parts.launching import trying
from dashboard.shared.parts.run_box import choose_runs
from dashboard.shared.session import reading
from dashboard.shared.words import evidence
from dashboard.shared.words.grades import GRADES, Sign, label
from dashboard.views.package.logic import bundles
from dashboard.views.package.parts import verdict
from evidence.bundle.build import ChecklistItem, build_bundle, checklist
from evidence.bundle.verdict import BundleVerdict
from evidence.bundle.verify import verify_bundle
from evidence.index.summary import RunSummary
from evidence.report import CARDS
from evidence.rules import across
from schemas import formats
from schemas.formats import quantity
from schemas.problems import ProblemError
from schemas.render import next_step

_SIGNS = {
    "ok": Sign(symbol="✓", tone="good", meaning="Nothing to do."),
    "note": Sign(symbol="–", tone="quiet", meaning="To know; nothing keeps the zip from being built."),
    "warning": Sign(symbol="!", tone="poor", meaning="Worth a look; the zip can be built."),
    "blocked": Sign(symbol="✕", tone="bad", meaning="The zip cannot be built until this is fixed."),
}

_PARTIAL = "label_as_partial"
_UPLOADED = "verdict on the bundle that was uploaded"


def page() -> None:
    """Draw the page."""
    markup.heading(
        "Package", lines=["One zip that anyone can verify with nothing but the zip, the same bytes for the same runs."]
    )
    build, verify = st.tabs(["Build", "Verify"], key="part", bind="query-params")
    if build.open:
        with build:
            _build()
    if verify.open:
        with verify:
            _verify()


def _build() -> None:
    known = reading.by_name(reading.summaries())
    if not known:
        markup.empty("No runs yet", "Start one; then it can be packed here.")
        launching.smoke_button()
        return
    markup.step(1, "Choose runs")
    names = choose_runs(known, label_visibility="collapsed")
    if not names:
        markup.empty("Choose the runs to hand in", "Add the smoke run of a full run to show its rehearsal.")
        _draw_made(known, number=2)
        return
    folders = [known[name].path for name in names]
    if not freshness.are_as_judged([known[name] for name in names]):
        return
    items = _items(tuple(map(str, folders)), tuple(map(reading.signature, folders)))
    items = [*items, *_copies_elsewhere(folders, items)]
    _checklist(items, [known[name] for name in names])
    _contents(folders)
    builds = gate.may_operate()
    if builds:
        markup.step(3, "Build")
        _build_form(names, folders, blocked=any(item.state == "blocked" for item in items))
    _draw_made(known, number=4 if builds else 3)


@st.cache_data(max_entries=8, show_spinner="Looking through the runs")
def _items(folders: Sequence[str], signatures: Sequence[str]) -> list[ChecklistItem]:
    """Return the checklist; every file is looked into for secrets, so it is kept until a run changes."""
    return checklist([Path(folder) for folder in folders])


def _copies_elsewhere(folders: Sequence[Path], items: Sequence[ChecklistItem]) -> list[ChecklistItem]:
    """Return a line for each run that a folder which is not chosen copies: the list of runs calls it contradictory.

    The bundle will not hold that folder, so it holds against its verifier; who also publishes the folder is to know.
    """
    blocked = {item.run for item in items if item.what == "grade" and item.state == "blocked"}
    return [
        ChecklistItem(run=folder.name, what="copies", state="warning", detail=finding.what, next=finding.next)
        for folder in folders
        if folder.name not in blocked
        for finding in reading.check(folder).findings
        if finding.code in across.CONTRADICTS_COPY
    ]


def _build_form(names: Sequence[str], folders: Sequence[Path], *, blocked: bool) -> None:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.text_input("Name of the zip", value=bundles.suggest_name(names), width=380)
        if not blocked:
            st.session_state[_PARTIAL] = False  # Or a tick for other runs would label these.
        partial = st.checkbox(
            "Label as partial",
            key=_PARTIAL,
            disabled=not blocked,
            help="Packs runs that are not results, with a label that says so. Secrets are never packed.",
        )
        redact = st.checkbox(
            "Mask secrets and home folders",
            help="In the copies inside the zip, which says so. The run folders stay as they are, and files from which "
            "numbers are computed are never masked.",
        )
        pressed = st.button(
            "Build",
            type="primary",
            icon=":material/inventory_2:",
            disabled=blocked and not (partial or redact),
            help="Fix what blocks it, or tick one of the boxes." if blocked and not (partial or redact) else None,
        )
    if not bundles.is_name(name):
        markup.note("A name has letters, digits, dot, underscore and hyphen, at most 100 of them.")
    elif pressed:
        _make(folders, bundles.path_of(name), allow_partial=partial, redact=redact)
    elif bundles.path_of(name).exists():
        markup.note(f"{bundles.path_of(name)} is there already, and Build replaces it; another name keeps both.")


def _checklist(items: Sequence[ChecklistItem], runs: Sequence[RunSummary]) -> None:
    markup.step(2, "Look at the evidence and the checklist")
    markup.table(
        ["Run", "Grade", *CARDS],
        [
            (run.path.name, label(GRADES, run.grade), *map(evidence.brief, evidence.cards(run.documents).values()))
            for run in runs
        ],
        marked=[place for place, run in enumerate(runs) if any(document.mark == "wrong" for document in run.documents)],
    )
    open_items = [item for item in items if item.state in ("blocked", "warning")]
    icon = ":material/warning:" if open_items else ":material/check:"
    with st.expander(bundles.checklist_said(items), expanded=True, icon=icon):
        markup.table(
            ["State", "Run", "What", "Found", "What to do"],
            [
                (
                    f"{_SIGNS[item.state].symbol} {item.state}",
                    item.run,
                    item.what,
                    markup.words(item.detail),
                    markup.words(next_step(item.next, item.action, problems.ACTIONS) if item.next else ""),
                )
                for item in (*open_items, *(item for item in items if item.state in ("ok", "note")))
            ],
        )


def _contents(folders: Sequence[Path]) -> None:
    """Draw what is handed in, and the button that gives the same as a page to read."""
    found, colours = bundles.contents(folders), plotted.colours()
    st.html('<p class="tp-sub"><b>What is handed in</b>, before it is compressed</p>')
    plotted.show(
        contents_figure.draw(found, colours), key="contents", alt=f"Contents. {contents_figure.describe(found)}"
    )
    sizes = {one.kind: sum(other.bytes for other in found if other.kind == one.kind) for one in found}
    tints = contents_figure.colours_of(list(sizes), colours)
    plan_answer.legend([(kind, formats.size(sizes[kind]), tints[kind], "") for kind in sizes])
    share.button(folders)


def _make(folders: Sequence[Path], output: Path, *, allow_partial: bool, redact: bool) -> None:
    bar = st.progress(0.0, text=bundles.BUILDING)
    try:
        report = build_bundle(
            folders, output, allow_partial=allow_partial, redact=redact, progress=bundles.progress_of(bar.progress)
        )
    except ProblemError as error:
        bar.empty()
        problems.show(error.problems)
        return
    bar.empty()
    st.query_params["bundle"] = report.output.stem
    markup.note(f"Built and read back: {report.output}, {formats.size(report.size_bytes)}, {report.files} files.")
    if report.redactions:
        masked = ", ".join(f"{one.path} ({one.count})" for one in report.redactions)
        markup.note(f"Masked in {quantity(len(report.redactions), 'file')}: {masked}.")
    problems.show(report.warnings)


def _draw_made(known: Collection[str], *, number: int) -> None:
    """Draw the bundles made here of runs of this root, the one in the address first, with its verdict."""
    markup.step(number, "Verify and hand in")
    every = bundles.made_bundles()
    found = [path for path in every if _runs_in(*_as_it_is(path)) <= set(known)]
    if len(found) < len(every):
        markup.note(
            f"Not listed: {quantity(len(every) - len(found), 'zip')} in {bundles.FOLDER}/ with runs of another root."
        )
    if not found:
        markup.note(f"No zip yet. Zips you build are saved in {bundles.FOLDER}/ and listed here.")
        return
    asked = st.query_params.get("bundle")
    paths = {path.stem: path for path in found}
    with st.container(horizontal=True, vertical_alignment="bottom"):
        name = st.selectbox("Bundle", list(paths), index=list(paths).index(asked) if asked in paths else 0, width=380)
        path = paths[name]
        markup.download(
            f"Download {formats.size(path.stat().st_size)}", lambda: path.open("rb"), path.name, mime="application/zip"
        )
        check = st.button("Verify", icon=":material/fact_check:")
    if check or asked == name:
        of_file = _as_it_is(path)
        if check:
            _verdict.clear(*of_file)
        found_whole = _verdict(*of_file)
        verdict.show(found_whole, path.name)
        if found_whole.ok and found_whole.content_sha256:
            with st.expander("Replay its runs, or ask its model", icon=":material/replay:"):
                replay.show(path, found_whole.content_sha256, key=f"replay {path.name}")


def _as_it_is(path: Path) -> tuple[str, int, int, int]:
    """Return what is another where a file was changed: its path, two times, and its size."""
    status = path.stat()
    return str(path.resolve()), status.st_mtime_ns, status.st_ctime_ns, status.st_size


@st.cache_data(max_entries=200, show_spinner=False)
def _runs_in(path: str, mtime_ns: int, ctime_ns: int, size: int) -> frozenset[str]:
    return bundles.runs_in(Path(path))


@st.cache_resource(max_entries=8, show_spinner="Verifying")
def _verdict(path: str, mtime_ns: int, ctime_ns: int, size: int) -> BundleVerdict:
    """Return the verdict on a bundle, found once for a file as it is: the page is drawn again at every click."""
    return verify_bundle(Path(path))


def _verify() -> None:
    given = st.file_uploader(
        "A bundle from anyone", type="zip", help="It is looked at before anything in it is written anywhere."
    )
    if given is None:
        markup.empty(
            "Verify as a judge would",
            "The verdict needs nothing but the zip: hostile archives are refused, hashes and schemas checked, "
            "every score recomputed, every run graded again.",
        )
        return
    with trying("The bundle could not be verified"):
        try:
            found = _verdict_on(given)
            verdict.show(found, given.name)
            if found.ok:
                markup.note("To have its training repeated, and its model questioned, where the zip lies:")
                path = shlex.quote(given.name)
                commands = (f"replay {path} --minutes 5", f"challenge {path} --generate 50 --seed 7")
                st.code("\n".join(f"trainproof {command}" for command in commands), language=None)
        except ProblemError as error:
            problems.show(error.problems)


def _verdict_on(given: UploadedFile) -> BundleVerdict:
    """Return the verdict on an uploaded bundle, found once: the page is drawn again at every click."""
    kept: tuple[str, BundleVerdict] | None = st.session_state.get(_UPLOADED)
    if kept is None or kept[0] != given.file_id:
        with st.spinner("Verifying"):
            kept = st.session_state[_UPLOADED] = given.file_id, bundles.verdict_on(given.getvalue(), given.name)
    return kept[1]


page()
