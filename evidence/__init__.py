"""The truth about a run folder: written durably, read without trust, checked against itself, graded.

Read `run/layout.py` (the files), `run/write.py` (how a run writes them), `records/ours.py` (a `Run`) and
`records/facts.py` (what it states), `rules/catalog.py` (what must agree), `judge/judgement.py` (findings and grade),
`index/check.py` (many runs), `bundle/build.py` and `bundle/verify.py` (what is handed in).
"""
