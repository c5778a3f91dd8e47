"""Rows as text: the prompt that the model is given, and the completion that it learns.

Conversations are written by the model's chat template, a jinja2 program from its tokenizer, in the sandbox of
transformers. Evaluation renders prompts with the same functions, in the form of the training rows.
"""

from __future__ import annotations

import signal
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, replace
from datetime import datetime
from os.path import commonprefix
from types import SimpleNamespace
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from evidence.scores.overlap import row_texts
from schemas.formats import format_value
from schemas.problems import Problem, ProblemError, problem_of, truncate_problems
from trainer.config.names import max_tokenizer_bytes, override
from trainer.data.rows import AS_WRITTEN, SIDES, Kind, default_template, find_template, row_kind, split_sides

MAX_CHARACTERS = 2**24  # longest text that a chat template may write
FORM = "prompt_form"  # log event with the form of prompts
PROBE = "An answer that nobody gives."  # an assistant turn that no template writes by itself
THOUGHT = "<think>\nOne thought.\n</think>\n\nThe answer."
"""An assistant turn that begins with a thought and shares no first letter with `PROBE`."""
_Row = TypeVar("_Row")
_Rendered = TypeVar("_Rendered")
Turn = Mapping[str, Any]
Tokenizer = Any  # a tokenizer of transformers, which is not imported before one is loaded


class TemplateRefusedError(Exception):
    """The template refuses a conversation; the message is the template's."""


class TurnNotFoundError(TemplateRefusedError):
    """An assistant turn cannot be separated from the text before it; the message shows both texts."""


class TemplateBrokenError(Exception):
    """The template cannot write any conversation."""


def has_template(tokenizer: Tokenizer) -> bool:
    """Return whether the tokenizer has a chat template."""
    return bool(tokenizer.chat_template)


def writes_date(tokenizer: Tokenizer) -> bool:
    """Return whether the chat template writes the current time."""
    return "strftime_now" in str(tokenizer.chat_template)


def rendered_at(manifest: Mapping[str, Any]) -> str:
    """Return the time that a run's chat template writes: the start of the run or of the one that it continues."""
    return str(manifest["dataset"].get("rendered_at") or manifest["started_at"])


_template_seconds: ContextVar[float | None] = ContextVar("template_seconds", default=None)


@contextmanager
def untrusted_model(template_seconds: float = 10.0) -> Iterator[None]:
    """Limit the size of tokenizer files and the CPU time of each rendered conversation of an untrusted run.

    The largest known files have 35 MB. Windows lacks a timer of CPU time.
    """
    with override(_template_seconds, template_seconds), override(max_tokenizer_bytes, 128 << 20):
        yield


@contextmanager
def _cpu_timer() -> Iterator[None]:
    seconds, is_main = _template_seconds.get(), threading.current_thread() is threading.main_thread()
    if seconds is None or not is_main or not hasattr(signal, "setitimer"):
        yield
        return

    def expire(*_: object) -> None:
        message = f"it takes more than {seconds:g} seconds of CPU time for one conversation"
        raise TemplateBrokenError(message)

    previous = signal.signal(signal.SIGPROF, expire)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    # Python runs no signal handler inside a long C function, such as 9**9**9. The second timer ends the process then.
    signal.setitimer(signal.ITIMER_VIRTUAL, 2 * seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGPROF, previous)


@contextmanager
def _fixed_clock(module: Any, time: str | None) -> Iterator[None]:
    """Make `strftime_now` of transformers write a recorded time; it accepts no variables that are functions."""
    original = module.datetime
    if time is not None:
        now = datetime.fromisoformat(time).replace(tzinfo=None)
        module.datetime = SimpleNamespace(now=lambda: now)
    try:
        yield
    finally:
        module.datetime = original


