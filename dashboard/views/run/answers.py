"""The tabs Predictions, Roll-outs and Play of the Run page: what the model answered, and what it answers now.

Query parameters hold the filters, the id of the item whose answer is shown, and the selected group of completions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import streamlit as st

from dashboard.shared import state
from dashboard.shared.parts import gate, markup
from dashboard.shared.parts.gate import trying
from dashboard.shared.words import both_ends, glimpse
from evidence import layout
from evidence.bundle.secrets import strip_invisible
from evidence.index.summary import RunSummary
from evidence.layout import ROLLOUTS
from evidence.run import Run
from launch import tasks
from launch.process import format_command
from launch.tasks import Task, TaskResult
from schemas import formats
from schemas.formats import percent, quantity
from schemas.reading import get_bool, get_number, get_path, get_str

Row = Mapping[str, Any]

GROUPS: Mapping[str, str] = {"section": "Section", "category": "Category", "difficulty": "Difficulty"}
"""Fields of an item by which scores are grouped, with their titles."""
FILTERS: Mapping[str, str] = {**GROUPS, "finish_reason": "Ended by"}
OUTCOMES: Mapping[str, Callable[[Row], bool]] = {
    "all": lambda row: True,
    "right": lambda row: row.get("correct") is True,
    "wrong": lambda row: row.get("correct") is False,
    "wrong format": lambda row: row.get("format_ok") is False,
    "error": lambda row: row.get("error") is not None,
}

_LEVELS = {"easy": 1, "medium": 2, "hard": 3}
_WORDS = {True: "✓ right", False: "✕ wrong", None: "? unknown"}
_FORMATS = {True: "✓ ok", False: "✕ wrong", None: None}
_ORDER = {"! error": 0, "✕ wrong": 1, "? unknown": 2, "✓ right": 3}
_PAGE_ROWS = 1000  # rows sent to the browser at a time
_MAX_CELL = 300
_MAX_TEXT = 8_000
_ITEM = "item"  # query parameter with the shown item
_MAX_ITEM = 200  # longer ids are not put into the URL

_PERCENT = st.column_config.NumberColumn(format="%.1f %%")
_SCORE_COLUMNS: Mapping[str, Any] = {
    "Value": st.column_config.TextColumn(width=160),
    "Exact match": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%.1f %%", width=160),
    **dict.fromkeys(("Untrained", "Format", "Lenient", "Untrained, lenient"), _PERCENT),
}
_ANSWER_COLUMNS: Mapping[str, Any] = {
    "Item": st.column_config.TextColumn(width=110, pinned=True),
    "Format": st.column_config.TextColumn(help="Whether the output has exactly the required format."),
    "Prompt": st.column_config.TextColumn(width=420),
    "Output": st.column_config.TextColumn(width=420),
}


def draw_predictions(rows: Sequence[Row], eval_summary: Row | None) -> None:
    """Draw the scores by group and the answers that pass the filters."""
    if not rows:
        markup.empty("No predictions", "This run was not evaluated, or has not got that far.")
        return
    groups = group_values(rows)
    if eval_summary is not None:
        frame = score_frame(eval_summary)
        st.dataframe(frame, hide_index=True, width="content", column_config=_SCORE_COLUMNS, alt="Scores by group")
    shown = _filter(rows, groups)
    # Optional parts of a fragment have slots: if another fragment runs right after this one, Streamlit only removes
    # what a slot replaces.
    place, answers = st.container(), st.empty()
    is_chosen = False
    if shown:
        with answers.container():
            is_chosen = _answers(_page(shown))
    with place:
        hint = "The selected answer is shown below." if is_chosen else "Select a row to read its output."
        markup.note(f"{len(shown):,} of {quantity(len(rows), 'item')}. {hint if shown else 'Remove a filter.'}")


def draw_answers_over_steps(rows: Sequence[Row]) -> None:
    """Draw the answers that the model gave during training, at one step; nothing without any."""
    steps = sorted({int(step) for row in rows if (step := get_number(row, "step")) is not None})
    if not steps:
        return
    st.header("Answers during training", anchor=False)
    step = steps[0]
    if len(steps) > 1:
        step = st.select_slider("After step", steps, value=steps[-1], key="after", bind="query-params")
    shown = [row for row in rows if row.get("step") == step]
    right = sum(row.get("correct") is True for row in shown)
    markup.note(f"{right} of {quantity(len(shown), 'answer')} right after step {step:,}.")
    st.dataframe(
        answer_frame(shown).assign(Output=[_cell(get_str(row, "output_text")) or "" for row in shown]),
        hide_index=True,
        key="answers_over_steps",
        column_config=_ANSWER_COLUMNS,
        alt=f"Answers after step {step}",
    )


def score_frame(eval_summary: Row) -> pd.DataFrame:
    """Return the scores over all items and by group, in percent."""
    baseline = get_path(eval_summary, "baseline")
    found = [("All items", "", eval_summary.get("metrics"), get_path(baseline, "metrics"))]
    for field, title in GROUPS.items():
        groups, untrained = (get_path(one, "groups", field) for one in (eval_summary, baseline))
        values = sorted(groups or (), key=lambda name: (_LEVELS.get(name, 0), name))
        found += [(title, strip_invisible(one), groups[one], get_path(untrained, one)) for one in values]
    rows = [{"Group": title, "Value": value, **_score_row(*scores)} for title, value, *scores in found]
    return pd.DataFrame(rows).dropna(axis="columns", how="all")


def _score_row(metrics: Any, untrained: Any) -> dict[str, Any]:
    def percent(document: Any, name: str) -> float | None:
        value = get_number(document, name, "value")
        return None if value is None else 100 * value

    low, high = (get_number(metrics, "exact_match", "interval", end) for end in ("low", "high"))
    return {
        "Items": get_number(metrics, "exact_match", "n"),
        "Exact match": percent(metrics, "exact_match"),
        "95 % interval": None if low is None else formats.percent_range(low, high),
        "Untrained": percent(untrained, "exact_match"),
        "Format": percent(metrics, "format_compliance"),
        "Lenient": percent(metrics, "lenient_match"),
        "Untrained, lenient": percent(untrained, "lenient_match"),
    }


def group_values(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Return the values of each field of `FILTERS` that occur in the rows."""
    found = {name: sorted({row[name] for row in rows if isinstance(row.get(name), str)}) for name in FILTERS}
    return {name: values for name, values in found.items() if values}


