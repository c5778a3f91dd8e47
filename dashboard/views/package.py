"""The Package page: check runs, build one zip, and verify any bundle."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import pandas as pd
import streamlit as st

from dashboard.shared import reading
from dashboard.shared.parts import gate, markup, problems, replay, run_box
from dashboard.shared.parts.gate import trying
from dashboard.shared.parts.problems import BUILD_OPTIONS
from dashboard.shared.parts.run_box import choose_runs
from dashboard.shared.words import GRADES, MARKS, Sign, cards, label, merge_marks, plain
from evidence.bundle.build import ChecklistItem, build_bundle, checklist
from evidence.bundle.contents import files_of_run
from evidence.bundle.reading import open_bundle
from evidence.bundle.verify import BundleVerdict, headline, verify_bundle
from evidence.index.summary import RunSummary
from evidence.report import CARDS
from schemas import formats
from schemas.formats import quantity
from schemas.problems import Action, ProblemError, problem_of

FOLDER = Path("bundles")  # folder of bundles, relative to the folder in which the dashboard was started

MAX_UNPACKED_BYTES = 512 << 20
"""Size of an uploaded bundle; verifying takes several times as much memory."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_STATES = {"blocked": "✕ blocked", "warning": "! warning", "note": "– note", "ok": "✓ ok"}

_VERDICTS = {
    "valid": Sign(symbol="✓", tone="good", meaning="Nothing is wrong with the bundle."),
    "valid, labelled partial": Sign(symbol="◔", tone="poor", meaning="Intact, but not a result."),
    "not valid": Sign(symbol="✕", tone="bad", meaning="The bundle was changed or is damaged."),
}
_BUILD_HELP: Mapping[Action, str] = {
    "allow_partial": "The label says that the runs are not results.",
    "redact": "Only the copies in the zip are masked, and the zip says so. Files with measurements are never masked.",
}


def page() -> None:
    """Draw the page."""
    markup.heading("Package", lines=["One zip that anyone can verify. The same runs always give the same bytes."])
    build, verify = st.tabs(["Build", "Verify"], key="part", bind="query-params")
    if build.open:
        with build:
            _draw_build()
    if verify.open:
        with verify:
            _draw_verify()


# Build


def _draw_build() -> None:
    known = reading.by_name(reading.summaries())
    if not known:
        markup.empty("No runs yet", "Start one, then package it here.")
        gate.smoke_button()
        return
    markup.step(1, "Choose runs")
    runs = [known[name] for name in choose_runs(known)]
    if not runs:
        markup.empty("Select runs to package", "Add the smoke run of a full run to show that it was tested first.")
        return
    if not reading.are_as_judged(runs):
        return
    folders = [run.path for run in runs]
    items = _check(tuple(map(str, folders)), tuple(map(reading.signature, folders)))
    items = [_grade_item(known[item.run]) if (item.what, item.state) == ("grade", "ok") else item for item in items]
    markup.step(2, "Check")
    _draw_checks(items, runs)
    if gate.may_operate():
        markup.step(3, "Build")
        _draw_build_buttons(runs, items)
    run_box.draw_share(folders)
    _draw_bundle({folder.name for folder in folders})


@st.cache_data(max_entries=8, show_spinner="Checking the runs")
def _check(folders: Sequence[str], signatures: Sequence[str]) -> list[ChecklistItem]:
    """Return the checklist, cached until a run changes: every file is scanned for secrets."""
    return checklist([Path(folder) for folder in folders])


def _grade_item(run: RunSummary) -> ChecklistItem:
    """Return the check of the grade with the grade of the list of runs.

    The list also knows replays and signatures outside the folder, and runs that contradict this one.
    """
    name, detail = run.path.name, f"The run is graded {run.grade}."
    if run.grade != "contradictory":
        return ChecklistItem(run=name, what="grade", state="ok", detail=detail)
    errors = [finding for finding in reading.check(run.path).findings if finding.severity == "error"]
    detail, advice = (errors[0].what, errors[0].next) if errors else (detail, "")
    return ChecklistItem(run=name, what="grade", state="warning", detail=detail, next=advice)


def _draw_checks(items: Sequence[ChecklistItem], runs: Sequence[RunSummary]) -> None:
    """Draw the state of each run, what to fix first, and the rest folded."""
    marks = [[label(MARKS, merge_marks(held)) for held in cards(run.documents).values()] for run in runs]
    markup.table(
        ["Run", "Grade", *CARDS],
        [(run.path.name, label(GRADES, run.grade), *each) for run, each in zip(runs, marks, strict=True)],
        marked=[place for place, run in enumerate(runs) if any(document.mark == "wrong" for document in run.documents)],
    )
    states = {"blocked": "blocking problem", "warning": "warning"}
    found = {state: [item for item in items if item.state == state] for state in states}
    texts = [quantity(len(found[state]), noun) for state, noun in states.items() if found[state]]
    st.subheader(", ".join(texts) or "✓ Everything ready")
    if texts:
        _draw_items([*found["blocked"], *found["warning"]])
    passed = [item for item in items if item.state not in states]
    with st.expander(f"Passed checks: {len(passed)}"):
        _draw_items(passed)
    files = contents([run.path for run in runs])
    total = formats.size(int(files["Size"].sum()))
    with st.expander(f"Contents: {quantity(len(files), 'file')}, {total} before compression"):
        size = st.column_config.NumberColumn(format="bytes")
        st.dataframe(files, hide_index=True, column_config={"Size": size}, alt="Packed files with their sizes")


