"""Train a model and record what happened.

Read in this order: `run.py` (the story), `config/tree.py` (what decides a run), `inputs.py` (what it works with),
`methods/method.py` (which parameters learn), `objectives/objective.py` (toward what), `model/decoder.py`,
`loop/step.py` (one optimizer step), `loop/programs.py`, `loop/train.py`, `evaluation/evaluate.py`,
`planning/estimate/` (what fits), `recorder/recorder.py` (what is written down).
"""

import os

# XLA prints warnings about slow compilations and cached CPU features. Its errors arrive as exceptions.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