def filter_rows(rows: Sequence[Row], *, outcome: str, groups: Mapping[str, Sequence[str]], words: str) -> list[Row]:
    """Return the rows with this outcome, a chosen value of each field and all words, wrong answers first."""
    fields = ("id", "prompt", "expected", "output_text", "extracted_answer")
    found = []
    for row in rows:
        text = " ".join(get_str(row, name) or "" for name in fields).lower() if words else ""
        is_chosen = all(not chosen or row.get(group) in chosen for group, chosen in groups.items())
        if is_chosen and OUTCOMES[outcome](row) and all(word in text for word in words.lower().split()):
            found.append(row)
    return sorted(found, key=lambda row: _ORDER[_outcome(row)])


def _filter(rows: Sequence[Row], groups: Mapping[str, Sequence[str]]) -> list[Row]:
    with st.container(horizontal=True, vertical_alignment="bottom"):
        outcome = st.segmented_control(
            "Outcome", list(OUTCOMES), default="all", required=True, key="outcome", bind="query-params"
        )
        chosen = {
            name: st.multiselect(FILTERS[name], options, key=name, bind="query-params", placeholder="all", width=180)
            for name, options in groups.items()
        }
        words = st.text_input("Search", key="find", bind="query-params", icon=":material/search:")
    return filter_rows(rows, outcome=outcome, groups=chosen, words=words or "")


