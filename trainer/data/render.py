"""From a dataset row to the text a model sees: a prompt that is given, and a completion that is learned.

Evaluation renders prompts with the same functions and in the form of the rows, so the model is prompted as it was
taught.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer.data.chat_template import ChatTokenizer, TemplateRefusedError, has_template, written_by_template
from trainer.data.files.pairs import SIDES, sides_of
from trainer.data.kinds import AS_WRITTEN, Kind, kind_of, template_of, usual_template
from trainer.data.special_tokens import TurnTokenizer, Written, turn_end

FORM = "prompt_form"
"""Event of the log that states how prompts are put to the model."""


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
    earlier: tuple[tuple[str, str], ...] = ()
    """Turns before, where they are learned too: what stands before each of the assistant's, and the turn itself."""
    is_text: bool = False
    """A plain text, of which everything is learned."""

    @property
    def given(self) -> str:
        """What stands before the first text that is learned."""
        return self.earlier[0][0] if self.earlier else self.prompt

    @property
    def learned(self) -> tuple[str, ...]:
        """The texts that are learned, in order."""
        return (*(turn for _, turn in self.earlier), self.completion)


@dataclass(frozen=True, kw_only=True)
class PromptForm:
    """How a bare prompt is put to a model: as a plain prompt, or as a user's turn."""

    conversation: bool
    system: str | None = None
    """The turn of the system that every conversation begins with."""
    template: str = AS_WRITTEN
    """How a plain prompt is written; {prompt} stands for it."""

    def render(self, prompt: str, tokenizer: ChatTokenizer) -> str:
        """Return the prompt as the model is given it.

        Of "{prompt}" this is the template that eval_summary.json states. A chat template may trim what it is given.
        """
        if not self.conversation:
            return render_prompt(prompt, self.template)
        before = [] if self.system is None else [{"role": "system", "content": self.system}]
        return render_messages([*before, {"role": "user", "content": prompt}], tokenizer)

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
    kinds: Counter[Kind] = Counter()
    for row in (sides_of(row)[0] for row in rows):
        kinds[kind_of(row)] += 1
        if "messages" in row:
            first = row["messages"][0]
            system = first["content"] if first["role"] == "system" else None
            systems[system] = systems.get(system, 0) + 1
    if 2 * sum(systems.values()) > len(rows):
        return PromptForm(conversation=True, system=next(iter(systems)) if len(systems) == 1 else None)
    return PromptForm(conversation=False, template=usual_template(kinds) if template is None else template)


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
        return render_conversation(row["messages"], tokenizer, every_turn=every_turn)
    if "text" in row:
        return Example(prompt="", templated=False, completion=row["text"], answer=None, is_text=True)
    if "begun" in row:
        return Example(prompt=row["begun"], templated=False, completion=row["completion"], answer=None)
    prompt = render_prompt(row["prompt"], template_of(row, template) or AS_WRITTEN)
    return Example(prompt=prompt, templated=False, completion=learned_text(row), answer=row.get("final_answer"))


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


def render_conversation(messages: list[dict[str, str]], tokenizer: TurnTokenizer, *, every_turn: bool) -> Example:
    """Return a conversation: what stands before the last turn, and that turn; before it those that are learned too.

    Raises:
        TemplateRefusedError: the template refuses the turns, or writes a turn of the assistant otherwise once others
            follow it (without its thoughts, say), so that one sequence cannot teach all of them.
    """
    *before, last = messages
    whole, templated = render_messages(before, tokenizer), has_template(tokenizer)
    if not every_turn:
        return Example(prompt=whole, templated=templated, completion=last["content"], answer=None)
    earlier: list[tuple[str, str]] = []
    written = ""  # of the text, what is in `earlier`
    end = (turn_end(tokenizer) if templated else None) or ""
    for number, turn in enumerate(before):
        if turn["role"] != "assistant":
            continue
        upto = render_messages(messages[:number], tokenizer)
        as_written = [upto + text for text in (turn["content"], turn["content"].strip())]
        behind = next((text for text in as_written if whole.startswith(text)), None)
        if behind is None or not upto.startswith(written):
            reason = "it writes a turn of the assistant otherwise once others follow, so data.supervise cannot be all"
            raise TemplateRefusedError(reason)
        earlier.append((upto[len(written) :], behind[len(upto) :]))
        written = behind + end if whole.startswith(behind + end) else behind
    return Example(
        prompt=whole[len(written) :],
        templated=templated,
        completion=last["content"],
        answer=None,
        earlier=tuple(earlier),
    )


def render_prompt(prompt: str, template: str) -> str:
    """Return a plain prompt as the model is given it."""
    return template.replace("{prompt}", prompt)


def render_messages(messages: list[dict[str, str]], tokenizer: ChatTokenizer) -> str:
    """Return the turns before the answer, by the tokenizer's chat template if it has one, else one line a turn."""
    if has_template(tokenizer):
        return written_by_template(messages, tokenizer)
    turns = [f"{message['role']}: {message['content']}\n" for message in messages]
    return "".join(turns) + "assistant: "


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
