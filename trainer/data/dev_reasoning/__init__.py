"""The generator of `dev-reasoning-v2` and its evaluation sets.

`python -m trainer.data.dev_reasoning` rewrites the files.

Reading order: `problem.py` (what a problem is), `addition.py` (one kind), `columns.py` (how a calculation is written
out), `catalog.py` (all kinds), `sampling.py`, `rows.py`, `evaluation.py`, `files.py`.
"""

from trainer.data.dev_reasoning.evaluation import eval_prompts
from trainer.data.dev_reasoning.fresh import fresh_items
from trainer.data.dev_reasoning.rows import generate_rows

__all__ = ["eval_prompts", "fresh_items", "generate_rows"]
