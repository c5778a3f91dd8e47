"""From a dataset row to the text a model sees: a prompt that is given, and a completion that is learned.

Evaluation renders prompts with the same functions and in the form of the rows, so the model is prompted as it was
taught.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from os.path import commonprefix
from typing import Any

from schemas.formats import format_value
from trainer.data.chat_template import (
    NOTHING,
    ChatTokenizer,
    TemplateRefusedError,
    TurnNotFoundError,
    has_template,
    written_by_template,
)
from trainer.data.files.pairs import SIDES, sides_of
from trainer.data.kinds import AS_WRITTEN, Kind, kind_of, template_of, usual_template
from trainer.data.special_tokens import PROBE, TurnTokenizer, Written, turn_end

FORM = "prompt_form"
"""Event of the log that states how prompts are put to the model."""

THOUGHT = "<think>\nOne thought.\n</think>\n\nThe answer."
"""A turn of the assistant that begins with a thought; it shares no first letter with `PROBE`."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row as text."""

    prompt: str
    """Given to the model; not supervised."""
    templated: bool
    """The prompt is the work of a chat template, which writes the begin token itself where there is one."""
    completion: str
    """Learned; the form's end token follows it."""
    answer: str | None
    """What must stand in the supervised text. None: the row states no answer apart from its completion."""
    earlier: tuple[tuple[str, str, bool], ...] = ()
    """Turns before, where they are learned too: what stands before, the turn itself, whether the end token follows."""
    is_text: bool = False
    """A plain text, of which everything is learned."""

    @property
    def given(self) -> str:
        """What stands before the first text that is learned."""
        return self.earlier[0][0] if self.earlier else self.prompt

    @property
    def learned(self) -> tuple[str, ...]:
        """The texts that are learned, in order."""
        return (*(turn for _, turn, _ in self.earlier), self.completion)


@dataclass(frozen=True, kw_only=True)
class PromptForm:
    """How a bare prompt is put to a model: as a plain prompt, or as a user's turn."""

    conversation: bool
    system: str | None = None
    """The turn of the system that every conversation begins with."""
    template: str = AS_WRITTEN
    """How a plain prompt is written; {prompt} stands for it."""
    thinks: bool | None = False
    """Whether answers that are taught hold a thought, which some templates open. None: not known, or none is taught;
    prompts end in the template's generation prompt."""

    def render(self, prompt: str, tokenizer: TurnTokenizer) -> str:
        """Return the prompt as the model is given it.

        Of "{prompt}" this is the template that eval_summary.json states. A chat template may trim what it is given.
        """
        if not self.conversation:
            return render_prompt(prompt, self.template)
        before = [] if self.system is None else [{"role": "system", "content": self.system}]
        return render_prompt_turns([*before, {"role": "user", "content": prompt}], tokenizer, thinks=self.thinks)

    def templated(self, tokenizer: ChatTokenizer) -> bool:
        """Return whether a chat template writes it."""
        return self.conversation and has_template(tokenizer)

    def end_token(self, tokenizer: TurnTokenizer) -> str | None:
        """Return the token that ends an output: the template's end of a turn, where it writes one, or the tokenizer's.

        A model with a template stops where its template states, and so do the tools that it is used with. Rows of
        another form end in the same token, since one token ends every output of a run.
        """
        return (turn_end(tokenizer) if self.templated(tokenizer) else None) or tokenizer.eos_token


def form_of(rows: Sequence[dict[str, Any]], template: str | None = None) -> PromptForm:
    """Return the form of most rows' prompts; of as many conversations as others, the plain one.

    A turn of the system is part of the form where all conversations begin with the same.

    Args:
        rows: of any shape.
        template: how plain prompts are written. None: as by default those of the shape that most plain rows have.
    """
    systems: dict[str | None, int] = {}
    thoughts = 0
    kinds: Counter[Kind] = Counter()
    for row in (sides_of(row)[0] for row in rows):
        kinds[kind_of(row)] += 1
        if "messages" in row:
            first = row["messages"][0]
            system = first["content"] if first["role"] == "system" else None
            systems[system] = systems.get(system, 0) + 1
            thoughts += "</think>" in row["messages"][-1]["content"]
    if 2 * (talks := sum(systems.values())) > len(rows):
        system = next(iter(systems)) if len(systems) == 1 else None
        return PromptForm(conversation=True, system=system, thinks=2 * thoughts > talks)
    return PromptForm(conversation=False, template=usual_template(kinds) if template is None else template)


def render_sides(
    row: dict[str, Any], tokenizer: TurnTokenizer, *, every_turn: bool = False, template: str | None = None
) -> list[Example]:
    """Return the texts that are learned of a row: one, or both of a pair, which share their prompt."""
    sides = [render_row(side, tokenizer, every_turn=every_turn, template=template) for side in sides_of(row)]
    # Of a template that opens a thought which only one answer has, the other prompt is the shorter one.
    prompt = min((side.prompt for side in sides), key=len)
    if not all(side.prompt.startswith(prompt) for side in sides):
        return sides
    return [replace(side, prompt=prompt, completion=side.prompt[len(prompt) :] + side.completion) for side in sides]