def apply_chat_template(
    messages: Sequence[Turn], tokenizer: Tokenizer, *, opened: bool = True, variables: Mapping[str, Any] | None = None
) -> str:
    """Write turns with the chat template, at the time for which the tokenizer was loaded.

    `opened` begins the assistant's next turn; `variables` are further variables of the template, such as tools. Raise a
    TemplateRefusedError if the template refuses these turns, and a TemplateBrokenError if it cannot be used.
    """
    from jinja2 import TemplateError, TemplateSyntaxError
    from transformers.utils import chat_template_utils

    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    if template is None:
        reason = "there are several, and none is named default"
        raise TemplateBrokenError(reason)
    given = {**tokenizer.special_tokens_map, **(variables or {})}
    try:
        with _cpu_timer(), _fixed_clock(chat_template_utils, getattr(tokenizer, "rendered_at", None)):
            rendered: Any = chat_template_utils.render_jinja_template(
                [list(map(dict, messages))], chat_template=template, add_generation_prompt=opened, **given
            )
    except TemplateSyntaxError as error:
        reason = f"line {error.lineno} of the template: {error.message or 'not valid jinja2'}"
        raise TemplateBrokenError(reason) from error
    except MemoryError as error:
        reason = "it takes more memory than there is for one conversation"
        raise TemplateBrokenError(reason) from error
    except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
        raise TemplateRefusedError(str(error).strip() or type(error).__name__) from error
    text = str(rendered[0][0])
    if len(text) > MAX_CHARACTERS:
        reason = f"it writes {len(text):,} characters for one conversation"
        raise TemplateBrokenError(reason)
    return text


@dataclass(frozen=True, kw_only=True)
class TemplateFacts:
    """Properties of a tokenizer's chat template, which are found by rendering it."""

    turn_end: str | None  # added token that closes the assistant's turn, such as `<end_of_turn>`
    opens_turn: bool  # whether there is a generation prompt, which begins the assistant's turn
    has_system_turn: bool  # whether the template writes system turns


_facts: WeakKeyDictionary[Any, tuple[str, TemplateFacts]] = WeakKeyDictionary()


def template_facts(tokenizer: Tokenizer) -> TemplateFacts:
    """Return the properties of a tokenizer's chat template; they are found once for each template."""
    template, facts = _facts.get(tokenizer, (None, None))
    if facts is not None and template == str(tokenizer.chat_template):
        return facts
    question, after, opens_turn, has_system_turn = {"role": "user", "content": "A question."}, "", True, False
    refusals = (TemplateRefusedError, TemplateBrokenError)  # reported with the first row that it refuses
    with suppress(*refusals):
        turns = [question, {"role": "assistant", "content": PROBE}]
        _, _, after = apply_chat_template(turns, tokenizer, opened=False).partition(PROBE)
    with suppress(*refusals):
        closed, opened = (apply_chat_template([question], tokenizer, opened=opened) for opened in (False, True))
        opens_turn = closed != opened
    with suppress(*refusals):
        has_system_turn = PROBE in apply_chat_template([{"role": "system", "content": PROBE}, question], tokenizer)
    added = (token.content for token in tokenizer.added_tokens_decoder.values())
    end = max((text for text in added if text.strip() and after.lstrip().startswith(text)), key=len, default=None)
    facts = TemplateFacts(turn_end=end, opens_turn=opens_turn, has_system_turn=has_system_turn)
    _facts[tokenizer] = (str(tokenizer.chat_template), facts)
    return facts


