"""Rewrites the tokenizer's files from the committed dataset: `python -m trainer.model.tokenizer`."""

import json
from pathlib import Path
from typing import Any

from trainer.data.dev_reasoning.sets import DATASET
from trainer.data.dev_reasoning.sets import FOLDER as DATA
from trainer.model.tokenizer import FOLDER
from trainer.model.tokenizer.training import file_texts


def main(folder: Path = FOLDER) -> None:
    """Write the tokenizer into a folder."""
    lines = (DATA / f"{DATASET}.jsonl").read_text(encoding="utf-8").splitlines()
    for name, text in file_texts(_text(json.loads(line)) for line in lines).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _text(row: dict[str, Any]) -> str:
    # The marks are tokens of their own and take no part in the merges.
    reasoning = "\n".join(step["content"] for step in row["steps"])
    return f"{row['prompt']}\n{reasoning}\n{row['final_answer']}"


if __name__ == "__main__":
    main()