def answer_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the rows as a table with shortened texts, without columns that are empty in every row."""
    frame = pd.DataFrame(
        [
            {
                "Item": _cell(get_str(row, "id")),
                "Outcome": _outcome(row),
                "Format": _FORMATS[get_bool(row, "format_ok")],
                "Prompt": _cell(get_str(row, "prompt")),
                "Expected": _cell(
                    " or ".join([get_str(row, "expected") or "", *map(str, row.get("also_expected") or ())])
                ),
                "Got": _cell(get_str(row, "extracted_answer")),
                "Tokens": get_number(row, "output_tokens"),
                **{title: _cell(get_str(row, name)) for name, title in FILTERS.items()},
            }
            for row in rows
        ]
    )
    return frame.dropna(axis="columns", how="all")


def _cell(text: str | None) -> str | None:
    return glimpse(strip_invisible(text), _MAX_CELL) if text else None


def _outcome(row: Row) -> str:
    return "! error" if row.get("error") is not None else _WORDS[get_bool(row, "correct")]


def _expected_answers(row: Row) -> str:
    """Return every answer that counts as right, joined by `or`."""
    others = row.get("also_expected")
    return " or ".join(map(str, [get_str(row, "expected") or "", *(others if isinstance(others, list) else [])]))


def _page(shown: Sequence[Row]) -> Sequence[Row]:
    """Return one page of the rows; a link to an item opens its page."""
    if len(shown) <= _PAGE_ROWS:
        return shown
    pages = -(-len(shown) // _PAGE_ROWS)
    number = st.pagination(pages, default=(_linked_row(shown) or 0) // _PAGE_ROWS + 1, key="page")
    return shown[(number - 1) * _PAGE_ROWS : number * _PAGE_ROWS]


def _linked_row(rows: Sequence[Row]) -> int | None:
    """Return the number of the row with the item in the URL, or None."""
    item = st.query_params.get(_ITEM)
    return next((number for number, row in enumerate(rows) if item is not None and row.get("id") == item), None)


def _answers(shown: Sequence[Row]) -> bool:
    """Draw the answers and the selected one below, put its item into the URL, and return whether one is."""
    items = [get_str(row, "id") or "" for row in shown]
    linked = _linked_row(shown)
    key, frame = f"predictions_table {hash(tuple(items))}", answer_frame(shown)
    chosen = markup.choose_row(frame, key=key, chosen=linked, column_config=_ANSWER_COLUMNS, alt="Answers")
    answer = st.empty()
    if chosen is not None:
        with answer.container(border=True):
            _answer(shown[chosen])
    item = "" if chosen is None else items[chosen]
    if item.isprintable() and 0 < len(item) <= _MAX_ITEM:
        st.query_params[_ITEM] = item
    elif linked is not None:
        del st.query_params[_ITEM]
    return chosen is not None


def _answer(row: Row) -> None:
    texts = [both_ends(get_str(row, name) or "", _MAX_TEXT) for name in ("id", "expected", "extracted_answer")]
    if row.get("extracted_answer") is None:
        texts[-1] = "no answer in the output"
    markup.table(["Item", "Expected", "Extracted answer"], [texts])
    left, right = st.columns(2)
    with left:
        st.caption("Prompt")
        st.code(both_ends(get_str(row, "prompt") or "", _MAX_TEXT), language=None, wrap_lines=True)
    with right:
        st.caption("Output, with the answer underlined")
        before, answer, after = map(markup.safe, split_at_answer(row))
        st.html(f'<p class="tp-tokens">{before}<span class="tp-on">{answer}</span>{after}</p>')


def split_at_answer(row: Row) -> tuple[str, str, str]:
    """Split an output into the text before the answer, the answer, and the text after it; "" if it has no answer.

    Keys and passwords are masked. Only the beginning and the end of a long output are kept.

    >>> split_at_answer({"output_text": "<answer>4</answer>", "extracted_answer": "4"})
    ('<answer>', '4', '</answer>')
    """
    text, answer = both_ends(get_str(row, "output_text") or "", _MAX_TEXT), get_str(row, "extracted_answer")
    return text.rpartition(answer) if answer else ("", "", text)


_SHARES = {"all solved": "#2f8f63", "some solved": "#3d7ebf", "none solved": "#9aa6ae"}
"""Columns of `solved_shares` with their colors."""
_GROUP = "rollout"
_MAX_PROMPT = 300
_GROUP_COLUMNS: Mapping[str, Any] = {
    "Solved": st.column_config.ProgressColumn(min_value=0, max_value=100, format="%.0f %%", width=120),
    "Mean reward": st.column_config.NumberColumn(format="%.2f"),
    "Prompt": st.column_config.TextColumn(width=600),
}
_COMPLETION_COLUMNS: Mapping[str, Any] = {
    "Advantage": st.column_config.NumberColumn(format="%+.2f", width=90),
    "Reward": st.column_config.NumberColumn(format="%.2f", width=80),
    "Completion": st.column_config.TextColumn(width="large"),
}


def draw_rollouts(run: Run) -> None:
    """Draw the share of solved groups over the steps, the groups, and the completions of the selected group."""
    rows = run.rows(ROLLOUTS).values
    if not rows:
        markup.empty("No completions", "This run recorded none, or has not got that far.")
        return
    groups = group_frame(rows)
    shares = solved_shares(groups)
    about = " ".join(
        f"Step {step:,}: {percent(shares.loc[step, 'all solved'])} of the groups are solved by every completion, "
        f"{percent(shares.loc[step, 'none solved'])} by none."
        for step in dict.fromkeys([shares.index[0], shares.index[-1]])
    )
    markup.note(about)
    if len(shares) > 1:
        st.area_chart(
            100 * shares,
            x_label="Step",
            y_label="Groups (%)",
            color=list(_SHARES.values()),
            stack=True,
            height=300,
            alt=f"Share of solved groups over the steps. {about}",
        )
    keys = [f"{step}-{group}" for step, group in zip(groups["Step"], groups["Group"], strict=True)]
    linked = st.query_params.get(_GROUP, "")
    place = keys.index(linked) if linked in keys else 0
    row = markup.choose_row(
        groups,
        key=f"rollout_groups {hash(tuple(keys))}",
        chosen=place,
        is_required=True,
        column_config=_GROUP_COLUMNS,
        alt="Groups of completions, the last step first",
    )
    chosen = st.query_params[_GROUP] = keys[place if row is None else row]
    _draw_group([row for row in rows if f"{row['step']}-{row['group'] + 1}" == chosen])


def group_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return one row per group, the last step first. Solved completions have the largest reward of the run."""
    columns = {name.capitalize(): [row[name] for row in rows] for name in ("step", "group", "reward", "prompt")}
    frame = pd.DataFrame(columns)
    reward = frame["Reward"].astype("float64")
    frame = frame.assign(Group=frame["Group"] + 1, Reward=reward, Solved=100.0 * (reward >= reward.max() - 1e-9))
    groups = frame.groupby(["Step", "Group"], as_index=False).agg(
        **{"Solved": ("Solved", "mean"), "Mean reward": ("Reward", "mean"), "Prompt": ("Prompt", "first")}
    )
    groups["Prompt"] = [glimpse(strip_invisible(prompt), _MAX_PROMPT) for prompt in groups["Prompt"]]
    return groups.sort_values(["Step", "Group"], ascending=[False, True], ignore_index=True)


