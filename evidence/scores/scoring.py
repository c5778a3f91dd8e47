"""How one output is scored: the answer in it, whether that is right, and whether the form is the required one."""

from __future__ import annotations

REASONING_OPEN = "<reasoning>"
REASONING_CLOSE = "</reasoning>"
ANSWER_OPEN = "<answer>"
ANSWER_CLOSE = "</answer>"
TAGS = (REASONING_OPEN, REASONING_CLOSE, ANSWER_OPEN, ANSWER_CLOSE)


def extract_answer(text: str) -> str | None:
    """Return the text between the last `<answer>` and its `</answer>`, trimmed, or None if it is missing.

    For `<answer>1</answer> no, <answer> 2 </answer>` that is `2`. A last `<answer>` that is never closed gives None:
    the output was cut before the model committed itself.
    """
    opened = text.rfind(ANSWER_OPEN)
    if opened < 0:
        return None
    start = opened + len(ANSWER_OPEN)
    closed = text.find(ANSWER_CLOSE, start)
    return None if closed < 0 else text[start:closed].strip()


def is_correct(extracted: str | None, expected: str) -> bool:
    """Return whether the extracted answer equals the expected one after trimming white space, letter for letter."""
    return extracted is not None and extracted.strip() == expected.strip()


def format_ok(output_text: str, finish_reason: str) -> bool:
    r"""Return whether the output is exactly `<reasoning>…</reasoning>\n<answer>…</answer>`, ended by the end token.

    Nothing may stand before, between or after the two blocks, and no tag may occur twice.
    """
    return (
        finish_reason == "stop"
        and output_text.startswith(REASONING_OPEN)
        and output_text.endswith(ANSWER_CLOSE)
        and f"{REASONING_CLOSE}\n{ANSWER_OPEN}" in output_text
        and all(output_text.count(tag) == 1 for tag in TAGS)
    )
