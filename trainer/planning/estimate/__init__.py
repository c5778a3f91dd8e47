"""Peak memory of a run on each of its devices, in closed form: no compiler is asked.

A run is several programs, one after the other (`programs.py`); the one that needs most decides. Each is a sum of what
has to exist at one moment: the state that is always there (`state.py`), a layer's inside (`layers.py`), logits, the
cache of an answer. What compilers do with these was read from their buffer assignments; `docs/decisions/
memory-estimate.md` says what, and benchmarks/memory_estimate.py holds the sums against the compilers.
"""