def solved_shares(groups: pd.DataFrame) -> pd.DataFrame:
    """Return for each step the share of groups, from 0 to 1, with all, some and none of their completions solved."""
    solved = groups.set_index("Step")["Solved"]
    kinds = {"all solved": solved == 100, "some solved": solved.between(0, 100, "neither"), "none solved": solved == 0}
    return pd.DataFrame(kinds).groupby(level="Step").mean()


def _draw_group(rows: Sequence[Row]) -> None:
    markup.note(f"Prompt: {glimpse(rows[0]['prompt'], 4000)}")
    remark = st.empty()
    if len({row["reward"] for row in rows}) == 1:
        with remark.container():
            markup.note("All completions have the same reward, so the model learns nothing from this group.")
    share = st.column_config.ProgressColumn(min_value=0.0, max_value=1.0, format="%.2f", width=90)
    columns = {**_COMPLETION_COLUMNS, **dict.fromkeys(rows[0]["rewards"], share)}
    st.dataframe(completion_frame(rows), hide_index=True, column_config=columns, alt="Completions")


def completion_frame(rows: Sequence[Row]) -> pd.DataFrame:
    """Return the completions of a group, the best first, with a column for each part of the reward."""
    return pd.DataFrame(
        [
            {
                "Advantage": row["advantage"],
                "Reward": row["reward"],
                **row["rewards"],
                "Completion": strip_invisible(row["completion"]),
                "Tokens": len(row.get("token_ids") or ()) or None,
                "Ended": "stop token" if row["finish_reason"] == "stop" else "token limit",
                "Trained on": bool(row["is_used"]),
            }
            for row in sorted(rows, key=lambda row: (-float(row["advantage"]), row["sample"]))
        ]
    )


TICK_SECONDS = 0.5
_ASKED = "question to a model"
_PROMPT, _EVALUATION_ITEM = "Prompt", "Evaluation item"
_MAX_QUESTION, _MAX_LINES = 2000, 12


@dataclass
class AskedQuestion:
    """The newest question of this user, and its result once the task has ended."""

    run: Path
    text: str
    task: Task
    result: TaskResult | None = None


