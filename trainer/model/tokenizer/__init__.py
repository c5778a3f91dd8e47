"""The tokenizer of the built-in models: its files, and their training. `python -m trainer.model.tokenizer` rewrites them.

Byte-level BPE: every Unicode text comes back exactly. A digit is always one token, so that columns of digits line up.
"""

from pathlib import Path

FOLDER = Path(__file__).parent
"""Where `transformers` loads it from."""
