"""The work: training a model and recording what happened.

Read in this order: `run.py` (the story), `config/tree.py` (what decides a run), `inputs.py` (what it works with),
`methods/method.py` (which parameters learn), `objectives/objective.py` (toward what), `model/decoder.py`,
`loop/step.py` (one optimizer step), `loop/programs.py`, `loop/train.py`, `evaluation/evaluate.py`,
`planning/estimate/` (what fits), `recorder/recorder.py` (what is written down).
"""
