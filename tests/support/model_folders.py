"""Model folders as people have them: the built-in tiny GPT-2 and its tokenizer, with something of their own in it."""

import json
import shutil
from pathlib import Path
from typing import Any

from trainer.model.source import BUILTIN, BUILTIN_TOKENIZER

BOS_ID, TURN_END_ID = 572, 573
"""In the built-in tokenizer added tokens that no test needs as they are."""

GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}"
    "{% if m['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "<turn>{{ 'model' if m['role'] == 'assistant' else m['role'] }}\n{{ m['content'] | trim }}</turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>model\n{% endif %}"
)
"""Gemma's, in short: it writes the begin token itself and knows no system."""

PLAIN_TEMPLATE = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }}\n{% endfor %}[assistant] "
"""A template that takes every turn."""


def model_folder(folder: Path, *, config: dict[str, Any] | None = None, **tokenizer_config: Any) -> Path:
    """Make a folder with config.json and tokenizer, without weights; values given replace those of the files."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(BUILTIN_TOKENIZER / name, folder / name)
    shutil.copy(BUILTIN / "tiny-gpt2" / "config.json", folder / "config.json")
    change_json(folder / "config.json", **(config or {}))
    change_json(folder / "tokenizer_config.json", **tokenizer_config)
    return folder


def case_folding_folder(folder: Path) -> Path:
    """Make a folder whose tokenizer writes small letters in NFKC, and has a token that takes the space before it."""
    path = model_folder(folder) / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    document["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "NFKC"}, {"type": "Lowercase"}]}
    [token] = [token for token in document["added_tokens"] if token["id"] == TURN_END_ID]
    token |= {"content": "<unit>", "lstrip": True, "special": False, "normalized": False}
    path.write_text(json.dumps(document), encoding="utf-8")
    return folder


def chat_model_folder(folder: Path, template: str, *, turn_end: str | None = None) -> Path:
    """Make a folder whose tokenizer begins every text with `<bos>`, as Gemma's does, and has a chat template.

    Args:
        folder: made here.
        template: in jinja2.
        turn_end: text of a special token that is not the end token.
    """
    model_folder(folder, bos_token="<bos>", chat_template=template)
    path = folder / "tokenizer.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    [token] = [token for token in document["added_tokens"] if token["id"] == BOS_ID]
    token |= {"content": "<bos>", "special": True}
    if turn_end is not None:
        [token] = [token for token in document["added_tokens"] if token["id"] == TURN_END_ID]
        token |= {"content": turn_end, "special": True}
    begin = {"SpecialToken": {"id": "<bos>", "type_id": 0}}
    first, second = {"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}
    document["post_processor"] = {
        "type": "TemplateProcessing",
        "single": [begin, first],
        "pair": [begin, first, second],
        "special_tokens": {"<bos>": {"id": "<bos>", "ids": [BOS_ID], "tokens": ["<bos>"]}},
    }
    path.write_text(json.dumps(document), encoding="utf-8")
    return folder


def change_json(path: Path, **values: Any) -> None:
    """Replace values of a JSON object; None takes the key out."""
    document = json.loads(path.read_text(encoding="utf-8")) | values
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}), encoding="utf-8")


def row_file(path: Path, *rows: dict[str, Any]) -> str:
    """Write rows as JSONL and return the path."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def chat(*turns: tuple[str, str]) -> dict[str, Any]:
    """Return a row of messages."""
    return {"messages": [{"role": role, "content": content} for role, content in turns]}


def llama_folder(folder: Path, *, layers: int, embed: int = 512, mlp: int = 2048, vocab: int = 2048) -> str:
    """Make a folder with nothing but the `config.json` of a small Llama, enough to compile for, and return its path."""
    config = {
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": embed,
        "intermediate_size": mlp,
        "num_hidden_layers": layers,
        "num_attention_heads": 8,
        "num_key_value_heads": 8,
        "max_position_embeddings": 2048,
        "rms_norm_eps": 1e-6,
        "hidden_act": "silu",
        "tie_word_embeddings": True,
    }
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return str(folder)
