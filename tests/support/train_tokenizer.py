"""Train the tokenizer of the built-in models again: `python tests/support/train_tokenizer.py` rewrites its files."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from trainer.data.builtin import FOLDER as DATA
from trainer.data.builtin.reasoning import DATASET
from trainer.model.source import BUILTIN_TOKENIZER as FOLDER

PAD = "<pad>"
END = "<eos>"
MARKS = ("<reasoning>", "</reasoning>", "<answer>", "</answer>")
"""Each one token, and kept when tokens are turned back into text."""
VOCABULARY_SIZE = 576
_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": END,
    "pad_token": PAD,
    "clean_up_tokenization_spaces": False,
    "model_max_length": 1024,
}


def train(texts: Iterable[str]) -> Tokenizer:
    """Return a tokenizer trained on texts.

    Words are not split apart first, only digits are: a phrase that recurs becomes one token.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    # Special tokens take the first ids, the marks the last ones; together with the merges they fill the vocabulary.
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY_SIZE - len(MARKS),
            special_tokens=[PAD, END],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    tokenizer.add_tokens([AddedToken(mark, normalized=False, special=False) for mark in MARKS])
    return tokenizer


def file_texts(texts: Iterable[str]) -> dict[str, str]:
    return {
        "tokenizer.json": train(texts).to_str(pretty=True) + "\n",
        "tokenizer_config.json": json.dumps(_CONFIG, indent=2) + "\n",
        "special_tokens_map.json": json.dumps({"eos_token": END, "pad_token": PAD}, indent=2) + "\n",
    }


def main(folder: Path = FOLDER) -> None:
    lines = (DATA / f"{DATASET}.jsonl").read_text(encoding="utf-8").splitlines()
    for name, text in file_texts(_text(json.loads(line)) for line in lines).items():
        (folder / name).write_text(text, encoding="utf-8", newline="\n")


def _text(row: dict[str, Any]) -> str:
    # The marks are tokens of their own and take no part in the merges.
    reasoning = "\n".join(step["content"] for step in row["steps"])
    return f"{row['prompt']}\n{reasoning}\n{row['final_answer']}"


if __name__ == "__main__":
    main()
