"""Train a model and record what happened.

Read `run.py` first, then `config/tree.py`, `inputs.py`, `model/model.py`, `objectives/objective.py`, `loop/loop.py`,
`loop/step.py`, `loop/programs.py`, `evaluation/evaluate.py`, `planning/plan.py` and `recorder/recorder.py`.
"""

import os

# XLA warns about slow compilations and cached CPU features. Its errors arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
