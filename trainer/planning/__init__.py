"""Plan a run before it starts: memory, time, and what to change.

`plan.py` makes plan.json from `memory.py` (compiled, or `formula.py`), `duration.py` and `changes.py`.
`compile/` runs the compilers of devices that are not here. `out_of_memory.py` explains pasted errors.
"""