def render_row(
    row: dict[str, Any], tokenizer: TurnTokenizer, *, every_turn: bool = False, template: str | None = None
) -> Example:
    r"""Return the text of a row of any shape.

    A trace with the steps "2+2=4" and the answer "4" gives the completion
    `<reasoning>2+2=4</reasoning>\n<answer>4</answer>`.

    Args:
        row: as `dataset_row.schema.json` has it.
        tokenizer: the model's, for its chat template.
        every_turn: all turns of the assistant are learned, not only the last.
        template: how plain prompts are written. None: as by default those of this row's shape.
    """
    if "messages" in row:
        return render_conversation(row, tokenizer, every_turn=every_turn)
    if "text" in row:
        return Example(prompt="", templated=False, completion=row["text"], answer=None, is_text=True)
    if "begun" in row:
        return Example(prompt=row["begun"], templated=False, completion=row["completion"], answer=None)
    prompt = render_prompt(row["prompt"], template_of(row, template) or AS_WRITTEN)
    return Example(prompt=prompt, templated=False, completion=learned_text(row), answer=row.get("final_answer"))


def render_question(row: dict[str, Any], tokenizer: TurnTokenizer, *, template: str | None = None) -> Example:
    """Return a row as a prompt to which completions are drawn: of a conversation, the turns before its answer."""
    if "messages" not in row:
        return render_row(row, tokenizer, template=template)
    prompt = render_prompt_turns(row["messages"][:-1], tokenizer, thinks=None, variables=variables_of(row))
    return Example(prompt=prompt, templated=has_template(tokenizer), completion="", answer=None)


def learned_text(row: Mapping[str, Any]) -> str:
    """Return the last text that is learned of a row; of a pair of answers, the chosen one; of a task, an empty one."""
    [row, *_] = sides_of(row)
    if "messages" in row:
        return str(row["messages"][-1]["content"])
    for name in ("text", "completion"):
        if name in row:
            return str(row[name])
    if "task" in row:
        return ""
    reasoning = "\n".join(step["content"] for step in row["steps"])
    return f"<reasoning>{reasoning}</reasoning>\n<answer>{row['final_answer']}</answer>"


def render_conversation(row: Mapping[str, Any], tokenizer: TurnTokenizer, *, every_turn: bool) -> Example:
    """Return a conversation: what stands before the last turn, and that turn; before it those that are learned too.

    All of it is the beginning of what the chat template writes of the whole conversation.

    Raises:
        TemplateRefusedError: the template refuses the turns, or writes them so that a turn cannot be found.
    """
    talk = Conversation(row["messages"], tokenizer, variables_of(row))
    last, written = len(talk.messages) - 1, 0
    turns: list[tuple[str, str, bool]] = []
    for place, turn in enumerate(talk.messages):
        if place == last or (every_turn and turn["role"] == "assistant"):
            start, stop, end = talk.turn(place)
            if start < written:
                said = "it writes the turns in another order"
                raise TurnNotFoundError(said)
            turns.append((talk.whole[written:start], talk.whole[start:stop], end > stop or not talk.templated))
            written = end
    *earlier, (prompt, completion, _) = turns
    return Example(prompt=prompt, templated=talk.templated, completion=completion, answer=None, earlier=tuple(earlier))


