"""The work: training a model and recording what happened.

Read in this order: `run.py` (the story), `config/tree.py` (what decides a run), `data/encode.py` (what the model sees),
`model/decoder.py`, `objectives/cross_entropy.py`, `loop/step.py` (one optimizer step), `loop/train.py`,
`evaluation/evaluate.py`, `planning/estimate.py` (what fits), `recorder/recorder.py` (what is written down).
"""
