"""The truth about a run folder: written durably, read without trust, checked against itself, graded.

Reading order: `layout` (the files), `write` and `lock` (how a run writes them), `read` (a `Run`), `facts` and `rules`
(what must agree), `check` (all findings), `grade` (the verdict), `index` (many runs).
"""