def _draw_items(items: Sequence[ChecklistItem]) -> None:
    rows = [(_STATES[one.state], one.run, one.what, markup.words(one.detail), markup.words(one.next)) for one in items]
    markup.table(["Result", "Run", "Check", "Found", "What to do"], rows)


def contents(folders: Sequence[Path]) -> pd.DataFrame:
    """Return the files of runs that a bundle packs, with their sizes in bytes."""
    rows = [
        (folder.name, name, (folder / name).stat().st_size)
        for folder in folders
        for name in files_of_run(folder).packed
    ]
    return pd.DataFrame(rows, columns=["Run", "File", "Size"])


def _draw_build_buttons(runs: Sequence[RunSummary], items: Sequence[ChecklistItem]) -> None:
    """Draw a button for each way to build: as the runs are, or with the actions that blocked checks need."""
    needed = {item.action for item in items if item.state == "blocked"}
    is_blocked = None in needed
    ways: list[set[Action]] = [{action for action in needed if action}]
    if "redact" not in needed and any(item.what == "personal details" for item in items) and not is_blocked:
        ways.append({*ways[0], "redact"})
    with st.container(horizontal=True, vertical_alignment="bottom"):
        only = runs[0].path.name if len(runs) == 1 else ""
        name = st.text_input("Name of the zip", value=only if is_name(only) else "submission", width=380)
        chosen = None
        for number, actions in enumerate(ways):
            how = [action for action in BUILD_OPTIONS if action in actions and not is_blocked]
            about = " ".join(_BUILD_HELP[action] for action in how) or None
            if st.button(
                ", ".join(["Build", *(BUILD_OPTIONS[action] for action in how)]),
                type="secondary" if number else "primary",
                icon=":material/inventory_2:",
                disabled=is_blocked or not is_name(name),
                help="Fix the blocking problems first." if is_blocked else about,
            ):
                chosen = actions
    if not is_name(name):
        markup.note("A name has up to 100 letters, digits, dots, underscores and hyphens.")
    elif chosen is not None:
        _make([run.path for run in runs], bundle_path(name), chosen)
    elif bundle_path(name).exists():
        markup.note(f"{bundle_path(name)} exists. Build replaces it; choose another name to keep both.")


