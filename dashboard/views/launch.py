"""The Launch page: the queue, the configuration form, its plan, and the start button."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared import configs, form, reading, state
from dashboard.shared.form import FormField
from dashboard.shared.parts import config_form, gate, markup, plan_answer, problems, progress, run_box
from dashboard.shared.parts.plan_answer import PlanQuestion
from dashboard.shared.tables import planned
from dashboard.shared.words import JOBS, VERDICTS, get_verdict, plain
from evidence.bundle.secrets import strip_invisible
from evidence.layout import SESSION
from evidence.targets import load_target
from evidence.writing import write_bytes
from launch import queue, tasks
from launch.jobs import ANY_DEVICE, LOCAL, OUTPUT, Job, launch_folder, tail
from launch.places import PLACES, find_place
from launch.places.place import RemotePlace
from launch.process import format_command
from launch.queue import can_resume
from launch.remote import Session, session_address
from schemas.formats import count, duration, short_count, size
from schemas.reading import get_number, get_objects, get_path, get_str, parse_time, write_yaml

Document = Mapping[str, Any]
"""A configuration, or the answer of a command."""

READ = PlanQuestion(options=tasks.CHECK, label="Loading the model and the data")
EVERYWHERE = PlanQuestion(options=("--where", "--quick"), label="Estimating for every place", again="Estimate again")
QUOTA = PlanQuestion(
    options=tasks.PLACES, label="Asking the places", button="Ask for the quota", again="Ask for the quota again"
)
MAX_AGE_SECONDS = 3600.0  # age at which the answer of a place is too old to send a run
_MEASURED = 2  # number of earlier runs with which the plan for this machine is calibrated
_FORCE = "force"
MAX_VARIANTS = 32  # runs that one click can queue
_MAX_NAME_LENGTH = 58


def page() -> None:
    """Draw the page."""
    root = state.root()
    markup.heading("Launch", lines=["Runs keep going if you close this page."])
    gate.viewer_note()
    if jobs := reading.jobs():
        is_active = any(not job.has_ended for job in jobs)
        st.fragment(run_every=TICK_SECONDS if is_active else None)(_draw_jobs)(root, was_active=is_active)
        st.header("Start another run", anchor=False)
    with st.container(horizontal=True, vertical_alignment="bottom"):
        source = run_box.choose_source()
        if source is not None and st.button("Where else does it fit?", icon=":material/calculate:"):
            state.go(state.PLAN)  # its source box shows the same source
    if source is None:
        markup.empty("No configuration found", f"None in {configs.SHIPPED}, and no run has one.")
        return
    place = st.query_params.get("place", LOCAL)
    place = place if find_place(place) is not None else LOCAL
    form_side, result_side = st.columns([3, 2], gap="large")
    with form_side:
        markup.step(1, "Configuration")
        edited = config_form.draw_form(source.key, configs.read(source))
        facts = st.container()
    resolved = form.fill_defaults(edited)
    found = form.problems(resolved)
    is_valid = not any(problem.severity == "error" for problem in found)
    checked = plan_answer.load_answer(resolved, READ)
    plan: Document | None = None
    here = questions_here(resolved)
    with result_side:
        markup.step(2, "Where to run")
        _draw_places(resolved, place, plan_answer.load_answer(resolved, here[0]), is_valid=is_valid)
        markup.step(3, "Memory and time" if place == LOCAL else "Hours, quota and uploads")
        if place == LOCAL:
            plan = _draw_plan(resolved, checked, here, is_valid=is_valid)
            found += planned.problems(checked) if is_valid and checked is not None else []
            can_start = all(one.severity != "error" for one in found)
        else:
            can_start = _draw_offer(resolved, place, is_valid=is_valid) and is_valid
        problems.show(found)
        if plan is not None:
            plan_answer.draw_advice(plan, source=source.key, config=resolved)
            problems.show(planned.problems(plan))
            plan_answer.draw_memory(plan, key="launch_memory")
            plan_answer.draw_time(plan)
        below = st.container()
    with facts:
        _draw_data(source.key, checked)
    force = gate.may_operate() and _draw_start(resolved, plan, place, is_valid=can_start)
    with below:
        _draw_command(resolved, place, force=force)


def questions_here(config: Document) -> tuple[PlanQuestion, PlanQuestion]:
    """Return the plans for this machine, the second one more exact, calibrated with the newest runs of the model."""
    name = get_str(config, "model", "name")
    runs = [
        str(run.path)
        for run in reading.summaries()
        if (run.model, run.mode, run.status) == (name, "full", "succeeded") and not (run.path / SESSION).exists()
    ]
    measured = ("--calibrate", *runs[:_MEASURED]) if runs else ()
    return (
        PlanQuestion(options=("--quick", *measured), label="Estimating from formulas"),
        PlanQuestion(options=measured, label="Compiling", button="Compile"),
    )


def _draw_places(config: Document, chosen: str, here: Document | None, *, is_valid: bool) -> None:
    """Draw a card for each place with device, hours, quota and queue, and the buttons that update them."""
    quotas, plans = plan_answer.load_answer(config, QUOTA), plan_answer.load_answer(config, EVERYWHERE)
    told = {get_str(one, "place"): one for one in get_objects(quotas, "places")}
    estimates = {get_str(one, "target"): one for one in get_objects(plans, "where")}
    estimates |= {LOCAL: {**here, **(get_path(here, "time") or {})}} if here is not None else {}
    with st.container(horizontal=True, gap="small"):
        active = [job for job in reading.jobs() if not job.has_ended]
        for name in dict.fromkeys([LOCAL, *PLACES, chosen, *(job.place for job in active)]):
            place = find_place(name)
            target = LOCAL if name == LOCAL else getattr(place, "target", None)
            with st.container(border=True, width=250, gap="xsmall", key=f"place_{name}"):
                title = getattr(place, "title", "") or (load_target(target).title if target else name)
                lines = [name if name != LOCAL else get_str(here, "target", "name") or "device not known yet"]
                lines += [describe_hours(estimates.get(target))] if target else []
                lines += describe_quota(told.get(name)) if isinstance(place, RemotePlace) else []
                queued = [job.state for job in active if job.place == name]
                waiting = queued.count("waiting")
                lines += [f"Queue: {waiting} waiting, {len(queued) - waiting} running" if queued else "Queue: empty"]
                text = "".join(f"<p>{markup.words(line)}</p>" for line in lines)
                sign = '<span class="tp-sign tp-good">✓ chosen</span>' if name == chosen else ""
                st.html(f'<div class="tp-card"><h2>{markup.safe(title)}{sign}</h2>{text}</div>')
                if name != chosen and place is not None and st.button("Choose", key=f"choose {name}"):
                    st.query_params["place"] = name
                    st.rerun()
    with st.container(horizontal=True):
        plan_answer.draw_questions(config, [QUOTA], key="quota", is_valid=True)
        # Not beside the plan for this machine.
        if chosen != LOCAL or here is not None:
            plan_answer.draw_questions(config, [EVERYWHERE], key="everywhere", is_valid=is_valid)


def describe_hours(estimate: Document | None) -> str:
    """Describe verdict and time of a configuration on a machine, from a plan for every machine."""
    verdict, hours = get_verdict(estimate, "verdict"), planned.get_band(estimate, "hours")
    if estimate is None:
        return "Time: not planned yet"
    low, high = (duration(end * 3600) for end in (hours.low, hours.high)) if hours else ("", "")
    takes = "" if verdict not in {"fits", "tight"} else f", takes {low} to {high}" if hours else ", time unknown"
    return f"{VERDICTS[verdict].symbol} {verdict}{takes}"


def describe_quota(told: Document | None) -> list[str]:
    """Describe account and quota of a place, or why it cannot be used and what to do."""
    if told is None:
        return ["Quota: unknown"]
    if findings := planned.problems(told):
        return [f"✕ {one.what} {one.next}" for one in findings]
    left, until = get_number(told, "left_hours"), get_str(told, "refreshes_at") or ""
    quota = [] if left is None else [f"Quota: {left:g} h left until {until[:10]}"]
    return [*quota, *([f"Account: {account}"] if (account := get_str(told, "account")) else [])]


def _draw_offer(config: Document, place: str, *, is_valid: bool) -> bool:
    """Draw memory, hours, quota and uploads of a run at a remote place; return whether it may be sent."""
    force = ("--force",) if st.session_state.get(_FORCE) else ()
    question = PlanQuestion(
        options=("push", "--check", "--to", place, *force),
        label=f"Planning for {place} and asking for the quota",
        button="Show hours and uploads",
        again="Ask again",
    )
    answer = plan_answer.load_answer(config, question)
    asked_at = parse_time(get_str(answer, "asked_at") or "")
    is_fresh = asked_at is not None and (datetime.now(UTC) - asked_at).total_seconds() < MAX_AGE_SECONDS
    stated = get_path(answer, "rows")
    rows = [(str(row[0]).capitalize(), str(row[-1])) for row in stated or () if row]
    with st.container(border=True):
        if rows:
            markup.table(["What", "How much"], rows)
        if answer is None:
            markup.note(f"Nothing is sent to {place} before you have seen memory, hours, quota and uploads.")
        elif not is_fresh:
            markup.note("This answer is more than an hour old. Ask again before you send the run.")
        plan_answer.draw_questions(config, [question], key="offer", is_valid=is_valid)
    problems.show(planned.problems(answer or {}))
    return bool(rows) and is_fresh


def _draw_plan(
    resolved: Document, checked: Document | None, here: Sequence[PlanQuestion], *, is_valid: bool
) -> Document | None:
    """Draw the plan for this machine, and return it if it is known."""
    plans = [plan for question in here if (plan := plan_answer.load_answer(resolved, question)) is not None]
    # The plan of a configuration that cannot start would find the same problems.
    questions = (READ,) if checked is not None and checked.get("can_begin") is False else (READ, *here)
    with st.container(border=True):
        if plans:
            plan_answer.draw_answer(plans[-1])
        plan_answer.draw_questions(resolved, questions, key="launch", is_valid=is_valid)
    return plans[-1] if plans else None


def _draw_start(resolved: Document, plan: Document | None, place: str, *, is_valid: bool) -> bool:
    """Draw the start button; return whether to start even if memory is too small."""
    with st.container(key="launch_start", horizontal=True, vertical_alignment="center"):
        sign = "" if plan is None else markup.sign(VERDICTS, get_verdict(plan, "verdict"))
        need = "" if plan is None else markup.safe(planned.need_in_words(plan))
        name = markup.safe(resolved.get("name", "run"))
        verb, blocked = "Start", "Fix the problems first."
        if place != LOCAL:
            verb, blocked = f"Send to {place}", "Show hours and uploads first."
        st.html(f'<p class="tp-step"><b>4</b>Start {name} {sign} <span class="tp-dim">{need}</span></p>')
        force = st.toggle("Start even if memory may run out", key=_FORCE, help="The run records that it was forced.")
        variants = _choose_variants(resolved) if place == LOCAL else [resolved]
        if st.button(
            verb if len(variants) == 1 else f"Start {len(variants)} runs",
            type="primary",
            icon=":material/play_arrow:",
            disabled=not is_valid or not variants,
            help=None if is_valid else blocked,
            shortcut="Ctrl+Enter",
        ):
            gate.start(*variants, force=force, place=place)
    return force


def _choose_variants(resolved: Document) -> Sequence[Document]:
    """Draw the values to try for one setting, and return a configuration for each, or only the given one."""
    with st.popover("Several runs", icon=":material/content_copy:"):
        keys = [setting.dotted for setting in form.fields() if setting.dotted not in {"name", "mode"}]
        key = st.selectbox("Setting", keys, index=keys.index("seed"), key="over", bind="query-params")
        about = "Separated by commas. Each value is queued as its own run, named after it."
        text = st.text_input("Values", placeholder="0, 1, 2", help=about, key="values", bind="query-params")
        if not (text or "").strip():
            return [resolved]
        variants, wrong = make_variants(resolved, form.field(key), text)
        for line in wrong:
            markup.note(f"✕ {line}")
        markup.note(", ".join(str(config["name"]) for config in variants))
        return [] if wrong else variants


def make_variants(config: Document, setting: FormField, text: str) -> tuple[list[dict[str, Any]], list[str]]:
    """Return a configuration for each value, named after it, and what is wrong with the values.

    Example:
        `demo`, `optimizer.learning_rate` and `0.001, 0.002` give `demo-learning_rate-0.001` and
        `demo-learning_rate-0.002`.
    """
    values = list(dict.fromkeys(value for part in text.split(",") if (value := part.strip())))
    if len(values) > MAX_VARIANTS:
        return [], [f"These are {len(values)} values. You can start up to {MAX_VARIANTS} runs at a time."]
    found, wrong = [], []
    for value in values:
        if not setting.has_type(parsed := setting.parse(value)):
            allowed = ", ".join(setting.options) or setting.kind
            wrong.append(f"{setting.title} cannot be {value}. Allowed: {allowed}.")
            continue
        suffix = re.sub("[^A-Za-z0-9._-]+", "-", f"{setting.path[-1]}-{value}").strip("-")
        stem = str(config.get("name", "run"))[: max(1, _MAX_NAME_LENGTH - len(suffix))]
        variant = form.edit(config, {setting.path: parsed, ("name",): f"{stem}-{suffix}"[:_MAX_NAME_LENGTH]})
        wrong += [problem.what for problem in form.problems(variant) if problem.severity == "error"]
        found.append(variant)
    return found, wrong


def _draw_command(resolved: Document, place: str, *, force: bool) -> None:
    name, text = f"{resolved.get('name', 'run')}.yaml", write_yaml(dict(resolved))
    verb, to = (["queue", "add"], []) if place == LOCAL else (["push"], ["--to", place])
    arguments = [*verb, "--config", name, *to, "--root", str(state.root()), *(["--force"] if force else [])]
    st.caption(f"Equivalent command in {plain(str(Path.cwd()))}, with the configuration saved there")
    st.code(strip_invisible(format_command(arguments)), language=None, wrap_lines=True)
    markup.download("Configuration", text, name)
    with st.expander("Show the configuration", type="compact"):
        st.code(strip_invisible(text), language="yaml")


def _draw_data(source: str, checked: Document | None) -> None:
    """Draw facts about the model and the data, the upload, and the first examples.

    `checked` is the answer of `trainproof train --check`, or None.
    """
    facts = checked if checked is not None and checked.get("can_begin") is True else {}
    total, trained = get_number(facts, "model", "parameters"), get_number(facts, "model", "trained_parameters")
    if total is not None and trained is not None:
        some = "all" if trained == total else short_count(trained)
        weights = "pretrained" if get_str(facts, "model", "origin") == "pretrained" else "random weights"
        family = get_str(facts, "model", "family")
        markup.note(f"Model: {short_count(total)} parameters, {some} trainable; {family}, {weights}.")
    rows, tokens = get_number(facts, "training_rows"), get_number(facts, "dataset", "tokens")
    if rows is not None and tokens is not None:
        generated, items = get_number(facts, "dataset", "generated_rows"), get_number(facts, "evaluation_items")
        more = f" ({count(generated)} generated)" if generated else ""
        evaluated = "no evaluation" if items is None else f"{count(items)} evaluation items"
        markup.note(f"Data: {count(rows)} examples{more}, {short_count(tokens)} tokens; {evaluated}.")
    if gate.may_operate():
        with st.popover("Upload a dataset", icon=":material/upload:"):
            key = f"upload {source}"
            st.file_uploader("Dataset", type=configs.DATA_SUFFIXES, key=key, on_change=_use_upload, args=(source, key))
    if examples := get_objects(facts, "first_examples", "examples"):
        first = st.expander(
            "First examples, as the model sees them", key="rows", on_change="rerun", bind="query-params"
        )
        if first.open:
            with first:
                markup.show_examples(examples)


def _use_upload(source: str, key: str) -> None:
    """Save an uploaded dataset among the jobs of the root, once for the same content, and select it."""
    upload = st.session_state.get(key)
    if upload is None or not gate.may_operate():
        return
    name, content = Path(upload.name), upload.getvalue()
    stem = re.sub("[^A-Za-z0-9._-]", "-", name.stem).lstrip("._-")[:60] or "rows"
    digest = hashlib.sha256(content).hexdigest()[:8]
    path = launch_folder(state.root()) / config_form.UPLOADS / f"{stem}-{digest}{name.suffix.lower()}"
    with gate.trying("The file could not be saved"):
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.is_file() or path.read_bytes() != content:
            write_bytes(path, content)
        config_form.put(source, {("data", "dataset"): str(path)})


TICK_SECONDS = 1.5
MIN_FREE_BYTES = 1 << 16  # free disk space below which no job can start
_WAITING_SHOWN = 3
_ENDED_SHOWN = 1
_ENDED_FOLDED = 12


def _draw_jobs(root: Path, *, was_active: bool) -> None:
    jobs = reading.jobs()
    active = [job for job in jobs if not job.has_ended]
    if was_active and not active:
        st.rerun()
    waiting = [job for job in active if job.state == "waiting"]
    _warn_if_stuck(root, active, waiting)
    for job in active:
        if job not in waiting[_WAITING_SHOWN:]:
            _draw_job(root, job, can_move=job not in waiting[:1])
    _draw_folded(root, waiting[_WAITING_SHOWN:], "More waiting jobs", key="later")
    chosen = st.query_params.get("job")
    # Newest first, but the job in the address before all others.
    ended = sorted((job for job in reversed(jobs) if job.has_ended), key=lambda job: job.job_id != chosen)
    for job in ended[:_ENDED_SHOWN]:
        _draw_job(root, job)
    _draw_folded(root, ended[_ENDED_SHOWN:][:_ENDED_FOLDED], "Recent jobs", key="ended")


def _warn_if_stuck(root: Path, active: Sequence[Job], waiting: Sequence[Job]) -> None:
    if waiting and not queue.has_worker(root):
        markup.note("The queue is not running: the machine or the worker of the queue was stopped.")
        start = partial(queue.start_worker, root)
        gate.act("Continue the queue", start, "The queue could not be continued", type="primary")
    elif waiting and len(waiting) == len(active):
        with suppress(OSError):  # the folder was just removed
            free = shutil.disk_usage(root).free
            if free < MIN_FREE_BYTES:
                markup.note(f"No job can start: the disk of {root} has only {size(free)} left. Free some space.")


def _draw_folded(root: Path, jobs: Sequence[Job], title: str, *, key: str) -> None:
    if jobs:
        rest = st.expander(f"{title}: {len(jobs)}", key=key, on_change="rerun", bind="query-params")
        if rest.open:
            with rest:
                for job in jobs:
                    _draw_job(root, job, can_move=True)


def _draw_job(root: Path, job: Job, *, can_move: bool = False) -> None:
    with st.container(border=True):
        with st.container(horizontal=True, vertical_alignment="center"):
            where = "" if job.device == ANY_DEVICE else f"on a {job.device.upper()} · "
            if job.place != LOCAL:
                address = session_address(job.place, Session.load(job.folder).reference)
                where = f"at {markup.link(job.place, address) if address else markup.safe(job.place)} · "
            how = f" · {reason.rstrip('.')}" if job.has_ended and (reason := progress.describe(job)) else ""
            details = f"{where}queued {markup.when(job.created_at, reading.browser_timezone())}{markup.safe(how)}"
            st.html(
                f'<div class="tp-sub">{markup.sign(JOBS, job.state)} <b>{markup.safe(job.run)}</b> '
                f'<span class="tp-dim">{details}</span></div>'
            )
            with st.container(horizontal=True, width="content"):
                key, smoke = job.job_id, f"{job.run}-smoke"
                has_run, has_smoke = ((root / name).is_dir() for name in (job.run, smoke))
                if has_run and st.button("Open run", key=f"open {key}", icon=":material/show_chart:"):
                    state.go(state.RUN, run=job.run)
                is_pair = has_smoke and job.state == "succeeded"
                if is_pair and st.button(progress.TAB, key=f"smoke {key}", icon=":material/science:"):
                    state.go(state.COMPARE, part=progress.TAB, full=job.run, smoke=smoke)
                if gate.may_operate():
                    _draw_buttons(root, job, can_move=can_move)
        if job.state in {"running", "stopping"}:
            progress.draw_stage(job.run, job)
        elif job.state == "unsealed":
            markup.note(JOBS[job.state].meaning)
        is_watched = job.state == "running" and job.place != LOCAL
        output = tail(job.folder / OUTPUT) if job.has_ended or is_watched else ""
        slot = st.empty()  # so that nothing of it stays when the job changes its state
        if output:
            is_bad = JOBS[job.state].tone == "bad" or (job.exit_code or 0) < 0
            with slot.expander("Last output", expanded=is_bad or is_watched):
                st.code(output, language=None, wrap_lines=True)


def _draw_buttons(root: Path, job: Job, *, can_move: bool) -> None:
    key, act = job.job_id, gate.act
    if job.state == "waiting" and can_move:
        up, icon = partial(queue.move_up, root, job), ":material/arrow_upward:"
        act("Earlier", up, "The job could not be moved", key=f"up {key}", icon=icon)
    if job.state in {"waiting", "running"}:
        progress.draw_stop(job, key=f"{'remove' if job.state == 'waiting' else 'stop'} {key}")
    if job.state == "stopping":
        # It takes the place of Stop, so it needs a second click: a double click must not lose what is being saved.
        with st.popover("Kill", icon=":material/dangerous:", key=f"before kill {key}"):
            markup.note("Ends the process immediately. Rows written so far stay, but the run is not finalized.")
            act("Kill", partial(queue.kill, job), "The job could not be killed", key=f"kill {key}", type="primary")
    if not job.has_ended:
        return
    run = reading.load_run(root / job.run) if (root / job.run).is_dir() else None
    known = reading.by_name(reading.summaries())
    if run is not None and can_resume(run) and reading.find_continuation(job.run, known) is None:
        about = "Continues from the last checkpoint, as a new run that names this one as its parent."
        look = {"key": f"resume {key}", "icon": ":material/resume:", "help": about}
        act(
            "Resume",
            lambda: state.go(state.RUN, run=queue.resume(root, run, stopped=job).run),
            "The run could not be resumed",
            **look,
        )
    if job.state != "succeeded":
        about = "Queues the same configuration again as a new run. The old run stays."
        look = {"key": f"retry {key}", "icon": ":material/replay:", "help": about}
        act(
            "Retry",
            lambda: state.go(state.RUN, run=queue.retry(root, job).run),
            "The job could not be queued again",
            **look,
        )


page()