class Conversation:
    """A conversation as text, in which the turns of the assistant are found.

    Args:
        messages: the turns, the last one the assistant's.
        tokenizer: the model's.
        variables: what its chat template is given besides.
    """

    def __init__(
        self, messages: Sequence[Mapping[str, Any]], tokenizer: TurnTokenizer, variables: Mapping[str, Any]
    ) -> None:
        self.messages = messages
        self.templated = has_template(tokenizer)
        self._tokenizer = tokenizer
        self._variables = variables
        self.whole = self._text(messages) if self.templated else plain_turns(messages)

    def turn(self, place: int) -> tuple[int, int, int]:
        """Return where in the text a turn of the assistant begins, where it stops, and where its end token does.

        The latter two are the same where no end token is written.
        """
        content, is_last = self.messages[place]["content"], place == len(self.messages) - 1
        if not self.templated:
            start = len(plain_turns(self.messages[:place])) + len("assistant: ")
            return start, start + len(content), start + len(content)
        start, end = self.start(place), turn_end(self._tokenizer) or ""
        stop = self.whole.find(end, start) if end and is_last else -1
        if stop < 0:
            _, _, after = self._with(place, PROBE).partition(PROBE)
            closing = after.lstrip() if end and after.lstrip().startswith(end) else after
            stop = len(self.whole) - len(closing) if self.whole.endswith(after) else start
        taught, stated = squeezed(self.whole[:stop]), squeezed(content)
        # Templates may leave the thoughts of earlier turns out, but not of the one that is to be learned.
        is_rest = not is_last and start < stop and stated.endswith(squeezed(self.whole[start:stop]))
        if not taught.endswith(stated) and not is_rest:
            said = f"it writes {format_value(self.whole[start:])} for {format_value(content)}"
            raise TurnNotFoundError(said)
        return start, stop, stop + len(end) if self.whole.startswith(end, stop) else stop

    def start(self, place: int) -> int:
        """Return where in the text a turn of the assistant begins.

        That is behind the template's generation prompt. Where it has none, or the whole conversation goes on in another
        way, it is where conversations that differ in nothing but this turn begin to differ.
        """
        try:
            prompt = self._text(self.messages[:place], opened=True)
        except TemplateRefusedError:
            prompt = ""
        follows = bool(prompt) and self.whole.startswith(prompt)
        if follows and opens_turn(self._tokenizer):
            return len(prompt)
        plain = self._with(place, PROBE)
        shared = commonprefix([plain, self._with(place, THOUGHT)])  # noqa: RUF071 - of texts
        added = squeezed(plain[len(shared) :].partition(PROBE)[0])
        if not self.whole.startswith(shared) or added not in ("", "</think>"):
            at = max(len(commonprefix([prompt, self.whole])) - 20, 0)  # noqa: RUF071 - of texts
            before, whole = format_value(prompt[at:]), format_value(self.whole[at:])
            said = f"it writes {before} before the answer, and {whole} in the whole conversation"
            raise TurnNotFoundError(said)
        if follows and shared.startswith(prompt) and not shared[len(prompt) :].strip():
            return len(prompt)
        return len(shared.rstrip(" "))

    def _with(self, place: int, content: str) -> str:
        """Return the text with another turn at a place."""
        changed = {**self.messages[place], "content": content}
        return self._text([*self.messages[:place], changed, *self.messages[place + 1 :]])

    def _text(self, messages: Sequence[Mapping[str, Any]], *, opened: bool = False) -> str:
        return written_by_template(messages, self._tokenizer, opened=opened, variables=self._variables)


def opens_turn(tokenizer: ChatTokenizer) -> bool:
    """Return whether the chat template has a generation prompt, which begins the assistant's turn."""
    question = [{"role": "user", "content": "A question."}]
    try:
        closed, opened = (written_by_template(question, tokenizer, opened=opened) for opened in (False, True))
    except TemplateRefusedError:
        return True
    return closed != opened


def squeezed(text: str) -> str:
    """Return a text without white space, of which templates take some away and add some."""
    return "".join(text.split())


def variables_of(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a row gives its chat template besides the turns."""
    tools = {"tools": row["tools"]} if row.get("tools") else {}
    return {**row.get("chat_template_kwargs", {}), **tools}


def render_prompt(prompt: str, template: str) -> str:
    """Return a plain prompt as the model is given it."""
    return template.replace("{prompt}", prompt)


def render_prompt_turns(
    messages: Sequence[Mapping[str, Any]],
    tokenizer: TurnTokenizer,
    *,
    thinks: bool | None,
    variables: Mapping[str, Any] = NOTHING,
) -> str:
    """Return the turns before an answer and the beginning of the assistant's, as rows of the same turns are taught."""
    if not has_template(tokenizer):
        return plain_turns(messages) + "assistant: "
    if thinks is None and opens_turn(tokenizer):
        return written_by_template(messages, tokenizer, variables=variables)
    answer = {"role": "assistant", "content": THOUGHT if thinks else PROBE}
    talk = Conversation([*messages, answer], tokenizer, variables)
    return talk.whole[: talk.start(len(messages))]


def plain_turns(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return turns as lines, for a model without a chat template."""
    return "".join(f"{message['role']}: {message['content']}\n" for message in messages)


def texts_of(row: dict[str, Any], *, every_turn: bool = False) -> Iterator[Written]:
    """Yield each text that a user wrote into a row: pointer, text, and whether the model learns to write it."""
    if "chosen" in row:
        for side in SIDES:
            for _, text, learned in texts_of(row[side]):
                if learned or side == "chosen":
                    yield f"/{side}" if learned else "/prompt", text, learned
        return
    if "messages" in row:
        last = len(row["messages"]) - 1
        for index, turn in enumerate(row["messages"]):
            learned = index == last or (every_turn and turn["role"] == "assistant")
            yield f"/messages/{index}/content", turn["content"], learned
        return
    if "text" in row:
        yield "/text", row["text"], True
        return
    yield "/prompt", row["begun"] if "begun" in row else row["prompt"], False
    if "completion" in row:
        yield "/completion", row["completion"], True
    elif "steps" in row:
        yield from ((f"/steps/{index}/content", step["content"], True) for index, step in enumerate(row["steps"]))
        yield "/final_answer", row["final_answer"], True


def prompt_of(row: dict[str, Any]) -> str:
    """Return the question of a row, for finding duplicates: prompt, turns before the answer, or plain text."""
    if "chosen" in row:
        return prompt_of(row["chosen"])
    if "messages" in row:
        return "\n".join(message["content"] for message in row["messages"][:-1])
    return str(next(row[name] for name in ("text", "begun", "prompt") if name in row))