def draw_play(run: Run, known: Mapping[str, RunSummary]) -> None:
    """Draw the question, the models that answer, and the answers."""
    markup.note("Answers are not saved in the run and do not affect its grade.")
    if not gate.may_operate():
        markup.note("You are logged in as a viewer. Only operators can start a model.")
        return
    question = _draw_question(run)
    others = [name for name, summary in known.items() if summary.path != run.path and summary.method]
    with st.container(horizontal=True, vertical_alignment="bottom"):
        beside = st.selectbox("Compare with", others, index=None, placeholder="No other run", key="beside", width=320)
        untrained = st.checkbox("Compare with the untrained model", key="play untrained")
    options = [f"--beside={known[beside].path.resolve()}"] if beside is not None and beside in known else []
    options += ["--untrained"] if untrained else []
    asked: AskedQuestion | None = st.session_state.get(_ASKED)
    if asked is not None and asked.run != run.path:
        with suppress(OSError):  # it is cancelled anyway when no page watches it
            asked.task.cancel()
        asked = st.session_state[_ASKED] = None
    is_running = asked is not None and asked.result is None
    with st.container(horizontal=True), trying("The model could not be started"):
        # Enabled without a prompt too, because the click that ends typing would be lost otherwise.
        if st.button("Ask", type="primary", icon=":material/send:", disabled=is_running) and question:
            task = tasks.play_task(state.root(), run.path, question, options)
            task.start()
            st.session_state[_ASKED] = AskedQuestion(run.path, " ".join(question.values()), task)
            st.rerun()
        if asked is not None and is_running and st.button("Stop", icon=":material/stop:"):
            asked.task.cancel()
            st.rerun()
    if asked is not None:
        st.fragment(run_every=TICK_SECONDS if is_running else None)(_draw_replies)(asked)
    st.caption("The model is loaded for each question. To keep it loaded, use the command line:")
    st.code(strip_invisible(format_command(["play", str(run.path)])), language=None, wrap_lines=True)


def _draw_question(run: Run) -> dict[str, str] | None:
    """Draw the question and return it, or None if it is empty."""
    items = {name: row for row in run.rows(layout.PREDICTIONS).values if (name := get_str(row, "id"))}
    kinds = [_PROMPT, _EVALUATION_ITEM] if items else [_PROMPT]
    kind = st.segmented_control("Ask", kinds, default=_PROMPT, required=True, key="play")
    if kind == _PROMPT:
        text = st.text_area("Prompt", key="play prompt", height=100, max_chars=20_000)
        return {"prompt": text} if text.strip() else None
    item = st.selectbox(
        "Item",
        list(items),
        key="play item",
        format_func=lambda name: glimpse(f"{name}: {get_str(items[name], 'prompt')}", 90),
    )
    for key in ("prompt", "expected"):
        markup.note(f"{key.capitalize()}: {both_ends(get_str(items[item], key) or '', _MAX_QUESTION)}")
    return {"item": item}


def _draw_replies(asked: AskedQuestion) -> None:
    result = asked.result
    if result is None:
        asked.task.watch()
        result = asked.task.result()
        if result.state != "running":
            asked.result = result
            with suppress(OSError):
                asked.task.forget()
            st.rerun()
    markup.note(f"Question: {glimpse(asked.text, 300)}")
    events = (result.answer or {}).get("events", [])
    names = [model["name"] for event in events if event["event"] == "ready" for model in event["models"]]
    newest = {event["model"]: event for event in events if event["event"] in {"text", "answer"}}
    for number, column in enumerate(st.columns(len(names)) if names else []):
        with column:
            markup.note(names[number])
            _draw_reply(newest.get(number, {}))
    for event in events:
        for problem in event["problems"] if event["event"] == "refused" else ():
            markup.note(f"{problem['what']} {problem['next']}")
    if result.state == "running" and not names:
        st.progress(0.5, text="Loading the model")
    elif result.state in {"cancelled", "none"}:
        markup.note("Stopped.")
    elif result.state == "failed" or result.exit_code:
        st.code(result.output or "The model was killed.", language=None, wrap_lines=True)


def _draw_reply(event: Mapping[str, Any]) -> None:
    text = event.get("text") or " "
    st.code(text, language=None, wrap_lines=True, height=300 if text.count("\n") > _MAX_LINES else "content")
    if event.get("event") == "answer":
        end = "complete" if event["finish_reason"] == "stop" else "cut off at the maximum length"
        verdict = f", {'✓ correct' if event['correct'] else '✕ wrong'}" if "correct" in event else ""
        markup.note(f"{event['tokens']} tokens, {end}{verdict}")