def render_each(
    rows: Iterable[_Row], render: Callable[[_Row], _Rendered], *, file: str, lines: Sequence[int | None]
) -> Iterator[tuple[int, _Rendered]]:
    """Yield the index of each row and the rendered row; `render` may call a chat template.

    If it is broken, or has refused rows, which is reported after all others, raise a ProblemError with exit code 2.
    """
    refused: list[Problem] = []
    for index, row in enumerate(rows):
        try:
            yield index, render(row)
        except TemplateRefusedError as error:
            what, fix = f"The model's chat template refuses row {index}", None
            why = "This is the template's own message; it says which turns the model was trained for."
            if isinstance(error, TurnNotFoundError):
                what = f"The answer of row {index} cannot be found in the output of the model's chat template"
                why = "Prompt and answer together must be the text that the template writes for the whole conversation."
                fix = "Correct the template, or write the row as prompt and completion."
            what = f"{what}: {str(error).rstrip('.')}."
            refused.append(problem_of("TP022", file=file, line=lines[index], what=what, why=why, next=fix))
        except TemplateBrokenError as error:
            what = f"The model's chat template cannot be used: {str(error).rstrip('.')}."
            why = "It writes rows with messages; it is chat_template of the model's tokenizer."
            fix = "Correct it in the model's tokenizer_config.json, or remove it: turns are then lines of text."
            problem = problem_of("TP022", file=file, what=what, why=why, next=fix)
            raise ProblemError([problem], exit_code=2) from error
    if refused:
        raise ProblemError(list(truncate_problems(refused)), exit_code=2)


@dataclass(frozen=True, kw_only=True)
class Example:
    """A row as text."""

    prompt: str  # not learned
    templated: bool  # whether a chat template wrote the prompt, with the begin token if there is one
    completion: str  # learned, followed by the end token of the form
    answer: str | None  # answer that the learned text must contain, or None
    earlier: tuple[tuple[str, str, bool], ...] = ()  # learned turns: text before, turn, whether the end token follows
    is_text: bool = False  # whether it is plain text, all of which is learned

    @property
    def first_prompt(self) -> str:
        """Text before the first learned text."""
        return self.earlier[0][0] if self.earlier else self.prompt

    @property
    def learned(self) -> tuple[str, ...]:
        """Learned texts in order."""
        return (*(turn for _, turn, _ in self.earlier), self.completion)


@dataclass(frozen=True, kw_only=True)
class PromptForm:
    """How a prompt is given to the model: as plain text or as a user's turn."""

    conversation: bool
    system: str | None = None  # system prompt of every prompt
    template: str = AS_WRITTEN  # template of plain prompts
    thinks: bool | None = False
    """Whether the learned answers begin with a thought, which some templates open. If None, prompts end with the
    template's generation prompt."""

    def render(self, prompt: str, tokenizer: Tokenizer) -> str:
        """Return the text that the model is given; for "{prompt}" it is the template in eval_summary.json."""
        if not self.conversation:
            return add_system_text(self.system, self.template.replace("{prompt}", prompt))
        turns = add_system_turn(self.system, [{"role": "user", "content": prompt}], tokenizer)
        return render_prompt_turns(turns, tokenizer, thinks=self.thinks)

    def templated(self, tokenizer: Tokenizer) -> bool:
        """Return whether a chat template writes prompts."""
        return self.conversation and has_template(tokenizer)

    def end_token(self, tokenizer: Tokenizer) -> str:
        """Return the token that ends an output: the end of a turn if the template writes one, else the end token.

        One token ends all outputs of a run, so rows of another form end with it too.
        """
        end = template_facts(tokenizer).turn_end if self.templated(tokenizer) else None
        return end or str(tokenizer.eos_token)


def end_token_id(tokenizer: Tokenizer, form: PromptForm) -> int:
    """Return the id of the token that ends an output of this form; encoding refuses tokenizers without an end token."""
    return int(tokenizer.convert_tokens_to_ids(form.end_token(tokenizer)))


class RowSummary(NamedTuple):
    """Properties of all rows, found in one pass."""

    kinds: Counter[Kind]
    form: PromptForm
    duplicates: int  # rows with the prompt of an earlier row
    takes_system_prompt: bool  # whether any row takes the configured system prompt


