"""The names of files in a Hugging Face model folder."""

CONFIG = "config.json"
"""What the model is."""

GENERATION_CONFIG = "generation_config.json"
"""How other tools decode with it; ours does not read it, an export carries it along."""

WEIGHTS = "model.safetensors"
"""All tensors, where they are in one file."""

WEIGHTS_INDEX = "model.safetensors.index.json"
"""Which file holds which tensor, where they are in several."""

WEIGHTS_SHARD = "model-{number:05d}-of-{count:05d}.safetensors"
"""One of several files."""

TOKENIZER = (
    "tokenizer*.json",
    "tokenizer.model",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "additional_chat_templates/*.jinja",
)
"""Patterns of the tokenizer's files."""

VOCABULARY = ("tokenizer.json", "tokenizer.model", "vocab.json")
"""The files of which a tokenizer must have at least one: the tokens themselves."""

MERGES = "merges.txt"
"""Which tokens are made of which, beside vocab.json."""
