"""Writes evidence/registry/built_in.json from what the trainer uses: `python docs/make_registry.py`. A test compares.

The start weights are drawn on a CPU (x86-64) by the installed jax; those of other versions of jax stay as they are. On
another processor the last bits may differ, and the rule that reads them says so.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax

from evidence.registry.built_in import item_hash, jax_version, text_hash
from evidence.run.hashes import sha256_lines
from evidence.scores.reading import expected_line
from schemas.names import DATASETS, EVAL_SETS, MODELS
from trainer.config.load import load_config
from trainer.config.tree import Config
from trainer.data.encode import EncodedData, encode_rows
from trainer.data.order import order_of_pass
from trainer.data.render import prompt_of
from trainer.data.rows import read_dataset, read_eval_set
from trainer.data.shown import shown_row
from trainer.inputs import read_inputs
from trainer.loop.state import initial_params
from trainer.model.files.source import resolve
from trainer.model.params import parameter_count, params_sha256
from trainer.objectives.data import GENERATOR_SEED_OFFSET, generator_seed, read_training_rows
from trainer.planning.devices import choose_devices

FILE = Path(__file__).parents[1] / "evidence" / "registry" / "built_in.json"
CONFIGS = Path(__file__).parents[1] / "trainer" / "configs"
SEEDS = range(10)
"""Run seeds whose start weights and generated rows are in the table; configurations that ship use 0."""
GENERATED = (("dev-reasoning-v2", 12000), ("dev-stories-v1", 3000))
"""Datasets with as many generated rows as the configurations that ship ask for."""
MOST_EXAMPLES = 8
LONGEST = 512
"""Tokens that every built-in row is shorter than, so that none is cut."""


def dataset_facts(name: str) -> dict[str, Any]:
    """Return rows, hash, and the hash of each row as the model sees it."""
    file = read_dataset(name)
    # A task teaches no text, and a run that learns from rewards shows prompts.
    texts = [] if "task" in file.rows[0] else [text_hash(text) for text in texts_of(encoded(file.rows, name))]
    return {
        "rows": len(file.rows),
        "sha256": file.sha256,
        "split": "all",
        "duplicates": repeated(file.rows),
        "texts": texts,
    }


def repeated(rows: Any) -> int:
    """Return how many rows have the prompt of an earlier one."""
    return len(rows) - len({prompt_of(row) for row in rows})


def eval_set_facts(name: str) -> dict[str, Any]:
    """Return items, the hashes that a summary states, and the hash of each item with its labels."""
    file = read_eval_set(name)
    return {
        "items": len(file.rows),
        "sha256": file.sha256,
        "ids_sha256": sha256_lines(item["id"] for item in file.rows),
        "prompts_sha256": sha256_lines(item["prompt"] for item in file.rows),
        "expected_sha256": sha256_lines(expected_line(item) for item in file.rows),
        "rows": {item["id"]: item_hash(item) for item in file.rows},
    }


def model_facts(name: str, seeds: range = SEEDS) -> dict[str, Any]:
    """Return family, size and the start weights of each seed."""
    spec, weights, parameters = resolve(name).spec, {}, 0
    for seed in seeds:
        task, _ = read_inputs(config_with(f"model.name={name}", f"seed={seed}"), choose_devices("cpu", 1))
        params = initial_params(task)
        parameters, weights[str(seed)] = parameter_count(params), params_sha256(params)
    return {
        "family": spec.family,
        "parameters": parameters,
        "vocabulary": spec.vocab,
        "layers": spec.layers,
        "weights": "random",
        "start_weights": {"float32": drawn_before(name) | {jax_version(jax.__version__): weights}},
    }


def drawn_before(name: str) -> dict[str, Any]:
    """Return the start weights that stand in the table, by the version of jax that drew them."""
    found: dict[str, Any] = json.loads(FILE.read_text("utf-8"))["models"][name]["start_weights"]["float32"]
    return found


def generated_facts(name: str, count: int, seed: int) -> dict[str, Any]:
    """Return the counts of a dataset with generated rows, and the rows that a run with this seed sees first."""
    config = config_with(f"data.dataset={name}", f"data.generated_rows={count}", f"seed={seed}")
    _, rows = read_training_rows(config)
    data = encoded(rows, name)
    first = [int(row) for row in order_of_pass(0, rows=len(rows), seed=seed, shuffle=True)[:MOST_EXAMPLES]]
    texts = list(texts_of(data, first))
    return {
        "dataset": name,
        "generated_rows": count,
        "generator_seed": generator_seed(config),
        "duplicates": repeated(rows),
        "counts": {key: data.counts[key] for key in ("rows", "prompt_tokens", "supervised_tokens")},
        "texts": {str(row): text_hash(text) for row, text in zip(first, texts, strict=True)},
    }


def config_with(*settings: str) -> Config:
    """Return the smallest shipped configuration with these settings."""
    return load_config(CONFIGS / "tiny.yaml", settings=settings)


def encoded(rows: Any, name: str) -> EncodedData:
    """Return rows under the built-in tokenizer."""
    return encode_rows(rows, resolve("demo").tokenizer(), max_length=LONGEST, file=name)


def texts_of(data: EncodedData, rows: list[int] | None = None) -> Iterator[str]:
    """Yield rows as `first_examples.json` shows them; all of them where none are named."""
    tokenizer = resolve("demo").tokenizer()
    for row in range(len(data.encoded)) if rows is None else rows:
        yield shown_row(data.encoded[row], tokenizer)["text"]


def byte_of_character() -> dict[str, int]:
    """Return the byte that each character of a byte-level alphabet stands for: itself where it can be seen."""
    seen = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in seen]
    return {chr(byte): byte for byte in seen} | {chr(256 + place): byte for place, byte in enumerate(others)}


def tokens() -> list[str]:
    """Return the bytes of every token of the built-in tokenizer in hexadecimal digits, by id.

    Its alphabet is that of byte-level tokenizers, in which every byte is a character of its own.
    """
    tokenizer, characters = resolve("demo").tokenizer(), byte_of_character()
    texts = [str(each) for each in tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))]
    return [bytes(characters[char] for char in text).hex() for text in texts]


def built_in(seeds: range = SEEDS) -> dict[str, Any]:
    """Return the whole registry."""
    return {
        "generator_seed_offset": GENERATOR_SEED_OFFSET,
        "tokens": tokens(),
        "datasets": {name: dataset_facts(name) for name in DATASETS},
        "eval_sets": {name: eval_set_facts(name) for name in EVAL_SETS},
        "models": {name: model_facts(name, seeds) for name in MODELS},
        "generated": [generated_facts(name, count, seed) for name, count in GENERATED for seed in seeds],
    }


if __name__ == "__main__":
    FILE.write_text(json.dumps(built_in(), indent=1) + "\n", encoding="utf-8")
