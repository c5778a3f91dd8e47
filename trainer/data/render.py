"""From a dataset row to the text a model sees: a prompt that is given, and a completion that is learned.

Evaluation renders prompts with the same functions, so the model is asked in the form it was taught.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

PROMPT_TEMPLATE = "{prompt}\n"
"""How a plain prompt is written; {prompt} stands for it."""


@runtime_checkable
class ChatTokenizer(Protocol):
    """What rendering a conversation needs of a tokenizer."""

    chat_template: str | None

    def apply_chat_template(self, conversation: list[dict[str, str]], **options: Any) -> Any:
        """Return the conversation as the model's own template writes it."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """One row as text."""

    prompt: str
    """Given to the model; not supervised."""
    completion: str
    """Learned; the end token follows it."""
    answer: str | None
    """What must stand in the supervised text. None: the row states no answer apart from its completion."""


def render_row(row: dict[str, Any], tokenizer: ChatTokenizer) -> Example:
    r"""Return the text of a row of any of the three shapes.

    A trace with the steps "2+2=4" and the answer "4" gives the completion
    `<reasoning>2+2=4</reasoning>\n<answer>4</answer>`.
    """
    if "messages" in row:
        *before, last = row["messages"]
        return Example(prompt=render_messages(before, tokenizer), completion=last["content"], answer=None)
    if "completion" in row:
        return Example(prompt=render_prompt(row["prompt"]), completion=row["completion"], answer=None)
    reasoning = "\n".join(step["content"] for step in row["steps"])
    completion = f"<reasoning>{reasoning}</reasoning>\n<answer>{row['final_answer']}</answer>"
    return Example(prompt=render_prompt(row["prompt"]), completion=completion, answer=row["final_answer"])


def render_prompt(prompt: str) -> str:
    """Return a plain prompt as the model is given it."""
    return PROMPT_TEMPLATE.replace("{prompt}", prompt)


def render_messages(messages: list[dict[str, str]], tokenizer: ChatTokenizer) -> str:
    """Return the turns before the answer, by the tokenizer's chat template if it has one, else one line a turn."""
    if tokenizer.chat_template:
        return str(tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True))
    turns = [f"{message['role']}: {message['content']}\n" for message in messages]
    return "".join(turns) + "assistant: "


def prompt_of(row: dict[str, Any]) -> str:
    """Return what a row asks, for finding duplicates and overlap: the prompt, or the turns before the answer."""
    if "messages" in row:
        return "\n".join(message["content"] for message in row["messages"][:-1])
    return str(row["prompt"])
