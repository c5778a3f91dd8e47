"""The generator of `dev-reasoning-v2` and its evaluation sets.

`python -m trainer.data.dev_reasoning` rewrites the files.

Reading order: `problem.py` (what a problem is), `columns.py` (how a calculation is written out), `arithmetic.py`,
`measures.py` and `stories.py` (the kinds), `catalog.py` (their shares, and how they are drawn), `sets.py`.
"""

from trainer.data.dev_reasoning.sets import eval_prompts, fresh_items, generate_rows

__all__ = ["eval_prompts", "fresh_items", "generate_rows"]
