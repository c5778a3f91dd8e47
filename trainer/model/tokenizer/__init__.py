"""The tokenizer of the built-in models; `tests/support/train_tokenizer.py` trains it.

Byte-level BPE: every Unicode text comes back exactly. A digit is always one token, so that columns of digits line up.
"""

from pathlib import Path

FOLDER = Path(__file__).parent  # where `transformers` loads it from