def summarize_rows(rows: Sequence[Mapping[str, Any]], template: str | None = None) -> RowSummary:
    """Count kinds and duplicates, and infer the form of prompts.

    Most rows decide the form; in case of a tie it is plain. A system prompt is part of the form if it is configured or
    if all conversations begin with the same one. `template` is used for plain prompts; None means the default of
    the most frequent kind of plain row.
    """
    systems, kinds, prompts = set[str | None](), Counter[Kind](), set[int]()
    configured, takes_configured, thoughts = None, False, 0
    for row in rows:
        prompts.add(hash(row_prompt(row)))
        first = row.get("chosen", row)
        kind, own, configured = row_kind(first), None, first.get("system_prompt")
        kinds[kind] += 1
        if kind == "conversation":
            turn = first["messages"][0]
            own = turn["content"] if turn["role"] == "system" else None
            systems |= {own} if len(systems) < 2 else set()  # every row may have its own
            thoughts += "</think>" in first["messages"][-1]["content"]
        takes_configured = takes_configured or (own is None and kind not in ("text", "begun"))
    if 2 * kinds["conversation"] > len(rows):
        common = next(iter(systems)) if len(systems) == 1 else None
        form = PromptForm(conversation=True, system=configured or common, thinks=2 * thoughts > kinds["conversation"])
    else:
        plain = [(count, kind) for kind, count in kinds.items() if kind != "conversation"]
        usual = default_template(max(plain)[1]) if plain else AS_WRITTEN
        form = PromptForm(conversation=False, system=configured, template=usual if template is None else template)
    return RowSummary(kinds, form, len(rows) - len(prompts), takes_configured)


def infer_form(rows: Sequence[Mapping[str, Any]], template: str | None = None) -> PromptForm:
    """Return the form of the prompts of most rows; see `summarize_rows`."""
    return summarize_rows(rows, template).form


def render_sides(
    row: dict[str, Any], tokenizer: Tokenizer, *, every_turn: bool = False, template: str | None = None
) -> list[Example]:
    """Render a row, or both answers of a pair behind the same prompt."""
    sides = [render_row(side, tokenizer, every_turn=every_turn, template=template) for side in split_sides(row)]
    # If the template opens a thought that only one answer has, the shorter prompt is used for both.
    prompt = min((side.prompt for side in sides), key=len)
    if not all(side.prompt.startswith(prompt) for side in sides):
        return sides
    return [replace(side, prompt=prompt, completion=side.prompt[len(prompt) :] + side.completion) for side in sides]


def render_row(
    row: dict[str, Any], tokenizer: Tokenizer, *, every_turn: bool = False, template: str | None = None
) -> Example:
    r"""Render a converted row.

    A trace with the steps "2+2=4" and the answer "4" gives the completion
    `<reasoning>2+2=4</reasoning>\n<answer>4</answer>`. With `every_turn` all assistant turns are learned, not only the
    last. `template` is used for plain prompts; None means the default of each kind. For errors see
    `apply_chat_template`.
    """
    if "messages" in row:
        return render_conversation(row, tokenizer, every_turn=every_turn)
    if "text" in row:
        return Example(prompt="", templated=False, completion=row["text"], answer=None, is_text=True)
    if "begun" in row:
        return Example(prompt=row["begun"], templated=False, completion=row["completion"], answer=None)
    prompt = (find_template(row, template) or AS_WRITTEN).replace("{prompt}", row["prompt"])
    prompt = add_system_text(row.get("system_prompt"), prompt)
    return Example(prompt=prompt, templated=False, completion=learned_text(row), answer=row.get("final_answer"))


def render_question(row: dict[str, Any], tokenizer: Tokenizer, *, template: str | None = None) -> Example:
    """Render a row as a prompt for sampling: of a conversation, the turns before its answer."""
    if "messages" not in row:
        return render_row(row, tokenizer, template=template)
    turns = add_system_turn(row.get("system_prompt"), row["messages"][:-1], tokenizer)
    prompt = render_prompt_turns(turns, tokenizer, thinks=None, variables=_variables(row))
    return Example(prompt=prompt, templated=has_template(tokenizer), completion="", answer=None)


