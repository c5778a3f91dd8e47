"""The first training examples of a run, and the counts over all of them."""

from __future__ import annotations

from dashboard.shared.parts import markup, token_rows
from evidence.records.ours import Run
from schemas.problems.formats import count
from schemas.reading.values import flag_at, number_at, objects_at


def section(run: Run) -> None:
    """Draw the first training examples, and the counts over all of them."""
    if run.first_examples is None:
        markup.empty("No examples", "This run has no first_examples.json that can be read.")
        return
    end_token = flag_at(run.first_examples, "counts", "end_token_supervised")
    ends = "?" if end_token is None else "yes" if end_token else "no: the model never learns to stop"
    markup.table(
        ["Rows", "Tokens only read", "Tokens supervised", "Rows cut", "Rows without answer", "End token supervised"],
        [
            (
                *(
                    count(number_at(run.first_examples, "counts", name))
                    for name in ("rows", "prompt_tokens", "supervised_tokens", "truncated_rows", "rows_without_answer")
                ),
                ends,
            )
        ],
    )
    token_rows.show(objects_at(run.first_examples, "examples"))