def _make(folders: Sequence[Path], output: Path, actions: set[Action]) -> None:
    bar, shown = st.progress(0.0), -1

    def draw_progress(done: int, total: int) -> None:
        nonlocal shown
        if (percent := 100 * done // max(1, total)) != shown:  # a message for each percent, not each block
            shown = percent
            # Grading every run in the zip takes about as long as all before.
            bar.progress(percent, "Scanning, hashing and writing" if done < total else "Verifying the zip")

    options = {"allow_partial": "allow_partial" in actions, "redact": "redact" in actions}
    with trying("The bundle could not be built"):
        try:
            report = build_bundle(folders, output, progress=draw_progress, **options)
        finally:
            bar.empty()
        st.query_params["bundle"] = report.output.stem
        if report.redactions:
            masked = ", ".join(f"{one.path} ({one.count})" for one in report.redactions)
            markup.note(f"Masked in {quantity(len(report.redactions), 'file')}: {masked}.")
        problems.show(report.warnings)


def _draw_bundle(names: set[str]) -> None:
    """Draw the bundle in the URL if it holds the chosen runs: verdict, download, and the command to verify it."""
    name = st.query_params.get("bundle", "")
    if name not in {path.stem for path in made_bundles()}:
        return
    path = bundle_path(name)
    verdict = _verdict(*_file_state(path))
    if verdict.runs and {run.name for run in verdict.runs} != names:
        return
    markup.step(4 if gate.may_operate() else 3, "Download")
    draw_verdict(verdict, path.name, with_runs=False)
    with st.container(horizontal=True, vertical_alignment="center"):
        size = formats.size(path.stat().st_size)
        markup.download(f"Download {size}", lambda: path.open("rb"), path.name, mime="application/zip", type="primary")
        st.code(shlex.join(["trainproof", "verify", str(path)]), language=None)


# Bundles


def is_name(name: str) -> bool:
    """Return whether a bundle can have this name; no name leads out of the folder."""
    return _NAME.fullmatch(name) is not None and ".." not in name


def bundle_path(name: str) -> Path:
    """Return the path of a bundle whose name `is_name` accepts."""
    return FOLDER / f"{name.removesuffix('.zip')}.zip"


def made_bundles() -> list[Path]:
    """Return the bundles in the folder, newest first."""
    found = [path for path in FOLDER.glob("*.zip") if path.is_file() and not path.is_symlink() and is_name(path.stem)]
    return sorted(found, key=lambda path: path.stat().st_mtime_ns, reverse=True)


def _file_state(path: Path) -> tuple[str, int, int, int]:
    status = path.stat()
    return str(path.resolve()), status.st_mtime_ns, status.st_ctime_ns, status.st_size


@st.cache_resource(max_entries=8, show_spinner="Verifying")
def _verdict(path: str, mtime_ns: int, ctime_ns: int, size: int) -> BundleVerdict:
    """Verify a bundle once as long as its file does not change."""
    return verify_bundle(Path(path))


# Verify


def _draw_verify() -> None:
    here, upload = st.columns(2)
    with here:
        paths = {path.stem: path for path in made_bundles()}
        name = st.selectbox("Bundle on this machine", list(paths), index=None, placeholder=f"in {FOLDER}/")
    with upload:
        given = st.file_uploader("Or upload a bundle from anyone", type="zip")
    with trying("The bundle could not be verified"):
        if given is not None:
            verdict = _verdict_on_upload(given.file_id, given.getvalue(), given.name)
            draw_verdict(verdict, given.name)
            if verdict.ok:
                markup.note("To replay its training and test its model, run where the zip is:")
                path = shlex.quote(given.name)
                commands = (f"replay {path} --minutes 5", f"challenge {path} --generate 50 --seed 7")
                st.code("\n".join(f"trainproof {command}" for command in commands), language=None)
        elif name is not None:
            verdict = _verdict(*_file_state(paths[name]))
            draw_verdict(verdict, paths[name].name)
            if verdict.ok and verdict.content_sha256:
                with st.expander("Replay its runs, or test its model", icon=":material/replay:"):
                    replay.draw_replay(paths[name], verdict.content_sha256, key=f"replay {paths[name].name}")
        else:
            markup.empty(
                "Verify as a judge would",
                "Only the zip is needed. Harmful archives are refused, hashes and schemas are checked, "
                "every score is recomputed, and every run is graded again.",
            )


@st.cache_resource(max_entries=4, show_spinner="Verifying")
def _verdict_on_upload(file_id: str, _content: bytes, name: str) -> BundleVerdict:
    return verify_upload(_content, name)


def verify_upload(content: bytes, name: str) -> BundleVerdict:
    """Verify an uploaded bundle in a temporary file.

    Raises:
        OSError: The temporary file cannot be written.
        ProblemError: It unpacks to more than `MAX_UNPACKED_BYTES`.
    """
    with tempfile.TemporaryDirectory(prefix="trainproof-upload-") as folder:
        path, unpacked = Path(folder) / "upload.zip", 0
        path.write_bytes(content)
        with suppress(ProblemError), open_bundle(path) as files:
            unpacked = sum(files.sizes.values())
        if unpacked > MAX_UNPACKED_BYTES:
            size, limit = formats.size(unpacked), formats.size(MAX_UNPACKED_BYTES)
            what = f"The bundle unpacks to {size}, and this page verifies at most {limit}."
            command = f"Verify it in a terminal: `{shlex.join(['trainproof', 'verify', name])}`."
            raise ProblemError([problem_of("TP086", file=name, what=what, next=command)])
        return verify_bundle(path)


def draw_verdict(verdict: BundleVerdict, name: str, *, with_runs: bool = True) -> None:
    """Draw whether a bundle is valid, what that proves, its runs, and the findings."""
    word = "not valid" if not verdict.ok else "valid, labelled partial" if verdict.partial else "valid"
    digest = f" · content {verdict.content_sha256}" if verdict.content_sha256 else ""
    with st.container(border=True):
        st.html(f'<div class="tp-head">{markup.sign(_VERDICTS, word)}<b>{markup.safe(name)}</b></div>')
        if cause := headline(verdict):
            st.html(f'<p class="tp-answer">{markup.safe(cause)}</p>')
        st.html(f'<p class="tp-sub">{markup.words(verdict.proven)}</p>')
        markup.note(f"{quantity(verdict.files, 'file')}, {formats.size(verdict.size_bytes)} unpacked{digest}")
        if verdict.runs and with_runs:
            rows = [
                (
                    run.name,
                    label(GRADES, run.grade.name) + run.grade.describe().removeprefix(run.grade.name),
                    run.stated_grade or formats.NOTHING,
                    " ".join(run.grade.reasons),
                )
                for run in verdict.runs
            ]
            markup.table(["Run", "Grade found", "Grade stated", "Reasons"], rows)
        for owner, found in [("bundle", verdict.findings), *((run.name, run.findings) for run in verdict.runs)]:
            if found:
                with st.expander(f"{quantity(len(found), 'finding')} of {plain(owner)}"):
                    problems.show(found)


if __name__ == "__main__":
    page()