def render_conversation(row: Mapping[str, Any], tokenizer: Tokenizer, *, every_turn: bool) -> Example:
    """Split the text of a conversation into prompts and learned turns."""
    messages = add_system_turn(row.get("system_prompt"), row["messages"], tokenizer)
    conversation = Conversation(messages, tokenizer, _variables(row))
    last, written = len(messages) - 1, 0
    turns: list[tuple[str, str, bool]] = []
    for place, turn in enumerate(messages):
        if place == last or (every_turn and turn["role"] == "assistant"):
            start, stop, end = conversation.find_turn(place)
            if start < written:
                message = "it writes the turns in another order"
                raise TurnNotFoundError(message)
            has_end = end > stop or not conversation.templated
            turns.append((conversation.text[written:start], conversation.text[start:stop], has_end))
            written = end
    *earlier, (prompt, completion, _) = turns
    templated = conversation.templated
    return Example(prompt=prompt, templated=templated, completion=completion, answer=None, earlier=tuple(earlier))


class Conversation:
    """The text of a conversation that ends with the assistant's turn, and the places of its assistant turns."""

    def __init__(self, messages: Sequence[Turn], tokenizer: Tokenizer, variables: Mapping[str, Any] | None) -> None:
        self._messages, self._tokenizer, self._variables = messages, tokenizer, variables
        self.templated = has_template(tokenizer)
        self.text = self._render(messages) if self.templated else join_turns(messages)

    def find_turn(self, place: int) -> tuple[int, int, int]:
        """Return where an assistant turn begins, where it stops, and where its end token stops.

        The last two are equal if no end token is written.
        """
        content, is_last = self._messages[place]["content"], place == len(self._messages) - 1
        if not self.templated:
            start = len(join_turns(self._messages[:place])) + len("assistant: ")
            return start, start + len(content), start + len(content)
        start, end = self.find_start(place), template_facts(self._tokenizer).turn_end or ""
        stop = self.text.find(end, start) if end and is_last else -1
        if stop < 0:
            probe = PROBE * (self.text.count(PROBE) + 1)  # a turn may contain it
            _, _, after = self._render_changed(place, probe).partition(probe)
            closing = after.lstrip() if end and after.lstrip().startswith(end) else after
            stop = len(self.text) - len(closing) if self.text.endswith(after) else start
        learned, expected = squeeze(self.text[:stop]), squeeze(content)
        # Templates may omit the thoughts of earlier turns, but not that of the turn to be learned.
        is_rest = not is_last and start < stop and expected.endswith(squeeze(self.text[start:stop]))
        if not learned.endswith(expected) and not is_rest:
            message = f"it writes {format_value(self.text[start:])} for {format_value(content)}"
            raise TurnNotFoundError(message)
        return start, stop, stop + len(end) if self.text.startswith(end, stop) else stop

    def find_start(self, place: int) -> int:
        """Return where an assistant turn begins.

        That is after the generation prompt. Without one, or if the whole conversation continues differently, it is
        where two conversations that differ only in this turn begin to differ.
        """
        try:
            prompt = self._render(self._messages[:place], opened=True)
        except TemplateRefusedError:
            prompt = ""
        follows = bool(prompt) and self.text.startswith(prompt)
        if follows and template_facts(self._tokenizer).opens_turn:
            return len(prompt)
        plain = self._render_changed(place, PROBE)
        shared = commonprefix([plain, self._render_changed(place, THOUGHT)])  # noqa: RUF071 - of texts
        added = squeeze(plain[len(shared) :].partition(PROBE)[0])
        if not self.text.startswith(shared) or added not in ("", "</think>"):
            at = max(len(commonprefix([prompt, self.text])) - 20, 0)  # noqa: RUF071 - of texts
            before, whole = format_value(prompt[at:]), format_value(self.text[at:])
            message = f"it writes {before} before the answer, and {whole} in the whole conversation"
            raise TurnNotFoundError(message)
        if follows and shared.startswith(prompt) and not shared[len(prompt) :].strip():
            return len(prompt)
        return len(shared.rstrip(" "))

    def _render_changed(self, place: int, content: str) -> str:
        changed = {**self._messages[place], "content": content}
        return self._render([*self._messages[:place], changed, *self._messages[place + 1 :]])

    def _render(self, messages: Sequence[Turn], *, opened: bool = False) -> str:
        return apply_chat_template(messages, self._tokenizer, opened=opened, variables=self._variables)


