"""Trying a run's model by hand: a prompt, an item or a training row; other models beside it. No evidence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import streamlit as st

from dashboard.shared.parts import gate, markup
from dashboard.shared.parts.launching import trying
from dashboard.shared.session import playing
from dashboard.shared.words.text import both_ends, glimpse
from evidence import layout
from evidence.index.summary import RunSummary
from evidence.run import Run
from launch.playing import PlayScreen, PlaySession
from schemas.formats import count
from schemas.reading import get_number, get_objects, get_str

BUSY_SECONDS, QUIET_SECONDS = 0.3, 20.0
"""Between two looks, while an answer grows and while none does."""

_WAS_BUSY = "models were answering"
_PROMPT, _ITEM, _ROW = "A prompt", "An item of its evaluation", "A training row"
_NEVER = "Play is never evidence: nothing is recorded, the run stays as it is, and no answer here counts for its grade."
_VIEWER = "You are logged in as a viewer: you can look at everything, but only an operator may start a model."


def section(run: Run, known: Mapping[str, RunSummary]) -> None:
    """Draw what can be asked, and the answers side by side as they are written."""
    markup.note(_NEVER)
    if not gate.may_operate():
        markup.note(_VIEWER)
        return
    question = _question(run)
    beside, untrained = _models(run, known)
    chosen = (run.path, beside, untrained)
    session = playing.session()
    if session is not None and session.chosen[0] != run.path:
        playing.leave()
        session = None
    is_busy = session is not None and session.is_alive and not session.look().is_done
    with st.container(horizontal=True):
        # Not disabled without a prompt: the click that ends the typing would be lost.
        if st.button("Ask", type="primary", icon=":material/send:", disabled=is_busy) and question is not None:
            with trying("It could not be asked"):
                _ask(chosen, question)
                st.rerun()
        if is_busy and st.button("Stop", icon=":material/stop:"):
            playing.leave()
            st.rerun()
    if session is None:
        return
    st.session_state[_WAS_BUSY] = is_busy
    tick = None if not session.is_alive else BUSY_SECONDS if is_busy else QUIET_SECONDS
    st.fragment(run_every=tick)(_answers)(session)


def _question(run: Run) -> dict[str, str] | None:
    """Draw what is asked, and return it as the program is told; None while there is nothing to ask."""
    rows = {name: row for row in run.rows(layout.PREDICTIONS).values if (name := get_str(row, "id"))}
    trained = training_rows(run.raw(layout.FIRST_EXAMPLES))
    ways = [_PROMPT, *([_ITEM] if rows else []), *([_ROW] if trained else [])]
    way = st.segmented_control("Ask", ways, default=_PROMPT, required=True, key="play way") if ways[1:] else _PROMPT
    if way == _PROMPT:
        text = st.text_area("Prompt", key="play prompt", height=100, max_chars=20_000)
        return {"prompt": text} if text.strip() else None
    if way == _ROW:
        row = st.selectbox("Row", list(trained), key="play row")
        prompt, learned = trained[row]
        _facts([("Prompt", both_ends(prompt, 2000)), ("It was taught", both_ends(learned, 2000))])
        return {"prompt": prompt}
    item = st.selectbox(
        "Item",
        list(rows),
        key="play item",
        format_func=lambda name: glimpse(f"{name}: {get_str(rows[name], 'prompt')}", 90),
    )
    _facts([(title, both_ends(get_str(rows[item], title.lower()) or "", 2000)) for title in ("Prompt", "Expected")])
    return {"item": item}


def training_rows(first_examples: Mapping[str, Any] | None) -> dict[str, tuple[str, str]]:
    """Return prompt and learned text of the first training rows by their names; only of those that state a template.

    Example:
        `3+4= is` written by the template `{prompt} is` with the text `3+4= is 7` is the prompt `3+4=`, and ` 7`.
    """
    found = {}
    for row in get_objects(first_examples, "examples"):
        before, slot, after = (get_str(row, "template") or "").partition("{prompt}")
        asked = bytes.fromhex(get_str(row, "prompt_utf8") or "").decode("utf-8", "replace")
        if slot and asked.startswith(before) and asked.endswith(after):
            prompt = asked.removeprefix(before).removesuffix(after)
            found[f"row {count(get_number(row, 'row'))}: {glimpse(prompt, 90)}"] = (
                prompt,
                (get_str(row, "text") or "").removeprefix(asked),
            )
    return found


def _facts(facts: Sequence[tuple[str, Any]]) -> None:
    for title, text in facts:
        st.html(f'<p class="tp-sub"><b>{markup.safe(title)}</b> {markup.safe(text)}</p>')


def _models(run: Run, known: Mapping[str, RunSummary]) -> tuple[Path | None, bool]:
    """Draw who answers beside the run's model, and return another run's folder, and whether the untrained does."""
    others = [name for name, summary in known.items() if summary.path != run.path and summary.method]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        beside = st.selectbox("Beside it", others, index=None, placeholder="no other run", key="play beside", width=320)
        untrained = st.checkbox("The untrained model too", key="play untrained")
    return (known[beside].path if beside is not None and beside in known else None), untrained


def _ask(chosen: tuple[Path, Path | None, bool], question: Mapping[str, str]) -> None:
    """Put a question to the models that are loaded, or to new ones where others are chosen."""
    if not gate.may_operate():
        return
    session = playing.session()
    if session is None or not session.is_alive or session.chosen != chosen:
        path, beside, untrained = chosen
        session = PlaySession(path, beside=beside, untrained=untrained)
        playing.keep(session)
    session.ask(**question)


def _answers(session: PlaySession) -> None:
    shown, is_alive = session.look(), session.is_alive
    if st.session_state.get(_WAS_BUSY) and (shown.is_done or not is_alive):
        st.rerun()
    _facts([("Asked", glimpse(shown.asked, 300))])
    if not shown.models and is_alive:
        st.progress(0.5, text="Loading the models")
    for why in shown.refused:
        markup.note(why)
    if shown.models:
        for number, column in enumerate(st.columns(len(shown.models))):
            with column:
                _column(shown, number)
    if why := session.why_ended:
        st.code(why, language=None, wrap_lines=True)


def _column(shown: PlayScreen, number: int) -> None:
    """Draw one model's answer, as far as it is written."""
    st.html(f'<p class="tp-sub"><b>{markup.safe(shown.models[number])}</b></p>')
    if number in shown.texts:
        st.code(shown.texts[number] or " ", language=None, wrap_lines=True)
    if number not in shown.answers:
        return
    answer = shown.answers[number]
    ended = "ended by itself" if answer["finish_reason"] == "stop" else "cut off"
    said = f"{answer['tokens']} tokens, {ended}"
    if "expected" in answer:
        said += f"; {'right' if answer['correct'] else 'wrong'}, expected {answer['expected']}"
    markup.note(f"{said}.")