def squeeze(text: str) -> str:
    """Remove white space, which templates may add or strip."""
    return "".join(text.split())


def _variables(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variables that a row gives to the chat template."""
    tools = {"tools": row["tools"]} if row.get("tools") else {}
    return {**row.get("chat_template_kwargs", {}), **tools}


def render_prompt_turns(
    messages: Sequence[Turn], tokenizer: Tokenizer, *, thinks: bool | None, variables: Mapping[str, Any] | None = None
) -> str:
    """Render turns and the beginning of the assistant's turn, as in training; see `PromptForm.thinks`."""
    if not has_template(tokenizer):
        return join_turns(messages) + "assistant: "
    if thinks is None and template_facts(tokenizer).opens_turn:
        return apply_chat_template(messages, tokenizer, variables=variables)
    answer = {"role": "assistant", "content": THOUGHT if thinks else PROBE}
    conversation = Conversation([*messages, answer], tokenizer, variables)
    return conversation.text[: conversation.find_start(len(messages))]


def add_system_text(system_prompt: str | None, prompt: str) -> str:
    """Return a plain prompt after the system prompt and a blank line."""
    return prompt if system_prompt is None else f"{system_prompt}\n\n{prompt}"


def add_system_turn(system_prompt: str | None, messages: Sequence[Turn], tokenizer: Tokenizer) -> Sequence[Turn]:
    """Return turns that begin with the system prompt, unless they have their own.

    If the chat template lacks a system turn, as in Gemma 2, the system prompt precedes the text of the first turn.
    """
    if system_prompt is None or messages[0]["role"] == "system":
        return messages
    if not has_template(tokenizer) or template_facts(tokenizer).has_system_turn:
        return [{"role": "system", "content": system_prompt}, *messages]
    first, *rest = messages
    return [{**first, "content": add_system_text(system_prompt, first["content"])}, *rest]


def join_turns(messages: Sequence[Turn]) -> str:
    """Return turns as lines, for a model without a chat template."""
    return "".join(f"{message['role']}: {message['content']}\n" for message in messages)


def learned_text(row: Mapping[str, Any]) -> str:
    """Return the last learned text of a row; for a pair, the chosen answer; for a task, an empty text."""
    row = row.get("chosen", row)
    if "messages" in row:
        return str(row["messages"][-1]["content"])
    for name in ("text", "completion"):
        if name in row:
            return str(row[name])
    if "task" in row:
        return ""
    reasoning = "\n".join(step["content"] for step in row["steps"])
    return f"<reasoning>{reasoning}</reasoning>\n<answer>{row['final_answer']}</answer>"


def learned_texts(row: Mapping[str, Any], *, every_turn: bool) -> Iterator[tuple[str, str]]:
    """Yield the learned texts of a row as they are written there, each with its JSON pointer."""
    if "messages" in row:
        last = len(row["messages"]) - 1
        for index, turn in enumerate(row["messages"]):
            if index == last or (every_turn and turn["role"] == "assistant"):
                yield f"/messages/{index}/content", turn["content"]
    elif "chosen" in row:
        for side in SIDES:
            yield from ((f"/{side}", text) for _, text in learned_texts(row[side], every_turn=every_turn))
    elif "task" not in row:
        yield from ((f"/steps/{index}/content", step["content"]) for index, step in enumerate(row.get("steps", ())))
        yield from ((f"/{name}", row[name]) for name in ("text", "completion", "final_answer") if name in row)


def row_prompt(row: Mapping[str, Any]) -> str:
    """Return the question of a row: prompt, turns before the answer, or plain text. Used to find duplicates."""
    return row_texts(row)[0][-1]
